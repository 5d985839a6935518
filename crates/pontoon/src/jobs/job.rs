//! A job: the directory of one call, with its records and the files the call made.
//!
//! ```text
//! {jobs}/{uuid}/            ours alone: metadata.json request.json response.json server.log
//! {jobs}/{uuid}/files/      the child's working directory, and all that is ever served
//! ```

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, chmodat, mkdirat, unlinkat};
use tracing::warn;
use uuid::Uuid;

use super::beneath::{make_folder, open_folder};
use super::deliver::{Copied, Delivery, MAX_COPIED, give};
use super::disk::{JobError, is_full};
use super::log;
use super::names::closest;
use super::record::{CallFacts, CallStatus, JobRecord, Payloads, REQUEST, RESPONSE};
use super::root::FILES;
use super::shared::SharedStore;
use super::snapshot::{Made, Snapshot};
use super::trash;
use super::workspace::SessionWorkspace;
use crate::plain_file::write_whole;

/// A call that is over, for its record.
#[derive(Debug, Clone)]
pub struct Finished<'a> {
    /// The server that was called.
    pub server: &'a str,
    /// The request as JSON text.
    pub request: &'a [u8],
    /// When it began.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// The answer as JSON text, in the pieces it is in; `None` where there is none.
    pub response: Option<&'a [&'a [u8]]>,
    /// Why it failed; `None` where it did not.
    pub error: Option<&'a str>,
    /// Whether the result says that the tool failed.
    pub is_error: bool,
    /// By which the log tells its lines.
    pub trace: Option<String>,
    /// The files it made.
    pub files: &'a [Made],
    /// Who called what.
    pub facts: CallFacts,
}

impl<'a> Finished<'a> {
    /// A call of which nothing is known but these: it completed, without an answer and without files.
    pub fn new(server: &'a str, request: &'a [u8], began: SystemTime, ended: SystemTime) -> Self {
        Self {
            server,
            request,
            began,
            ended,
            response: None,
            error: None,
            is_error: false,
            trace: None,
            files: &[],
            facts: CallFacts::default(),
        }
    }
}

/// What a job took over from a workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// The files that are in the job now.
    pub made: Vec<Made>,
    /// Those that are more than one call may leave, 4 GiB on the disk. They stay where they were.
    pub too_large: Vec<Made>,
}

/// A job in use: nobody collects it until it is dropped.
///
/// Dropping a job in which no call was recorded removes it.
#[derive(Debug)]
pub struct Job {
    store: Arc<SharedStore>,
    id: Uuid,
    files: PathBuf,
    /// What was in `files` when it was made: nothing.
    new: Snapshot,
    stage: Mutex<JobStage>,
}

#[derive(Debug)]
enum JobStage {
    /// No call is recorded, and none may ever be: a spare child may wait in it.
    Unrecorded(Parting),
    /// The call is over, and its record was written, or waits for room.
    Recorded(Box<JobRecord>),
    /// Thrown away.
    Gone,
}

/// What the end of the child adds to the record of its call.
#[derive(Debug, Default)]
struct Parting {
    exit: Option<String>,
    files: Vec<Made>,
}

impl Parting {
    /// Adds it to a record. False where that says all of it already.
    fn add_to(self, record: &mut JobRecord) -> bool {
        let mut is_new = self.exit.is_some() && self.exit != record.exit;
        record.exit = self.exit.or_else(|| record.exit.take());
        for made in self.files {
            match record.files.iter_mut().find(|known| known.path == made.path) {
                Some(known) if *known == made => continue,
                Some(known) => *known = made,
                None => record.files.push(made),
            }
            is_new = true;
        }
        is_new
    }
}

