//! Where children keep their temporary files: a folder for each, with a path so short that a program
//! can make a socket in it, and gone with its child.
//!
//! ```text
//! {jobs}/.t/{bridge}/{number}       where the path of the jobs directory is short
//! /tmp/pontoon-{bridge}/{number}    elsewhere
//! ```
//!
//! The folder of a bridge has a lock that ends with the bridge. One whose lock is free was left by a
//! bridge that was killed, and goes with the next sweep of any bridge of the same user.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::fs::{fchmod, fchown, flock, fstat, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::{debug, warn};
use uuid::Uuid;

use super::beneath::{create, names_in, open_folder};
use super::node::FileNode;
use super::remove::remove_tree;
use super::root::{Root, SCRATCH};
use super::trash::PATIENCE;

/// The longest path that a socket can have.
const SOCKET_PATH: usize = 107;

/// What programs add to it: `/.org.chromium.Chromium.XXXXXX/SingletonSocket` has 46.
const ADDED: usize = 60;

/// The digits of a child's number, for as long as anyone runs a bridge.
const DIGITS: usize = 8;

/// What the folder of a bridge is called where others have theirs beside it.
const PREFIX: &str = "pontoon-";

/// How long the name of a bridge is.
const NAME: usize = 6;

/// The lock in a bridge's folder.
const LOCK: &str = "lock";

/// A folder without a lock is being made, or its bridge was killed just then.
const MAKING: Duration = Duration::from_secs(60);

/// The temporary files of one child. Dropping it removes them, which may take its time.
#[derive(Debug)]
pub struct Scratch {
    all: Arc<Scratches>,
    name: String,
    path: PathBuf,
}

/// The folder of this bridge.
#[derive(Debug)]
pub(super) struct Scratches {
    root: Arc<Root>,
    parent: Parent,
    name: String,
    path: PathBuf,
    base: Mutex<Base>,
    next: AtomicU64,
}

/// The folder of a bridge, open and locked.
#[derive(Debug)]
struct Base {
    folder: OwnedFd,
    _lock: File,
}

/// Where the folders of bridges are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Parent {
    /// In the jobs directory.
    Jobs,
    /// Where everybody's temporary files are.
    Shared(PathBuf),
}

impl Scratch {
    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it to the user that its child runs as.
    ///
    /// # Errors
    ///
    /// When we may not: only the superuser can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let folder = open_folder(&self.all.base().folder, self.name.as_bytes())?;
        Ok(fchown(folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
    }
}

impl Scratch {
    /// Removes it if nothing is in it, which takes no time.
    pub fn remove_if_empty(&self) -> bool {
        let removed = unlinkat(&self.all.base().folder, &self.name, AtFlags::REMOVEDIR);
        matches!(removed, Ok(()) | Err(Errno::NOENT))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.remove_if_empty() {
            return;
        }
        let folder = self.all.base().folder.try_clone();
        let removed = folder.and_then(|it| remove_tree(it, &self.name, Instant::now() + PATIENCE));
        if let Err(error) = removed {
            let folder = self.path.display();
            warn!(%folder, %error, "temporary files are not removed before this bridge ends");
        }
    }
}

impl Scratches {
    /// Makes the folder of this bridge, in the first place where sockets can be made.
    pub(super) fn make(root: &Arc<Root>) -> io::Result<Arc<Self>> {
        for parent in parents() {
            match Self::make_in(root, parent.clone()) {
                Ok(made) if made.takes_sockets() => return Ok(Arc::new(made)),
                Ok(made) => debug!(folder = %made.path.display(), "no place for sockets"),
                Err(error) => debug!(?parent, %error, "no place for temporary files"),
            }
        }
        let made = Self::make_in(root, Parent::Jobs)?;
        let folder = made.path.display();
        warn!(
            %folder,
            "temporary files of servers have no place with a short path, so that programs that make \
             sockets there (browsers do) will fail: give TMPDIR a short path, or MCPO_JOBS_DIR"
        );
        Ok(Arc::new(made))
    }

    fn make_in(root: &Arc<Root>, parent: Parent) -> io::Result<Self> {
        let folder = parent.open(root)?;
        loop {
            let id = Uuid::new_v4().simple().to_string();
            let name = format!("{}{}", parent.prefix(), &id[..NAME]);
            let Some(base) = make_base(root, &folder, &name)? else { continue };
            let path = parent.path(root).join(&name);
            let (base, next) = (Mutex::new(base), AtomicU64::new(1));
            return Ok(Self { root: Arc::clone(root), parent, name, path, base, next });
        }
    }

