//! Where a session has its socket and its schema file: a directory of its own, for its owner only.
//!
//! The session holds a lock on it as long as it lives. A directory that nothing has locked was left behind, and
//! the next session removes it. A socket that answers says nothing: it may not listen yet. The lock is on the
//! directory itself, so there is nothing to delete by which a live one would look dead, and systemd's
//! cleaner of temporary files leaves it alone.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use uuid::Uuid;

use crate::protocol::{
    SCHEMA_FILE_PREFIX, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX, SOCKET_PERMISSIONS,
};

/// The longest path of a socket, of the systems that have the least.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The names in a directory that the program chose.
const SOCKET_NAME: &str = "tools.sock";
const SCHEMA_NAME: &str = "tools.json";
const NEW_SCHEMA_NAME: &str = "tools.new";

/// All of them, in the order in which they are removed.
const OWN_NAMES: [&str; 3] = [NEW_SCHEMA_NAME, SCHEMA_NAME, SOCKET_NAME];

/// The directories of this process, for a signal that ends it.
static LIVE: Mutex<Vec<OwnDirectory>> = Mutex::new(Vec::new());

/// A directory that goes with its session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnDirectory {
    path: PathBuf,
    /// Which one it is, if the program chose the path: later another may be there, and more may lie in it.
    chosen: Option<DirectoryId>,
}

/// The device and the inode of a directory. No other has them as long as the session holds its lock.
type DirectoryId = (u64, u64);

/// The directory of a session, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnDirectory,
    pub(super) socket: PathBuf,
    pub(super) schema: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
}

