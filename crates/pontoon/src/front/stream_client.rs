//! One client on a stream of its own: what it says, and what is done for it.
//!
//! Lines of standard input (`stdio`) and frames of a WebSocket (`websocket`) are two carriers of this. They read
//! and write; everything that a message means is decided here, in both eras. All answers go out on one
//! [`AnswerStream`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use pontoon_wire::envelope::notification;
use pontoon_wire::{Era, Kind, Message, Slot, method};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::answer_stream::AnswerStream;
use super::mcp::post;
use super::refusal::Refusal;
use super::who::caller::{Caller, described_client};
use crate::back::conversation::feeding::LEAVING;
use crate::back::conversation::incoming::PASSED_ON;
use crate::call::{Call, CallError, PassingOn, Reply, plain_notification};
use crate::client::{Client, Key, Person};
use crate::held_bytes::Hold;
use crate::observe::metrics::Limit;
use crate::outbox::Item;
use crate::session::entry::Entry;
use crate::session::legacy::{Session, introduced};
use crate::session::{Arrival, Sessions};

/// A session that is being opened. The client's next message waits for it, and nothing else does.
pub type SessionOpening = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who is at the other end of a stream.
#[derive(Debug)]
pub enum StreamPeer {
    /// The program that started us.
    Local(Arc<Person>),
    /// Another bridge of this user.
    Bridge(Arc<Person>),
    /// One that came in by the entrance.
    Caller(Box<Caller>),
}

/// One client on a stream, and the server that it uses.
#[derive(Debug)]
pub struct StreamClient {
    sessions: Arc<Sessions>,
    /// The server as it was when the client came.
    first_entry: Arc<Entry>,
    peer: StreamPeer,
    /// What goes out to it.
    pub answers: Arc<AnswerStream>,
    /// Fires when the client says nothing more: subscriptions end then, calls do not.
    heard_all: CancellationToken,
    /// The client, which is another bridge, is to make no more calls here.
    is_leaving: AtomicBool,
}

impl StreamClient {
    /// A client that has said nothing yet.
    pub fn new(sessions: Arc<Sessions>, entry: Arc<Entry>, peer: StreamPeer) -> Self {
        let (answers, heard_all) = (Arc::<AnswerStream>::default(), CancellationToken::new());
        let is_leaving = AtomicBool::new(false);
        Self { sessions, first_entry: entry, peer, answers, heard_all, is_leaving }
    }

    /// The name of its server.
    pub fn server(&self) -> &str {
        self.first_entry.back.server.name.as_str()
    }

    /// The server as it is now; `None` if it is served no more.
    pub fn entry(&self) -> Option<Arc<Entry>> {
        match self.first_entry.back.stop.is_cancelled() {
            false => Some(Arc::clone(&self.first_entry)),
            // It was replaced or removed, or the bridge stops.
            true => self.sessions.entries().get(self.server()).cloned(),
        }
    }

    /// Takes a message, which is counted as long as it is held.
    #[must_use]
    pub fn take(self: &Arc<Self>, text: BytesMut, hold: Option<Hold>) -> Option<SessionOpening> {
        if text.trim_ascii().is_empty() {
            return None;
        }
        let message = match post::parse(text) {
            Ok(message) => message,
            Err(refusal) => {
                self.refuse(refusal);
                return None;
            }
        };
        let Some(entry) = self.entry() else {
            let text = format!("there is no server {:?} any more", self.server());
            self.refuse(Refusal::invalid(404, text).with_id(post::request_id(&message)));
            return None;
        };
        let message = match hold {
            Some(hold) => hold.ride_with(message),
            None => message,
        };
        match (message.kind(), post::era(&message, None)) {
            (Kind::Request, Era::Modern) => self.take_described(&entry, message),
            (Kind::Request, Era::Legacy) if message.method() == method::INITIALIZE => {
                return self.initialize(entry, message);
            }
            (Kind::Request, Era::Legacy) => self.take_legacy(&entry, message),
            _ => self.note(&entry, &message),
        }
        None
    }

    /// The client says nothing more, and gets the answers that are under way.
    pub fn end(&self) {
        self.heard_all.cancel();
        self.answers.end();
    }

    /// The client is gone, and so is what was done for it.
    pub fn leave(&self) {
        self.heard_all.cancel();
        if let Some(session) = self.answers.close() {
            self.sessions.close(&session);
        }
        if let Some(entry) = self.entry() {
            entry.back.part(self.person());
        }
    }

    /// Tells the client, which is another bridge, that no more calls are welcome.
    pub fn say_leaving(&self) {
        self.is_leaving.store(true, Ordering::Release);
        if let Some(session) = self.answers.session() {
            session.feed.outbox.push(Item::Note(plain_notification(LEAVING).into()));
        }
    }

    /// Tells the client of a message that cannot be taken.
    pub fn refuse(&self, refusal: Refusal) {
        let refusal = match &self.peer {
            StreamPeer::Local(_) | StreamPeer::Bridge(_) => refusal,
            StreamPeer::Caller(caller) => {
                let refusal = refusal.asked_by(caller.person.principal.words());
                let refusals = &self.sessions.admission.metrics.refusals;
                refusal.log(refusals, self.server(), caller.identity.address);
                refusal
            }
        };
        let id = refusal.id();
        self.reply(id).error(&refusal.into_error());
    }

