//! The record of a tool call: its line in the journal, its job, the files it made, and how it ended.
//!
//! A stateless call has a job from the start; a call on a kept child gets one only if it left files. A
//! record is written once, when the call is over, behind the answer. One that is dropped before says that
//! the call was given up, so no job stays without an end.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use pontoon_supervise::Complaints;
use pontoon_wire::{Message, Rewrite, Slot, Text};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::answer::{self, Offer};
use super::mentions::with_mentions;
use crate::back::Back;
use crate::back::child::workspace::{OwnJob, Workspace, blocking};
use crate::back::keep::lease::Lease;
use crate::call::{CallError, CallNote, NotedEnd, Receipt, Reply};
use crate::client::Client;
use crate::config::{FileLinks, Mode};
use crate::jobs::{
    Adopted, Bounds, CallFacts, CallStatus, Finished, Job, JobError, Made, NewFiles, Snapshot,
    WorkspaceCall,
};
use crate::observe::metrics::Limit;
use crate::observe::trace::note_job;
use crate::outbox::OutcomeForm;

/// At most this many files of one call are named in its answer; the others are in its job all the same.
const MAX_OFFERS: usize = 50;

/// Where the call makes its files.
#[derive(Debug)]
enum CallFiles {
    Job(Arc<OwnJob>),
    Workspace(Arc<WorkspaceCall>),
}

