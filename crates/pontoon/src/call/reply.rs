//! The way home of a call: it answers exactly once.
//!
//! Dropped unanswered it reports a fault of ours, so that no client waits for an answer that will never come. It
//! also holds the call's permit, so the end of the call, however it ends, gives it back.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use pontoon_wire::error::ErrorObject;
use pontoon_wire::{Message, Rewrite, Slot, Text, envelope};
use uuid::Uuid;

use super::error::CallError;
use super::note::{CallNote, NotedEnd};
use super::outcome::{Outcome, Receipt, TOOL_ERROR, is_tool_error, tell_outcome};
use super::passing_on::PassingOn;
use super::questions::{Answerer, Feed, Questions};
use crate::client::Client;
use crate::clock::since;
use crate::held_bytes::HeldBytes;
use crate::observe::metrics::{CallEnding, RequestKind, ServerMetrics, ToolMetrics};
use crate::observe::refusals::RefusalNote;
use crate::observe::spans::CallTrace;
use crate::outbox::{Item, Outbox, OutcomeForm};
use crate::permits::{Permit, Permits};

/// The way home of one call.
#[derive(Debug)]
pub struct Reply {
    outbox: Arc<Outbox>,
    id: Bytes,
    permit: Option<Permit>,
    /// Where the permit came from, to take another after a person has answered.
    permits: Option<Arc<Permits>>,
    tally: Option<Tally>,
    /// Its spans, if it is traced.
    pub(super) trace: Option<Box<CallTrace>>,
    /// What tells of a call of a tool, unless its record does.
    note: Option<CallNote>,
    /// Where the answer is counted for its client, who has not taken it yet.
    held: Option<Arc<HeldBytes>>,
    questions: Option<Arc<Questions>>,
    /// The questions asked on the way.
    asked: Mutex<Vec<String>>,
    /// How the client hears that the call is about to be sent, if it has to.
    passing_on: Option<PassingOn>,
    /// Sees the result before the client does.
    on_result: Option<OnResult>,
    /// Whether an earlier try of the call may have been made.
    was_sent: bool,
    /// Whether the client hears of a failure by a status.
    wants_status: bool,
    is_done: bool,
}

/// Something that sees a result, a JSON text.
struct OnResult(Box<SeeResult>);

type SeeResult = dyn FnOnce(&[u8]) + Send + Sync;

impl fmt::Debug for OnResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnResult")
    }
}

impl Reply {
    /// A reply to the request with this id, that arrives in `outbox`.
    pub fn new(id: Bytes, outbox: Arc<Outbox>, questions: Option<Arc<Questions>>) -> Self {
        Self {
            outbox,
            id,
            permit: None,
            permits: None,
            tally: None,
            trace: None,
            note: None,
            held: None,
            questions,
            asked: Mutex::default(),
            passing_on: None,
            on_result: None,
            was_sent: false,
            wants_status: false,
            is_done: false,
        }
    }

    /// The same for a client that hears of every failure by a status: there is no model to read a result.
    pub fn with_status(mut self) -> Self {
        self.wants_status = true;
        self
    }

    /// Whether the client hears of a failure by a status.
    pub fn wants_status(&self) -> bool {
        self.wants_status
    }

    /// Lets the client hear that the call is about to be sent, before it is.
    pub fn tell_passing_on(&mut self, passing_on: Option<PassingOn>) {
        self.passing_on = passing_on;
    }

    /// Says that the call is about to be sent. False if the client has to hear so and does not: then it must not be.
    pub async fn say_passed_on(&self) -> bool {
        match &self.passing_on {
            Some(passing_on) => passing_on.say(&self.id).await,
            None => true,
        }
    }

    /// Takes note that the call was sent, and may have been made, though there will be another try.
    pub fn note_sent(&mut self) {
        self.was_sent = true;
    }

    /// Whether an earlier try of the call may have been made.
    pub fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// The client's own id.
    pub fn id(&self) -> &Bytes {
        &self.id
    }

    /// Counts how the call of this client ends, and how long it took since it began; a refusal is logged.
    pub fn count(
        &mut self,
        metrics: &Arc<ServerMetrics>,
        kind: RequestKind,
        client: &Arc<Client>,
        began: Instant,
    ) {
        let (metrics, client) = (Arc::clone(metrics), Arc::clone(client));
        self.tally = Some(Tally { metrics, kind, tool: None, client, began });
    }

