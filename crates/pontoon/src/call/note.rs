//! The note of one call of a tool: told once, when the call is over, as a line of the journal and one of the log.
//!
//! It begins when it is known who asks what, and rides with the call: in its [`Reply`](super::Reply), or in its record
//! once a server has it. One that is dropped says that the call was given up. Both lines are written behind the answer,
//! by the thread that writes records.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::{Message, Slot, method};
use uuid::Uuid;

use super::error::CallError;
use crate::client::{Person, Principal};
use crate::clock::{now, since};
use crate::config::Server;
use crate::jobs::{CallFacts, CallStatus, EndedCall, Store, Writer};
use crate::lock::Lock;
use crate::observe::log::{CallLine, tell_calls};

/// At most this many calls wait for the writer. Admitted calls are fewer, for each has a record; refused calls have none.
const MAX_WAITING: usize = 16_384;

/// The list of notes keeps its memory up to this many.
const KEPT: usize = 1024;

/// So much of an error or of a tool's name is kept meanwhile: clients choose both.
const MAX_TEXT: usize = 1024;

/// What comes before the words of a server in a reason: they may repeat arguments.
const WORDS_OF_SERVERS: [&str; 2] = ["; its last words: ", "; it had said: "];

/// Where calls are told that are over.
#[derive(Debug)]
pub struct CallBook {
    store: Store,
    writer: Writer,
    waiting: Lock<UntoldCalls>,
}

#[derive(Debug, Default)]
struct UntoldCalls {
    #[expect(
        clippy::vec_box,
        reason = "each is in a box since it began, and a list of one has room for four"
    )]
    calls: Vec<Box<NotedCall>>,
    lost: usize,
}

/// A call, as far as it is known. What is not known yet is empty.
#[derive(Debug)]
struct NotedCall {
    /// The book that tells of the call; it takes itself out when it has the note.
    book: Option<Arc<CallBook>>,
    since: Instant,
    server: Arc<Server>,
    tool: String,
    person: Arc<Person>,
    began: SystemTime,
    took: Duration,
    bytes_in: usize,
    /// `None` as long as it is under way.
    end: Option<NotedEnd>,
}

/// How a call ended, and what it left.
#[derive(Debug, Clone)]
pub struct NotedEnd {
    /// In one word.
    pub status: CallStatus,
    /// Whether the result says that the tool failed.
    pub is_error: bool,
    /// Why it failed, as the journal has it.
    pub error: Option<String>,
    /// The same for the log, where it must not be told so.
    pub in_log: Option<String>,
    /// The length of its answer.
    pub bytes_out: usize,
    /// How many files it made.
    pub files: usize,
    /// Its job, if it has one.
    pub job: Option<Uuid>,
}

impl NotedEnd {
    fn new(status: CallStatus, error: Option<String>) -> Self {
        let (is_error, bytes_out, files) = (false, 0, 0);
        Self { status, is_error, error, in_log: None, bytes_out, files, job: None }
    }

    /// It has a result.
    pub fn completed() -> Self {
        Self::new(CallStatus::Completed, None)
    }

    /// The server gave this answer, a result or an error.
    pub fn answered(answer: &Message) -> Self {
        let end = match answer.raw(Slot::ErrorCode) {
            None => Self::completed(),
            Some(code) => {
                let code = String::from_utf8_lossy(code);
                let message = answer.string(Slot::ErrorMessage).unwrap_or_default();
                // A server may repeat arguments in its words.
                let in_log = Some(format!("the server answered with error {code}"));
                let error = Some(format!("{message} (error {code})"));
                Self { in_log, ..Self::new(CallStatus::Failed, error) }
            }
        };
        let is_error = answer.raw(Slot::IsError) == Some(b"true");
        Self { is_error, bytes_out: answer.text().len(), ..end }
    }

    /// There is no answer of the server, for this reason.
    pub fn failed(why: &CallError) -> Self {
        let status = match why {
            CallError::TimedOut { .. } => CallStatus::TimedOut,
            CallError::OutcomeUnknown(_) => CallStatus::Unknown,
            why if why.is_refusal() => CallStatus::Refused,
            _ => CallStatus::Failed,
        };
        let error = why.to_string();
        let in_log = match why {
            CallError::BadArguments(_) | CallError::Misfits(_) => {
                Some("its arguments are not what the tool takes".to_owned())
            }
            _ => {
                let said = WORDS_OF_SERVERS.iter().filter_map(|words| error.find(words)).min();
                said.map(|at| error[..at].to_owned())
            }
        };
        Self { in_log, ..Self::new(status, Some(error)) }
    }

