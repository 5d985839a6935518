//! A folder for one command among the temporary files, which goes with it.
//!
//! A command that is killed cannot remove its own. It holds a lock on it, which ends with its process however that ends:
//! the next command removes the folders of this name, and of its user, that no process holds.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::jobs::Store;
use crate::private_folder::{identity, is_at};

/// How the names of such folders begin.
const PREFIX: &str = "pontoon-scratch-";

/// So many names are looked at, and so many folders are removed at most.
const MAX_NAMES: usize = 1 << 16;
const MAX_REMOVED: usize = 64;

/// A folder that is removed when this is dropped, with all that is in it.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
    /// Held as long as it is used.
    _lock: File,
}

impl ScratchFolder {
    /// A new one.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Removes in a thread what commands left that were killed, their servers' temporary files included. It may be
    /// large, and nothing waits for its end.
    pub fn sweep_others(store: &Store) {
        let sweep_scratches = store.scratch_sweeper();
        let sweeping = move || {
            sweep(&std::env::temp_dir());
            sweep_scratches();
        };
        if let Err(error) = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweeping) {
            tracing::debug!(%error, "what was left is not removed");
        }
    }

    fn new_in(all: &Path) -> io::Result<Self> {
        loop {
            let path = all.join(format!("{PREFIX}{}", uuid::Uuid::new_v4()));
            DirBuilder::new().mode(0o700).create(&path)?;
            // One that sweeps may have come between the two.
            match lock(&path) {
                Ok(Some(lock)) => return Ok(Self { path, _lock: lock }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(folder = %self.path.display(), %error, "not removed");
        }
    }
}

/// The folder, locked; `None` if another process has it, or has removed it. A file system without locks gives it, too:
/// nothing is ever swept there.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let folder = open(path)?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        _ => Ok(Some(folder).filter(|it| it.metadata().is_ok_and(|it| is_at(path, identity(&it))))),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Removes the folders that were left.
fn sweep(all: &Path) {
    let Ok(names) = fs::read_dir(all) else { return };
    let ours = names
        .take(MAX_NAMES)
        .flatten()
        .filter(|it| it.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)));
    for left in ours.take(MAX_REMOVED) {
        let path = left.path();
        if let Ok(true) = remove(&path) {
            tracing::debug!(folder = %path.display(), "a folder that was left is removed");
        }
    }
}

/// Removes a folder that no process holds, of this user.
fn remove(path: &Path) -> io::Result<bool> {
    let folder = open(path)?;
    let status = folder.metadata()?;
    if status.uid() != geteuid().as_raw()
        || flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err()
        || !is_at(path, identity(&status))
    {
        return Ok(false);
    }
    fs::remove_dir_all(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_removed_and_what_is_held_is_not() {
        let place = tempfile::tempdir().unwrap();
        let all = place.path();
        let held = ScratchFolder::new_in(all).unwrap();
        fs::write(held.path().join("file"), "x").unwrap();
        let left = all.join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("deep")).unwrap();
        fs::write(left.join("deep/file"), "x").unwrap();
        let others = ["pontoon-other", "other"].map(|name| all.join(name));
        others.iter().for_each(|other| fs::create_dir(other).unwrap());
        fs::write(all.join(format!("{PREFIX}file")), "x").unwrap();
        std::os::unix::fs::symlink(&others[0], all.join(format!("{PREFIX}link"))).unwrap();
        sweep(all);
        assert!(!left.exists() && held.path().join("file").exists());
        assert!(others.iter().all(|it| it.exists()));
        assert_eq!(fs::read_dir(all).unwrap().count(), 5);
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn no_folder_is_lost_while_another_command_sweeps() {
        let place = tempfile::tempdir().unwrap();
        let all = place.path();
        std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                for _ in 0..300 {
                    let folder = ScratchFolder::new_in(all).unwrap();
                    fs::write(folder.path().join("file"), "x").unwrap();
                    std::thread::yield_now();
                    assert!(folder.path().join("file").exists());
                }
            });
            while !making.is_finished() {
                sweep(all);
            }
        });
    }
}