    /// Whether a child can make a socket in a folder here, whatever its program calls it.
    fn takes_sockets(&self) -> bool {
        let socket = self.path.join("s");
        let is_short = self.path.as_os_str().len() + 1 + DIGITS + ADDED <= SOCKET_PATH;
        let is_made = is_short && UnixListener::bind(&socket).is_ok();
        drop(std::fs::remove_file(socket));
        is_made
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new folder for a child.
    pub(super) fn add(self: &Arc<Self>) -> io::Result<Scratch> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let make = |base: &Base| mkdirat(&base.folder, &name, Mode::RWXU);
        // In its own statement: the folder is not held while it is restored.
        let made = make(&self.base());
        match made {
            // Somebody tidied up, or a child shut it.
            Err(Errno::NOENT | Errno::ACCESS) => {
                self.restore()?;
                make(&self.base())?;
            }
            made => made?,
        }
        let path = self.path.join(&name);
        Ok(Scratch { all: Arc::clone(self), name, path })
    }

    /// Makes the folder of this bridge again, if it is not in its place, and opens it if it is shut.
    pub(super) fn restore(&self) -> io::Result<()> {
        let parent = self.parent.open(&self.root)?;
        let mut base = self.base();
        let node = FileNode::of(&base.folder)?;
        if FileNode::at(&parent, self.name.as_str()).is_ok_and(|there| there.is_same(&node)) {
            if node.mode & 0o700 != 0o700 {
                fchmod(&base.folder, self.root.passage())?;
            }
            return Ok(());
        }
        *base = match make_base(&self.root, &parent, &self.name)? {
            Some(base) => base,
            // Ours from before, in a directory that is back. Its files belong to children that lost it.
            None => {
                remove_tree(&parent, &self.name, Instant::now() + PATIENCE)?;
                make_base(&self.root, &parent, &self.name)?.ok_or(Errno::EXIST)?
            }
        };
        Ok(())
    }

    /// Lets children of other users pass to theirs from now on.
    pub(super) fn admit_other_users(&self) -> io::Result<()> {
        Ok(fchmod(&self.base().folder, self.root.passage())?)
    }

    fn base(&self) -> MutexGuard<'_, Base> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scratches {
    fn drop(&mut self) {
        let parent = self.parent.open(&self.root);
        let until = Instant::now() + PATIENCE;
        if let Err(error) = parent.and_then(|parent| remove_tree(parent, &self.name, until)) {
            debug!(folder = %self.path.display(), %error, "not removed");
        }
    }
}

/// Makes and locks the folder of a bridge; `None` if its name is taken, or a bridge that sweeps came between the making
/// and the locking.
fn make_base(root: &Root, parent: &OwnedFd, name: &str) -> io::Result<Option<Base>> {
    match make_and_lock(root, parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_parent_there = fstat(parent).is_ok_and(|it| it.st_nlink > 0);
            if is_parent_there { Ok(None) } else { Err(error) }
        }
        made => made,
    }
}

fn make_and_lock(root: &Root, parent: &OwnedFd, name: &str) -> io::Result<Option<Base>> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let folder = open_folder(parent, name.as_bytes())?;
    // Our own mask may have taken these away.
    fchmod(&folder, root.passage())?;
    let lock = File::from(create(&folder, LOCK)?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => debug!(%error, "the folder for temporary files has no lock"),
        Ok(()) => {}
    }
    // Those who tidy up the temporary files of a system leave a locked folder alone.
    if let Err(Errno::WOULDBLOCK) = flock(&folder, FlockOperation::NonBlockingLockShared) {
        return Ok(None);
    }
    let there = FileNode::at(parent, name);
    let is_there = there.is_ok_and(|it| FileNode::of(&folder).is_ok_and(|ours| ours.is_same(&it)));
    Ok(is_there.then_some(Base { folder, _lock: lock }))
}

/// Where folders of bridges may be, the best first: the disk of the jobs is watched.
fn parents() -> Vec<Parent> {
    let mut parents = vec![Parent::Jobs];
    for folder in [std::env::temp_dir(), PathBuf::from("/tmp")] {
        let parent = folder.canonicalize().map(Parent::Shared);
        parents.extend(parent.ok().filter(|parent| !parents.contains(parent)));
    }
    parents
}

