//! Opening what lies beneath a folder: never through a link, never across a mount.
//!
//! Linux does it in one step that nobody can come between (`openat2`). Where that is missing, each
//! part of the path is opened by itself, and a link in it is an error.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(not(target_os = "linux"))]
use rustix::fs::AtFlags;
use rustix::fs::{Dir, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::node::FileNode;

/// To read a file without waiting: opening a named pipe would wait for its writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The folder `path` beneath `folder`.
pub(super) fn open_folder(folder: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    open(folder.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Whatever `path` beneath `folder` is, to be read; look at it before reading.
pub(super) fn open_to_read(folder: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    open(folder.as_fd(), path, READ)
}

/// The folder with this name, made if it is missing.
pub(super) fn make_folder(folder: impl AsFd, name: &str, mode: Mode) -> io::Result<OwnedFd> {
    match open_folder(&folder, name.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match mkdirat(&folder, name, mode) {
                Ok(()) | Err(Errno::EXIST) => open_folder(&folder, name.as_bytes()),
                Err(error) => Err(error.into()),
            }
        }
        opened => opened,
    }
}

/// A folder of ours whose owner's permissions were taken away, with them given back.
///
/// Opening for nothing but its place is allowed even where reading is not, and what is open cannot be
/// swapped for a link.
#[cfg(target_os = "linux")]
pub(super) fn open_up(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;

    use rustix::fs::chmod;

    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let shut = openat(&folder, name, flags | OFlags::PATH, Mode::empty())?;
    let place = format!("/proc/self/fd/{}", shut.as_raw_fd());
    let mode = Mode::from_raw_mode((FileNode::of(&shut)?.mode & 0o711) as _);
    chmod(&place, mode | Mode::RWXU)?;
    Ok(openat(&shut, ".", flags | OFlags::RDONLY, Mode::empty())?)
}

/// The same, where a link that is swapped in meanwhile is not followed either.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_up(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode((FileNode::at(&folder, name)?.mode & 0o711) as _);
    rustix::fs::chmodat(&folder, name, mode | Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(openat(&folder, name, flags | OFlags::RDONLY, Mode::empty())?)
}

/// The names in a folder that are text, in no order. Ours all are.
pub(super) fn names_in(folder: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A new file with this name, to be written; an error if the name is taken, even by a link.
pub(super) fn create(folder: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
}

#[cfg(target_os = "linux")]
fn open(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};

    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match openat2(folder, path, flags, Mode::empty(), resolve) {
        // An old kernel, or a container whose filter does not know the call.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => open_by_steps(folder, path, flags),
        opened => Ok(opened?),
    }
}

#[cfg(not(target_os = "linux"))]
fn open(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    open_by_steps(folder, path, flags)
}

fn open_by_steps(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let device = FileNode::of(folder)?.device;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parts = path.split(|&byte| byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        if matches!(part, b"" | b"." | b"..") {
            return Err(Errno::XDEV.into());
        }
        let step = if parts.peek().is_some() {
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
        } else {
            flags
        };
        let from = at.as_ref().map_or(folder, AsFd::as_fd);
        let next = openat(from, part, step, Mode::empty())?;
        let node = FileNode::of(&next)?;
        if node.is_folder() && node.device != device {
            return Err(Errno::XDEV.into());
        }
        at = Some(next);
    }
    at.ok_or_else(|| Errno::INVAL.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    /// Both ways open the same things.
    fn check(path: &str, found: bool) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("top/a/b")).unwrap();
        fs::write(folder.path().join("top/a/b/file"), "inside").unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        let links = [
            ("link", "../secret"),
            ("up", ".."),
            ("root", "/"),
            ("a/self", "b"),
            ("a/in", "b/file"),
        ];
        for (name, target) in links {
            symlink(target, folder.path().join("top").join(name)).unwrap();
        }
        let top = File::open(folder.path().join("top")).unwrap();
        let fast = open(top.as_fd(), path.as_bytes(), READ);
        let steps = open_by_steps(top.as_fd(), path.as_bytes(), READ);
        assert_eq!(fast.is_ok(), found, "{path}: {fast:?}");
        assert_eq!(steps.is_ok(), found, "{path} by steps: {steps:?}");
    }

    #[test]
    fn what_is_beneath_is_opened() {
        check("a", true);
        check("a/b/file", true);
    }

    #[test]
    fn what_leads_out_is_not() {
        let out = [
            "link",
            "up",
            "up/secret",
            "root",
            "root/etc",
            "..",
            "../secret",
            "a/../../secret",
            "/",
            "/etc/passwd",
            "a/self",
            "a/self/file",
            "a/in",
            "a/b/file/x",
            "nothing",
            "",
        ];
        for path in out {
            check(path, false);
        }
    }
}
