//! Folders of one user, and the locks and sockets in them by which processes of that user meet.
//!
//! A lock ends with its process, however that ends: a file that can be locked was left by one that is gone.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::net::UnixListener;

/// The longest path of a socket, of the systems that have the least.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// As much as is read of a lock that another process holds.
const MAX_TEXT: u64 = 16 << 10;

/// Makes the folder for its owner only, unless it is there and so.
///
/// # Errors
///
/// When it cannot be made, or others may enter it.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_folder(folder)
}

/// Whether a folder is there, and its owner's alone.
///
/// # Errors
///
/// When it is not.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let status = fs::metadata(folder)?;
    if status.uid() != geteuid().as_raw() || status.mode() & 0o077 != 0 {
        return Err(io::Error::other("the folder is not its owner's alone (chmod 700)"));
    }
    Ok(())
}

/// Whether a socket can have this path.
///
/// # Errors
///
/// When it is too long.
pub fn check_length(socket: &Path) -> io::Result<()> {
    match socket.as_os_str().len() > MAX_SOCKET_PATH {
        true => Err(io::Error::other("its path is too long for a socket")),
        false => Ok(()),
    }
}

/// Listens at this path, for its owner only. Only the process that holds the lock beside it may do so: what lies there was
/// left by one that was killed.
///
/// # Errors
///
/// What the system says.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What tells a file from every other one.
pub fn identity(status: &Metadata) -> (u64, u64) {
    (status.dev(), status.ino())
}

/// Whether that very file is at this path.
pub fn is_at(path: &Path, file: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| identity(&there) == file)
}

/// Who holds a lock.
#[derive(Debug)]
pub enum LockTry {
    /// This process.
    Ours(File),
    /// Another one, which wrote this.
    Other(String),
}

/// Takes the lock at this path, which is made, if no other process has it.
///
/// # Errors
///
/// What the system says.
pub fn claim(path: &Path) -> io::Result<LockTry> {
    loop {
        let file = open(path, true)?;
        match held(&file)? {
            Some(text) => return Ok(LockTry::Other(text)),
            // Its last owner may have removed it between the two.
            None if is_at(path, identity(&file.metadata()?)) => return Ok(LockTry::Ours(file)),
            None => {}
        }
    }
}

/// The same of a lock that is there: it is not made.
///
/// # Errors
///
/// What the system says, also that it is not there.
pub fn try_lock(path: &Path) -> io::Result<LockTry> {
    let file = open(path, false)?;
    Ok(held(&file)?.map_or_else(|| LockTry::Ours(file), LockTry::Other))
}

fn open(path: &Path, is_made: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(is_made)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
}

/// What the process wrote that has this lock; `None` if it is ours now.
fn held(mut file: &File) -> io::Result<Option<String>> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {}
        locked => return Ok(locked.map(|()| None)?),
    }
    let mut text = String::new();
    file.rewind()?;
    drop(file.take(MAX_TEXT).read_to_string(&mut text));
    Ok(Some(text))
}
