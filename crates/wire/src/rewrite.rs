//! Changing a message without touching the rest of it: a list of edits over its text.
//!
//! The result is a [`Text`]: for a large message the untouched stretches are shared, not copied.

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::Message;
use crate::scan::{Member, ScanError};
use crate::slot::Slot;

/// Up to this size a changed message is copied into one piece, which costs less than many pieces.
const COPY_UP_TO: usize = 16 * 1024;

/// A text in one or several pieces.
#[derive(Debug, Clone)]
pub enum Text {
    /// All of it.
    Whole(Bytes),
    /// Piece after piece.
    Pieces(Vec<Bytes>),
}

impl Text {
    /// The pieces in order.
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::Whole(whole) => std::slice::from_ref(whole),
            Self::Pieces(pieces) => pieces,
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// One piece, copied if there were several.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Whole(whole) => whole.clone(),
            Self::Pieces(_) => self.joined().freeze(),
        }
    }

    /// All of it in one piece, copied.
    fn joined(&self) -> BytesMut {
        let mut whole = BytesMut::with_capacity(self.len());
        self.pieces().iter().for_each(|piece| whole.put_slice(piece));
        whole
    }
}

impl From<Bytes> for Text {
    fn from(whole: Bytes) -> Self {
        Self::Whole(whole)
    }
}

impl From<Message> for Text {
    fn from(message: Message) -> Self {
        Self::Whole(message.carry(message.text().clone()))
    }
}

/// A message and the changes to make to it.
#[derive(Debug, Clone)]
pub struct Rewrite {
    message: Message,
    edits: Vec<Edit>,
}

#[derive(Debug, Clone)]
struct Edit {
    start: usize,
    end: usize,
    new: Bytes,
}

impl Rewrite {
    /// No change yet.
    pub fn new(message: Message) -> Self {
        Self { message, edits: Vec::new() }
    }

    /// The message as it was.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The JSON text of a member's value, as it is after what was put in its place.
    pub fn raw(&self, slot: Slot) -> Option<&[u8]> {
        let member = self.message.member(slot)?;
        let place = (member.start as usize, member.end as usize);
        let changed = self.edits.iter().find(|edit| (edit.start, edit.end) == place);
        changed.map(|edit| edit.new.as_ref()).or_else(|| self.message.raw(slot))
    }

    /// Puts `value`, a JSON text, in place of the member's value. Does nothing if it is absent.
    pub fn replace(mut self, slot: Slot, value: impl Into<Bytes>) -> Self {
        if let Some(member) = self.message.member(slot) {
            self.edit(member.start as usize, member.end as usize, value.into());
        }
        self
    }

    /// Puts members, a JSON text like `"a":1,"b":2`, at the front of the object in `slot`.
    pub fn insert_into(self, slot: Slot, members: &str) -> Self {
        match self.message.member(slot) {
            Some(member) => self.insert_after_brace(member.start as usize, members),
            None => self,
        }
    }

    /// Puts members at the front of the message itself.
    pub fn insert_at_top(self, members: &str) -> Self {
        let brace = self.message.text().iter().position(|byte| *byte == b'{');
        let brace = brace.expect("a message is an object");
        self.insert_after_brace(brace, members)
    }

    fn insert_after_brace(mut self, brace: usize, members: &str) -> Self {
        let text = self.message.text();
        if members.is_empty() || text.get(brace) != Some(&b'{') {
            return self;
        }
        let rest = &text[brace + 1..];
        let is_empty = rest.iter().find(|byte| **byte != b' ' && **byte != b'\t') == Some(&b'}');
        let comma = if is_empty { "" } else { "," };
        let new = Bytes::from(format!("{members}{comma}"));
        self.edit(brace + 1, brace + 1, new);
        self
    }

    /// Puts `items`, a JSON text like `1,2`, at the end of the array in `slot`. Does nothing if there
    /// is no array.
    pub fn append_to(mut self, slot: Slot, items: &str) -> Self {
        let Some(member) = self.message.member(slot) else { return self };
        let text = self.message.text();
        let (start, end) = (member.start as usize, member.end as usize);
        if items.is_empty() || text.get(start) != Some(&b'[') {
            return self;
        }
        let inside = &text[start + 1..end - 1];
        let is_empty = inside.iter().all(|byte| matches!(byte, b' ' | b'\t'));
        let comma = if is_empty { "" } else { "," };
        let new = Bytes::from(format!("{comma}{items}"));
        self.edit(end - 1, end - 1, new);
        self
    }

    /// Takes members out, each with its comma.
    pub fn remove(self, slots: &[Slot]) -> Self {
        let members = slots.iter().filter_map(|slot| self.message.member(*slot)).collect();
        self.remove_all(members)
    }

