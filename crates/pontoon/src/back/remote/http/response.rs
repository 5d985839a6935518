//! What a response of HTTP says, read out of its bytes and its head.

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use pontoon_wire::framing::events::Decoder;
use pontoon_wire::{Message, Slot, json};

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

/// Whether a refusal says that the session is unknown, as some servers do with 400 where the protocol has 404.
pub(super) fn denies_session(text: &[u8]) -> bool {
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
