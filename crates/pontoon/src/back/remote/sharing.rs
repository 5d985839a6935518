//! One connection to an application for all bridges of a user.
//!
//! The bridge that holds the lock owns the connection. The others go through a socket of that bridge, where it looks like
//! the application. The lock ends with its process, however that ends, and another bridge takes it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::net::UnixListener;
use tokio::sync::Notify;

/// The longest path of a socket, of the systems that have the least.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Where the bridges of a user meet that are for one application.
#[derive(Debug)]
pub struct MeetingPoint {
    folder: PathBuf,
    lock: PathBuf,
    socket: PathBuf,
    ownership: Mutex<Ownership>,
    /// Told when this bridge has become the owner.
    owned: Notify,
}

#[derive(Debug)]
enum Ownership {
    /// Another bridge has the connection, as far as is known.
    None,
    /// This bridge has it, and listens for the others as soon as it is asked to.
    Ours {
        lock: File,
        /// Which file the socket is.
        socket: (u64, u64),
        listener: Option<UnixListener>,
    },
}

/// Who has the connection to the application.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This bridge.
    Us,
    /// Another one, which listens here.
    Other {
        /// Its socket.
        socket: PathBuf,
        /// Its process, if that is known.
        pid: Option<u32>,
    },
}

impl MeetingPoint {
    /// The meeting point of this name in that folder, which is made for its owner only.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made or is open to others, or the path is too long for a socket.
    pub fn new(folder: &Path, name: &str) -> io::Result<Self> {
        make_folder(folder)?;
        let (lock, socket) =
            (folder.join(format!("{name}.lock")), folder.join(format!("{name}.sock")));
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(io::Error::other("its path is too long for a socket"));
        }
        let ownership = Mutex::new(Ownership::None);
        let folder = folder.to_owned();
        Ok(Self { folder, lock, socket, ownership, owned: Notify::new() })
    }

    /// Who has the connection now: this bridge, if no other has.
    ///
    /// # Errors
    ///
    /// When the files cannot be used.
    pub(crate) fn owner(&self) -> io::Result<Owner> {
        let mut ownership = self.lock();
        match &*ownership {
            Ownership::Ours { lock, .. } if is_at(&self.lock, identity(&lock.metadata()?)) => {
                return Ok(Owner::Us);
            }
            // The folder was emptied: what others find there now counts.
            Ownership::Ours { .. } => *ownership = Ownership::None,
            Ownership::None => {}
        }
        make_folder(&self.folder)?;
        let mut file = match claim(&self.lock)? {
            LockTry::Ours(file) => file,
            LockTry::Other(pid) => return Ok(Owner::Other { socket: self.socket.clone(), pid }),
        };
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        // It was left by a bridge that was killed: one that lives would hold the lock.
        match fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&self.socket)?;
        fs::set_permissions(&self.socket, Permissions::from_mode(0o600))?;
        let socket = identity(&fs::symlink_metadata(&self.socket)?);
        *ownership = Ownership::Ours { lock: file, socket, listener: Some(listener) };
        self.owned.notify_one();
        Ok(Owner::Us)
    }

    /// Where the other bridges come, as soon as this one is the owner. It is given once.
    pub(crate) async fn listener(&self) -> UnixListener {
        loop {
            if let Ownership::Ours { listener, .. } = &mut *self.lock()
                && let Some(listener) = listener.take()
            {
                return listener;
            }
            self.owned.notified().await;
        }
    }

    /// Lets no other bridge come any more.
    pub(crate) fn close(&self) {
        if let Ownership::Ours { socket, .. } = *self.lock()
            && is_at(&self.socket, socket)
        {
            drop(fs::remove_file(&self.socket));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ownership> {
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MeetingPoint {
    fn drop(&mut self) {
        self.close();
        // While it is locked: another bridge that opened it before sees that it is gone, and makes a new one.
        if let Ownership::Ours { lock, .. } = &*self.lock()
            && lock.metadata().is_ok_and(|lock| is_at(&self.lock, identity(&lock)))
        {
            drop(fs::remove_file(&self.lock));
        }
    }
}

/// Makes the folder for its owner only, unless it is there and so.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let status = fs::metadata(folder)?;
    if status.uid() != geteuid().as_raw() || status.mode() & 0o077 != 0 {
        return Err(io::Error::other("the folder is not its owner's alone (chmod 700)"));
    }
    Ok(())
}

/// What tells a file from every other one.
fn identity(status: &Metadata) -> (u64, u64) {
    (status.dev(), status.ino())
}

/// Whether that very file is at this path.
fn is_at(path: &Path, file: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| identity(&there) == file)
}

enum LockTry {
    Ours(File),
    /// Another process has it, of this id if that could be read.
    Other(Option<u32>),
}

/// Takes the lock at this path, if no other process has it.
fn claim(path: &Path) -> io::Result<LockTry> {
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed())
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.rewind()?;
                drop(file.take(16).read_to_string(&mut pid));
                return Ok(LockTry::Other(pid.parse().ok()));
            }
            locked => locked?,
        }
        // Its last owner may have removed it between the two.
        if is_at(path, identity(&file.metadata()?)) {
            return Ok(LockTry::Ours(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(folder: &Path) -> MeetingPoint {
        MeetingPoint::new(&folder.join("run"), "app").unwrap()
    }

    #[tokio::test]
    async fn the_first_bridge_owns_the_connection_and_the_next_when_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (point(folder.path()), point(folder.path()));
        assert_eq!(first.owner().unwrap(), Owner::Us);
        assert_eq!(first.owner().unwrap(), Owner::Us, "it stays so");
        let socket = folder.path().join("run/app.sock");
        let other = Owner::Other { socket: socket.clone(), pid: Some(std::process::id()) };
        assert_eq!(second.owner().unwrap(), other);
        let listener = first.listener().await;
        let came = tokio::net::UnixStream::connect(&socket);
        let (came, accepted) = tokio::join!(came, listener.accept());
        assert!(came.is_ok() && accepted.is_ok());
        drop(first);
        assert!(!socket.exists());
        assert_eq!(second.owner().unwrap(), Owner::Us);
        drop(second);
        assert_eq!(fs::read_dir(folder.path().join("run")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_a_killed_bridge_left_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let next = point(folder.path());
        fs::write(folder.path().join("run/app.lock"), "99").unwrap();
        drop(UnixListener::bind(folder.path().join("run/app.sock")).unwrap());
        assert_eq!(next.owner().unwrap(), Owner::Us);
        let status = fs::metadata(folder.path().join("run/app.sock")).unwrap();
        assert_eq!(status.mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn an_owner_whose_files_were_removed_takes_no_other_s_away() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (point(folder.path()), point(folder.path()));
        assert_eq!(first.owner().unwrap(), Owner::Us);
        fs::remove_dir_all(folder.path().join("run")).unwrap();
        assert_eq!(second.owner().unwrap(), Owner::Us, "nobody else is to be found there");
        assert!(matches!(first.owner().unwrap(), Owner::Other { .. }), "what is there now counts");
        drop(first);
        assert_eq!(fs::read_dir(folder.path().join("run")).unwrap().count(), 2);
        let third = point(folder.path());
        assert!(matches!(third.owner().unwrap(), Owner::Other { .. }));
    }

    #[test]
    fn a_folder_that_others_can_enter_and_a_path_that_is_too_long_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(MeetingPoint::new(&open, "app").is_err());
        let long = MeetingPoint::new(&folder.path().join("run"), &"x".repeat(100));
        assert!(long.unwrap_err().to_string().contains("too long"));
    }
}
