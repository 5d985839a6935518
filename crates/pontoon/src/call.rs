//! What travels: a [`Call`] to the right, and in it the [`Reply`] that jumps home once.
//!
//! A reply answers exactly once. Dropped unanswered it reports a fault of ours, so that no client
//! waits for an answer that will never come. It also holds the call's permit, so the end of the
//! call, however it ends, gives it back.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Message, Rewrite, Slot, Text, method, quoted};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::client::Client;
use crate::clock::Clock;
use crate::held_bytes::HeldBytes;
use crate::observe::metrics::{CallEnding, RequestKind, ServerMetrics};
use crate::observe::refusals::RefusalNote;
use crate::outbox::{Item, Outbox};
use crate::permits::{Permit, Permits};

/// One request of a client, on its way to a server.
#[derive(Debug)]
pub struct Call {
    /// The request as the client wrote it.
    pub request: Message,
    /// Who asks.
    pub client: Arc<Client>,
    /// Fires when nobody wants the answer any more.
    pub cancel: CancellationToken,
    /// Until when it has to be answered.
    pub clock: Clock,
    /// The way home.
    pub reply: Reply,
}

/// What a legacy session hears besides its calls.
#[derive(Debug, Clone)]
pub struct Feed {
    /// Toward the client's own stream.
    pub outbox: Arc<Outbox>,
    /// The questions that wait for the client.
    pub questions: Arc<Questions>,
}

impl Feed {
    /// Puts a question of the server to the client, and gives the id it got. `None` if too many wait.
    pub fn question(&self, question: &Message, answerer: Answerer) -> Option<String> {
        let (id, text) = self.questions.open(question, answerer)?;
        self.outbox.push(Item::Question(text));
        Some(id)
    }
}

/// Why a call got no answer from its server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A limit on calls or processes is reached.
    #[error("{what}; try again in {retry_after_seconds} s")]
    Busy {
        /// Which limit.
        what: String,
        /// When it is worth another try.
        retry_after_seconds: u32,
    },
    /// The server did not answer in time.
    #[error(
        "the server `{server}` did not answer within {seconds} s, so this call was given up{note}"
    )]
    TimedOut {
        /// Which server.
        server: String,
        /// The limit.
        seconds: u64,
        /// What the server complained about meanwhile.
        note: String,
    },
    /// The server could not be started, or ended before it answered.
    #[error("{0}")]
    ServerFailed(String),
    /// A child that kept state for its client is gone.
    #[error("{0}")]
    StateLost(String),
    /// There is no room for the files of a call.
    #[error("{0}")]
    DiskFull(String),
    /// The directory of the jobs cannot be used.
    #[error("{0}")]
    NoStorage(String),
    /// The bridge is about to stop.
    #[error("the bridge is stopping; try again in a moment")]
    Stopping,
    /// A fault of the bridge itself.
    #[error("an internal fault of the bridge: the call ended without an answer")]
    Internal,
    /// An error to be told as it is.
    #[error("{}", .0.message)]
    Told(ErrorObject, u16),
}

impl CallError {
    /// The HTTP status that says the same.
    pub fn status(&self) -> u16 {
        match self {
            Self::Busy { .. } => 429,
            Self::TimedOut { .. } => 504,
            Self::ServerFailed(_) | Self::StateLost(_) => 502,
            Self::DiskFull(_) => 507,
            Self::NoStorage(_) | Self::Stopping | Self::Internal => 503,
            Self::Told(_, status) => *status,
        }
    }

