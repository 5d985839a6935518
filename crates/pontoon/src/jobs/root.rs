//! The jobs directory itself: made or refused at the start, and held open from then on.
//!
//! Everything else works from the open directory, so that a name swapped later changes nothing until
//! [`Root::renew`] has judged what is there now. Beside the jobs it holds folders of our own, each with
//! a dot in front.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fchmod, mkdir, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::warn;

use super::beneath::{make_folder, open_up};
use super::node::FileNode;
use crate::lock::{Lock, unpoisoned};

/// Why a jobs directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", fault.told(path))]
pub struct StoreError {
    /// Where the directory is, or its folder for temporary files.
    path: PathBuf,
    fault: StoreFault,
    pub(super) source: Option<io::Error>,
}

/// What is wrong with a jobs directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreFault {
    /// It cannot be made.
    Make,
    /// It is there, but cannot be opened.
    Open,
    /// It is a symbolic link: whoever can change the link could send our files elsewhere.
    Link,
    /// There is something else with its name.
    NotADirectory,
    /// It was removed, and what was above it is not there either.
    Gone,
    /// It was a file system of its own, and what is there now is not.
    Unmounted,
    /// It cannot be written any more.
    ReadOnly,
    /// Another user owns it, and could read and replace everything in it.
    NotOurs { owner: u32, us: u32 },
    /// Everybody may put things into it.
    Writable { mode: u32 },
    /// Temporary files of children cannot be kept.
    Temporary,
    /// This folder of ours in it cannot be used.
    Folder(&'static str),
}

impl StoreError {
    pub(super) fn new(
        path: &Path,
        fault: StoreFault,
        source: impl Into<Option<io::Error>>,
    ) -> Self {
        Self { path: path.to_owned(), fault, source: source.into() }
    }
}

impl StoreFault {
    fn told(self, path: &Path) -> String {
        let path = path.display();
        let jobs = format!("the jobs directory {path}");
        match self {
            Self::Make => format!("{jobs} cannot be made"),
            Self::Open => format!("{jobs} cannot be opened"),
            Self::Link => {
                format!("{jobs} is a symbolic link; name the directory it points to instead")
            }
            Self::NotADirectory => format!(
                "{jobs} is not a directory; move what is there away, or name another directory"
            ),
            Self::Gone => format!(
                "{jobs} is gone with the one above it; mount its file system again, or run \
                 `mkdir -p {path}` if it belongs there"
            ),
            Self::Unmounted => format!(
                "the file system of {jobs} is not mounted any more; mount it again, or restart the \
                 bridge if the directory below it is to be used"
            ),
            Self::ReadOnly => format!("{jobs} cannot be written"),
            Self::NotOurs { owner, us } => format!(
                "{jobs} belongs to user {owner}, but this runs as user {us}; \
                 run `chown {us} {path}` or name another directory"
            ),
            Self::Writable { mode } => format!(
                "{jobs} may be written by everybody (mode {mode:o}); \
                 run `chmod o-w {path}` or name another directory"
            ),
            Self::Temporary => {
                format!("the folder {path} for temporary files of servers cannot be used")
            }
            Self::Folder(name) => format!("the folder {name} in {jobs} cannot be used"),
        }
    }
}

/// The name of the child's directory in a job and in a session's workspace.
pub(super) const FILES: &str = "files";

/// A path below which nothing can ever be.
const NOWHERE: &str = "/dev/null";

/// The folders of our own.
pub(super) const SESSIONS: &str = ".sessions";
pub(super) const INSTANCES: &str = ".instances";
pub(super) const TRASH: &str = ".trash";
pub(super) const JOURNAL: &str = ".journal";
/// Temporary files of children. A short name: their paths may not be long.
pub(super) const SCRATCH: &str = ".t";

/// All of them.
const FOLDERS: [&str; 5] = [SESSIONS, INSTANCES, TRASH, JOURNAL, SCRATCH];

/// The jobs directory, open.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    /// The directory that is in use, and the next one after that was replaced.
    fd: RwLock<Arc<OwnedFd>>,
    /// Where it was when it was opened. A directory whose file system failed does not tell any more.
    surroundings: Lock<RootSurroundings>,
    /// Whether children run as other users, who have to pass through to their own files.
    other_users: AtomicBool,
}

