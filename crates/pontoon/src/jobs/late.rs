//! Records that found no room on the disk: written when there is some again.
//!
//! A job whose end cannot be written would look as if its call went on for ever.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::{info, warn};

use super::beneath::open_folder;
use super::disk::is_full;
use super::record::Record;
use super::root::Root;

/// More than this many do not wait; the oldest go first, and count as never ended.
const MAX_WAITING: usize = 10_000;

/// The records that wait for room.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: Mutex<VecDeque<Record>>,
}

impl Late {
    /// Keeps a record that could not be written because of `error`, if it is worth another try.
    pub(super) fn keep(&self, record: Record, error: &io::Error) {
        if !is_full(error) {
            return;
        }
        let mut waiting = self.lock();
        if waiting.len() >= MAX_WAITING
            && let Some(record) = waiting.pop_front()
        {
            warn!(job = record.job_id, "the end of a job is given up, too many wait for room");
        }
        waiting.push_back(record);
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
                Err(error) => warn!(job = record.job_id, %error, "the end of a job is given up"),
            }
        }
        if written > 0 {
            info!(jobs = written, "the ends of jobs are recorded, now that there is room");
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::io::Errno;

    use super::*;
    use crate::jobs::{Store, StoreOptions};

    #[test]
    fn what_found_no_room_is_written_later_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
        let jobs = [store.new_job().unwrap(), store.new_job().unwrap()];
        let record = |at: usize| Record::new(jobs[at].id().to_string());
        let late = &store.0.late;
        late.keep(record(0), &Errno::NOSPC.into());
        late.keep(record(1), &Errno::IO.into());
        late.keep(Record::new("gone".to_owned()), &Errno::DQUOT.into());
        store.heartbeat();
        let is_written = |at: usize| {
            let folder = jobs[at].files().parent().unwrap();
            fs::exists(folder.join("metadata.json")).unwrap()
        };
        assert_eq!((is_written(0), is_written(1)), (true, false));
        assert!(late.lock().is_empty());
    }
}
