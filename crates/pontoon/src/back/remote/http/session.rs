//! A session over HTTP as the carrier of a conversation: each message is sent, and what comes back is its answer.
//!
//! A session that the server has lost is opened once more, by the first of the messages that find out; each of them was
//! refused, and is sent again if that does no harm or is certain. What is no answer in the form of the protocol becomes one: a status that tells a failure
//! is an error of the request it is about. What the server strays from is noted, and taken where that is healed (H29).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Response, StatusCode};
use pontoon_wire::framing::events::Decoder;
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::{Message, Slot, json, method, quoted, string_value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::headers::{SESSION, of_message};
use super::pool::{HttpError, HttpPool};
use super::response::{
    SessionDenial, answer_of_events, content_type, is_request, session_id, told,
};
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::channel::{MessageSender, message_channel};
use crate::back::conversation::websocket::SocketEnd;
use crate::back::remote::dial::Dialer;
use crate::config::AppTarget;
use crate::errors::chain;
use crate::lock::Lock;
use crate::observe::heals::HealLog;

/// How many requests are under way at once.
const AT_ONCE: usize = 32;

/// How long the end of a session may take.
const LAST: Duration = Duration::from_secs(2);

/// How long opening another session may take.
const OPENING: Duration = Duration::from_secs(30);

/// What a server does over HTTP that the protocol has otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HttpManner {
    /// JSON that is called something else.
    OtherType,
    /// 200 and nothing, where 202 is meant.
    EmptyAnswer,
    /// A session that it did not know any more.
    LostSession,
    /// A redirection.
    Moved,
}

/// Opens a session with this server. Nothing is sent yet; `manners` hears what it does otherwise than it should.
pub(crate) fn open(
    target: AppTarget,
    dialer: Dialer,
    max_message: usize,
    manners: Arc<Lock<BTreeSet<HttpManner>>>,
    heals: Arc<HealLog>,
    endings: &TaskTracker,
) -> Carrier {
    let (channel, MessageSender { outgoing, incoming, end }) = message_channel();
    let session = HttpSession {
        pool: HttpPool::new(target, dialer),
        max_message,
        incoming,
        end,
        state: tokio::sync::Mutex::default(),
        opening: tokio::sync::Mutex::new(Ok(())),
        manners,
        heals,
    };
    // The end of the session is waited for where the ends of processes are.
    endings.spawn(Arc::new(session).run(outgoing));
    Carrier::Channel(Box::new(channel))
}

/// A session over HTTP.
struct HttpSession {
    pool: HttpPool,
    max_message: usize,
    incoming: mpsc::Sender<BytesMut>,
    end: Arc<OnceLock<SocketEnd>>,
    state: tokio::sync::Mutex<HttpSessionFacts>,
    /// Held while another session is opened; what came of the last try.
    opening: tokio::sync::Mutex<Result<(), NotReopened>>,
    manners: Arc<Lock<BTreeSet<HttpManner>>>,
    heals: Arc<HealLog>,
}

/// Why there is no session in place of a lost one.
#[derive(Debug, Clone, thiserror::Error)]
#[error("it does not know the session, and another could not be opened: {0}")]
struct NotReopened(String);

/// What is known of the session.
#[derive(Debug, Clone, Default)]
struct HttpSessionFacts {
    id: Option<String>,
    /// The version that was agreed.
    version: Option<String>,
    /// What opened it, to open another.
    opening: Option<Bytes>,
    /// How often another one was tried to be opened in its place.
    tries: u32,
}

/// What became of a message that was sent.
enum Delivered {
    Done,
    /// The server refused it, for it does not know the session any more that had so many tries before it.
    NoSession {
        tries: u32,
        denial: SessionDenial,
    },
}

impl HttpSession {
    async fn run(self: Arc<Self>, mut outgoing: mpsc::Receiver<Bytes>) {
        let mut under_way = JoinSet::new();
        while let Some(text) = outgoing.recv().await {
            let Ok(message) = Message::parse(&text[..]) else { continue };
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            let is_first = matches!(&*message.method(), method::INITIALIZE | method::INITIALIZED);
            let session = Arc::clone(&self);
            let sending = async move { session.deliver(message).await };
            // The session is known when it is opened, so nothing overtakes that.
            match is_first {
                true => sending.await,
                false => drop(under_way.spawn(sending)),
            }
            while under_way.try_join_next().is_some() {}
        }
        under_way.abort_all();
        drop(tokio::time::timeout(LAST, self.leave()).await);
    }

    /// Ends the session, if there is one.
    async fn leave(&self) {
        let state = self.state.lock().await.clone();
        let Some(id) = state.id else { return };
        let mut headers = HeaderMap::new();
        if let Ok(id) = id.parse() {
            headers.insert(SESSION, id);
            if let Ok((response, _)) =
                self.pool.request(Method::DELETE, &headers, &Bytes::new()).await
            {
                tracing::debug!(status = %response.status(), "the session was ended");
            }
        }
    }