    /// Whether the bridge did not take the call, rather than a server did not answer it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::DiskFull(_) | Self::NoStorage(_) | Self::Stopping => true,
            Self::TimedOut { .. } | Self::ServerFailed(_) | Self::StateLost(_) | Self::Internal => {
                false
            }
            Self::Told(_, status) => (400..500).contains(status),
        }
    }

    /// When it is worth another try, if that is known.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Busy { retry_after_seconds, .. } => Some(*retry_after_seconds),
            Self::Stopping => Some(1),
            _ => None,
        }
    }

    /// The JSON-RPC error that says the same.
    pub fn to_error(&self) -> ErrorObject {
        let code = match self {
            Self::Busy { .. } => code::BUSY,
            Self::TimedOut { .. } => code::TIMED_OUT,
            Self::ServerFailed(_) | Self::StateLost(_) => code::SERVER_FAILED,
            Self::DiskFull(_) => code::DISK_FULL,
            Self::NoStorage(_) | Self::Stopping | Self::Internal => code::INTERNAL,
            Self::Told(error, _) => return error.clone(),
        };
        let retry = self.retry_after_seconds();
        let retry = retry.map(|seconds| format!(",\"retryAfter\":{seconds}")).unwrap_or_default();
        let data = format!("{{\"httpStatus\":{}{retry}}}", self.status());
        ErrorObject::new(code, self.to_string()).with_data(data)
    }
}

/// How a call ended, for the front to turn into bytes.
#[derive(Debug)]
pub enum Outcome {
    /// The server answered; for an error its code is here too.
    Answer(Text, Option<i64>, Option<Box<Receipt>>),
    /// Nobody answered, and this is why.
    Failed(CallError, Option<Box<Receipt>>),
}

impl Outcome {
    /// What the call left behind, if that is known.
    pub fn receipt(&self) -> Option<Box<Receipt>> {
        match self {
            Self::Answer(_, _, receipt) | Self::Failed(_, receipt) => receipt.clone(),
        }
    }

    /// When it is worth another try, if that is known.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Answer(..) => None,
            Self::Failed(why, _) => why.retry_after_seconds(),
        }
    }
}

/// What a call left behind, told beside its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The job that recorded it.
    pub job: Uuid,
    /// The files it made, each with its address.
    pub files: Vec<(String, String)>,
}

