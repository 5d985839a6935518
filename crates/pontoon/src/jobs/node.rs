//! What is known of a file or folder without trusting its name.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Stat, Timespec, Timestamps, UTIME_NOW, fstat, statat, utimensat,
};
use rustix::path::Arg;

/// Now, for a file's times.
pub(super) const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
};

/// A file, a folder or something else, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileNode {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) links: u64,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// The bytes it takes on the disk.
    pub(super) space: u64,
    pub(super) modified: SystemTime,
    /// When anything about it changed; a child cannot set this one.
    pub(super) changed: SystemTime,
}

impl FileNode {
    /// What is open here.
    pub(super) fn of(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::read(&fstat(fd)?))
    }

    /// What has this name; of a link, the link itself.
    pub(super) fn at(folder: impl AsFd, name: impl Arg) -> io::Result<Self> {
        Ok(Self::read(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether this is a file of its own: a second name could be for a file of somebody else. One that was
    /// replaced since it was opened has no name any more.
    pub(super) fn is_plain_file(&self) -> bool {
        self.kind == FileType::RegularFile && self.links <= 1
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// When somebody last used it: whoever does sets the first time, which changes the second with it.
    ///
    /// A child with our user can set the first to anything. So it counts only where it is later, which
    /// it is on file systems that lack the second, and not where it says that nobody can have been.
    pub(super) fn touched(&self, now: SystemTime) -> SystemTime {
        if self.modified > now { self.changed } else { self.modified.max(self.changed) }
    }

    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        reason = "the widths of these fields differ between systems"
    )]
    fn read(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode as _),
            mode: stat.st_mode as u32 & 0o7777,
            owner: stat.st_uid as u32,
            links: stat.st_nlink as u64,
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as u64,
            space: stat.st_blocks as u64 * 512,
            modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }
}

/// A time that a child may have set to anything; one that cannot be told is taken for 1970.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let part = Duration::from_nanos(nanoseconds.min(999_999_999));
    let time =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    time.and_then(|time| time.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

/// Sets a directory's time to now: the heartbeat.
pub(super) fn touch(folder: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(utimensat(folder, name, &NOW, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_too_odd() {
        assert!(time(i64::MIN, u64::MAX) < UNIX_EPOCH);
        assert!(time(i64::MAX, u64::MAX) > UNIX_EPOCH);
        assert_eq!(time(1, 5), UNIX_EPOCH + Duration::new(1, 5));
        assert_eq!(time(-1, 0), UNIX_EPOCH - Duration::from_secs(1));
    }
}