    /// Sends a message, and passes on what comes back. A session that is lost is opened once more.
    async fn deliver(&self, message: Message) {
        let sent = match self.send(&message).await {
            Ok(Delivered::NoSession { tries, denial })
                if message.method() != method::INITIALIZE =>
            {
                match (self.open_again(tries).await, denial.unless_harmless(&message)) {
                    (Ok(()), None) => self.send(&message).await,
                    (Ok(()), Some(words)) => {
                        let why = format!(
                            "HTTP 400: {words} (it was not sent again: it may have been carried out)"
                        );
                        return self.fail(&message, &why).await;
                    }
                    (Err(why), _) => return self.fail(&message, &why.to_string()).await,
                }
            }
            sent => sent,
        };
        match sent {
            Ok(Delivered::Done) => {}
            Ok(Delivered::NoSession { .. }) => {
                self.fail(&message, "HTTP 404: it does not know the session").await;
            }
            Err(error) => {
                let why = chain(&error);
                if message.method() == method::INITIALIZE {
                    let _ = self.end.set(SocketEnd { code: None, words: why.clone() });
                }
                self.fail(&message, &why).await;
            }
        }
    }

    /// Opens another session in place of the one that had so many tries before it. Of messages that ask for it at the
    /// same time the first does so, and what came of that is so for all of them.
    async fn open_again(&self, tries: u32) -> Result<(), NotReopened> {
        let mut outcome = self.opening.lock().await;
        if self.state.lock().await.tries == tries {
            let silent = |_| Err(NotReopened("it did not answer in time".to_owned()));
            *outcome = match self.notes(HttpManner::LostSession) {
                true => {
                    tokio::time::timeout(OPENING, self.open_another()).await.unwrap_or_else(silent)
                }
                false => Err(NotReopened("that is not to be healed (H29)".to_owned())),
            };
            self.state.lock().await.tries += 1;
        }
        outcome.clone()
    }

    async fn open_another(&self) -> Result<(), NotReopened> {
        let failed = |error: HttpError| NotReopened(chain(&error));
        let opening = self.state.lock().await.opening.clone();
        let Some(opening) = opening.and_then(|text| Message::parse(&text[..]).ok()) else {
            return Err(NotReopened("nothing opened the first".to_owned()));
        };
        let headers = of_message(&opening, None, None);
        let asked = self.pool.request(Method::POST, &headers, opening.text()).await;
        let (response, connection) = asked.map_err(failed)?;
        let (status, id) = (response.status(), session_id(&response));
        let is_stream = content_type(&response) == "text/event-stream";
        let body = http_body_util::Limited::new(response.into_body(), self.max_message);
        let body = body.collect().await.map_err(|error| NotReopened(error.to_string()))?.to_bytes();
        let answer = if is_stream { answer_of_events(&body, self.max_message) } else { body };
        let result = json::find(&answer, "result").filter(|it| it.first() == Some(&b'{'));
        let Some(result) = result.filter(|_| status.is_success()) else {
            let said = told(answer.trim_ascii());
            return Err(NotReopened(format!("HTTP {}: {said}", status.as_u16())));
        };
        // The rest of its answer was heard once already.
        let version = json::find(result, "protocolVersion").and_then(string_value);
        {
            let mut state = self.state.lock().await;
            state.id = id;
            state.version = version.map(|it| it.into_owned()).or(state.version.take());
        }
        self.pool.keep(connection);
        let initialized = Message::own(crate::call::plain_notification(method::INITIALIZED));
        self.send(&initialized).await.map(|_| ()).map_err(failed)
    }

    async fn send(&self, message: &Message) -> Result<Delivered, HttpError> {
        let (headers, tries) = {
            let state = self.state.lock().await;
            (of_message(message, state.id.as_deref(), state.version.as_deref()), state.tries)
        };
        let had_session = headers.contains_key(SESSION);
        let (response, connection) =
            self.pool.request(Method::POST, &headers, message.text()).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && had_session {
            return Ok(Delivered::NoSession { tries, denial: SessionDenial::Certain });
        }
        if status.is_success() && message.method() == method::INITIALIZE {
            let mut state = self.state.lock().await;
            state.id = session_id(&response);
            state.opening = Some(message.text().clone());
            state.version = message.string(Slot::ProtocolVersion).map(|it| it.into_owned());
        }
        let is_stream = content_type(&response) == "text/event-stream";
        match status.is_success() && is_stream {
            true => self.read_events(response.into_body(), message).await?,
            false => {
                if let Some(denial) = self.read_body(response, message, had_session).await {
                    return Ok(Delivered::NoSession { tries, denial });
                }
            }
        }
        self.pool.keep(connection);
        Ok(Delivered::Done)
    }

