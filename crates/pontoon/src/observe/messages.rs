//! The last messages between the bridge and an application, for those who ask a running bridge what it does.
//!
//! A ring of a fixed size, in memory only. What a message was is always kept; how it begins only where the user asked for
//! that, and it is cleaned when it is looked at. To note a message costs no allocation for what it was.

use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use pontoon_wire::{Kind, Message, Slot, Text};
use serde_json::{Value, json};

use super::log::Secrets;
use super::payload::shown;
use crate::clock::now;
use crate::date::to_micros;
use crate::lock::Lock;

/// So many messages are kept.
const KEPT: usize = 256;

/// So much is kept of the beginning of each.
const BEGINNING: usize = 512;

/// A message of ours that is longer is not read to say what it is.
const LONGEST_READ: usize = 64 << 10;

/// The last messages of both directions.
#[derive(Debug)]
pub struct MessageRing {
    recorded: Lock<Recorded>,
    has_beginnings: bool,
    secrets: Secrets,
}

#[derive(Debug, Default)]
struct Recorded {
    slots: Vec<RecordedMessage>,
    /// How many were ever noted.
    total: u64,
}

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the application.
    Sent,
    /// From it.
    Heard,
}

#[derive(Debug, Clone)]
struct RecordedMessage {
    time: SystemTime,
    at: Instant,
    direction: Direction,
    kind: &'static str,
    method: ShortText<48>,
    id: ShortText<32>,
    bytes: usize,
    /// How long its request was open.
    took: Option<Duration>,
    beginning: Vec<u8>,
}

/// A text of bounded length, without a place of its own in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShortText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> ShortText<N> {
    fn new(text: &[u8]) -> Self {
        let length = text.len().min(N);
        let mut bytes = [0; N];
        bytes[..length].copy_from_slice(&text[..length]);
        Self { bytes, length }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn to_json(self) -> Option<String> {
        let text = String::from_utf8_lossy(self.as_bytes()).into_owned();
        (!text.is_empty()).then(|| pontoon_supervise::plain_text(text))
    }
}

impl MessageRing {
    /// No message yet. How messages begin is kept if `has_beginnings`; these secrets are never shown.
    pub fn new(has_beginnings: bool, secrets: Secrets) -> Self {
        Self { recorded: Lock::default(), has_beginnings, secrets }
    }

    /// Takes note of a message that was heard.
    pub fn heard(&self, message: &Message) {
        let beginning = [message.text().as_ref()];
        self.note(Direction::Heard, message, message.text().len(), beginning.into_iter());
    }

    /// Takes note of a text that goes out.
    pub fn sent(&self, text: &Text) {
        let pieces = || text.pieces().iter().map(AsRef::as_ref);
        let length = text.len();
        if length <= LONGEST_READ {
            let mut whole = BytesMut::with_capacity(length);
            pieces().for_each(|piece| whole.extend_from_slice(piece));
            if let Ok(message) = Message::parse(whole) {
                return self.note(Direction::Sent, &message, length, pieces());
            }
        }
        // Only requests are so long; their id is of digits, and a piece of its own.
        let is_id = |piece: &&[u8]| !piece.is_empty() && piece.iter().all(u8::is_ascii_digit);
        let id = pieces().find(is_id).unwrap_or_default();
        self.put(Direction::Sent, "request", b"", id, length, pieces());
    }