impl Place {
    /// Makes a place in one of these directories, the first where the path of the socket is not too long.
    /// What earlier sessions left behind there is removed.
    pub(crate) fn make(bases: &[PathBuf]) -> io::Result<Self> {
        let mut last = io::Error::other("no directory is short enough for the path of a socket");
        for base in bases {
            let longest = base.as_os_str().len() + "/".len() + directory_name().len() + "/".len();
            if longest + socket_name().len() > MAX_SOCKET_PATH {
                continue;
            }
            sweep(base);
            match Self::make_in(base) {
                Ok(place) => return Ok(place),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes a place at this very path, which is no other's: then the socket is at a path that is known ahead. What an
    /// earlier session left there is removed.
    pub(crate) fn make_at(directory: &Path) -> io::Result<Self> {
        // A slash at the end would follow a symbolic link.
        let directory: PathBuf = std::path::absolute(directory)?.components().collect();
        let (socket, schema) = (directory.join(SOCKET_NAME), directory.join(SCHEMA_NAME));
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(io::Error::other("its path is too long for a socket"));
        }
        let (lock, directory) = {
            let mut live = live();
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let lock = lock(&directory)?.ok_or_else(|| {
                io::Error::other("another program offers its tools there, or it is another user's")
            })?;
            check_own(&directory)?;
            let chosen = Some(id_of(&lock.metadata()?));
            let directory = OwnDirectory { path: directory, chosen };
            live.push(directory.clone());
            (lock, directory)
        };
        let place = Self { directory, socket, schema, _lock: lock };
        remove_own_files(&place.directory.path)?;
        Ok(place)
    }

    fn make_in(base: &Path) -> io::Result<Self> {
        // Another session's sweep may take a new directory for an old one before it is locked.
        for _ in 0..100 {
            let path = base.join(directory_name());
            let directory = OwnDirectory { path: path.clone(), chosen: None };
            {
                // Made under the lock, so that one that is made while a signal ends the process waits for that.
                let mut live = live();
                DirBuilder::new().mode(0o700).create(&path)?;
                live.push(directory.clone());
            }
            let locked = lock(&path);
            if locked.is_err() {
                let _ = fs::remove_dir(&path);
            }
            let Ok(Some(lock)) = locked else {
                forget(&directory);
                locked?;
                continue;
            };
            let schema = format!("{SCHEMA_FILE_PREFIX}{}.json", Uuid::new_v4().simple());
            let (socket, schema) = (path.join(socket_name()), path.join(schema));
            return Ok(Self { directory, socket, schema, _lock: lock });
        }
        Err(io::Error::other("other sessions removed what was made"))
    }

    /// The directory itself.
    #[cfg(test)]
    pub(crate) fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Writes a file of this name, and gives its path.
    #[cfg(feature = "model")]
    pub(crate) fn write(&self, name: &str, text: &[u8]) -> io::Result<PathBuf> {
        let path = self.directory.path.join(name);
        write_file(&path, text).map(|()| path)
    }

    /// Keeps others from the socket. They cannot reach it before either: the directory is closed to them.
    pub(super) fn close_socket(&self) -> io::Result<()> {
        fs::set_permissions(&self.socket, Permissions::from_mode(SOCKET_PERMISSIONS))
    }
}

impl OwnDirectory {
    /// Removes it. Of one that the program chose, the session's own files go, and the directory if it is empty then.
    fn remove(&self) -> io::Result<()> {
        let Some(id) = self.chosen else { return remove(&self.path) };
        if id_of(&fs::symlink_metadata(&self.path)?) != id {
            // It was removed, and what is there now is another's.
            return Ok(());
        }
        remove_own_files(&self.path)?;
        fs::remove_dir(&self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The schema file may just be written anew. What cannot be removed, the next session tries again.
        let _ = self.directory.remove().or_else(|_| self.directory.remove());
        forget(&self.directory);
    }
}

/// Removes the directories of all sessions of this process, which ends now: no other can be made any more.
pub(super) fn remove_all() {
    let live = live();
    for directory in &*live {
        // A session that just begins may put something into it meanwhile.
        let _ = (0..10).find(|_| directory.remove().is_ok() || !directory.path.exists());
    }
    std::mem::forget(live);
}

fn live() -> MutexGuard<'static, Vec<OwnDirectory>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(directory: &OwnDirectory) {
    live().retain(|other| other != directory);
}

/// Writes a file for its owner only, whole, also where one is.
pub(super) fn write_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = create(&new).and_then(|mut file| {
        file.write_all(text)?;
        fs::rename(&new, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// A new file for its owner only.
fn create(path: &Path) -> io::Result<File> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(SOCKET_PERMISSIONS)
        .custom_flags(nofollow)
        .open(path)
}

fn directory_name() -> String {
    let id = Uuid::new_v4().simple().to_string();
    format!("{SOCKET_FILE_PREFIX}{}", &id[..12])
}

fn socket_name() -> String {
    format!("{SOCKET_FILE_PREFIX}{}{SOCKET_FILE_SUFFIX}", Uuid::new_v4().simple())
}

/// Removes what sessions left behind that have ended without a word. One that lives is not touched; one of
/// which that is unclear counts as living.
pub(super) fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| {
            name.starts_with(SOCKET_FILE_PREFIX) && !name.ends_with(SOCKET_FILE_SUFFIX)
        });
        // It is locked until it is gone: a session that just begins there finds it so, and takes another.
        if is_ours && let Ok(Some(_lock)) = lock(&entry.path()) {
            let _ = remove(&entry.path());
        }
    }
}

/// Locks the directory of a session, if it is ours, there, and not locked.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    // It may have been removed before it was locked.
    let (of_lock, of_path) = (opened.metadata()?, fs::symlink_metadata(directory));
    let is_there = of_path.is_ok_and(|path| id_of(&path) == id_of(&of_lock));
    Ok((is_there && of_lock.uid() == geteuid().as_raw()).then_some(opened))
}

fn id_of(directory: &Metadata) -> DirectoryId {
    (directory.dev(), directory.ino())
}

