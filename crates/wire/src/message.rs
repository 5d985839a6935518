//! The JSON-RPC envelope: what a frame is, with its payload left as it was written.
//!
//! A [`Message`] is the text of a frame and the places of the few members the bridge reads.
//! Changing one is the business of [`crate::rewrite`].

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::method;
use crate::scan::{Member, ScanError, Scanned, Word, scan};
use crate::slot::Slot;

/// The longest id or method name taken from a client, in bytes.
pub const MAX_NAME: usize = 256;

/// One checked frame: one JSON object on one line. A clone is the same frame, not a copy of it.
#[derive(Clone)]
pub struct Message {
    /// Behind a pointer, for a message is moved and cloned far more often than it is read.
    frame: Arc<Frame>,
}

#[derive(Clone)]
struct Frame {
    text: Bytes,
    scanned: Scanned,
    /// One of those the bridge knows, plainly spelt: it is asked for many times.
    method: Option<&'static str>,
    keep: Option<Keep>,
}

/// Something that lives as long as a message or any text that was made from it.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// A text, and what lives as long.
struct Kept {
    text: Bytes,
    _keep: Keep,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// What a message is, by its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has a method and an id: it wants an answer.
    Request,
    /// It has a method and no id: it must never get one.
    Notification,
    /// It has a result or an error.
    Answer,
    /// None of these.
    Unclear,
}

/// Why a checked frame is no message a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// `jsonrpc` is absent or something else.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// The id is null, a fraction, or no string or number at all.
    #[error("`id` must be a string or an integer, and not null")]
    Id,
    /// The method is no string, or the id or method is too long.
    #[error("`method` and `id` must be no longer than {MAX_NAME} bytes, and `method` a string")]
    Name,
    /// The parameters are no object.
    #[error("`params` must be an object")]
    Params,
    /// Neither method, result nor error.
    #[error("a message has a `method`, a `result` or an `error`")]
    Unclear,
}

impl Message {
    /// The message in `text`, checked and put on one line.
    ///
    /// # Errors
    ///
    /// [`ScanError`] when `text` is not exactly one JSON object within the limits.
    pub fn parse(text: impl Into<BytesMut>) -> Result<Self, ScanError> {
        Self::parse_or_return(text.into()).map_err(|(error, _)| error)
    }

    /// The same, and the text is given back with the error.
    ///
    /// # Errors
    ///
    /// As [`Message::parse`].
    pub fn parse_or_return(mut text: BytesMut) -> Result<Self, (ScanError, BytesMut)> {
        match scan(&mut text) {
            Ok(scanned) => Ok(Self::scanned(text, scanned)),
            Err(error) => Err((error, text)),
        }
    }

    /// A message whose text has been scanned.
    pub(crate) fn scanned(text: BytesMut, scanned: Scanned) -> Self {
        let Member { start, end, .. } = scanned.members[Slot::Method as usize];
        let method = text.get(start as usize + 1..(end as usize).saturating_sub(1));
        let method = method.and_then(method::known);
        Self { frame: Arc::new(Frame { text: text.freeze(), scanned, method, keep: None }) }
    }

    /// The same message, with something that lives as long as it or a text made from it.
    pub fn keeping(mut self, keep: Keep) -> Self {
        Arc::make_mut(&mut self.frame).keep = Some(keep);
        self
    }

    /// The same message as another one, whose keep goes along.
    pub(crate) fn keeping_as(self, other: &Self) -> Self {
        match &other.frame.keep {
            Some(keep) => self.keeping(Arc::clone(keep)),
            None => self,
        }
    }

    /// A part of a text that was made from this message, with what is to live as long.
    pub(crate) fn carry(&self, text: Bytes) -> Bytes {
        match &self.frame.keep {
            Some(keep) => Bytes::from_owner(Kept { text, _keep: Arc::clone(keep) }),
            None => text,
        }
    }

    /// Like [`Message::parse`], for text the bridge wrote itself.
    ///
    /// # Panics
    ///
    /// When the text is no message, which is a fault of the bridge.
    pub fn own(text: impl Into<Vec<u8>>) -> Self {
        let text: Vec<u8> = text.into();
        Self::parse(BytesMut::from(text.as_slice())).expect("the bridge writes valid messages")
    }

    /// The whole text, one line without its end.
    pub fn text(&self) -> &Bytes {
        &self.frame.text
    }

    /// What the message is.
    pub fn kind(&self) -> Kind {
        match (self.has(Slot::Method), self.has(Slot::Id)) {
            (true, true) => Kind::Request,
            (true, false) => Kind::Notification,
            (false, _) if self.has(Slot::Result) || self.has(Slot::Error) => Kind::Answer,
            _ => Kind::Unclear,
        }
    }

    /// Whether the member is there.
    pub fn has(&self, slot: Slot) -> bool {
        self.frame.scanned.members[slot as usize].end != 0
    }

    /// Whether this stands anywhere in the message.
    pub fn says(&self, word: Word) -> bool {
        self.frame.scanned.words.has(word)
    }

    /// Where the member stands.
    pub(crate) fn member(&self, slot: Slot) -> Option<Member> {
        Some(self.frame.scanned.members[slot as usize]).filter(|member| member.end != 0)
    }

    /// The JSON text of a member's value.
    pub fn raw(&self, slot: Slot) -> Option<&[u8]> {
        self.member(slot).map(|member| &self.frame.text[member.start as usize..member.end as usize])
    }

    /// The JSON text of a member's value, copied: it may be kept for long, and the message may be large.
    pub fn copy(&self, slot: Slot) -> Option<Bytes> {
        self.raw(slot).map(Bytes::copy_from_slice)
    }