impl Job {
    /// Makes the directories, and nothing else: this is on the path of a call.
    pub(super) fn make(store: &Arc<SharedStore>) -> Result<Self, JobError> {
        let id = Uuid::new_v4();
        let name = id.to_string();
        let files = store.root.path().join(&name).join(FILES);
        // In use before it is there, so that nobody finds it without an owner.
        store.in_use().insert(id);
        let stage = Mutex::new(JobStage::Unrecorded(Parting::default()));
        let new = Snapshot::default();
        let mut job = Self { store: Arc::clone(store), id, files, new, stage };
        let made = mkdirat(store.root.fd(), &name, Mode::RWXU).map_err(io::Error::from);
        let made = made.and_then(|()| fill(store, &name));
        // On an error the half-made job is dropped, and with that removed.
        job.new = made.map_err(|error| store.disk.explain(&store.root, "make a job", error))?;
        Ok(job)
    }

    /// What lies in `files`, if one look shows that that is nothing yet.
    pub fn looks_new(&self) -> Option<&Snapshot> {
        Some(&self.new).filter(|new| new.is_surely_current(&self.files))
    }

    /// The id, which nobody can guess.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The absolute path of the child's working directory.
    pub fn files(&self) -> &Path {
        &self.files
    }

    /// Records how the call went, once.
    ///
    /// # Errors
    ///
    /// When the records cannot be written; see [`is_full`]. How a call ended for which there was no room
    /// is written when there is some again.
    pub fn finish(&self, call: &Finished<'_>) -> io::Result<()> {
        let mut stage = self.stage();
        let JobStage::Unrecorded(parting) = &mut *stage else { return Ok(()) };
        let status = if call.error.is_some() { CallStatus::Failed } else { CallStatus::Completed };
        let mut record = JobRecord {
            job_id: self.id.to_string(),
            server_name: Some(call.server.to_owned()),
            created_at: call.began,
            status,
            finished_at: call.ended,
            error: call.error.map(str::to_owned),
            is_error: call.is_error,
            trace_id: call.trace.clone(),
            exit: None,
            files: call.files.to_vec(),
            facts: call.facts.clone(),
        };
        std::mem::take(parting).add_to(&mut record);
        let written = self.folder().and_then(|folder| self.write(&record, call, &folder));
        *stage = JobStage::Recorded(Box::new(record));
        written
    }

    fn write(&self, record: &JobRecord, call: &Finished<'_>, folder: &OwnedFd) -> io::Result<()> {
        // Where there is no room for what was said, there may be some for how it ended.
        let request = self.write_payload(folder, REQUEST, Some(&[call.request]));
        let response = self.write_payload(folder, RESPONSE, call.response);
        let has_payloads = self.store.options.store_payloads;
        let known = Payloads {
            request: Some(call.request).filter(|_| has_payloads && request.is_ok()),
            response: call.response.filter(|_| has_payloads && response.is_ok()),
        };
        let written = record.write_with(folder, known);
        self.store.deferred.settle(record, &written);
        written.and(request).and(response)
    }

    fn write_payload(
        &self,
        folder: &OwnedFd,
        name: &str,
        payload: Option<&[&[u8]]>,
    ) -> io::Result<()> {
        match payload.filter(|_| self.store.options.store_payloads) {
            None => Ok(()),
            Some(pieces) => write_whole(folder, name, |file| {
                pieces.iter().try_for_each(|piece| file.write_all(piece))
            }),
        }
    }

    /// Records how the child ended, and what it wrote on its way out: often after the answer, and before
    /// the record is written or behind it.
    pub fn note_exit(&self, exit: Option<String>, files: Vec<Made>) {
        let parting = Parting { exit, files };
        match &mut *self.stage() {
            JobStage::Unrecorded(known) => *known = parting,
            JobStage::Recorded(record) => {
                if parting.add_to(record) {
                    let written = self.folder().and_then(|folder| record.write(&folder));
                    self.store.deferred.settle(record, &written);
                    self.tell(written, "the end of the child is not recorded");
                }
            }
            JobStage::Gone => {}
        }
    }

    /// Writes what the child said on its standard error to `server.log`; of too much, the end.
    pub fn write_log(&self, lines: &[String]) {
        let written = self.folder().and_then(|folder| log::write(&folder, lines));
        self.tell(written, "what the child said is not recorded");
    }