/// Where a directory is.
#[derive(Debug)]
struct RootSurroundings {
    /// The directory above it.
    above: Option<FileNode>,
    /// Whether it is another file system than that.
    is_mount_point: bool,
}

impl RootSurroundings {
    fn of(path: &Path, fd: &OwnedFd) -> Self {
        let above = above(path).ok();
        let is_other = |node: FileNode| above.as_ref().is_some_and(|it| it.device != node.device);
        let is_mount_point = FileNode::of(fd).is_ok_and(is_other);
        Self { above, is_mount_point }
    }
}

impl Root {
    /// Opens the directory and makes it first if it is missing.
    pub(super) fn make(path: &Path, other_users: bool) -> Result<Self, StoreError> {
        let make = |source: io::Error| StoreError::new(path, StoreFault::Make, source);
        let absolute = std::path::absolute(path).map_err(make)?;
        if let Some(parent) = absolute.parent() {
            std::fs::create_dir_all(parent).map_err(make)?;
        }
        match mkdir(&absolute, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(make(error.into())),
        }
        let root = Self::open(path, other_users)?;
        close(&root.fd(), root.passage()).map_err(make)?;
        root.look_around();
        root.make_folders()?;
        Ok(root)
    }

    /// No directory at all: everything that is wanted of it fails, and nothing is written anywhere.
    pub(super) fn nowhere() -> Result<Self, StoreError> {
        let path = PathBuf::from(NOWHERE);
        let failed =
            |error: io::Error| StoreError::new(Path::new(NOWHERE), StoreFault::Open, error);
        // An open file that is no directory: whatever is looked for in it is not there, and cannot be made.
        let (end, _) = io::pipe().map_err(failed)?;
        let surroundings = Lock::new(RootSurroundings { above: None, is_mount_point: false });
        let fd = RwLock::new(Arc::new(OwnedFd::from(end)));
        Ok(Self { path, fd, surroundings, other_users: AtomicBool::new(false) })
    }

    /// Opens the directory, which has to be there.
    pub(super) fn open(path: &Path, other_users: bool) -> Result<Self, StoreError> {
        let failed = |source: io::Error| StoreError::new(path, StoreFault::Open, source);
        let path = resolved(path).map_err(failed)?;
        let fd = open_safely(&path)?;
        let surroundings = Lock::new(RootSurroundings::of(&path, &fd));
        let fd = RwLock::new(Arc::new(fd));
        Ok(Self { path, fd, surroundings, other_users: AtomicBool::new(other_users) })
    }

