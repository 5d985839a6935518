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
use super::record::{Payloads, REQUEST, RESPONSE, Record, Status};
use super::session_space::SessionSpace;
use super::snapshot::{Made, Snapshot};
use super::store::Inner;
use super::trash;
use crate::plain_file::write_whole;

/// The name of the child's directory in a job and in a session's space.
pub(super) const FILES: &str = "files";

/// How a call ended.
#[derive(Debug, Clone)]
pub struct Ending<'a> {
    /// When.
    pub now: SystemTime,
    /// The answer as JSON text, in the pieces it is in; `None` where there is none.
    pub response: Option<&'a [&'a [u8]]>,
    /// Why the call failed; `None` where it did not.
    pub error: Option<&'a str>,
    /// The files it made.
    pub files: &'a [Made],
    /// How the child ended, if it has.
    pub exit: Option<String>,
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
/// Dropping a job that was never begun removes it. One that was begun and not finished is then
/// recorded as failed, so that none stays under way for ever.
#[derive(Debug)]
pub struct Job {
    store: Arc<Inner>,
    id: Uuid,
    files: PathBuf,
    /// What was in `files` when it was made: nothing.
    new: Snapshot,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    record: Record,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Made, and perhaps waiting for its call in the hands of a spare child.
    Fresh,
    /// Begun.
    Begun,
    /// Its ending is recorded.
    Ended,
    /// Thrown away.
    Gone,
}

impl State {
    /// Known even if it cannot be written now: the ending will tell it.
    fn begin(&mut self, server: &str, now: SystemTime) {
        self.stage = Stage::Begun;
        self.record.server_name = Some(server.to_owned());
        self.record.created_at = now;
    }
}