    /// It was not made, for this reason.
    pub fn refused(why: &str) -> Self {
        Self::new(CallStatus::Refused, Some(why.to_owned()))
    }

    /// Its client went away or wanted no answer any more, or the bridge stopped.
    pub fn given_up(is_stopping: bool) -> Self {
        let why = "the call was cancelled, or the bridge stopped, before the server answered";
        let status = if is_stopping { CallStatus::Failed } else { CallStatus::Cancelled };
        Self::new(status, Some(why.to_owned()))
    }
}

/// As much of a text as is kept.
fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or_default()]
}

/// The note of one call.
#[derive(Debug)]
pub struct CallNote {
    /// Gone once it was told. All of it is in a box: what rides in a `Reply` is in every future that a call goes through.
    call: Option<Box<NotedCall>>,
}

impl CallNote {
    /// A note of this request, if it calls a tool.
    pub fn of(
        book: &Arc<CallBook>,
        server: &Arc<Server>,
        person: &Arc<Person>,
        request: &Message,
    ) -> Option<Self> {
        (request.method() == method::CALL_TOOL).then(|| Self {
            call: Some(Box::new(NotedCall {
                book: Some(Arc::clone(book)),
                since: now(),
                server: Arc::clone(server),
                tool: shortened(&request.string(Slot::Name).unwrap_or_default()).to_owned(),
                person: Arc::clone(person),
                began: SystemTime::now(),
                took: Duration::ZERO,
                bytes_in: request.raw(Slot::Params).map_or(0, <[u8]>::len),
                end: None,
            })),
        })
    }

    /// The same of this request, which is the call as its server has it: a tool may have another name there.
    pub fn as_made(mut self, request: &Message) -> Self {
        let tool = request.string(Slot::Name).unwrap_or_default();
        let tool = shortened(&tool);
        if let Some(call) = self.call.as_mut().filter(|call| call.tool != tool) {
            call.tool = tool.to_owned();
        }
        self
    }

    /// Tells how the call ended.
    pub fn tell(mut self, end: NotedEnd) {
        self.end(end);
    }

    /// Says nothing: another note tells of the call.
    pub fn forget(mut self) {
        self.call = None;
    }

    /// What the record of its job says of it besides, once it has ended so.
    pub fn facts(&self, end: &NotedEnd) -> CallFacts {
        let Some(call) = &self.call else { return CallFacts::default() };
        CallFacts {
            tool: Some(call.tool.clone()),
            user: user_of(&call.person).map(str::to_owned),
            key: call.person.principal.credential().map(str::to_owned),
            address: Some(call.person.address),
            duration_ms: Some(u64::try_from(since(call.since).as_millis()).unwrap_or(u64::MAX)),
            bytes_in: Some(call.bytes_in),
            bytes_out: Some(end.bytes_out),
        }
    }

    fn end(&mut self, mut end: NotedEnd) {
        let Some(mut call) = self.call.take() else { return };
        let Some(book) = call.book.take() else { return };
        if let Some(error) = &mut end.error {
            error.truncate(shortened(error).len());
        }
        call.took = since(call.since);
        call.end = Some(end);
        book.add(call);
    }
}

impl Drop for CallNote {
    fn drop(&mut self) {
        self.end(NotedEnd::given_up(false));
    }
}

impl CallBook {
    /// A book whose calls are in the journal of this store, and in the log.
    pub fn new(store: Store, writer: Writer) -> Arc<Self> {
        Arc::new(Self { store, writer, waiting: Lock::default() })
    }

    fn add(self: &Arc<Self>, call: Box<NotedCall>) {
        let is_first = {
            let mut waiting = self.waiting.lock();
            match waiting.calls.len() < MAX_WAITING {
                true => waiting.calls.push(call),
                false => waiting.lost += 1,
            }
            waiting.calls.len() == 1 && waiting.lost == 0
        };
        if is_first {
            let book = Arc::clone(self);
            self.writer.write(0, move || {
                book.write();
                Ok(())
            });
        }
    }

