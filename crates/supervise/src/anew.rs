//! This program begun again in its own place.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;

/// Runs this program again in place of itself, with these words and one variable more, so that what was typed before is
/// no longer seen. Comes back only where that is not possible, with the reason.
pub fn run_anew(args: &[OsString], variable: (&str, &str)) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    #[expect(clippy::disallowed_methods, reason = "it takes the place of this process")]
    let mut command = std::process::Command::new(program);
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.args(args).env(variable.0, variable.1).exec()
}
