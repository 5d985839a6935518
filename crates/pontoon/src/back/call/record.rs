//! The record of a tool call: its job, the files it made, and how it ended.
//!
//! A stateless call has a job from the start. A call on a kept child gets one only if it left files,
//! else one line in the journal. Records are written behind the answer. A record that is dropped
//! before its end says that the call was given up, so no job stays unfinished.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use pontoon_wire::{Message, Rewrite, Slot, Text};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{self, Offer};
use super::mentions::with_mentions;
use crate::back::Back;
use crate::back::child::workspace::{OwnJob, Workspace, blocking};
use crate::back::keep::lease::Lease;
use crate::call::{CallError, Receipt};
use crate::client::Client;
use crate::config::{FileLinks, Mode};
use crate::jobs::{Adopted, Bounds, Ending, Entry, Job, JobError, Later, Made, Snapshot, Visit};
use crate::observe::metrics::Limit;

/// So many files of one call are named in its answer; the others are in its job all the same.
const MAX_OFFERS: usize = 50;

/// Where the call makes its files.
#[derive(Debug)]
enum Site {
    Job(Arc<OwnJob>),
    Space(Arc<Visit>),
}

/// The record of one call, until its end.
#[derive(Debug)]
pub(crate) struct Record<'b> {
    back: &'b Back,
    site: Site,
    request: Message,
    id: Bytes,
    began: SystemTime,
    /// Nobody contends for it: its exchange has many ways to end, and each ends it.
    state: Mutex<State>,
}

/// What of a record changes.
#[derive(Debug, Default)]
struct State {
    job: Option<Arc<Job>>,
    /// The beginning of its job, until it is written.
    beginning: Option<Later>,
    /// Held until the end is written, so that records cannot pile up. Gone with the end.
    slot: Option<OwnedSemaphorePermit>,
}

impl Back {
    /// Begins the record of a tool call on this child.
    pub(crate) async fn begin_record(
        &self,
        lease: &Lease,
        request: &Message,
        id: &Bytes,
    ) -> Result<Option<Box<Record<'_>>>, CallError> {
        let Some(place) = lease.child().workspace.clone() else { return Ok(None) };
        let slot = self.around.writer.slot().ok_or_else(|| {
            self.around.machine.metrics.refused(Limit::Records);
            let what = "busy: the disk does not keep up with the records of calls".to_owned();
            CallError::Busy { what, retry_after_seconds: 5 }
        })?;
        let job = match (&place, self.server.mode) {
            (Workspace::Job(own), _) => {
                own.keep();
                Some(Arc::clone(&own.job))
            }
            (Workspace::Session(_), Mode::Stateless) => {
                let job = self.around.machine.new_job().await;
                Some(job.map_err(|error| self.around.machine.no_workspace(&error))?)
            }
            (Workspace::Session(_), Mode::Stateful { .. }) => None,
        };
        let site = match place {
            Workspace::Job(own) => Site::Job(own),
            Workspace::Session(space) => Site::Space(Arc::new(space.visit())),
        };
        // In a box, so that the call stays small: it is moved more than once.
        let record = Box::new(Record {
            back: self,
            site,
            request: request.clone(),
            id: id.clone(),
            began: SystemTime::now(),
            state: Mutex::new(State { slot: Some(slot), ..State::default() }),
        });
        if let Some(job) = job {
            record.begin_job(job);
        }
        Ok(Some(record))
    }
}

