//! Which bridges are alive on this jobs directory: each holds a lock that ends with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, futimens, openat, unlinkat};
use rustix::io::Errno;
use tracing::{debug, warn};
use uuid::Uuid;

use super::beneath::{create, names_in, open_to_read};
use super::node::{FileNode, NOW};
use super::remove::remove_tree;
use super::root::{INSTANCES, Root};
use super::trash::PATIENCE;
use crate::lock::Lock;

/// Without a heartbeat for this long, nobody uses a thing: the heart beats ten times as often.
pub(super) const QUIET: Duration = Duration::from_secs(300);

/// What is in the lock of a bridge that is about to end.
const LEAVING: &[u8] = b"leaving";

/// A lock is called after its bridge.
const ENDING: &str = ".lock";

/// Our own lock, held until the end of the process, however it ends.
#[derive(Debug)]
pub(super) struct Instance {
    id: Uuid,
    /// Whether the file system can lock; where it cannot, every lock counts as held.
    can_lock: bool,
    lock: Lock<LockFile>,
}

/// The file, and the folder it is in.
#[derive(Debug)]
struct LockFile {
    folder: OwnedFd,
    file: File,
}

impl Instance {
    pub(super) fn announce(root: &Root) -> io::Result<Self> {
        let folder = root.folder(INSTANCES)?;
        // Who looks for stale locks may take ours between its making and its locking.
        for _ in 0..100 {
            let id = Uuid::new_v4();
            let Some((file, can_lock)) = make(&folder, id)? else { continue };
            return Ok(Self { id, can_lock, lock: Lock::new(LockFile { folder, file }) });
        }
        Err(io::Error::other("somebody else takes every lock"))
    }

    /// Makes the lock again under the same id, if it is not where others look for it.
    pub(super) fn restore(&self, root: &Root) -> io::Result<()> {
        let mut lock = self.lock.lock();
        let folder = root.folder(INSTANCES)?;
        for _ in 0..100 {
            if is_at(&lock.file, &folder, self.id) {
                return Ok(());
            }
            if let Some((file, _)) = make(&folder, self.id)? {
                *lock = LockFile { folder, file };
                return Ok(());
            }
        }
        Err(io::Error::other("somebody else takes the lock of this bridge"))
    }

    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Tells the others that this bridge is about to end.
    pub(super) fn leave(&self) {
        if let Err(error) = (&self.lock.lock().file).write_all(LEAVING) {
            debug!(%error, "the other bridges do not know that this one leaves");
        }
    }

    /// The heartbeat of the bridge itself.
    ///
    /// # Errors
    ///
    /// When the file system does not take it.
    pub(super) fn touch(&self) -> io::Result<()> {
        Ok(futimens(&self.lock.lock().file, &NOW)?)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _gone = unlinkat(&self.lock.lock().folder, name_of(self.id), AtFlags::empty());
    }
}

fn name_of(id: Uuid) -> String {
    format!("{id}{ENDING}")
}

/// Makes and takes a lock, and says whether that could be locked; `None` if another bridge came between.
fn make(folder: &OwnedFd, id: Uuid) -> io::Result<Option<(File, bool)>> {
    let file = match create(folder, &name_of(id)) {
        // A child with our user may put anything there; another bridge has another name.
        Err(Errno::EXIST) => {
            remove_tree(folder, &name_of(id), Instant::now() + PATIENCE)?;
            return Ok(None);
        }
        created => File::from(created?),
    };
    let can_lock = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => {
            warn!(%error, "the jobs directory has no locks; other bridges are assumed");
            false
        }
    };
    Ok(is_at(&file, folder, id).then_some((file, can_lock)))
}

/// Whether the lock with this id is this file.
fn is_at(file: &File, folder: &OwnedFd, id: Uuid) -> bool {
    let there = FileNode::at(folder, name_of(id));
    there.is_ok_and(|there| FileNode::of(file).is_ok_and(|ours| ours.is_same(&there)))
}

/// Whether the bridge with this id is about to end, but has not yet.
pub(super) fn is_leaving(root: &Root, id: &str) -> bool {
    let look = || {
        let folder = root.folder(INSTANCES)?;
        let lock = open_to_read(&folder, format!("{id}{ENDING}").as_bytes())?;
        // One that has ended holds no lock any more.
        if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
            return Ok(false);
        }
        let mut said = Vec::new();
        File::from(lock).take(LEAVING.len() as u64).read_to_end(&mut said)?;
        io::Result::Ok(said == LEAVING)
    };
    look().unwrap_or(false)
}

/// A bridge that is alive, besides us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) id: String,
    pub(super) heartbeat: SystemTime,
}

/// The other bridges that are alive, as far as can be told. The locks of dead ones are removed.
pub(super) fn others(root: &Root, ours: Option<&Instance>) -> io::Result<Vec<Other>> {
    let folder = root.folder(INSTANCES)?;
    let can_lock = ours.is_none_or(|ours| ours.can_lock);
    let mut others = Vec::new();
    for name in names_in(&folder)? {
        let Some(id) = name.strip_suffix(ENDING) else { continue };
        if ours.is_some_and(|ours| ours.id.to_string() == id) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(lock) = openat(&folder, &name, flags, Mode::empty()) else { continue };
        let node = FileNode::of(&lock)?;
        if can_lock && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Its owner is gone, and nobody else can take it while we hold it.
            let _gone = unlinkat(&folder, &name, AtFlags::empty());
        } else {
            others.push(Other { id: id.to_owned(), heartbeat: node.modified.max(node.changed) });
        }
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_bridge_is_alive_while_it_holds_its_lock() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let check = |ours: Option<&Instance>, expected: usize| {
            assert_eq!(others(&root, ours).unwrap().len(), expected);
        };
        check(None, 0);
        let one = Instance::announce(&root).unwrap();
        check(Some(&one), 0);
        check(None, 1);
        let two = Instance::announce(&root).unwrap();
        check(Some(&one), 1);
        check(Some(&two), 1);
        drop(two);
        check(Some(&one), 0);
    }

    #[test]
    fn the_lock_of_a_dead_bridge_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let stale = place.path().join("jobs/.instances").join(format!("{}.lock", Uuid::new_v4()));
        fs::write(&stale, "").unwrap();
        assert_eq!(others(&root, None).unwrap(), []);
        assert!(!stale.exists());
    }
}