    /// A request of the modern era, which says of itself all that is needed.
    fn take_described(&self, entry: &Arc<Entry>, request: Message) {
        let id = post::request_id(&request);
        if let Err(refusal) = post::check_described(&request, |_, _, _| Ok::<_, Refusal>(())) {
            return self.refuse(refusal.with_id(id));
        }
        let client = match &self.peer {
            StreamPeer::Local(person) | StreamPeer::Bridge(person) => {
                described_client(&request, Key::Session("stdio".into()), person)
            }
            StreamPeer::Caller(caller) => caller.modern_client(entry, &request),
        };
        entry.back.meet(&client);
        self.submit(entry, request, client, None, Arrival::Described);
    }

    fn take_legacy(&self, entry: &Arc<Entry>, request: Message) {
        let id = post::request_id(&request);
        // Whether we are there, and not the server.
        if request.method() == method::PING {
            return self.reply(id).result("{}");
        }
        let Some(session) = self.answers.session() else {
            let text = "the session is not open: send `initialize` first";
            return self.refuse(Refusal::invalid(400, text).with_id(id));
        };
        session.touch();
        let client = self.client_of(entry, &session);
        let arrival = Arrival::InSession(Arc::clone(&session));
        self.submit(entry, request, client, Some(&session), arrival);
    }

    fn initialize(self: &Arc<Self>, entry: Arc<Entry>, request: Message) -> Option<SessionOpening> {
        let id = post::request_id(&request);
        if self.answers.session().is_some() {
            self.refuse(Refusal::invalid(400, "the session is open already").with_id(id));
            return None;
        }
        let (client, reply) = (Arc::clone(self), self.reply(id));
        let opening = async move { client.open(&entry, &request, reply).await };
        Some(Box::pin(opening.instrument(self.span())))
    }

    async fn open(self: &Arc<Self>, entry: &Arc<Entry>, request: &Message, reply: Reply) {
        // An application is opened for its client, while that waits for what it offers.
        entry.back.meet(&introduced(request, self.person()));
        let key = |session: &Arc<str>| self.key(entry, session);
        match self.sessions.open(entry, request, self.person(), key).await {
            Err(why) => reply.fail(why),
            Ok((session, result)) if self.answers.welcome(&session) => {
                entry.back.meet(&self.client_of(entry, &session));
                reply.result(&result);
                if self.is_leaving.load(Ordering::Acquire) {
                    self.say_leaving();
                }
            }
            // The client has left meanwhile.
            Ok((session, _)) => {
                self.sessions.close(&session);
                reply.forget();
            }
        }
    }

    fn submit(
        &self,
        entry: &Arc<Entry>,
        request: Message,
        client: Arc<Client>,
        session: Option<&Arc<Session>>,
        arrival: Arrival<'static>,
    ) {
        let id = post::request_id(&request).unwrap_or_default();
        let cancel = match request.method() == method::LISTEN {
            true => self.heard_all.child_token(),
            false => CancellationToken::new(),
        };
        let clock = entry.back.clock(&request);
        let outbox = match self.answers.begin(id.clone(), Some(&cancel)) {
            Ok(outbox) => outbox,
            Err(why) => {
                if matches!(why, CallError::Busy { .. }) {
                    self.sessions.admission.metrics.refused(Limit::Streams);
                }
                return self.reply(Some(id)).fail(why);
            }
        };
        let questions = session.map(|session| Arc::clone(&session.questions));
        let mut reply = Reply::new(id, outbox, questions);
        reply.tell_passing_on(self.passing_on());
        let call = Call { request, client, cancel, clock, may_repeat: false, promise: None, reply };
        self.span().in_scope(|| self.sessions.submit_aside(entry, arrival, call));
    }

    /// How another bridge hears that a call of its is about to be sent to the application.
    fn passing_on(&self) -> Option<PassingOn> {
        let StreamPeer::Bridge(_) = &self.peer else { return None };
        let answers = Arc::clone(&self.answers);
        Some(PassingOn::new(move |id| {
            let id = String::from_utf8_lossy(id);
            let params = format!("{{\"requestId\":{id}}}");
            answers.send_first(Bytes::from(notification(PASSED_ON, &params)).into())
        }))
    }

    /// Takes what wants no answer.
    fn note(&self, entry: &Entry, message: &Message) {
        if message.method() == method::CANCELLED {
            return self.answers.cancel(message.raw(Slot::RequestId).unwrap_or_default());
        }
        if let Some(session) = self.answers.session() {
            let client = self.client_of(entry, &session);
            self.sessions.note(entry, &session, &client, message);
        }
    }

    fn person(&self) -> &Arc<Person> {
        match &self.peer {
            StreamPeer::Local(person) | StreamPeer::Bridge(person) => person,
            StreamPeer::Caller(caller) => &caller.person,
        }
    }

    /// Whose child a session gets.
    fn key(&self, entry: &Entry, session: &Arc<str>) -> Key {
        match &self.peer {
            StreamPeer::Local(_) | StreamPeer::Bridge(_) => Key::Session(Arc::clone(session)),
            StreamPeer::Caller(caller) => caller.key(Some(session), &entry.back.server),
        }
    }

    fn client_of(&self, entry: &Entry, session: &Session) -> Arc<Client> {
        session.client(self.key(entry, &session.id), Arc::clone(self.person()))
    }

    /// A span for one message: the log tells its lines by the trace of the stream.
    fn span(&self) -> tracing::Span {
        let trace = self.person().trace.as_ref();
        trace.map_or_else(tracing::Span::none, |trace| trace.span())
    }

    /// The way home of an answer that is known here.
    fn reply(&self, id: Option<Bytes>) -> Reply {
        let id = id.unwrap_or_else(|| Bytes::from_static(b"null"));
        Reply::new(id.clone(), self.answers.begin_known(id), None)
    }
}