    fn write(&self) {
        let UntoldCalls { mut calls, lost } = std::mem::take(&mut *self.waiting.lock());
        if lost > 0 {
            tracing::warn!(lost, "calls ended faster than they can be told, and lines are lost");
        }
        for call in &calls {
            if let Some(call) = call.for_journal() {
                self.store.journal(&call);
            }
        }
        self.store.write_journal();
        tell_calls(calls.iter().filter_map(|call| call.for_log()));
        calls.clear();
        let mut waiting = self.waiting.lock();
        if waiting.calls.capacity() == 0 && calls.capacity() <= KEPT {
            waiting.calls = calls;
        }
    }
}

impl NotedCall {
    fn for_journal(&self) -> Option<EndedCall<'_>> {
        let end = self.end.as_ref()?;
        Some(EndedCall {
            server: self.server.name.as_str(),
            tool: &self.tool,
            user: user_of(&self.person),
            key: self.person.principal.credential(),
            address: self.person.address,
            began: self.began,
            took: self.took,
            error: end.error.as_deref(),
            status: end.status,
            is_error: end.is_error,
            bytes_in: self.bytes_in,
            bytes_out: end.bytes_out,
            files: end.files,
            job: end.job,
            trace: self.person.trace.as_ref().map(|trace| trace.id().to_string()),
        })
    }

    fn for_log(&self) -> Option<CallLine<'_>> {
        let end = self.end.as_ref()?;
        Some(CallLine {
            ended: self.began + self.took,
            server: self.server.name.as_str(),
            tool: &self.tool,
            user: user_of(&self.person),
            key: self.person.principal.credential(),
            address: self.person.address,
            status: end.status.word(),
            is_error: end.is_error,
            took: self.took,
            bytes_in: self.bytes_in,
            bytes_out: end.bytes_out,
            files: end.files,
            error: end.in_log.as_deref().or(end.error.as_deref()),
            job: end.job,
            trace: self.person.trace.as_ref().map(|trace| trace.id()),
        })
    }
}

fn user_of(person: &Person) -> Option<&str> {
    match &person.principal {
        Principal::User(user) => Some(&user.id),
        Principal::Credential(_) | Principal::Address(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::error::{ErrorObject, code};

    use super::*;

    #[test]
    fn each_way_to_end_has_a_word() {
        let busy = CallError::Busy { what: "busy".to_owned(), retry_after_seconds: 5 };
        let (server, note) = ("slides".to_owned(), String::new());
        let text = || "why".to_owned();
        let told = |status| CallError::Told(ErrorObject::new(code::INTERNAL, text()), status);
        for (error, status) in [
            (busy, CallStatus::Refused),
            (told(403), CallStatus::Refused),
            (told(502), CallStatus::Failed),
            (CallError::TimedOut { server, seconds: 2, note }, CallStatus::TimedOut),
            (CallError::OutcomeUnknown(text()), CallStatus::Unknown),
            (CallError::ServerFailed(text()), CallStatus::Failed),
            (CallError::AppAway(text()), CallStatus::Refused),
            (CallError::Internal, CallStatus::Failed),
        ] {
            assert_eq!(NotedEnd::failed(&error).status, status, "{error}");
        }
        assert_eq!(NotedEnd::given_up(true).status, CallStatus::Failed);
        assert_eq!(NotedEnd::given_up(false).status, CallStatus::Cancelled);
    }

    #[test]
    fn what_may_repeat_arguments_is_in_the_journal_alone() {
        let private = "5 is no text";
        let answer = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":-32602,\"message\":\"{private}\"}}}}"
        );
        let answer = Message::parse(answer.as_bytes()).unwrap();
        let refused = NotedEnd::failed(&CallError::BadArguments(private.to_owned()));
        let [crashed, late] = WORDS_OF_SERVERS.map(|words| format!("it ended{words}{private}"));
        let crashed = NotedEnd::failed(&CallError::ServerFailed(crashed));
        let late = NotedEnd::failed(&CallError::OutcomeUnknown(late));
        assert_eq!(crashed.in_log.as_deref(), Some("it ended"));
        for end in [NotedEnd::answered(&answer), refused, crashed, late] {
            assert!(end.error.unwrap().contains(private));
            assert!(!end.in_log.unwrap().contains(private));
        }
    }
}