    /// Counts the call for this tool, too.
    pub fn count_tool(&mut self, tool: Arc<ToolMetrics>) {
        if let Some(tally) = &mut self.tally {
            tally.tool = Some(tool);
        }
    }

    /// Lets this note tell how the call ends, in place of the one it had.
    pub fn note_end_with(&mut self, note: Option<CallNote>) {
        if let Some(other) = std::mem::replace(&mut self.note, note) {
            other.forget();
        }
    }

    /// Takes the note, for what tells of the call in place of this.
    pub fn take_note(&mut self) -> Option<CallNote> {
        self.note.take()
    }

    /// Counts the answer until the client has taken it.
    pub fn count_bytes(&mut self, held: &Arc<HeldBytes>) {
        self.held = Some(Arc::clone(held));
    }

    /// Lets `see` see the result, if the server gives one.
    pub fn on_result(&mut self, see: impl FnOnce(&[u8]) + Send + Sync + 'static) {
        self.on_result = Some(OnResult(Box::new(see)));
    }

    /// Lets the call hold a permit until it ends.
    pub fn hold(&mut self, permit: Permit) {
        self.permits = Some(Arc::clone(permit.permits()));
        self.permit = Some(permit);
    }

    /// Gives the permit back early, while the call waits for a person.
    pub fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Takes a permit again, once a person has answered; waits until one is free.
    pub async fn retake_permit(&mut self) {
        if let (None, Some(permits), Some(tally)) = (&self.permit, &self.permits, &self.tally) {
            self.permit = permits.take_again(&tally.client.person.principal).await;
        }
    }

    /// Sends a note ahead of the answer. A slow client may miss it.
    pub fn note(&self, note: Text) {
        self.outbox.push(Item::Note(note));
    }

    /// Sends a log line ahead of the answer. Dropped first when the client is slow.
    pub fn log(&self, note: Text) {
        self.outbox.push(Item::Log(note));
    }

    /// Says which job records the call, for the head of the response.
    pub fn set_job(&mut self, job: Option<Uuid>) {
        if let (Some(trace), Some(job)) = (&mut self.trace, job) {
            trace.span().tell("pontoon.job.id", job.to_string());
        }
        self.outbox.set_job(job);
    }

    /// Settles how the answer goes out, now that it is known.
    pub fn settle(&self) -> OutcomeForm {
        self.outbox.settle()
    }

    /// Whether the client has a session, in which it can be asked and come back.
    pub fn is_in_session(&self) -> bool {
        self.questions.is_some()
    }

    /// Lets the client hang up and come back for the answer.
    pub fn release(&self) {
        self.outbox.push(Item::Release);
    }

    /// Puts a question of the server to the client. False if this client cannot be asked.
    pub fn question(&self, question: &Message, answerer: Answerer) -> bool {
        let Some(questions) = self.questions.clone() else { return false };
        let feed = Feed { outbox: Arc::clone(&self.outbox), questions };
        let Some(id) = feed.question(question, answerer) else { return false };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        true
    }

    /// Answers, with the client's own id in place of ours.
    pub fn answer(self, answer: Message) {
        self.answer_with(Rewrite::new(answer), None);
    }

    /// The same for an answer with changes, and tells what the call left behind.
    pub fn answer_with(mut self, answer: Rewrite, receipt: Option<Receipt>) {
        let code =
            answer.raw(Slot::ErrorCode).and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
        if let (Some(see), Some(result)) =
            (self.on_result.take(), answer.message().raw(Slot::Result))
        {
            (see.0)(result);
        }
        if let Some(trace) = self.trace.as_mut().filter(|_| is_tool_error(answer.message())) {
            trace.span().error = Some(TOOL_ERROR.into());
        }
        if let Some(note) = self.note.take() {
            let job = receipt.as_ref().map(|receipt| receipt.job);
            note.tell(NotedEnd { job, ..NotedEnd::answered(answer.message()) });
        }
        let answer = match answer.message().has(Slot::Id) {
            true => answer.replace(Slot::Id, self.id.clone()),
            false => {
                let id = String::from_utf8_lossy(&self.id);
                answer.insert_at_top(&format!("\"id\":{id}"))
            }
        };
        let mut text = answer.replace(Slot::ResultSubscriptionId, self.id.clone()).finish();
        if let (Some(held), Some(tally)) = (&self.held, &self.tally) {
            text = held.charge(&tally.client.person.principal, text);
        }
        self.finish(Some(Outcome::Answer(text, code, receipt.map(Box::new))));
    }

