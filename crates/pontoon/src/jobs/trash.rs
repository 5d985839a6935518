//! The way out: what is to be removed is first moved aside, so that nobody finds half of it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, renameat};
use uuid::Uuid;

use super::remove::remove_tree;
use super::root::{Root, TRASH};

/// How long one job may take to be removed; a child that still writes could make it endless.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Moves a job or a session's space aside; gives its name in the trash.
pub(super) fn throw_away(root: &Root, folder: &OwnedFd, name: &str) -> io::Result<String> {
    let aside = Uuid::new_v4().to_string();
    renameat(folder, name, root.folder(TRASH)?, &aside)?;
    Ok(aside)
}

/// Keeps all bridges from emptying the trash, and from deciding what is in it, until this is dropped.
/// Where the file system has no locks, it does not.
pub(super) fn hold(root: &Root) -> io::Result<OwnedFd> {
    let trash = root.folder(TRASH)?;
    let _locked = flock(&trash, FlockOperation::LockExclusive);
    Ok(trash)
}

/// Moves it aside and removes it. What cannot be removed now stays aside for the next sweep.
pub(super) fn remove(root: &Root, folder: &OwnedFd, name: &str) -> io::Result<()> {
    let aside = throw_away(root, folder, name)?;
    remove_tree(root.folder(TRASH)?, &aside, Instant::now() + PATIENCE)
}