    fn note<'p>(
        &self,
        direction: Direction,
        message: &Message,
        length: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) {
        let kind = match message.kind() {
            Kind::Request => "request",
            Kind::Notification => "notification",
            Kind::Answer if message.has(Slot::Error) => "error",
            Kind::Answer => "result",
            Kind::Unclear => "unclear",
        };
        let id = message.raw(Slot::Id).unwrap_or_default();
        self.put(direction, kind, message.method().as_bytes(), id, length, pieces);
    }

    fn put<'p>(
        &self,
        direction: Direction,
        kind: &'static str,
        method: &[u8],
        id: &[u8],
        bytes: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) {
        let (at, id) = (now(), ShortText::new(id));
        let mut recorded = self.recorded.lock();
        let is_answer = matches!(kind, "result" | "error");
        let request = is_answer.then(|| recorded.request(direction, &id)).flatten();
        let (asked, method) = match request {
            Some((asked, method)) => (Some(asked), method),
            None => (None, ShortText::new(method)),
        };
        let mut beginning = recorded.make_room();
        if self.has_beginnings {
            for piece in pieces {
                let room = BEGINNING - beginning.len();
                beginning.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        let took = asked.map(|asked| at.saturating_duration_since(asked));
        let time = SystemTime::now();
        let entry =
            RecordedMessage { time, at, direction, kind, method, id, bytes, took, beginning };
        recorded.put(entry);
    }

    /// What is kept, the oldest first, and how many messages there were.
    pub fn to_json(&self) -> Value {
        let (mut kept, total) = {
            let recorded = self.recorded.lock();
            (recorded.slots.clone(), recorded.total)
        };
        kept.sort_by_key(|message| message.at);
        let redactor = self.secrets.redactor();
        let one = |message: &RecordedMessage| {
            let mut told = json!({
                "time": to_micros(message.time),
                "direction": match message.direction {
                    Direction::Sent => "sent",
                    Direction::Heard => "heard",
                },
                "kind": message.kind,
                "method": message.method.to_json(),
                "id": message.id.to_json(),
                "bytes": message.bytes,
                "took_ms": message.took.map(|took| took.as_secs_f64() * 1000.0),
            });
            if self.has_beginnings {
                let is_cut = message.bytes > message.beginning.len();
                told["text"] = shown(&message.beginning, is_cut, &redactor).into();
            }
            told
        };
        json!({ "total": total, "last": kept.iter().map(one).collect::<Vec<_>>() })
    }
}

impl Recorded {
    /// When a request was made that an answer of this direction and id is for, and what it was.
    fn request(&self, answer: Direction, id: &ShortText<32>) -> Option<(Instant, ShortText<48>)> {
        let newest = self.next() + self.slots.len();
        let mut backwards = (0..self.slots.len()).map(|age| {
            let at = (newest - 1 - age) % self.slots.len();
            &self.slots[at]
        });
        let request =
            backwards.find(|it| it.kind == "request" && it.direction != answer && it.id == *id)?;
        Some((request.at, request.method))
    }

    /// Where the next message goes.
    fn next(&self) -> usize {
        usize::try_from(self.total % KEPT as u64).unwrap_or_default()
    }

    /// The memory for the beginning of the next message: that of the one whose place it takes.
    fn make_room(&mut self) -> Vec<u8> {
        let next = self.next();
        let mut memory = self.slots.get_mut(next).map(|it| std::mem::take(&mut it.beginning));
        memory.as_mut().into_iter().for_each(Vec::clear);
        memory.unwrap_or_default()
    }

    fn put(&mut self, message: RecordedMessage) {
        let next = self.next();
        match self.slots.get_mut(next) {
            Some(slot) => *slot = message,
            None => self.slots.push(message),
        }
        self.total += 1;
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::Rewrite;

    use super::*;

    fn ring(has_beginnings: bool) -> MessageRing {
        let secrets = Secrets::default();
        secrets.hide([b"hunter2-canary" as &[u8]]);
        MessageRing::new(has_beginnings, secrets)
    }

    fn text(text: &str) -> Text {
        Rewrite::new(Message::own(text)).finish()
    }

    fn heard(ring: &MessageRing, text: &str) {
        ring.heard(&Message::own(text));
    }

    #[test]
    fn an_answer_says_how_long_it_took_and_for_what() {
        let ring = ring(false);
        ring.sent(&text(r#"{"method":"tools/call","params":{"a":1},"jsonrpc":"2.0","id":5}"#));
        heard(&ring, r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#);
        heard(&ring, r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
        heard(&ring, r#"{"jsonrpc":"2.0","id":6,"error":{"code":1,"message":"x"}}"#);
        heard(&ring, r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
        ring.sent(&text(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#));
        let told = ring.to_json();
        let facts: Vec<_> = told["last"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                assert!(it["text"].is_null(), "nobody asked for it");
                let word = |name: &str| it[name].as_str().unwrap_or("-").to_owned();
                let took = if it["took_ms"].is_f64() { "took" } else { "" };
                format!(
                    "{} {} {} {} {took}",
                    word("direction"),
                    word("kind"),
                    word("method"),
                    word("id")
                )
            })
            .collect();
        let expected = [
            "sent request tools/call 5 ",
            "heard notification notifications/progress - ",
            "heard result tools/call 5 took",
            "heard error - 6 ",
            "heard request roots/list \"q\" ",
            "sent result roots/list \"q\" took",
        ];
        assert_eq!(facts, expected);
        assert_eq!(told["total"], 6);
    }

    #[test]
    fn it_is_bounded_in_number_and_in_bytes() {
        let ring = ring(true);
        let long = "x".repeat(100_000);
        for id in 0..KEPT + 10 {
            ring.sent(&text(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"a","params":{{"x":"{long}"}}}}"#
            )));
        }
        let told = ring.to_json();
        let last = told["last"].as_array().unwrap();
        assert_eq!((last.len(), &told["total"]), (KEPT, &json!(KEPT + 10)));
        assert!(last[0]["bytes"].as_u64().unwrap() > 100_000, "{}", last[0]);
        let shown = |it: &Value| it["text"].as_str().unwrap().len();
        assert!(last.iter().all(|it| shown(it) <= BEGINNING + "…".len()));
        let recorded = ring.recorded.lock();
        assert!(recorded.slots.iter().all(|slot| slot.beginning.capacity() <= 2 * BEGINNING));
    }

    #[test]
    fn no_secret_is_shown() {
        let ring = ring(true);
        heard(
            &ring,
            r#"{"jsonrpc":"2.0","id":1,"result":{"text":"it is hunter2-canary","password":"pw-canary"}}"#,
        );
        let told = ring.to_json().to_string();
        assert!(!told.contains("canary") && told.contains("[hidden]"), "{told}");
    }
}