    /// Opens the directory that is at our path now, with the care of a start, and works from that one
    /// from now on. One that was removed is made again, if what is above it is still the same: where a
    /// file system is not mounted any more, ours would fill another.
    pub(super) fn renew(&self) -> Result<(), StoreError> {
        let failed = |fault| move |source: io::Error| self.error(fault, source);
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if FileNode::at(CWD, &self.path).is_err_and(|error| is_missing(&error)) {
            let is_same = |there: FileNode| {
                self.surroundings.lock().above.as_ref().is_some_and(|it| it.is_same(&there))
            };
            if !above(&self.path).is_ok_and(is_same) {
                return Err(self.error(StoreFault::Gone, None));
            }
            match mkdir(&self.path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(StoreFault::Make)(error.into())),
            }
        }
        let fd = open_safely(&self.path)?;
        let surroundings = RootSurroundings::of(&self.path, &fd);
        if self.surroundings.lock().is_mount_point && !surroundings.is_mount_point {
            return Err(self.error(StoreFault::Unmounted, None));
        }
        close(&fd, self.passage()).map_err(failed(StoreFault::ReadOnly))?;
        check_access(&fd).map_err(failed(StoreFault::ReadOnly))?;
        *self.surroundings.lock() = surroundings;
        *unpoisoned(self.fd.write()) = Arc::new(fd);
        Ok(())
    }

    /// Makes the directory and our own folders in it usable again, where a child with our user shut
    /// or removed them. Gives whether the directory itself was shut.
    pub(super) fn restore(&self) -> Result<bool, StoreError> {
        let failed = |fault| move |source: io::Error| self.error(fault, source);
        let fd = self.fd();
        let node = FileNode::of(&fd).map_err(failed(StoreFault::Open))?;
        check_owner(&self.path, &node)?;
        let was_shut = node.mode & 0o700 != 0o700;
        close(&fd, self.passage()).map_err(failed(StoreFault::Open))?;
        check_access(&fd).map_err(failed(StoreFault::ReadOnly))?;
        self.make_folders()?;
        Ok(was_shut)
    }

    fn make_folders(&self) -> Result<(), StoreError> {
        for name in FOLDERS {
            let made = self.folder(name);
            made.map_err(|source| self.error(StoreFault::Folder(name), source))?;
        }
        Ok(())
    }

    pub(super) fn error(
        &self,
        fault: StoreFault,
        source: impl Into<Option<io::Error>>,
    ) -> StoreError {
        StoreError::new(&self.path, fault, source)
    }

    /// Lets other users pass from now on.
    pub(super) fn admit_other_users(&self) -> io::Result<()> {
        self.other_users.store(true, Ordering::Release);
        close(&self.fd(), self.passage())?;
        self.folder(SCRATCH)?;
        self.folder(SESSIONS).map(drop)
    }

    /// Warns when others could put another directory in the place of this one.
    fn look_around(&self) {
        let Some(parent) = self.path.parent() else { return };
        let is_open = |node: &FileNode| node.mode & 0o002 != 0 && node.mode & 0o1000 == 0;
        // Volumes of containers are like this, and there it does no harm.
        if FileNode::at(CWD, parent).is_ok_and(|node| is_open(&node)) {
            let directory = self.path.display();
            warn!(%directory, "anybody may replace the jobs directory: the one above it is open");
        }
    }

    /// Where it is: absolute, and without links but those somebody may put there later.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that is in use now.
    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&*unpoisoned(self.fd.read()))
    }

    /// The mode of a directory that leads to a child's own.
    pub(super) fn passage(&self) -> Mode {
        let others = self.other_users.load(Ordering::Acquire);
        if others { Mode::RWXU | Mode::XGRP | Mode::XOTH } else { Mode::RWXU }
    }

    /// One of our own folders. It is made again if somebody tidied it away.
    pub(super) fn folder(&self, name: &str) -> io::Result<OwnedFd> {
        let is_passed = matches!(name, SESSIONS | SCRATCH);
        let mode = if is_passed { self.passage() } else { Mode::RWXU };
        let folder = match make_folder(self.fd(), name, mode) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up(self.fd(), name.as_bytes())?
            }
            made => made?,
        };
        if FileNode::of(&folder)?.owner != geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        close(&folder, mode)?;
        Ok(folder)
    }

    /// An error when the directory at our path is no longer the one we hold.
    pub(super) fn check_place(&self) -> io::Result<()> {
        let there = FileNode::at(CWD, &self.path)?;
        if there.is_same(&FileNode::of(self.fd())?) {
            return Ok(());
        }
        Err(io::Error::other("the jobs directory was replaced"))
    }
}

/// Opens the directory at `path`, if no other user can put things into it.
fn open_safely(path: &Path) -> Result<OwnedFd, StoreError> {
    let failed = |source: io::Error| StoreError::new(path, StoreFault::Open, source);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP | Errno::NOTDIR) if path.is_symlink() => {
            return Err(StoreError::new(path, StoreFault::Link, None));
        }
        Err(Errno::NOTDIR) => return Err(StoreError::new(path, StoreFault::NotADirectory, None)),
        // Its owner may have shut it, or a child with the same user.
        Err(Errno::ACCESS) => open_up(CWD, path.as_os_str().as_bytes()).map_err(failed)?,
        Err(error) => return Err(failed(error.into())),
    };
    let node = FileNode::of(&fd).map_err(failed)?;
    check_owner(path, &node)?;
    if node.mode & 0o002 != 0 {
        return Err(StoreError::new(path, StoreFault::Writable { mode: node.mode }, None));
    }
    Ok(fd)
}

fn check_owner(path: &Path, node: &FileNode) -> Result<(), StoreError> {
    let us = geteuid().as_raw();
    if node.owner == us {
        return Ok(());
    }
    Err(StoreError::new(path, StoreFault::NotOurs { owner: node.owner, us }, None))
}

/// An error when we may not do everything in this directory.
fn check_access(fd: &OwnedFd) -> io::Result<()> {
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(fd, ".", wanted, AtFlags::empty())?)
}