impl Parent {
    fn prefix(&self) -> &'static str {
        match self {
            Self::Jobs => "",
            Self::Shared(_) => PREFIX,
        }
    }

    fn path(&self, root: &Root) -> PathBuf {
        match self {
            Self::Jobs => root.path().join(SCRATCH),
            Self::Shared(path) => path.clone(),
        }
    }

    /// The folder, where no other user can put another in the place of ours.
    fn open(&self, root: &Root) -> io::Result<OwnedFd> {
        let Self::Shared(path) = self else { return root.folder(SCRATCH) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty())?;
        let FileNode { owner, mode, .. } = FileNode::of(&folder)?;
        let is_safe = mode & 0o022 == 0 || mode & 0o1000 != 0;
        if !is_safe || ![0, geteuid().as_raw()].contains(&owner) {
            return Err(io::Error::other("other users may replace what is in it"));
        }
        if root.passage() != Mode::RWXU && mode & 0o001 == 0 {
            return Err(io::Error::other("other users may not pass"));
        }
        Ok(folder)
    }

    /// The same, for who only looks: what is not there is not made.
    fn existing(&self, root: &Root) -> io::Result<OwnedFd> {
        match self {
            Self::Jobs => open_folder(root.fd(), SCRATCH.as_bytes()),
            Self::Shared(_) => self.open(root),
        }
    }

    fn is_base(&self, name: &str) -> bool {
        let id = name.strip_prefix(self.prefix()).unwrap_or_default();
        id.len() == NAME && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }
}

/// Removes what bridges left that were killed. Gives what could not be removed, and why.
pub(super) fn sweep(root: &Root, now: SystemTime) -> Vec<(PathBuf, io::Error)> {
    let mut failed = Vec::new();
    parents().iter().for_each(|parent| sweep_in(parent, root, now, &mut failed));
    failed
}

fn sweep_in(parent: &Parent, root: &Root, now: SystemTime, failed: &mut Vec<(PathBuf, io::Error)>) {
    let Ok(folder) = parent.existing(root) else { return };
    let names = names_in(&folder).unwrap_or_default();
    for name in names.iter().filter(|name| parent.is_base(name)) {
        // Held until it is gone: a bridge that is just making it takes another name.
        let Some(_left) = left(&folder, name, now) else { continue };
        let path = parent.path(root).join(name);
        warn!(folder = %path.display(), "a bridge that was killed left temporary files");
        if let Err(error) = remove_tree(&folder, name, Instant::now() + PATIENCE) {
            failed.push((path, error));
        }
    }
}