    /// Notes what the server does otherwise than it should. Whether it is taken as it was meant.
    fn notes(&self, manner: HttpManner) -> bool {
        if self.heals.mode(Heal::H29) != HealMode::Off {
            self.manners.lock().insert(manner);
        }
        self.heals.found(Heal::H29)
    }

    async fn read_events(&self, mut body: Incoming, message: &Message) -> Result<(), HttpError> {
        let mut decoder = Decoder::new(self.max_message);
        let mut is_answered = !is_request(message);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            decoder.push(&data);
            for event in decoder.by_ref() {
                let Ok(event) = event else { continue };
                if event.data.is_empty() {
                    continue;
                }
                is_answered |= self.take(&event.data, message).await;
            }
        }
        if !is_answered {
            self.fail(message, "the stream of events ended without an answer").await;
        }
        Ok(())
    }

    /// Passes on a body that is no stream, unless it says that the session is unknown.
    async fn read_body(
        &self,
        response: Response<Incoming>,
        message: &Message,
        had_session: bool,
    ) -> Option<SessionDenial> {
        let (status, kind) = (response.status(), content_type(&response));
        let mut body = http_body_util::Limited::new(response.into_body(), self.max_message);
        let mut text = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                self.fail(message, "the answer is longer than is taken").await;
                return None;
            };
            if let Ok(data) = frame.into_data() {
                text.extend_from_slice(&data);
            }
        }
        let is_request = is_request(message);
        let trimmed = text.trim_ascii();
        if status.is_success() && trimmed.is_empty() {
            if is_request {
                self.fail(message, &format!("HTTP {}: it answered nothing", status.as_u16())).await;
            } else if status == StatusCode::OK {
                self.notes(HttpManner::EmptyAnswer);
            }
            return None;
        }
        let is_message = trimmed.first() == Some(&b'{');
        if had_session
            && status == StatusCode::BAD_REQUEST
            && let Some(denial) = SessionDenial::read(trimmed, message)
        {
            return Some(denial);
        }
        let error = json::find(trimmed, "error").filter(|it| it.first() == Some(&b'{'));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let said = error.and_then(|it| json::find(it, "message")).and_then(string_value);
            let said = said.map_or_else(|| told(trimmed), |it| it.into_owned());
            self.fail(message, &format!("HTTP {}: {said}", status.as_u16())).await;
            return None;
        }
        if is_message && (status.is_success() || error.is_some()) {
            let is_other = status.is_success() && kind != "application/json";
            if is_other && !self.notes(HttpManner::OtherType) {
                self.fail(message, &format!("its answer is called {kind:?}, not application/json"))
                    .await;
                return None;
            }
            if is_request || json::find(trimmed, "method").is_some() {
                self.take(trimmed, message).await;
            } else if status.is_success() {
                // An answer to a notification, which the conversation counts.
                let _ = self.incoming.send(BytesMut::from(trimmed)).await;
            }
            return None;
        }
        if status.is_redirection() {
            self.notes(HttpManner::Moved);
        }
        if !status.is_success() || is_request {
            let said = match status.is_success() && kind == "text/html" {
                true => "it answered with a web page (text/html)".to_owned(),
                false => told(trimmed),
            };
            self.fail(message, &format!("HTTP {}: {said}", status.as_u16())).await;
        }
        None
    }

    /// Passes on what came. An error that names no request is about the one it answers. True if it is an answer.
    async fn take(&self, text: &[u8], message: &Message) -> bool {
        let id = message.raw(Slot::Id);
        if message.method() == method::INITIALIZE
            && let Some(version) =
                json::find(text, "result").and_then(|it| json::find(it, "protocolVersion"))
        {
            let version = string_value(version).map(|it| it.into_owned());
            self.state.lock().await.version = version;
        }
        let is_answer = json::find(text, "method").is_none();
        let named = json::find(text, "id").filter(|named| *named != b"null");
        let text = match (is_answer, named, id, json::find(text, "error")) {
            (true, None, Some(id), Some(error)) => {
                let (id, error) = (String::from_utf8_lossy(id), String::from_utf8_lossy(error));
                BytesMut::from(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes(),
                )
            }
            _ => BytesMut::from(text),
        };
        let _ = self.incoming.send(text).await;
        is_answer
    }

    /// Tells that a request has no answer, and why.
    async fn fail(&self, message: &Message, why: &str) {
        let Some(id) = message.raw(Slot::Id).filter(|_| is_request(message)) else {
            tracing::debug!(why, "a message that wants no answer was not taken");
            return;
        };
        let id = String::from_utf8_lossy(id);
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32000,\"message\":{}}}}}",
            quoted(why)
        );
        let _ = self.incoming.send(BytesMut::from(text.as_bytes())).await;
    }
}