/// The directory above the one at `path`.
fn above(path: &Path) -> io::Result<FileNode> {
    FileNode::at(CWD, path.parent().unwrap_or(path))
}

/// Lets nobody else look: the names in a folder of ours are what nobody may guess. Nor write, which
/// the group of a container's volume often may.
///
/// Passing through stays allowed where it was: another bridge may have children who need it.
fn close(folder: &OwnedFd, least: Mode) -> io::Result<()> {
    let found = FileNode::of(folder)?.mode;
    let wanted = Mode::from_raw_mode((found & 0o711) as _) | least;
    if Mode::from_raw_mode(found as _) != wanted {
        fchmod(folder, wanted)?;
    }
    Ok(())
}

/// `path` made absolute, with the links before its last part resolved.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(absolute),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// What becomes of a jobs directory that was prepared like this.
    fn check(prepare: impl Fn(&Path), expected: &str) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("jobs");
        prepare(&path);
        let found = match Root::make(&path, false) {
            Ok(root) => format!("{:o}", FileNode::of(root.fd()).unwrap().mode),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{found}");
    }

    fn mode(mode: u32) -> impl Fn(&Path) {
        move |path| {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn a_missing_directory_is_made_for_us_alone() {
        check(|_| {}, "700");
    }

    #[test]
    fn nobody_else_may_look_or_write_into_a_directory_that_was_there() {
        check(mode(0o755), "711");
        check(mode(0o740), "700");
        check(mode(0o770), "710");
    }

    #[test]
    fn a_directory_everybody_may_write_is_refused() {
        for bits in [0o777, 0o1777, 0o702] {
            check(mode(bits), "chmod o-w");
        }
    }

    #[test]
    fn a_link_and_a_file_are_refused() {
        let linked = |path: &Path| {
            fs::create_dir(path.with_file_name("elsewhere")).unwrap();
            symlink("elsewhere", path).unwrap();
        };
        check(linked, "is a symbolic link; name the directory");
        check(|path| symlink("nowhere", path).unwrap(), "is a symbolic link");
        check(|path| fs::write(path, "").unwrap(), "is not a directory");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let ours = geteuid().is_root();
        let given = |path: &Path| {
            mode(0o700)(path);
            if ours {
                chown(path, Some(12345), None).unwrap();
            }
        };
        check(given, if ours { "belongs to user 12345" } else { "700" });
    }

    #[test]
    fn a_directory_that_was_swapped_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("jobs");
        let root = Root::make(&path, false).unwrap();
        root.check_place().unwrap();
        fs::rename(&path, place.path().join("old")).unwrap();
        assert!(root.check_place().is_err());
        symlink("old", &path).unwrap();
        assert!(root.check_place().is_err(), "not even if it leads to the same place");
    }

    #[test]
    fn a_file_system_that_was_there_is_missed_though_the_old_directory_does_not_tell() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("jobs");
        let root = Root::make(&path, false).unwrap();
        // As after a start with a file system of its own, of which the open directory says nothing now.
        root.surroundings.lock().is_mount_point = true;
        fs::rename(&path, place.path().join("old")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(root.renew().unwrap_err().fault, StoreFault::Unmounted);
        root.surroundings.lock().is_mount_point = false;
        root.renew().unwrap();
        let devices = Path::new("/dev");
        assert!(
            RootSurroundings::of(devices, &open(devices, OFlags::RDONLY, Mode::empty()).unwrap())
                .is_mount_point
        );
        assert!(!RootSurroundings::of(&path, &root.fd()).is_mount_point);
    }

    #[test]
    fn children_of_other_users_may_pass_but_not_look() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), true).unwrap();
        assert_eq!(FileNode::of(root.fd()).unwrap().mode, 0o711);
        assert_eq!(FileNode::of(root.folder(SESSIONS).unwrap()).unwrap().mode, 0o711);
        assert_eq!(FileNode::of(root.folder(TRASH).unwrap()).unwrap().mode, 0o700);
        let root = Root::make(&place.path().join("later"), false).unwrap();
        assert_eq!(FileNode::of(root.fd()).unwrap().mode, 0o700);
        root.admit_other_users().unwrap();
        assert_eq!(FileNode::of(root.fd()).unwrap().mode, 0o711);
        assert_eq!(FileNode::of(root.folder(SESSIONS).unwrap()).unwrap().mode, 0o711);
    }
}