impl Job {
    /// Makes the directories, and nothing else: this is on the path of a call.
    pub(super) fn make(store: &Arc<Inner>) -> Result<Self, JobError> {
        let id = Uuid::new_v4();
        let name = id.to_string();
        let files = store.root.path().join(&name).join(FILES);
        // In use before it is there, so that nobody finds it without an owner.
        store.in_use().insert(id);
        let state = State { stage: Stage::Fresh, record: Record::new(name.clone()) };
        let state = Mutex::new(state);
        let new = Snapshot::default();
        let mut job = Self { store: Arc::clone(store), id, files, new, state };
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

    /// Records that the call has begun: its server, and its request as JSON text.
    ///
    /// # Errors
    ///
    /// When the records cannot be written; see [`is_full`].
    pub fn begin(&self, server: &str, request: &[u8], now: SystemTime) -> io::Result<()> {
        let mut state = self.state();
        if state.stage == Stage::Gone {
            return Ok(());
        }
        state.begin(server, now);
        let folder = self.folder()?;
        self.write_payload(&folder, REQUEST, Some(&[request]))?;
        state.record.write(&folder)
    }

    /// Records a call that has ended already, without saying first that it goes on.
    ///
    /// # Errors
    ///
    /// As [`Job::begin`].
    pub fn record(
        &self,
        server: &str,
        request: &[u8],
        began: SystemTime,
        ending: &Ending<'_>,
    ) -> io::Result<()> {
        let mut state = self.state();
        if state.stage == Stage::Gone {
            return Ok(());
        }
        state.begin(server, began);
        let folder = self.folder();
        let kept = match &folder {
            Ok(folder) => self.write_payload(folder, REQUEST, Some(&[request])),
            Err(_) => Ok(()),
        };
        self.end(&mut state, folder, kept.is_ok().then_some(request), ending).and(kept)
    }

    /// Records how the call ended. May be called again, when files came later: the last counts.
    ///
    /// # Errors
    ///
    /// When the records cannot be written; see [`is_full`].
    pub fn finish(&self, ending: &Ending<'_>) -> io::Result<()> {
        let mut state = self.state();
        match state.stage {
            Stage::Gone => return Ok(()),
            Stage::Fresh => state.record.created_at = ending.now,
            Stage::Begun | Stage::Ended => {}
        }
        self.end(&mut state, self.folder(), None, ending)
    }

    /// `request` is the one that was just written, if it was.
    fn end(
        &self,
        state: &mut State,
        folder: io::Result<OwnedFd>,
        request: Option<&[u8]>,
        ending: &Ending<'_>,
    ) -> io::Result<()> {
        // Until it is written. If it cannot be, that is tried again when the job is dropped.
        state.stage = Stage::Begun;
        let record = &mut state.record;
        record.status = if ending.error.is_some() { Status::Failed } else { Status::Completed };
        record.finished_at = Some(ending.now);
        record.error = ending.error.map(str::to_owned);
        record.files = ending.files.to_vec();
        if ending.exit.is_some() {
            record.exit.clone_from(&ending.exit);
        }
        let folder = folder?;
        let kept = self.write_payload(&folder, RESPONSE, ending.response);
        let has_payloads = self.store.options.store_payloads;
        let known = Payloads {
            request: request.filter(|_| has_payloads),
            response: ending.response.filter(|_| has_payloads && kept.is_ok()),
        };
        // Where there is no room for the answer, there may be some for how it ended.
        record.write_with(&folder, known)?;
        state.stage = Stage::Ended;
        kept
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

    /// Records how the child ended, which is often after the answer.
    pub fn note_exit(&self, how: &str) {
        let mut state = self.state();
        let is_new = state.record.exit.replace(how.to_owned()).as_deref() != Some(how);
        // Before the ending it will be written with that.
        if is_new && state.stage == Stage::Ended {
            let written = self.folder().and_then(|folder| state.record.write(&folder));
            self.tell(written, "the end of the child is not recorded");
        }
    }

    /// Writes what the child said on its standard error to `server.log`; of too much, the end.
    pub fn write_log(&self, lines: &[String]) {
        let written = self.folder().and_then(|folder| log::write(&folder, lines));
        self.tell(written, "what the child said is not recorded");
    }

    /// Copies files of a session's space into this job, so that links to them stay as they are.
    ///
    /// What vanished meanwhile, or is no plain file any more, is not in it.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or would leave too little room on the disk; the files before it
    /// are there, no half of it is.
    pub fn adopt(&self, space: &SessionSpace, made: &[Made]) -> Result<Adopted, JobError> {
        let copied = self.deliver(|delivery| {
            let from = space.open()?;
            let mut adopted = Adopted::default();
            for made in made {
                match delivery.copy(&from, &made.path)? {
                    Copied::Here(made) => adopted.made.push(made),
                    Copied::Gone => {}
                    Copied::TooLarge(made) => {
                        let (job, size) = (self.id, made.size);
                        warn!(%job, file = made.path, size, "a file is too large to be kept");
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
        self.state().stage = Stage::Gone;
        let removed = trash::remove(&self.store.root, &self.store.root.fd(), &self.id.to_string());
        self.tell(removed, "a job is not removed yet");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            warn!(job = %self.id, error = &error as &dyn std::error::Error, is_full, "{what}");
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
        let stage = self.state().stage;
        if stage == Stage::Fresh {
            self.tell(self.remove_unused(), "an unused job is not removed yet");
        }
        if stage == Stage::Begun {
            let mut state = self.state();
            let record = &mut state.record;
            if record.status == Status::Processing {
                record.status = Status::Failed;
                record.error = Some("the call was given up before its answer".to_owned());
                record.finished_at = Some(SystemTime::now());
            }
            let written = self.folder().and_then(|folder| record.write(&folder));
            if let Err(error) = &written {
                self.store.late.keep(record.clone(), error);
            }
            self.tell(written, "the end of a job is not recorded yet");
        }
        self.store.in_use().remove(&self.id);
    }
}

/// Makes what a new job's directory holds.
fn fill(store: &Inner, name: &str) -> io::Result<Snapshot> {
    let root = store.root.fd();
    let passage = store.root.passage();
    if passage != Mode::RWXU {
        // Our own mask may have taken these away.
        chmodat(&root, name, passage, AtFlags::empty())?;
    }
    let files = format!("{name}/{FILES}");
    mkdirat(&root, &files, Mode::RWXU)?;
    Snapshot::of_new(open_folder(root, files.as_bytes())?)
}

#[cfg(test)]
mod tests;