/// Refuses a directory that others can enter, or in which more lies than a session leaves. A session makes its socket first
/// and removes it last, so that another file without it is the user's.
fn check_own(directory: &Path) -> io::Result<()> {
    if fs::metadata(directory)?.mode() & 0o077 != 0 {
        return Err(io::Error::other("the folder is open to others (chmod 700)"));
    }
    let socket = fs::symlink_metadata(directory.join(SOCKET_NAME));
    let has_socket = socket.is_ok_and(|socket| socket.file_type().is_socket());
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if !(has_socket && OWN_NAMES.iter().any(|own| name == *own)) {
            let text = format!("the folder is not for a session alone: it has {name:?}");
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

/// Removes the directory of a session. It has no folders in it.
fn remove(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        remove_file(&entry.path())?;
    }
    fs::remove_dir(directory)
}

/// Removes the files that a session has in a directory that the program chose.
fn remove_own_files(directory: &Path) -> io::Result<()> {
    OWN_NAMES.iter().try_for_each(|name| remove_file(&directory.join(name)))
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn make(base: &Path) -> Place {
        Place::make(&[base.to_owned()]).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    /// What a killed program leaves.
    fn leave_behind(base: &Path) -> PathBuf {
        let directory = base.join(directory_name());
        fs::create_dir(&directory).unwrap();
        for name in ["claudecode_ipc_1.sock", "claudecode_ipc_schema_1.json"] {
            fs::write(directory.join(name), "").unwrap();
        }
        directory
    }

    #[test]
    fn only_the_owner_can_reach_it_and_nothing_stays() {
        let base = tempfile::tempdir().unwrap();
        let place = make(base.path());
        write_file(&place.schema, b"[]").unwrap();
        write_file(&place.schema, b"[1]").unwrap();
        assert_eq!(fs::read(&place.schema).unwrap(), b"[1]");
        assert_eq!((mode(place.directory()), mode(&place.schema)), (0o700, 0o600));
        let name = place.socket.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("claudecode_ipc_") && name.ends_with(".sock"), "{name}");
        assert_eq!(name.len(), "claudecode_ipc_.sock".len() + 32);
        drop(place);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_left_behind_goes_and_what_lives_stays() {
        let base = tempfile::tempdir().unwrap();
        let old = leave_behind(base.path());
        let first = make(base.path());
        assert!(!old.exists());
        let second = make(base.path());
        assert!(first.directory().exists() && second.directory().exists());
    }

    #[test]
    fn a_live_one_has_nothing_to_delete_by_which_it_would_look_dead() {
        let base = tempfile::tempdir().unwrap();
        let place = make(base.path());
        write_file(&place.schema, b"[]").unwrap();
        // A cleaner of temporary files.
        fs::read_dir(place.directory())
            .unwrap()
            .for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
        drop(make(base.path()));
        assert!(place.directory().exists());
        write_file(&place.schema, b"[]").unwrap();
        let directory = place.directory().to_owned();
        drop(place);
        assert!(!directory.exists());
    }

    #[test]
    fn a_place_that_was_chosen_is_one_session_s_and_has_known_names() {
        let base = tempfile::tempdir().unwrap();
        let chosen = base.path().join("my-program");
        let place = Place::make_at(&chosen).unwrap();
        assert_eq!(place.socket, chosen.join("tools.sock"));
        assert_eq!(mode(&chosen), 0o700);
        let second = Place::make_at(&chosen).unwrap_err().to_string();
        assert!(second.contains("another program offers its tools there"), "{second}");
        drop(place);
        assert!(!chosen.exists());
        // What a killed one left.
        DirBuilder::new().mode(0o700).create(&chosen).unwrap();
        drop(UnixListener::bind(chosen.join("tools.sock")).unwrap());
        for name in ["tools.json", "tools.new"] {
            fs::write(chosen.join(name), "").unwrap();
        }
        let place = Place::make_at(&chosen).unwrap();
        assert_eq!(fs::read_dir(&chosen).unwrap().count(), 0);
        drop(place);
    }

    #[test]
    fn a_folder_with_something_else_in_it_or_open_to_others_is_not_taken() {
        let base = tempfile::tempdir().unwrap();
        let chosen = base.path().join("home");
        DirBuilder::new().mode(0o700).create(&chosen).unwrap();
        fs::write(chosen.join("letter.txt"), "dear").unwrap();
        let refused = Place::make_at(&chosen).unwrap_err().to_string();
        assert!(refused.contains("letter.txt"), "{refused}");
        assert_eq!(fs::read(chosen.join("letter.txt")).unwrap(), b"dear");
        let open = base.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(Place::make_at(&open).unwrap_err().to_string().contains("chmod 700"));
        let long = base.path().join("x".repeat(100));
        assert!(Place::make_at(&long).unwrap_err().to_string().contains("too long"));
        assert!(!long.exists());
    }

    #[test]
    fn a_file_of_the_user_s_with_a_name_of_ours_is_not_taken_for_a_leftover() {
        let base = tempfile::tempdir().unwrap();
        let chosen = base.path().join("mine");
        DirBuilder::new().mode(0o700).create(&chosen).unwrap();
        fs::write(chosen.join("tools.json"), "my saws").unwrap();
        let refused = Place::make_at(&chosen).unwrap_err().to_string();
        assert!(refused.contains("tools.json"), "{refused}");
        // Nor beside what is no socket.
        fs::write(chosen.join("tools.sock"), "my socks").unwrap();
        Place::make_at(&chosen).unwrap_err();
        assert_eq!(fs::read(chosen.join("tools.json")).unwrap(), b"my saws");
        assert_eq!(fs::read(chosen.join("tools.sock")).unwrap(), b"my socks");
    }

    #[test]
    fn what_the_program_puts_into_a_folder_that_it_chose_stays_there() {
        let base = tempfile::tempdir().unwrap();
        let chosen = base.path().join("my-program");
        let place = Place::make_at(&chosen).unwrap();
        drop(UnixListener::bind(&place.socket).unwrap());
        write_file(&place.schema, b"[]").unwrap();
        fs::write(chosen.join("letter.txt"), "dear").unwrap();
        drop(place);
        let left: Vec<_> =
            fs::read_dir(&chosen).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["letter.txt"]);
    }

    #[test]
    fn a_session_whose_folder_was_removed_leaves_alone_the_one_that_came_after_it() {
        let base = tempfile::tempdir().unwrap();
        let chosen = base.path().join("my-program");
        let first = Place::make_at(&chosen).unwrap();
        fs::remove_dir_all(&chosen).unwrap();
        let second = Place::make_at(&chosen).unwrap();
        let _listener = UnixListener::bind(&second.socket).unwrap();
        drop(first);
        assert!(second.socket.exists());
        drop(second);
        assert!(!chosen.exists());
    }

    #[test]
    fn a_symbolic_link_is_not_followed_whatever_stands_behind_it() {
        let base = tempfile::tempdir().unwrap();
        let (there, link) = (base.path().join("there"), base.path().join("link"));
        DirBuilder::new().mode(0o700).create(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        for end in ["", "/", "//", "/."] {
            let chosen = PathBuf::from(format!("{}{end}", link.display()));
            assert!(Place::make_at(&chosen).is_err(), "{end:?}");
        }
        let chosen = PathBuf::from(format!("{}/", there.display()));
        assert_eq!(Place::make_at(&chosen).unwrap().socket, there.join("tools.sock"));
    }

    #[test]
    fn one_that_was_killed_as_it_began_goes_at_once() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join(directory_name())).unwrap();
        drop(make(base.path()));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_a_session_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let socket = base.path().join("claudecode_ipc_1.sock");
        fs::write(&socket, "").unwrap();
        let link = base.path().join("claudecode_ipc_link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        let strange = leave_behind(base.path());
        fs::create_dir(strange.join("claudecode_ipc_folder")).unwrap();
        drop(make(base.path()));
        assert!(socket.exists() && link.exists() && strange.exists());
    }

    #[test]
    fn a_long_path_is_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let long = base.path().join("x".repeat(60));
        fs::create_dir(&long).unwrap();
        let place = Place::make(&[long, base.path().to_owned()]).unwrap();
        assert_eq!(place.directory().parent(), Some(base.path()));
        assert!(place.socket.as_os_str().len() <= MAX_SOCKET_PATH);
    }

    #[test]
    fn many_at_once_do_not_harm_each_other() {
        let base = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let place = make(base.path());
                        write_file(&place.schema, b"[]").unwrap();
                        assert!(place.schema.exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