/// The lock of a folder that was made by a bridge of ours that is gone.
fn left(parent: &OwnedFd, name: &str, now: SystemTime) -> Option<OwnedFd> {
    let folder = open_folder(parent, name.as_bytes()).ok()?;
    let node = FileNode::of(&folder).ok().filter(|node| node.owner == geteuid().as_raw())?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&folder, LOCK, flags, Mode::empty()) {
        // Where nothing can be locked, every bridge counts as alive.
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(lock),
        // One of a living bridge may have lost its lock file to a cleaner; the folder itself is locked, too.
        Err(Errno::NOENT) => {
            let is_old = now.duration_since(node.changed).is_ok_and(|age| age > MAKING);
            let is_free =
                is_old && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
            is_free.then_some(folder)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::jobs::{Store, StoreOptions};

    /// A jobs directory with a path of so many bytes.
    fn jobs(place: &tempfile::TempDir, length: usize) -> PathBuf {
        let mut path = place.path().to_owned();
        while path.as_os_str().len() + 101 < length {
            path.push("d".repeat(100));
        }
        let rest = length.saturating_sub(path.as_os_str().len() + 1);
        path.join("j".repeat(rest.max(1)))
    }

    fn place() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("p").tempdir_in("/tmp").unwrap()
    }

    fn store(jobs: &Path) -> Store {
        Store::open(jobs, StoreOptions::default()).unwrap()
    }

    #[test]
    fn to_look_for_what_was_left_makes_nothing_in_a_directory_that_is_just_removed() {
        let place = place();
        let root = Root::make(&jobs(&place, 0), false).unwrap();
        fs::remove_dir_all(root.path().join(SCRATCH)).unwrap();
        assert!(sweep(&root, SystemTime::now()).is_empty());
        assert!(!root.path().join(SCRATCH).exists());
    }

    #[test]
    fn a_socket_fits_however_long_the_path_of_the_jobs_is() {
        for length in [0, 28, 29, 48, 107, 400] {
            let place = place();
            let store = store(&jobs(&place, length));
            let scratch = store.new_scratch().unwrap();
            assert_eq!(fs::metadata(scratch.path()).unwrap().mode() & 0o777, 0o700);
            let folder = scratch.path().join(".org.chromium.Chromium.XXXXXX");
            fs::create_dir(&folder).unwrap();
            UnixListener::bind(folder.join("SingletonSocket")).unwrap();
            assert!(scratch.path().as_os_str().len() + ADDED <= SOCKET_PATH);
            let is_inside = scratch.path().starts_with(store.0.root.path());
            assert_eq!(is_inside, length <= 28, "{length}: the disk of the jobs is watched");
        }
    }

    #[test]
    fn all_of_it_goes_with_its_child_and_the_rest_with_the_bridge() {
        let place = place();
        for length in [0, 200] {
            let store = store(&jobs(&place, length));
            let (one, two) = (store.new_scratch().unwrap(), store.new_scratch().unwrap());
            let (path, base) = (one.path().to_owned(), two.path().parent().unwrap().to_owned());
            assert_ne!(one.path(), two.path());
            fs::create_dir_all(path.join("a/b")).unwrap();
            fs::write(path.join("a/b/c"), "").unwrap();
            drop(one);
            assert!(!path.exists() && two.path().is_dir());
            drop((store, two));
            assert!(!base.exists());
        }
    }

    #[test]
    fn what_a_killed_bridge_left_is_swept_and_what_another_uses_is_not() {
        let place = place();
        for length in [0, 200] {
            let jobs = jobs(&place, length);
            let (ours, theirs) = (store(&jobs), store(&jobs));
            let (used, base) = (theirs.new_scratch().unwrap(), ours.0.scratches.clone().unwrap());
            let left = base.path().with_file_name(format!("{}0000aa", base.parent.prefix()));
            let leave = || {
                fs::create_dir_all(left.join("1/a")).unwrap();
                fs::write(left.join("1/a/b"), "").unwrap();
            };
            leave();
            sweep(&ours.0.root, SystemTime::now());
            assert!(left.exists(), "it may just be in the making");
            // Another test may be about to remove it at the same time, where everybody's temporary files are.
            let is_gone = |sweep: &dyn Fn()| {
                (0..1000).any(|_| {
                    sweep();
                    std::thread::yield_now();
                    !left.exists()
                })
            };
            assert!(is_gone(&|| drop(sweep(&ours.0.root, SystemTime::now() + 2 * MAKING))));
            leave();
            fs::write(left.join(LOCK), "").unwrap();
            let visitor = Store::visit(&jobs, StoreOptions::default()).unwrap();
            assert!(is_gone(&|| drop(visitor.sweep(SystemTime::now()))));
            assert!(used.path().is_dir() && base.path().is_dir());
        }
    }

    #[test]
    fn no_folder_is_lost_while_another_bridge_sweeps() {
        let place = place();
        let jobs = jobs(&place, 0);
        let sweeps = store(&jobs);
        std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                for _ in 0..200 {
                    let scratch = Scratches::make(&sweeps.0.root).unwrap().add().unwrap();
                    std::thread::yield_now();
                    assert!(scratch.path().is_dir());
                }
            });
            while !making.is_finished() {
                let late = SystemTime::now() + 2 * MAKING;
                sweep_in(&Parent::Jobs, &sweeps.0.root, late, &mut Vec::new());
            }
        });
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let (place, elsewhere) = (place(), place());
        let store = store(&jobs(&place, 0));
        fs::write(elsewhere.path().join(LOCK), "").unwrap();
        let base = store.0.scratches.clone().unwrap();
        let link = base.path().with_file_name("0000aa");
        symlink(elsewhere.path(), &link).unwrap();
        let named = base.path().with_file_name("notes");
        fs::create_dir(&named).unwrap();
        let mut failed = sweep(&store.0.root, SystemTime::now() + 2 * MAKING);
        // Another test may leave and remove things at the same time, where everybody's temporary files are.
        failed.retain(|(path, _)| path.starts_with(place.path()));
        assert!(failed.is_empty(), "{failed:?}");
        assert!(link.is_symlink() && named.is_dir() && elsewhere.path().join(LOCK).exists());
        // A folder where everybody may rename everything is no place for ours.
        let open = Parent::Shared(elsewhere.path().to_owned());
        assert!(open.open(&store.0.root).is_ok());
        fs::set_permissions(elsewhere.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        assert!(open.open(&store.0.root).is_err());
    }

    #[test]
    fn it_is_made_again_when_somebody_tidied_it_away() {
        let place = place();
        let store = store(&jobs(&place, 0));
        let before = store.new_scratch().unwrap();
        let base = before.path().parent().unwrap().to_owned();
        fs::remove_dir_all(&base).unwrap();
        let after = store.new_scratch().unwrap();
        assert!(after.path().is_dir() && after.path().starts_with(&base));
        drop(before);
        sweep(&store.0.root, SystemTime::now() + 2 * MAKING);
        assert!(after.path().is_dir(), "it is locked again");
    }
}