    /// Answers with a result, a JSON text.
    pub fn result(mut self, result: &str) {
        if let Some(note) = self.note.take() {
            let bytes_out = result.len();
            note.tell(NotedEnd { bytes_out, ..NotedEnd::completed() });
        }
        let id = String::from_utf8_lossy(&self.id);
        let text = envelope::result_answer(&id, result);
        self.finish(Some(Outcome::Answer(Bytes::from(text).into(), None, None)));
    }

    /// Answers with an error.
    pub fn error(mut self, error: &ErrorObject) {
        if let Some(note) = self.note.take() {
            note.tell(NotedEnd::refused(&error.message));
        }
        let text = error.answer(&String::from_utf8_lossy(&self.id));
        self.finish(Some(Outcome::Answer(Bytes::from(text).into(), Some(error.code), None)));
    }

    /// Says why there is no answer.
    pub fn fail(self, error: CallError) {
        self.fail_with(error, None);
    }

    /// The same, and tells where the failure is recorded.
    pub fn fail_with(mut self, error: CallError, receipt: Option<Receipt>) {
        if let Some(note) = self.note.take() {
            note.tell(NotedEnd::failed(&error));
        }
        self.finish(Some(Outcome::Failed(error, receipt.map(Box::new))));
    }

    /// Answers with a result that tells the model of a failure, which is counted as one.
    pub fn fail_with_result(mut self, error: &CallError, result: &str) {
        if self.wants_status {
            return self.fail(error.clone());
        }
        if let Some(note) = self.note.take() {
            note.tell(NotedEnd::failed(error));
        }
        if let Some(tally) = self.tally.take() {
            tally.count(CallEnding::of_status(error.status()));
        }
        if let Some(trace) = &mut self.trace {
            trace.span().error = Some(error.word());
        }
        self.result(result);
    }

    /// Ends without an answer: a cancelled call gets none.
    pub fn forget(mut self) {
        self.finish(None);
    }

    fn finish(&mut self, outcome: Option<Outcome>) {
        self.is_done = true;
        // Where none of the above told it, the call was given up.
        self.note = None;
        self.permit = None;
        if let Some(tally) = self.tally.take() {
            tally.end(outcome.as_ref());
        }
        if let Some(mut trace) = self.trace.take() {
            tell_outcome(trace.span(), outcome.as_ref());
        }
        let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(questions), false) = (&self.questions, asked.is_empty()) {
            questions.outlive(asked);
        }
        self.outbox.finish(outcome);
    }
}

/// Whose call it is, and what it counts for.
#[derive(Debug)]
struct Tally {
    metrics: Arc<ServerMetrics>,
    kind: RequestKind,
    tool: Option<Arc<ToolMetrics>>,
    client: Arc<Client>,
    began: Instant,
}

impl Tally {
    fn count(&self, ending: CallEnding) {
        self.metrics.call_ended(self.kind, self.tool.as_deref(), ending, since(self.began));
    }

    fn end(&self, outcome: Option<&Outcome>) {
        let Self { metrics, client, .. } = self;
        self.count(ending(outcome));
        let Some(Outcome::Failed(error, _)) = outcome else { return };
        if error.is_refusal() {
            let why = error.to_error();
            metrics.refusals.tell(&RefusalNote {
                status: error.status(),
                code: why.code,
                server: &metrics.name,
                who: &client.person.principal.words(),
                from: client.person.address,
                why: &why.message,
            });
        }
    }
}

fn ending(outcome: Option<&Outcome>) -> CallEnding {
    match outcome {
        Some(Outcome::Answer(_, None, _)) => CallEnding::Answered,
        Some(Outcome::Answer(..)) => CallEnding::Error,
        Some(Outcome::Failed(error, _)) => CallEnding::of_status(error.status()),
        None => CallEnding::Cancelled,
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_done {
            if let (Some(_), Some(note)) = (&self.tally, self.note.take()) {
                note.tell(NotedEnd::failed(&CallError::Internal));
            }
            self.finish(Some(Outcome::Failed(CallError::Internal, None)));
        }
    }
}