/// The record of one call, until its end.
#[derive(Debug)]
pub(crate) struct CallRecord<'b> {
    back: &'b Back,
    request: Message,
    client: Arc<Client>,
    /// The client's own id of the request.
    id: Bytes,
    began: SystemTime,
    /// Tells how the call ends. Gone with the end.
    note: Option<CallNote>,
    /// Held until the record is written, so that records cannot pile up. Gone with the end.
    slot: Option<OwnedSemaphorePermit>,
    /// `None` until a child has the call.
    files: Option<CallFiles>,
    job: Option<Arc<Job>>,
    made: Vec<Made>,
    /// What the child complains of, and how many lines of that came before the call. `None` where its end puts all of it
    /// into the job.
    complaints: Option<(Complaints, u64)>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd<'a> {
    /// The server gave this answer, a result or an error.
    Answered(&'a Message),
    /// There is no answer of the server, for this reason.
    Failed(&'a CallError),
    /// The same, and what the call left is taken away: there is no room for half of it.
    Abandoned(&'a CallError),
    /// Its client wanted no answer any more, or the bridge stopped.
    GivenUp,
}

impl Back {
    /// A note of this request, if it calls a tool.
    pub fn note_of(&self, request: &Message, client: &Client) -> Option<CallNote> {
        CallNote::of(&self.around.machine.calls, &self.server, &client.person, request)
    }

    /// Opens the record of a tool call.
    pub(crate) fn open_record(
        &self,
        request: &Message,
        client: &Arc<Client>,
        reply: &mut Reply,
    ) -> Result<CallRecord<'_>, CallError> {
        let slot = self.around.machine.writer.slot().ok_or_else(|| {
            self.around.machine.metrics.refused(Limit::Records);
            let what = "busy: the disk does not keep up with the records of calls".to_owned();
            CallError::Busy { what, retry_after_seconds: 5 }
        })?;
        let note = reply.take_note().or_else(|| self.note_of(request, client));
        Ok(CallRecord {
            back: self,
            request: request.clone(),
            client: Arc::clone(client),
            id: reply.id().clone(),
            began: SystemTime::now(),
            note: note.map(|note| note.as_made(request)),
            slot: Some(slot),
            files: None,
            job: None,
            made: Vec::new(),
            complaints: None,
        })
    }
}

impl CallRecord<'_> {
    /// Says that this child has the call, and makes the job that a stateless call has.
    pub(crate) async fn begin_at(&mut self, lease: &Lease) -> Result<(), CallError> {
        let Some(child) = lease.child() else { return Ok(()) };
        match child.workspace.clone() {
            // What lies there is no call's.
            None | Some(Workspace::Temporary(_)) => {}
            Some(Workspace::Job(own)) => {
                own.keep();
                self.set_job(Arc::clone(&own.job));
                self.files = Some(CallFiles::Job(own));
            }
            Some(Workspace::Session(workspace)) => {
                let complaints = child.words.complaints.clone();
                let before = match self.back.server.mode {
                    Mode::Stateless => 0,
                    Mode::Stateful { .. } | Mode::Shared { .. } => complaints.count(),
                };
                self.complaints = Some((complaints, before));
                if matches!(self.back.server.mode, Mode::Stateless) {
                    let job = self.back.around.machine.new_job().await;
                    self.set_job(
                        job.map_err(|error| self.back.around.machine.no_workspace(&error))?,
                    );
                }
                self.files = Some(CallFiles::Workspace(Arc::new(workspace.begin_call())));
            }
        }
        Ok(())
    }

    /// Takes the call back from a child that never read it: it may be given to another.
    pub(crate) fn take_back(&mut self) {
        // The child is dead, and the job it was to work in goes with it.
        if let Some(CallFiles::Job(own)) = self.files.take() {
            own.let_go();
        }
        self.job = None;
    }

    fn set_job(&mut self, job: Arc<Job>) {
        self.back.around.machine.metrics.jobs.bump();
        note_job(job.id());
        self.job = Some(job);
    }

    /// The job in which the call is recorded, if it has one.
    pub(crate) fn job_id(&self) -> Option<Uuid> {
        self.job.as_ref().map(|job| job.id())
    }

    /// Where the call is recorded, if it has a job.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.job_id().map(|job| Receipt { job, files: Vec::new(), blocks: 0 })
    }

    /// The job, made now if the call had none.
    pub(super) async fn job_made(&mut self) -> Result<Arc<Job>, CallError> {
        if let Some(job) = &self.job {
            return Ok(Arc::clone(job));
        }
        let job = self.back.around.machine.new_job().await;
        let job = job.map_err(|error| self.not_kept(&error))?;
        self.set_job(Arc::clone(&job));
        Ok(job)
    }

    /// What the client hears when something of its call cannot be kept.
    pub(super) fn not_kept(&self, error: &JobError) -> CallError {
        self.back.around.machine.not_kept(error)
    }

    /// Finds what the call made, and names it in the answer, which goes out by this reply.
    pub(crate) async fn complete(
        &mut self,
        answer: Message,
        before: Option<&Snapshot>,
        reply: &Reply,
    ) -> Result<(Message, Option<Receipt>), CallError> {
        if self.back.server.files == FileLinks::Off {
            return Ok((answer, self.receipt()));
        }
        let looking = self.files.as_ref().and_then(|_| reply.step("files"));
        let (Adopted { mut made, too_large }, found) = self.find_made(before, &answer).await?;
        let in_workspace = made.len();
        made.extend(self.embedded(&answer).await?);
        drop(looking);
        let form = reply.settle();
        let (answer, spilled) = match (self.back.server.files, form) {
            (FileLinks::Append, OutcomeForm::Event) => self.spill(answer).await,
            _ => (answer, None),
        };
        // Nothing can fail from here on. Else they are told to the next call.
        if let Some(found) = found {
            found.delivered();
        }
        let answer = match self.back.server.files {
            FileLinks::Append => with_mentions(answer),
            FileLinks::Header | FileLinks::Off => answer,
        };
        let Some(job) = self.job.clone() else { return Ok((answer, None)) };
        let (now, client) = (SystemTime::now(), Arc::clone(&self.client));
        let client = &*client;
        let of_workspace = made.iter().enumerate().map(|(index, made)| {
            let newest = || self.newest(&made.path, client, now);
            let newest = (index < in_workspace).then(newest).flatten();
            Offer { newest, ..self.offer(&job, made, client, now) }
        });
        let of_result = spilled.iter().map(|made| self.offer(&job, made, client, now));
        let offers: Vec<_> = of_result.chain(of_workspace).take(MAX_OFFERS).collect();
        let more = made.len() + spilled.iter().len() - offers.len();
        let files = offers.iter().map(|offer| (offer.name.clone(), offer.url.clone())).collect();
        let has_head = form == OutcomeForm::Whole;
        let (answer, blocks) = match (self.back.server.files, has_head) {
            // The head of a stream that has begun is gone, and links in it would be lost.
            (FileLinks::Append, _) | (FileLinks::Header, false) => {
                let expires = now + self.back.around.file_expiry;
                let expires = humantime::format_rfc3339_seconds(expires).to_string();
                answer::with_files(answer, &offers, more, &too_large, &expires, client.revision)
            }
            (FileLinks::Header | FileLinks::Off, _) => (answer, 0),
        };
        let receipt = Receipt { job: job.id(), files, blocks };
        made.extend(spilled);
        self.made = made;
        Ok((answer, Some(receipt)))
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
        let Some(CallFiles::Workspace(call)) = &self.files else { return None };
        let around = &self.back.around;
        let id = around.machine.store.newest(call.workspace(), path).ok()?;
        Some(around.links.url(client.person.origin.base(), &id, path, now))
    }

    /// The files that are new or changed since the call began, in its job. Those of a workspace are still to
    /// be delivered.
    async fn find_made(
        &mut self,
        before: Option<&Snapshot>,
        answer: &Message,
    ) -> Result<(Adopted, Option<NewFiles>), CallError> {
        let hints = self.hints(answer);
        match &self.files {
            None => Ok((Adopted::default(), None)),
            Some(CallFiles::Job(own)) => {
                let is_current = |it: &Snapshot| it.is_surely_current(own.job.files());
                if hints.is_empty() && before.is_some_and(is_current) {
                    return Ok((Adopted::default(), None));
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
                let made = found.await.map_err(|error| self.not_kept(&error))?;
                Ok((Adopted { made, ..Adopted::default() }, None))
            }
            Some(CallFiles::Workspace(call)) => {
                if hints.is_empty() && call.is_surely_idle() {
                    return Ok((Adopted::default(), None));
                }
                let call = Arc::clone(call);
                let (store, looking) = (self.back.around.machine.store.clone(), Arc::clone(&call));
                let found = blocking(move || store.new_files(&looking, &hints)).await;
                let found = found.map_err(|error| self.not_kept(&error))?;
                let adopted = match found.made.is_empty() {
                    true => Adopted::default(),
                    false => self.adopt(call, found.made.clone()).await?,
                };
                Ok((adopted, Some(found)))
            }
        }
    }

    /// Copies files of the workspace into the job.
    async fn adopt(
        &mut self,
        call: Arc<WorkspaceCall>,
        found: Vec<Made>,
    ) -> Result<Adopted, CallError> {
        let job = self.job_made().await?;
        let adopted = blocking(move || job.adopt(call.workspace(), &found)).await;
        adopted.map_err(|error| self.not_kept(&error))
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
        let root = match &self.files {
            Some(CallFiles::Job(own)) => own.job.files(),
            Some(CallFiles::Workspace(call)) => call.workspace().files(),
            None => return Vec::new(),
        };
        hints.into_iter().filter_map(|hint| inside(root, &hint)).collect()
    }

    /// Files that stand in the result itself, kept in the job so that they can be fetched.
    async fn embedded(&mut self, answer: &Message) -> Result<Vec<Made>, CallError> {
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
        put.await.map_err(|error| self.not_kept(&error))
    }

    /// Writes how the call ended, behind the answer.
    pub(crate) fn finish(mut self, end: &CallEnd<'_>) {
        self.write(end);
    }

    fn write(&mut self, end: &CallEnd<'_>) {
        let Some(slot) = self.slot.take() else { return };
        if let CallEnd::Abandoned(_) = end {
            self.discard_job();
        }
        let (answer, mut told) = match end {
            CallEnd::Answered(answer) => (Some(*answer), NotedEnd::answered(answer)),
            CallEnd::Failed(why) => (None, NotedEnd::failed(why)),
            // The call itself was made.
            CallEnd::Abandoned(why) => {
                (None, NotedEnd { status: CallStatus::Failed, ..NotedEnd::failed(why) })
            }
            CallEnd::GivenUp => (None, NotedEnd::given_up(self.back.closing.is_cancelled())),
        };
        (told.job, told.files) = (self.job_id(), self.made.len());
        let note = self.note.take();
        let has_job = self.job.is_some();
        let facts = note.as_ref().filter(|_| has_job).map(|note| note.facts(&told));
        let (error, is_error) = (told.error.clone(), told.is_error);
        if let Some(note) = note {
            note.tell(told);
        }
        if let Some(job) = self.job.take() {
            self.write_job(job, slot, answer, error, is_error, facts.unwrap_or_default());
        }
    }

    /// Takes the job away, after the child if that is still at work there.
    fn discard_job(&mut self) {
        match (self.job.take(), &self.files) {
            (_, Some(CallFiles::Job(own))) => own.let_go(),
            (Some(job), _) => self.back.around.machine.writer.write(0, move || {
                job.discard();
                Ok(())
            }),
            (None, _) => {}
        }
    }

    fn trace(&self) -> Option<String> {
        self.client.person.trace.as_ref().map(|trace| trace.id().to_string())
    }

    fn write_job(
        &mut self,
        job: Arc<Job>,
        slot: OwnedSemaphorePermit,
        answer: Option<&Message>,
        error: Option<String>,
        is_error: bool,
        facts: CallFacts,
    ) {
        let (server, began, ended) = (Arc::clone(&self.back.server), self.began, SystemTime::now());
        let (request, files, trace) =
            (self.request.clone(), std::mem::take(&mut self.made), self.trace());
        // As its client knows it.
        let response = answer
            .map(|answer| Rewrite::new(answer.clone()).replace(Slot::Id, self.id.clone()).finish());
        let bytes = request.text().len() + response.as_ref().map_or(0, Text::len);
        let said =
            self.complaints.take().map(|(complaints, before)| complaints.lines_after(before));
        self.back.around.machine.writer.write(bytes, move || {
            let _slot = slot;
            if let Some(lines) = said.filter(|lines| !lines.is_empty()) {
                job.write_log(&lines);
            }
            let pieces: Option<Vec<&[u8]>> =
                response.as_ref().map(|text| text.pieces().iter().map(Bytes::as_ref).collect());
            job.finish(&Finished {
                server: server.name.as_str(),
                request: request.text(),
                began,
                ended,
                response: pieces.as_deref(),
                error: error.as_deref(),
                is_error,
                trace,
                files: &files,
                facts,
            })
        });
    }
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        self.write(&CallEnd::GivenUp);
    }
}

/// Writes how a call ended, if it has a record.
pub(crate) fn finish(record: Option<CallRecord<'_>>, end: &CallEnd<'_>) {
    if let Some(record) = record {
        record.finish(end);
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