    /// Copies files of a session's workspace into this job, so that links to them stay as they are.
    ///
    /// What vanished meanwhile, or is no plain file any more, is not in it.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or would leave too little room on the disk; the files before it
    /// are there, no half of it is.
    pub fn adopt(&self, workspace: &SessionWorkspace, made: &[Made]) -> Result<Adopted, JobError> {
        let copied = self.deliver(|delivery| {
            let from = workspace.open()?;
            let mut adopted = Adopted::default();
            for made in made {
                match delivery.copy(&from, &made.path)? {
                    Copied::Here(made) => adopted.made.push(made),
                    Copied::Gone => {}
                    Copied::TooLarge(made) => {
                        let (job_id, size) = (self.id, made.size);
                        warn!(%job_id, file = made.path, size, "a file is too large to be kept");
                        adopted.too_large.push(made);
                    }
                }
            }
            Ok(adopted)
        });
        copied.map_err(|error| self.explain("copy a file", error))
    }

    fn deliver<T>(&self, work: impl FnOnce(&mut Delivery<'_>) -> io::Result<T>) -> io::Result<T> {
        let store = &self.store;
        let has_room_for = |bytes| store.disk.has_room_for(&store.root, bytes);
        // The child may have removed its own directory.
        let files = make_folder(self.folder()?, FILES, Mode::RWXU)?;
        work(&mut Delivery::new(files, MAX_COPIED, &has_room_for)?)
    }

    /// Puts a file into the job, under a name as near to `name` as may be.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then no half of it is left.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<Made, JobError> {
        let put = self.deliver(|delivery| delivery.put(&closest(name), bytes));
        put.map_err(|error| self.explain("write a file", error))
    }

    /// Gives the child's directory to the user it runs as.
    ///
    /// # Errors
    ///
    /// When we may not: only the superuser can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        give(&self.files_folder()?, uid, gid)
    }

    /// Removes the job and all its files.
    pub fn discard(&self) {
        *self.stage() = JobStage::Gone;
        let removed = trash::remove(&self.store.root, &self.store.root.fd(), &self.id.to_string());
        self.tell(removed, "a job is not removed yet");
    }

    fn stage(&self) -> MutexGuard<'_, JobStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job's own directory. Opened anew each time: thousands of jobs may be in use.
    fn folder(&self) -> io::Result<OwnedFd> {
        open_folder(self.store.root.fd(), self.id.to_string().as_bytes())
    }

    fn files_folder(&self) -> io::Result<OwnedFd> {
        open_folder(self.folder()?, FILES.as_bytes())
    }

    fn explain(&self, what: &'static str, error: io::Error) -> JobError {
        self.store.disk.explain(&self.store.root, what, error)
    }

    fn tell(&self, done: io::Result<()>, what: &'static str) {
        if let Err(error) = done {
            let is_full = is_full(&error);
            warn!(job_id = %self.id, error = &error as &dyn std::error::Error, is_full, "{what}");
        }
    }

    /// Removes a job in which nothing was done. Its files were nobody's yet, so there are few.
    fn remove_unused(&self) -> io::Result<()> {
        let name = self.id.to_string();
        let root = self.store.root.fd();
        let parts = [format!("{name}/{FILES}"), name.clone()];
        let mut removed = Ok(());
        for part in parts {
            removed = unlinkat(&root, part, AtFlags::REMOVEDIR);
        }
        match removed {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            // The child wrote something: moving it away is quick, the next sweep removes it.
            Err(_) => trash::throw_away(&self.store.root, &root, &name).map(drop),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(*self.stage(), JobStage::Unrecorded(_)) {
            self.tell(self.remove_unused(), "an unused job is not removed yet");
        }
        self.store.in_use().remove(&self.id);
    }
}

/// Makes what a new job's directory holds.
fn fill(store: &SharedStore, name: &str) -> io::Result<Snapshot> {
    let root = store.root.fd();
    let passage = store.root.passage();
    if passage != Mode::RWXU {
        // Our own mask may have taken these away.
        chmodat(&root, name, passage, AtFlags::empty())?;
    }
    let files = format!("{name}/{FILES}");
    mkdirat(&root, &files, Mode::RWXU)?;
    Snapshot::of_new(root, &files)
}

#[cfg(test)]
mod tests;
