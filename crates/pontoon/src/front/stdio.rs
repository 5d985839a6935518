//! One client on standard input and output, a message on each line.
//!
//! Reading and writing share one loop, so a client that writes before it reads is not blocked. All answers go out on
//! one [`AnswerStream`], a whole message on each line.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::{Era, Kind, Message, Slot, Text, method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::answer_stream::AnswerStream;
use super::mcp::post;
use super::refusal::Refusal;
use super::who::caller::described_client;
use crate::back::remote::sharing::LEAVING;
use crate::call::{Call, Reply, plain_notification};
use crate::client::{Client, Key, Person};
use crate::outbox::Item;
use crate::session::entry::Entry;
use crate::session::legacy::{Session, introduced};
use crate::session::{Arrival, Sessions};

/// How long open calls may go on when the client has closed its output.
const GRACE: Duration = Duration::from_secs(30);

/// Up to this size a message is written in one go.
const SMALL: usize = 64 * 1024;

/// How the client left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEnd {
    /// It closed its output, and has all its answers.
    Done,
    /// It reads no more.
    Gone,
}

/// One client on a stream of lines, and the server that it uses.
#[derive(Debug)]
pub struct StdioFront {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
    person: Arc<Person>,
    stream: AnswerStream,
    /// Fires when the client says nothing more: subscriptions end then, calls do not.
    heard_all: CancellationToken,
    max_message: usize,
}

impl StdioFront {
    /// A client that has said nothing yet; its messages may be this long.
    pub fn new(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let (stream, heard_all) = (AnswerStream::default(), CancellationToken::new());
        Self { sessions, entry, person: Person::at_stdio(), stream, heard_all, max_message }
    }

