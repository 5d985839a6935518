//! Programs that a test makes and runs at once.
//!
//! The system runs no file that anybody has open for writing, and a process that another test
//! starts meanwhile has all open files of this one for a moment. So `cp` writes them, and not we.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a program, over one that may be running just now.
///
/// # Panics
///
/// When it cannot be copied.
pub fn copy(from: &Path, to: &Path) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
    let copied = Command::new("cp").arg("-f").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied", from.display());
    std::fs::set_permissions(to, Permissions::from_mode(0o755)).expect("it is our own");
    to.to_owned()
}

/// Writes a program for the shell.
///
/// # Panics
///
/// When it cannot be written.
pub fn script(path: &Path, text: &str) -> PathBuf {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{text}\n")).expect("a script is written");
    copy(&draft, path)
}
