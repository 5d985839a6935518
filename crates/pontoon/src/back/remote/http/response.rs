//! What a response of HTTP says, read out of its bytes and its head.

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use pontoon_wire::framing::events::Decoder;
use pontoon_wire::{Message, Slot, json, method};

use super::headers::SESSION;

/// So much of an answer that is no message is told.
const TOLD: usize = 200;

/// How an answer begins that is no message.
pub(super) fn told(text: &[u8]) -> String {
    match text.is_empty() {
        true => "it said nothing".to_owned(),
        false => String::from_utf8_lossy(&text[..text.len().min(TOLD)]).into_owned(),
    }
}

/// A refusal because the session is unknown.
#[derive(Debug)]
pub(super) enum SessionDenial {
    /// By the status or the code of the protocol: the message was not looked at.
    Certain,
    /// By words, which may be about another session, such as that of a tool with a service behind it.
    Told(String),
}

impl SessionDenial {
    /// Its words, unless the message can be sent again: nothing was done with it, or it changes nothing.
    pub(super) fn unless_harmless(self, message: &Message) -> Option<String> {
        match self {
            Self::Told(words) if !is_harmless(message) => Some(words),
            Self::Told(_) | Self::Certain => None,
        }
    }

    /// What a refusal of this message with 400 says of the session, as some servers have it where the protocol has 404.
    pub(super) fn read(text: &[u8], message: &Message) -> Option<Self> {
        if !denies_session(text) {
            return None;
        }
        // An error of the message itself names it, and was made by more than the door.
        let is_of_message =
            json::find(text, "id").is_some_and(|id| message.raw(Slot::Id) == Some(id));
        let error = json::find(text, "error").filter(|it| it.first() == Some(&b'{'));
        let code = error.and_then(|it| json::find(it, "code"));
        let words = error.and_then(|it| json::find(it, "message")).unwrap_or_default();
        match is_of_message {
            true => Some(Self::Told(told(text))).filter(|_| is_harmless(message)),
            false if code == Some(SESSION_CODE) && denies_session(words) => Some(Self::Certain),
            false => Some(Self::Told(told(text))),
        }
    }
}

/// Whether a message can be sent twice.
fn is_harmless(message: &Message) -> bool {
    const ALSO: [&str; 3] = [method::DISCOVER, method::PING, method::SET_LEVEL];
    let method = message.method();
    method::only_reads(&method) || ALSO.contains(&&*method) || !message.has(Slot::Id)
}

/// The code of the official SDKs for a session that they do not know. That of TypeScript has it for a request that took
/// too long as well.
const SESSION_CODE: &[u8] = b"-32001";

/// Whether a refusal says that the session is unknown.
fn denies_session(text: &[u8]) -> bool {
    const WORDS: [&str; 10] = [
        "session not found",
        "session id not found",
        "unknown session",
        "session is unknown",
        "no valid session",
        "invalid session",
        "session expired",
        "expired session",
        "session has expired",
        "session does not exist",
    ];
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * TOLD)]).to_ascii_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

/// The session that an answer to `initialize` opens.
pub(super) fn session_id(response: &Response<Incoming>) -> Option<String> {
    response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned)
}

/// The answer in a stream of events that was read to its end.
pub(super) fn answer_of_events(body: &[u8], max_message: usize) -> Bytes {
    let mut decoder = Decoder::new(max_message);
    decoder.push(body);
    let events = decoder.by_ref().filter_map(Result::ok).map(|event| event.data);
    let answer = events.filter(|data| json::find(data, "method").is_none()).last();
    answer.map(|data| Bytes::copy_from_slice(&data)).unwrap_or_default()
}

/// Whether a message wants an answer: notifications and answers do not.
pub(super) fn is_request(message: &Message) -> bool {
    message.has(Slot::Id) && message.has(Slot::Method)
}

/// The kind of a body, without what is said of its letters.
pub(super) fn content_type(response: &Response<Incoming>) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let value = value.unwrap_or_default().split(';').next().unwrap_or_default();
    value.trim().to_ascii_lowercase()
}