    /// Serves the client until it leaves.
    pub async fn serve(
        self: &Arc<Self>,
        mut input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> ClientEnd {
        let mut lines = Lines::new(self.max_message);
        let mut unwritten = Unwritten::default();
        let mut is_open = true;
        let mut grace = std::pin::pin!(tokio::time::sleep(GRACE));
        let end = loop {
            while self.stream.has_room()
                && let Some(line) = lines.next_line()
            {
                match line {
                    Ok(line) if line.trim_ascii().is_empty() => {}
                    Ok(line) => self.take(line).await,
                    Err(too_long) => {
                        self.refuse(
                            None,
                            &ErrorObject::new(code::INVALID_REQUEST, too_long.to_string()),
                        );
                    }
                }
            }
            lines.buffer().reserve(8 * 1024);
            let may_read = is_open && self.stream.has_room();
            tokio::select! {
                read = input.read_buf(lines.buffer()), if may_read => if !matches!(read, Ok(1..)) {
                    is_open = false;
                    if let Some(rest) = lines.finish() {
                        self.take(rest).await;
                    }
                    self.heard_all.cancel();
                    self.stream.end();
                    grace.as_mut().reset(tokio::time::Instant::now() + GRACE);
                },
                message = std::future::poll_fn(|context| self.stream.poll_message(context)),
                    if unwritten.is_empty() => match message {
                        Some(message) => unwritten.put(&message),
                        None => break ClientEnd::Done,
                    },
                written = unwritten.write_to(&mut output), if !unwritten.is_empty() => {
                    if written.is_err() {
                        break ClientEnd::Gone;
                    }
                }
                () = &mut grace, if !is_open => break ClientEnd::Done,
            }
        };
        self.leave();
        end
    }

    /// The client is gone, and so is what was done for it.
    pub fn leave(&self) {
        self.heard_all.cancel();
        if let Some(session) = self.stream.close() {
            self.sessions.close(&session);
        }
        self.entry.back.part(&self.person);
    }

    /// Tells the client, which is another bridge, that no more calls are welcome.
    pub fn say_leaving(&self) {
        if let Some(session) = self.stream.session() {
            session.feed.outbox.push(Item::Note(plain_notification(LEAVING).into()));
        }
    }

    /// Takes no more calls, and lets it end with the answers that are under way.
    pub fn finish(&self) {
        self.stream.end();
    }

    async fn take(self: &Arc<Self>, line: BytesMut) {
        let message = match post::parse(line) {
            Ok(message) => message,
            Err(refusal) => {
                let id = refusal.id();
                return self.refuse(id, &refusal.into_error());
            }
        };
        match (message.kind(), post::era(&message, None)) {
            (Kind::Request, Era::Modern) => self.take_described(message),
            (Kind::Request, Era::Legacy) => self.take_legacy(message).await,
            _ => self.note(&message),
        }
    }

    /// A request of the modern era, which says of itself all that is needed.
    fn take_described(self: &Arc<Self>, request: Message) {
        let id = post::request_id(&request);
        if let Err(refusal) = post::check_described(&request, |_, _, _| Ok::<_, Refusal>(())) {
            return self.refuse(id, &refusal.into_error());
        }
        let client = described_client(&request, Key::Session("stdio".into()), &self.person);
        self.entry.back.meet(&client);
        self.submit(request, client, None, Arrival::Described);
    }

    async fn take_legacy(self: &Arc<Self>, request: Message) {
        if request.method() == method::INITIALIZE {
            return self.initialize(&request).await;
        }
        let id = post::request_id(&request);
        // Whether we are there, and not the application.
        if request.method() == method::PING {
            return self.reply(id).result("{}");
        }
        let Some(session) = self.stream.session() else {
            let text = "the session is not open: send `initialize` first";
            return self.refuse(id, &ErrorObject::new(code::INVALID_REQUEST, text));
        };
        session.touch();
        let client = self.client_of(&session);
        self.submit(request, client, Some(&session), Arrival::InSession(Arc::clone(&session)));
    }

    async fn initialize(self: &Arc<Self>, request: &Message) {
        let reply = self.reply(post::request_id(request));
        if self.stream.session().is_some() {
            let text = "the session is open already";
            return reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
        // An application is opened for its client, while that waits for what it offers.
        let key = |session: &Arc<str>| Key::Session(Arc::clone(session));
        self.entry.back.meet(&introduced(request, &self.person));
        match self.sessions.open(&self.entry, request, &self.person, key).await {
            Err(why) => reply.fail(why),
            Ok((session, result)) if self.stream.welcome(&session) => {
                self.entry.back.meet(&self.client_of(&session));
                reply.result(&result);
                let front = Arc::clone(self);
                self.sessions.tasks.spawn(async move {
                    tokio::select! {
                        () = front.entry.announce(&session) => {}
                        () = front.heard_all.cancelled() => {}
                    }
                });
            }
            // The client has left meanwhile.
            Ok((session, _)) => {
                self.sessions.close(&session);
                reply.forget();
            }
        }
    }

    fn submit(
        self: &Arc<Self>,
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
        let clock = self.entry.back.clock(&request);
        let outbox = match self.stream.begin(id.clone(), Some(&cancel)) {
            Ok(outbox) => outbox,
            Err(busy) => return self.reply(Some(id)).fail(busy),
        };
        let questions = session.map(|session| Arc::clone(&session.questions));
        let reply = Reply::new(id, outbox, questions);
        let call = Call { request, client, cancel, clock, may_repeat: false, reply };
        let (sessions, entry) = (Arc::clone(&self.sessions), Arc::clone(&self.entry));
        self.sessions.tasks.spawn(async move { sessions.submit(&entry, arrival, call).await });
    }

    /// Takes what wants no answer.
    fn note(&self, message: &Message) {
        if message.method() == method::CANCELLED {
            return self.stream.cancel(message.raw(Slot::RequestId).unwrap_or_default());
        }
        if let Some(session) = self.stream.session() {
            let client = self.client_of(&session);
            self.sessions.note(&self.entry, &session, &client, message);
        }
    }

    fn client_of(&self, session: &Session) -> Arc<Client> {
        session.client(Key::Session(Arc::clone(&session.id)), Arc::clone(&self.person))
    }

    /// The way home of an answer that is known here.
    fn reply(&self, id: Option<Bytes>) -> Reply {
        let id = id.unwrap_or_else(|| Bytes::from_static(b"null"));
        Reply::new(id.clone(), self.stream.begin_known(id), None)
    }

    fn refuse(&self, id: Option<Bytes>, error: &ErrorObject) {
        self.reply(id).error(error);
    }
}

/// What is on its way to the client.
#[derive(Debug, Default)]
struct Unwritten {
    pieces: VecDeque<Bytes>,
}

impl Unwritten {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn put(&mut self, message: &Text) {
        if message.len() > SMALL {
            self.pieces.extend(message.pieces().iter().filter(|piece| !piece.is_empty()).cloned());
            self.pieces.push_back(Bytes::from_static(b"\n"));
            return;
        }
        let mut line = BytesMut::with_capacity(message.len() + 1);
        message.pieces().iter().for_each(|piece| line.extend_from_slice(piece));
        line.extend_from_slice(b"\n");
        self.pieces.push_back(line.freeze());
    }

    /// Writes some of it. Cancel safe: what was written is taken out at once.
    async fn write_to(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let Some(first) = self.pieces.front_mut() else { return Ok(()) };
        match output.write(first).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => first.advance(written),
        }
        if first.is_empty() {
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            output.flush().await?;
        }
        Ok(())
    }
}