/// The way home of one call.
#[derive(Debug)]
pub struct Reply {
    outbox: Arc<Outbox>,
    id: Bytes,
    permit: Option<Permit>,
    /// Where the permit came from, to take another after a person has answered.
    permits: Option<Arc<Permits>>,
    tally: Option<Tally>,
    /// Where the answer is counted for its client, who has not taken it yet.
    held: Option<Arc<HeldBytes>>,
    questions: Option<Arc<Questions>>,
    /// The questions asked on the way.
    asked: Mutex<Vec<String>>,
    /// Sees the result before the client does.
    on_result: Option<OnResult>,
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
            held: None,
            questions,
            asked: Mutex::default(),
            on_result: None,
            is_done: false,
        }
    }

    /// The client's own id.
    pub fn id(&self) -> &Bytes {
        &self.id
    }

    /// Counts how the call of this client ends, and how long it took; a refusal is logged.
    pub fn count(&mut self, metrics: &Arc<ServerMetrics>, kind: RequestKind, client: &Arc<Client>) {
        let (metrics, client) = (Arc::clone(metrics), Arc::clone(client));
        self.tally = Some(Tally { metrics, kind, client, began: Instant::now() });
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
    pub fn answer(self, answer: &Message) {
        self.answer_with(answer, None);
    }

    /// The same, and tells what the call left behind.
    pub fn answer_with(mut self, answer: &Message, receipt: Option<Receipt>) {
        let code =
            answer.raw(Slot::ErrorCode).and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
        if let (Some(see), Some(result)) = (self.on_result.take(), answer.raw(Slot::Result)) {
            (see.0)(result);
        }
        let rewrite = Rewrite::new(answer.clone());
        let rewrite = match answer.has(Slot::Id) {
            true => rewrite.replace(Slot::Id, self.id.clone()),
            false => {
                let id = String::from_utf8_lossy(&self.id);
                rewrite.insert_at_top(&format!("\"id\":{id}"))
            }
        };
        let mut text = rewrite.replace(Slot::ResultSubscriptionId, self.id.clone()).finish();
        if let (Some(held), Some(tally)) = (&self.held, &self.tally) {
            text = held.charge(&tally.client.person.principal, text);
        }
        self.finish(Some(Outcome::Answer(text, code, receipt.map(Box::new))));
    }

    /// Answers with a result, a JSON text.
    pub fn result(mut self, result: &str) {
        let id = String::from_utf8_lossy(&self.id);
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
        self.finish(Some(Outcome::Answer(Bytes::from(text).into(), None, None)));
    }

    /// Answers with an error.
    pub fn error(mut self, error: &ErrorObject) {
        let text = error.answer(&String::from_utf8_lossy(&self.id));
        self.finish(Some(Outcome::Answer(Bytes::from(text).into(), Some(error.code), None)));
    }

    /// Says why there is no answer.
    pub fn fail(self, error: CallError) {
        self.fail_with(error, None);
    }

    /// The same, and tells where the failure is recorded.
    pub fn fail_with(mut self, error: CallError, receipt: Option<Receipt>) {
        self.finish(Some(Outcome::Failed(error, receipt.map(Box::new))));
    }

    /// Ends without an answer: a cancelled call gets none.
    pub fn forget(mut self) {
        self.finish(None);
    }

    fn finish(&mut self, outcome: Option<Outcome>) {
        self.is_done = true;
        self.permit = None;
        if let Some(tally) = self.tally.take() {
            tally.end(outcome.as_ref());
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
    client: Arc<Client>,
    began: Instant,
}

impl Tally {
    fn end(&self, outcome: Option<&Outcome>) {
        let Self { metrics, kind, client, began } = self;
        metrics.call_ended(*kind, ending(outcome), began.elapsed());
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
            self.finish(Some(Outcome::Failed(CallError::Internal, None)));
        }
    }
}

/// Takes the client's answer to a question back to the server that asked.
pub type Answerer = Box<dyn FnOnce(&Message) + Send>;

/// The questions of servers that a legacy client has not answered yet.
///
/// Their ids are ours, so that two servers which ask under one id cannot be mixed up.
#[derive(Default)]
pub struct Questions {
    open: Mutex<OpenQuestions>,
}

#[derive(Default)]
struct OpenQuestions {
    next: u64,
    answerers: HashMap<String, Answerer>,
    /// Those whose call is over, oldest first.
    late: VecDeque<String>,
}

/// More questions than this may not wait for one client.
const MAX_QUESTIONS: usize = 256;

/// So many of them may have outlived their calls.
const MAX_LATE: usize = 64;

impl Questions {
    /// Opens a question, and gives its text under our id; `None` when too many are open.
    fn open(&self, question: &Message, answerer: Answerer) -> Option<(String, Text)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.answerers.len() >= MAX_QUESTIONS {
            return None;
        }
        open.next += 1;
        let id = quoted(&format!("pontoon-{}", open.next));
        open.answerers.insert(id.clone(), answerer);
        let text = Rewrite::new(question.clone()).replace(Slot::Id, id.clone()).finish();
        Some((id, text))
    }

    /// Keeps the questions of a call that is over: a server may answer before it is answered.
    fn outlive(&self, ids: Vec<String>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let OpenQuestions { answerers, late, .. } = &mut *open;
        late.extend(ids);
        late.retain(|id| answerers.contains_key(id));
        while late.len() > MAX_LATE {
            late.pop_front().and_then(|oldest| answerers.remove(&oldest));
        }
    }

    /// Hands the client's answer to whoever asked. False when nobody did.
    pub fn answer(&self, answer: &Message) -> bool {
        let id = String::from_utf8_lossy(answer.raw(Slot::Id).unwrap_or_default()).into_owned();
        let answerer = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.answerers.remove(&id)
        };
        answerer.map(|answerer| answerer(answer)).is_some()
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Questions")
    }
}

/// A `notifications/...` message without parameters.
pub fn plain_notification(method: &str) -> Bytes {
    Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"method\":{}}}", quoted(method)))
}

/// Whether a method is one of the lists, and the member its result carries.
pub fn list_member(method: &str) -> Option<&'static str> {
    match method {
        method::LIST_TOOLS => Some("tools"),
        method::LIST_PROMPTS => Some("prompts"),
        method::LIST_RESOURCES => Some("resources"),
        method::LIST_TEMPLATES => Some("resourceTemplates"),
        _ => None,
    }
}