    /// The value of a member that is a string; `None` when it is absent or something else.
    pub fn string(&self, slot: Slot) -> Option<Cow<'_, str>> {
        string_value(self.raw(slot)?)
    }

    /// The method, or nothing when there is none.
    pub fn method(&self) -> Cow<'_, str> {
        match self.frame.method {
            Some(known) => known.into(),
            None => self.string(Slot::Method).unwrap_or_default(),
        }
    }

    /// Whether the message may come from a client: a whole and proper envelope.
    ///
    /// # Errors
    ///
    /// [`EnvelopeError`] names the member that is wrong.
    pub fn check_envelope(&self) -> Result<(), EnvelopeError> {
        if self.string(Slot::Jsonrpc).as_deref() != Some("2.0") {
            return Err(EnvelopeError::Version);
        }
        if let Some(id) = self.raw(Slot::Id) {
            // An answer to something unreadable has a null id; it is dropped later, not refused.
            let is_null_answer = id == b"null" && !self.has(Slot::Method);
            if !is_id(id) && !is_null_answer {
                return Err(EnvelopeError::Id);
            }
            if id.len() > MAX_NAME {
                return Err(EnvelopeError::Name);
            }
        }
        if let Some(method) = self.raw(Slot::Method)
            && (method.first() != Some(&b'"') || method.len() > MAX_NAME)
        {
            return Err(EnvelopeError::Name);
        }
        if self.raw(Slot::Params).is_some_and(|params| params.first() != Some(&b'{')) {
            return Err(EnvelopeError::Params);
        }
        if self.kind() == Kind::Unclear { Err(EnvelopeError::Unclear) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads may be large and private: the start of the text is enough to know it by.
        let head = &self.frame.text[..self.frame.text.len().min(120)];
        write!(f, "Message({:?}, {})", self.kind(), String::from_utf8_lossy(head))
    }
}

/// The value of a JSON string given as its text, or `None` if the text is no string.
pub fn string_value(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice(raw).ok().map(Cow::Owned)
}

/// Whether a JSON text is an id: a string or an integer.
pub fn is_id(raw: &[u8]) -> bool {
    match raw.first() {
        Some(b'"') => true,
        Some(b'-' | b'0'..=b'9') => !raw.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')),
        _ => false,
    }
}

/// A JSON string with this value, quoted and escaped.
pub fn quoted(value: &str) -> String {
    serde_json::to_string(value).expect("a string is always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn members_are_found_in_any_order() {
        let message = message(
            r#"{"method":"tools/call","params":{"arguments":{"name":"no"},"_meta":{"progressToken":7},"name":"make"},"jsonrpc":"2.0","id":12345678901234567890}"#,
        );
        assert_eq!(message.kind(), Kind::Request);
        assert_eq!(message.method(), "tools/call");
        assert_eq!(message.raw(Slot::Id), Some(b"12345678901234567890".as_slice()));
        assert_eq!(message.string(Slot::Name).unwrap(), "make");
        assert_eq!(message.raw(Slot::MetaProgressToken), Some(b"7".as_slice()));
        assert_eq!(message.raw(Slot::Arguments), Some(br#"{"name":"no"}"#.as_slice()));
    }

    #[test]
    fn only_the_objects_we_name_are_looked_into() {
        let message = message(r#"{"id":1,"result":{"content":[{"_meta":{"id":3}}],"x":{"id":4}}}"#);
        assert_eq!(message.kind(), Kind::Answer);
        assert_eq!(message.raw(Slot::Id), Some(b"1".as_slice()));
        assert!(!message.has(Slot::ResultMeta));
    }

    #[test]
    fn escaped_strings_are_read() {
        let message = message(r#"{"method":"tools\/list","params":{"name":"caf\u00e9"}}"#);
        assert_eq!(message.method(), "tools/list");
        assert_eq!(message.string(Slot::Name).unwrap(), "café");
    }

    #[test]
    fn what_stands_in_few_messages_is_noted_wherever_it_stands() {
        const WORDS: [Word; 4] = [Word::Null, Word::Blob, Word::ResourceLink, Word::OtherMember];
        let says = |text: &str| WORDS.map(|word| message(text).says(word));
        let only = |word: Word| WORDS.map(|it| it == word);
        assert_eq!(says(r#"{"id":1,"result":{"a":"null, blob"}}"#), [false; 4]);
        assert_eq!(says(r#"{"id":1,"result":{"a":[{"b":null}]}}"#), only(Word::Null));
        assert_eq!(says(r#"{"id":1,"result":{"r":[{"blob":""}]}}"#), only(Word::Blob));
        let link = r#"{"id":1,"result":{"type":"resource_link"}}"#;
        assert_eq!(says(link), only(Word::ResourceLink));
        assert_eq!(says(r#"{"id":1,"result":{},"x":1}"#), only(Word::OtherMember));
        let envelope = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1}}"#;
        assert_eq!(says(envelope), [false; 4]);
    }

    #[track_caller]
    fn check(text: &str, expected: Result<(), EnvelopeError>) {
        assert_eq!(message(text).check_envelope(), expected, "{text}");
    }

    #[test]
    fn a_client_must_send_a_proper_envelope() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Ok(()));
        check(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#, Ok(()));
        check(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, Ok(()));
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, Ok(()));
        check(r#"{"id":1,"method":"ping"}"#, Err(EnvelopeError::Version));
        check(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Err(EnvelopeError::Id));
        check(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Err(EnvelopeError::Id));
        check(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Err(EnvelopeError::Id));
        check(r#"{"jsonrpc":"2.0","id":1,"method":2}"#, Err(EnvelopeError::Name));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#, Err(EnvelopeError::Params));
        check(r#"{"jsonrpc":"2.0","id":1}"#, Err(EnvelopeError::Unclear));
    }
}