    /// The same for members by their places.
    pub(crate) fn remove_all(mut self, mut members: Vec<Member>) -> Self {
        members.sort_by_key(|member| member.key);
        // While nothing before it stays, a member takes the comma after it; later the one before.
        let mut front = None;
        for member in members {
            let text = self.message.text().clone();
            let (key, end) = (member.key as usize, member.end as usize);
            let before = text[..key].iter().rposition(|byte| *byte != b' ' && *byte != b'\t');
            let before = before.expect("a member stands in an object");
            let after =
                end + text[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            if text[before] == b'{' || front == Some(before) {
                let comma = text.get(after) == Some(&b',');
                let end = if comma { after + 1 } else { end };
                self.edit(key, end, Bytes::new());
                front = comma.then_some(after);
            } else {
                self.edit(before, end, Bytes::new());
                front = None;
            }
        }
        self
    }

    fn edit(&mut self, start: usize, end: usize, new: Bytes) {
        let place = self.edits.partition_point(|edit| edit.start <= start);
        self.edits.insert(place, Edit { start, end, new });
    }

    /// The text with all changes made.
    pub fn finish(self) -> Text {
        let Self { message, edits } = self;
        let text = message.text();
        if edits.is_empty() {
            return Text::Whole(message.carry(text.clone()));
        }
        if text.len() <= COPY_UP_TO {
            let grown: usize = edits.iter().map(|edit| edit.new.len()).sum();
            let mut whole = BytesMut::with_capacity(text.len() + grown + 1);
            pieces(text, &edits, |piece| whole.put_slice(&piece));
            return Text::Whole(whole.freeze());
        }
        let mut all = Vec::with_capacity(edits.len() * 2 + 1);
        pieces(text, &edits, |piece| all.push(message.carry(piece)));
        Text::Pieces(all)
    }

    /// The changed text as a message again.
    ///
    /// # Panics
    ///
    /// When an edit made it invalid, which is a fault of the bridge.
    pub fn into_message(self) -> Message {
        self.try_into_message().expect("an edit leaves a message")
    }

    /// The same where an edit may nest it too deep.
    ///
    /// # Errors
    ///
    /// [`ScanError`] if the changed text is no message.
    pub fn try_into_message(self) -> Result<Message, ScanError> {
        if self.edits.is_empty() {
            return Ok(self.message);
        }
        let before = self.message.clone();
        let text = match self.finish() {
            Text::Whole(whole) => BytesMut::from(whole),
            pieces @ Text::Pieces(_) => pieces.joined(),
        };
        Ok(Message::parse(text)?.keeping_as(&before))
    }
}

fn pieces(text: &Bytes, edits: &[Edit], mut give: impl FnMut(Bytes)) {
    let mut at = 0;
    for edit in edits {
        if edit.start > at {
            give(text.slice(at..edit.start));
        }
        if !edit.new.is_empty() {
            give(edit.new.clone());
        }
        at = at.max(edit.end);
    }
    if at < text.len() {
        give(text.slice(at..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, change: impl Fn(Rewrite) -> Rewrite, expected: &str) {
        let message = Message::parse(text.as_bytes()).unwrap();
        let changed = change(Rewrite::new(message)).finish().to_bytes();
        assert_eq!(std::str::from_utf8(&changed).unwrap(), expected);
        Message::parse(changed.as_ref()).unwrap();

        // The same with a payload large enough to be shared, not copied.
        let padding = format!("{{\"x\":\"{}\",", "y".repeat(COPY_UP_TO));
        let large = text.replacen('{', &padding, 1);
        let message = Message::parse(large.as_bytes()).unwrap();
        let changed = change(Rewrite::new(message)).finish();
        Message::parse(changed.to_bytes().as_ref()).unwrap();
    }

    #[test]
    fn values_are_replaced_wherever_they_stand() {
        check(
            r#"{"method":"m","params":{"_meta":{"progressToken":"t"}},"id":"client"}"#,
            |rewrite| rewrite.replace(Slot::Id, "9").replace(Slot::MetaProgressToken, "9"),
            r#"{"method":"m","params":{"_meta":{"progressToken":9}},"id":9}"#,
        );
        let message = Message::parse(&b"{\"id\":1,\"method\":\"m\"}"[..]).unwrap();
        let changed = Rewrite::new(message).replace(Slot::Id, "23");
        assert_eq!(changed.raw(Slot::Id), Some(&b"23"[..]));
        assert_eq!(changed.raw(Slot::Method), Some(&b"\"m\""[..]));
        assert_eq!(changed.raw(Slot::Params), None);
    }

    #[test]
    fn members_are_put_into_full_and_empty_objects() {
        let put = |rewrite: Rewrite| rewrite.insert_into(Slot::Params, r#""a":1"#);
        check(r#"{"params":{ }}"#, put, r#"{"params":{"a":1 }}"#);
        check(r#"{"params":{"b":2}}"#, put, r#"{"params":{"a":1,"b":2}}"#);
        check(r#"{"id":1}"#, |rewrite| rewrite.insert_at_top(r#""j":2"#), r#"{"j":2,"id":1}"#);
    }

    #[test]
    fn members_are_taken_out_with_their_commas() {
        let take =
            |rewrite: Rewrite| rewrite.remove(&[Slot::TtlMs, Slot::ResultType, Slot::CacheScope]);
        let cases = [
            (r#"{"resultType":"complete"}"#, "{}"),
            (r#"{"resultType":"complete", "ttlMs":0}"#, "{ }"),
            (r#"{"resultType":"c","ttlMs":0,"tools":[]}"#, r#"{"tools":[]}"#),
            (r#"{"tools":[],"resultType":"c" ,"ttlMs":0 }"#, r#"{"tools":[]  }"#),
            (r#"{"resultType":"c","tools":[],"ttlMs":0}"#, r#"{"tools":[]}"#),
            (r#"{"ttlMs":0,"a":1,"resultType":"c","b":2,"cacheScope":"x"}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ];
        for (result, expected) in cases {
            check(
                &format!(r#"{{"result":{result}}}"#),
                take,
                &format!(r#"{{"result":{expected}}}"#),
            );
        }
    }
}
