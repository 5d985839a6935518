//! Room on the disk: how much is left, and which errors mean that there is none.

use std::io;
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;
use rustix::io::Errno;

use super::root::Root;
use crate::lock::Lock;

/// How long a look at the disk is good for.
const FRESH: Duration = Duration::from_secs(1);

/// Why there is no job, or no file in it.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The disk is full, or so nearly that nothing new is begun.
    #[error("the disk with the jobs directory is full ({free_bytes} bytes are free)")]
    Full {
        /// What is left.
        free_bytes: u64,
    },
    /// The directory cannot be used just now, for a reason that the operator is told.
    #[error("the jobs directory cannot be used")]
    Unusable,
    /// Something else went wrong.
    #[error("cannot {what} in the jobs directory")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Why it could not be.
        source: io::Error,
    },
}

/// Whether an error says that the disk, the quota or the number of files is used up.
pub fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| full.contains(&code))
        || matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What was left on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
    has_files_left: bool,
}

/// The disk of the jobs directory, looked at now and then.
#[derive(Debug)]
pub(super) struct Disk {
    /// Below this nothing new is begun.
    min_free_bytes: u64,
    last: Lock<Option<(Instant, Room)>>,
}

impl Disk {
    pub(super) fn new(min_free_bytes: u64) -> Self {
        Self { min_free_bytes, last: Lock::default() }
    }

    /// An error when nothing new should be begun: the disk is full, or the directory is gone.
    pub(super) fn check(&self, root: &Root) -> Result<(), JobError> {
        let look =
            || self.room(root).map_err(|source| JobError::Io { what: "begin a job", source });
        let has_room = |room: Room| room.free_bytes >= self.min_free_bytes && room.has_files_left;
        if has_room(look()?) {
            return Ok(());
        }
        // Room that was just made is not refused for a second.
        self.forget();
        let room = look()?;
        if has_room(room) { Ok(()) } else { Err(JobError::Full { free_bytes: room.free_bytes }) }
    }

    /// Whether so many bytes more leave as much free as should be, as of now.
    pub(super) fn has_room_for(&self, root: &Root, bytes: u64) -> io::Result<bool> {
        self.forget();
        Ok(self.room(root)?.free_bytes >= self.min_free_bytes.saturating_add(bytes))
    }

    pub(super) fn forget(&self) {
        *self.last.lock() = None;
    }

    /// What is left, as of a second ago at most.
    pub(super) fn room(&self, root: &Root) -> io::Result<Room> {
        let mut last = self.last.lock();
        if let Some((at, room)) = *last
            && at.elapsed() < FRESH
        {
            return Ok(room);
        }
        root.check_place()?;
        let found = fstatvfs(root.fd())?;
        let room = Room {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            // What is set apart for others is neither used nor ours.
            total_bytes: found
                .f_blocks
                .saturating_sub(found.f_bfree)
                .saturating_add(found.f_bavail)
                .saturating_mul(found.f_frsize),
            // Some file systems have no fixed number of files; they say 0 of 0.
            has_files_left: found.f_files == 0 || found.f_favail > 0,
        };
        *last = Some((Instant::now(), room));
        Ok(room)
    }

    /// What an error means while doing `what`.
    pub(super) fn explain(&self, root: &Root, what: &'static str, source: io::Error) -> JobError {
        if !is_full(&source) {
            return JobError::Io { what, source };
        }
        // The last look was too rosy.
        self.forget();
        let free_bytes = self.room(root).map_or(0, |room| room.free_bytes);
        JobError::Full { free_bytes }
    }
}

/// What is in the jobs directory, and how much room is left beside it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// How many jobs there are.
    pub jobs: usize,
    /// The bytes all of it takes on the disk; at least this, where not all could be counted.
    pub bytes: u64,
    /// The bytes that are left on the disk.
    pub free_bytes: u64,
    /// The bytes the disk has.
    pub total_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(min_free_bytes: u64, fits: bool) {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let found = Disk::new(min_free_bytes).check(&root);
        assert_eq!(found.is_ok(), fits, "{found:?}");
    }

    #[test]
    fn nothing_is_begun_on_a_disk_with_too_little_room() {
        check(0, true);
        check(u64::MAX, false);
    }

    #[test]
    fn what_would_leave_too_little_has_no_room() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let free = Disk::new(0).room(&root).unwrap().free_bytes;
        let has_room = |min, bytes| Disk::new(min).has_room_for(&root, bytes).unwrap();
        assert!(has_room(0, 0) && has_room(free / 4, free / 4));
        assert!(!has_room(0, free * 4) && !has_room(free * 4, 0) && !has_room(u64::MAX, u64::MAX));
    }

    #[test]
    fn both_errors_of_a_full_disk_are_known() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(is_full(&errno.into()));
        }
        assert!(!is_full(&Errno::IO.into()));
    }
}