impl Record<'_> {
    fn begin_job(&self, job: Arc<Job>) {
        let own = Arc::clone(&job);
        self.back.around.machine.metrics.jobs.bump();
        let (server, request, began) =
            (Arc::clone(&self.back.server), self.request.clone(), self.began);
        let begin = move || job.begin(server.name.as_str(), request.text(), began);
        let later = self.back.around.writer.write_later(begin);
        let mut state = self.state();
        (state.job, state.beginning) = (Some(own), Some(later));
    }

    fn job(&self) -> Option<Arc<Job>> {
        self.state().job.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the call is recorded, if it has a job.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.job().map(|job| Receipt { job: job.id(), files: Vec::new() })
    }

    /// The job, made now if the call had none.
    async fn job_made(&self) -> Result<Arc<Job>, CallError> {
        if let Some(job) = self.job() {
            return Ok(job);
        }
        let job = self
            .back
            .around
            .machine
            .new_job()
            .await
            .map_err(|error| self.back.around.machine.not_kept(&error))?;
        self.begin_job(Arc::clone(&job));
        Ok(job)
    }

    /// Finds what the call made, and names it in the answer.
    pub(crate) async fn complete(
        &self,
        answer: Message,
        before: Option<&Snapshot>,
        client: &Client,
    ) -> Result<(Message, Option<Receipt>, Vec<Made>), CallError> {
        if self.back.server.files == FileLinks::Off {
            return Ok((answer, self.receipt(), Vec::new()));
        }
        let Adopted { mut made, too_large } = self.made(before, &answer).await?;
        let in_workspace = made.len();
        made.extend(self.embedded(&answer).await?);
        let answer = match self.back.server.files {
            FileLinks::Append => with_mentions(answer),
            FileLinks::Header | FileLinks::Off => answer,
        };
        let Some(job) = self.job() else { return Ok((answer, None, made)) };
        let now = SystemTime::now();
        let told = made.iter().take(MAX_OFFERS).enumerate();
        let offers: Vec<_> = told
            .map(|(index, made)| {
                let newest = || self.newest(&made.path, client, now);
                let newest = (index < in_workspace).then(newest).flatten();
                Offer { newest, ..self.offer(&job, made, client, now) }
            })
            .collect();
        let more = made.len() - offers.len();
        let files = offers.iter().map(|offer| (offer.name.clone(), offer.url.clone())).collect();
        let receipt = Receipt { job: job.id(), files };
        let answer = match self.back.server.files {
            FileLinks::Append => {
                let expires = now + self.back.around.file_expiry;
                let expires = humantime::format_rfc3339_seconds(expires).to_string();
                answer::with_files(answer, &offers, more, &too_large, &expires, client.revision)
            }
            FileLinks::Header | FileLinks::Off => answer,
        };
        Ok((answer, Some(receipt), made))
    }

    fn offer(&self, job: &Job, made: &Made, client: &Client, now: SystemTime) -> Offer {
        let (links, origin) = (&self.back.around.links, &client.person.origin);
        let job = job.id().to_string();
        let url = links.url(origin.base(), &job, &made.path, now);
        let uri = links.url(origin.address(), &job, &made.path, now);
        Offer { name: made.path.clone(), size: made.size, mime: made.mime, url, uri, newest: None }
    }

    /// Where the newest version of a file is, if the call worked where its conversation keeps its files.
    fn newest(&self, path: &str, client: &Client, now: SystemTime) -> Option<String> {
        let Site::Space(visit) = &self.site else { return None };
        let around = &self.back.around;
        let id = around.machine.store.newest(visit.space(), path).ok()?;
        Some(around.links.url(client.person.origin.base(), &id, path, now))
    }

    /// The files that are new or changed since the call began, in its job.
    async fn made(
        &self,
        before: Option<&Snapshot>,
        answer: &Message,
    ) -> Result<Adopted, CallError> {
        let hints = self.hints(answer);
        match &self.site {
            Site::Job(own) => {
                let is_current = |it: &Snapshot| it.is_surely_current(own.job.files());
                if hints.is_empty() && before.is_some_and(is_current) {
                    return Ok(Adopted::default());
                }
                let (job, before) = (Arc::clone(&own.job), before.cloned().unwrap_or_default());
                let found = blocking(move || {
                    match Snapshot::made_in(job.files(), Bounds::default(), &before, &hints) {
                        // The call removed its own directory, and with it all that it made.
                        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                        made => {
                            made.map_err(|source| JobError::Io { what: "look for files", source })
                        }
                    }
                });
                let made =
                    found.await.map_err(|error| self.back.around.machine.not_kept(&error))?;
                Ok(Adopted { made, ..Adopted::default() })
            }
            Site::Space(visit) => {
                if hints.is_empty() && visit.is_surely_idle() {
                    return Ok(Adopted::default());
                }
                let (store, looking) = (self.back.around.machine.store.clone(), Arc::clone(visit));
                let found = blocking(move || store.made(&looking, &hints)).await;
                let found = found.map_err(|error| self.back.around.machine.not_kept(&error))?;
                if found.is_empty() {
                    return Ok(Adopted::default());
                }
                let adopted = self.adopt(visit, found.clone()).await;
                if adopted.is_err() {
                    // They are still in the workspace, and the next call that can will bring them.
                    visit.unsee(&found);
                }
                adopted
            }
        }
    }

    /// Copies files of the workspace into the job.
    async fn adopt(&self, visit: &Arc<Visit>, found: Vec<Made>) -> Result<Adopted, CallError> {
        let (job, visit) = (self.job_made().await?, Arc::clone(visit));
        let adopted = blocking(move || job.adopt(visit.space(), &found)).await;
        adopted.map_err(|error| self.back.around.machine.not_kept(&error))
    }

    /// What arguments and answer say of where files are, as paths inside the workspace.
    fn hints(&self, answer: &Message) -> Vec<String> {
        let fields = &self.back.server.file_path_fields;
        if fields.is_empty() {
            return Vec::new();
        }
        let arguments = self.request.raw(Slot::Arguments).unwrap_or_default();
        let result = answer.raw(Slot::Result).unwrap_or_default();
        let mut hints = answer::hints(arguments, fields);
        hints.extend(answer::hints(result, fields));
        let root = match &self.site {
            Site::Job(own) => own.job.files(),
            Site::Space(visit) => visit.space().files(),
        };
        hints.into_iter().filter_map(|hint| inside(root, &hint)).collect()
    }

    /// Files that stand in the result itself, kept in the job so that they can be fetched.
    async fn embedded(&self, answer: &Message) -> Result<Vec<Made>, CallError> {
        let blobs = answer::embedded(answer);
        if blobs.is_empty() {
            return Ok(Vec::new());
        }
        let (job, text) = (self.job_made().await?, answer.text().clone());
        let put = blocking(move || {
            let mut made = Vec::new();
            for blob in blobs.into_iter().take(MAX_OFFERS) {
                // What is no base64 is no file of ours to offer.
                if let Some(bytes) = blob.bytes(&text) {
                    made.push(job.put(&blob.name, &bytes)?);
                }
            }
            Ok(made)
        });
        put.await.map_err(|error| self.back.around.machine.not_kept(&error))
    }

    /// Writes that the call was answered like this.
    pub(crate) fn completed(&self, answer: &Message, made: Vec<Made>) {
        self.end(Some(answer), None, made);
    }

    /// Writes nothing: the call was never made, and is tried again.
    pub(crate) fn forget(&self) {
        self.state().slot = None;
        // Its child is dead, and what it was to work in is nobody's.
        if let Site::Job(own) = &self.site {
            own.let_go();
        }
    }

    /// Writes why the call failed.
    pub(crate) fn failed(&self, why: &str) {
        self.end(None, Some(why.to_owned()), Vec::new());
    }

    /// Writes why the call failed, and takes what it left away: there is no room for half of it.
    pub(crate) fn abandoned(&self, why: &str) {
        let job = self.state().job.take();
        match (&self.site, job) {
            // Its child is still at work there, so it goes after that.
            (Site::Job(own), _) => own.let_go(),
            (Site::Space(_), Some(job)) => self.back.around.writer.write(0, move || {
                job.discard();
                Ok(())
            }),
            (Site::Space(_), None) => {}
        }
        self.failed(why);
    }

    fn end(&self, answer: Option<&Message>, error: Option<String>, files: Vec<Made>) {
        let (slot, job) = {
            let mut state = self.state();
            (state.slot.take(), state.job.clone())
        };
        match (slot, job) {
            (Some(slot), Some(job)) => self.end_job(slot, job, answer, error, files),
            (Some(_), None) => self.write_journal(error.as_deref()),
            // It has ended before.
            (None, _) => {}
        }
    }

    fn write_journal(&self, error: Option<&str>) {
        let tool = self.request.string(Slot::Name).unwrap_or_default();
        let entry = Entry {
            server: self.back.server.name.as_str(),
            tool: &tool,
            began: self.began,
            took: self.began.elapsed().unwrap_or_default(),
            error,
        };
        let around = &self.back.around;
        if around.machine.store.journal(&entry) {
            let store = around.machine.store.clone();
            around.writer.write(0, move || {
                store.write_journal();
                Ok(())
            });
        }
    }

    fn end_job(
        &self,
        slot: OwnedSemaphorePermit,
        job: Arc<Job>,
        answer: Option<&Message>,
        error: Option<String>,
        files: Vec<Made>,
    ) {
        let (server, began, now) = (Arc::clone(&self.back.server), self.began, SystemTime::now());
        let beginning = self.state().beginning.take();
        let is_unwritten = beginning.is_some_and(|later| self.back.around.writer.take_back(&later));
        let request = is_unwritten.then(|| self.request.clone());
        // As its client knows it.
        let response = answer
            .map(|answer| Rewrite::new(answer.clone()).replace(Slot::Id, self.id.clone()).finish());
        let bytes = request.as_ref().map_or(0, |request| request.text().len())
            + response.as_ref().map_or(0, Text::len);
        self.back.around.writer.write(bytes, move || {
            let _slot = slot;
            let pieces: Option<Vec<&[u8]>> =
                response.as_ref().map(|text| text.pieces().iter().map(Bytes::as_ref).collect());
            let ending = Ending {
                response: pieces.as_deref(),
                error: error.as_deref(),
                files: &files,
                now,
                exit: None,
            };
            match request {
                Some(request) => job.record(server.name.as_str(), request.text(), began, &ending),
                None => job.finish(&ending),
            }
        });
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.failed("the call was cancelled, or the bridge stopped, before the server answered");
    }
}

/// A path that a server or client named, as one inside `root`; `None` if it leads elsewhere.
fn inside(root: &Path, hint: &str) -> Option<String> {
    let path = Path::new(hint);
    let path = if path.is_absolute() { path.strip_prefix(root).ok()? } else { path };
    let path = path.strip_prefix(".").unwrap_or(path);
    let is_plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    is_plain.then(|| path.to_str().map(str::to_owned)).flatten().filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_counts_only_inside_the_workspace() {
        let root = Path::new("/jobs/1/files");
        let check = |hint: &str, expected: Option<&str>| {
            assert_eq!(inside(root, hint).as_deref(), expected, "{hint}");
        };
        check("a.pptx", Some("a.pptx"));
        check("./out/a.pptx", Some("out/a.pptx"));
        check("/jobs/1/files/a.pptx", Some("a.pptx"));
        check("/jobs/1/request.json", None);
        check("../request.json", None);
        check("/etc/passwd", None);
        check("out/../../x", None);
        check("", None);
    }
}
