//! Records that found no room on the disk: written when there is some again.
//!
//! A job whose end cannot be written would look as if its call went on for ever.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::{info, warn};

use super::beneath::open_folder;
use super::disk::is_full;
use super::record::JobRecord;
use super::root::Root;

/// More than this many do not wait; the oldest go first, and count as never ended.
const MAX_WAITING: usize = 10_000;

/// The records that wait for room.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    waiting: Mutex<VecDeque<JobRecord>>,
}

impl Deferred {
    /// Keeps a record for which there was no room when it was to be written. An older one of its job is
    /// out of date, however that went.
    pub(super) fn settle(&self, record: &JobRecord, written: &io::Result<()>) {
        let mut waiting = self.lock();
        waiting.retain(|older| older.job_id != record.job_id);
        if !written.as_ref().is_err_and(is_full) {
            return;
        }
        if waiting.len() >= MAX_WAITING
            && let Some(record) = waiting.pop_front()
        {
            warn!(job_id = record.job_id, "the end of a job is given up, too many wait for room");
        }
        waiting.push_back(record.clone());
    }

    /// Writes what waits, as far as there is room.
    pub(super) fn write(&self, root: &Root) {
        let mut written = 0;
        while let Some(record) = { self.lock().pop_front() } {
            let done = open_folder(root.fd(), record.job_id.as_bytes())
                .and_then(|folder| record.write(&folder));
            match done {
                Ok(()) => written += 1,
                Err(error) if is_full(&error) => {
                    self.lock().push_front(record);
                    break;
                }
                // Collected meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => warn!(job_id = record.job_id, %error, "the end of a job is given up"),
            }
        }
        if written > 0 {
            info!(jobs = written, "the ends of jobs are recorded, now that there is room");
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<JobRecord>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::UNIX_EPOCH;

    use rustix::io::Errno;

    use super::*;
    use crate::jobs::{Store, StoreOptions};

    #[test]
    fn what_found_no_room_is_written_later_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
        let jobs = [(); 3].map(|()| store.new_job().unwrap());
        let record = |id: String, why: &str| JobRecord::failed(id, UNIX_EPOCH, UNIX_EPOCH, why);
        let deferred = &store.0.deferred;
        let settle = |id: &str, why: &str, error: Errno| {
            deferred.settle(&record(id.to_owned(), why), &Err(error.into()));
        };
        let ids = jobs.each_ref().map(|job| job.id().to_string());
        settle(&ids[0], "first", Errno::NOSPC);
        settle(&ids[0], "last", Errno::NOSPC);
        settle(&ids[1], "never", Errno::IO);
        settle("gone", "never", Errno::DQUOT);
        settle(&ids[2], "old", Errno::NOSPC);
        deferred.settle(&record(ids[2].clone(), "new"), &Ok(()));
        store.heartbeat();
        let written = jobs.each_ref().map(|job| {
            let folder = job.files().parent().unwrap();
            fs::read_to_string(folder.join("metadata.json")).ok()
        });
        assert!(written[0].as_ref().unwrap().contains("\"error\":\"last\""), "{written:?}");
        assert_eq!(written[1..], [None, None]);
        assert!(deferred.lock().is_empty());
    }
}
