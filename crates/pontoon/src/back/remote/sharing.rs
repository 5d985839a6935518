//! One connection to an application for all bridges of a user.
//!
//! The bridge that holds the lock owns the connection. The others go through a socket of that bridge, where it looks like
//! the application. The lock ends with its process, however that ends, and another bridge takes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::UnixListener;
use tokio::sync::Notify;

use crate::plain_file::{self, FileKind};
use crate::private_folder::{LockTry, check_length, claim, identity, is_at, listen, make_folder};

/// The longest text of a lock: the number of a process.
const MAX_PID: u64 = 16;

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
        check_length(&socket)?;
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
            LockTry::Other(text) => {
                return Ok(Owner::Other { socket: self.socket.clone(), pid: text.parse().ok() });
            }
        };
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        let listener = listen(&self.socket)?;
        let socket = identity(&fs::symlink_metadata(&self.socket)?);
        *ownership = Ownership::Ours { lock: file, socket, listener: Some(listener) };
        self.owned.notify_one();
        Ok(Owner::Us)
    }

    /// The process that has the connection, as far as its lock says.
    pub(crate) fn owner_pid(&self) -> Option<u32> {
        let text = plain_file::read_text(&self.lock, FileKind::Own, MAX_PID);
        text.ok()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

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
