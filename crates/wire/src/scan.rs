//! The scanner: one pass over a frame that checks it and finds the few members the bridge reads.
//!
//! It checks UTF-8, JSON grammar, depth, surrogates and repeated members, and it overwrites every
//! CR and LF between tokens with a space, so that one frame is always one line: a body with
//! newlines between its tokens would otherwise reach a server as several messages. Nothing else
//! changes, nothing is allocated, nothing recurses. What the members mean is left to `message`.

use crate::slot::{Context, SLOTS, Slot};

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The text ends before the value does.
    #[error("the JSON text ends too early")]
    Incomplete,
    /// A byte that JSON does not allow there.
    #[error("not JSON at byte {at}")]
    Syntax {
        /// Where, counted from zero.
        at: usize,
    },
    /// More text after the value.
    #[error("more text after the JSON value, at byte {at}")]
    Trailing {
        /// Where the rest begins.
        at: usize,
    },
    /// Nesting beyond [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels, at byte {at}")]
    TooDeep {
        /// Where the level too many opens.
        at: usize,
    },
    /// Half of a surrogate pair.
    #[error("half a surrogate pair at byte {at}")]
    Surrogate {
        /// Where the escape stands.
        at: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Utf8 {
        /// Where the first bad byte stands.
        at: usize,
    },
    /// A member the bridge reads stands twice.
    #[error("the member `{name}` stands twice, at byte {at}")]
    Duplicate {
        /// The member's name.
        name: &'static str,
        /// Where it stands again.
        at: usize,
    },
    /// A batch: JSON-RPC arrays left the protocol in 2025-06-18.
    #[error("batches (JSON arrays) are not supported: send one message at a time")]
    Batch,
    /// A value that is no object.
    #[error("a message is a JSON object")]
    NotObject,
    /// Longer than positions can be counted.
    #[error("the text is longer than 4 GiB")]
    TooLong,
}

/// Where a member stands: its key's opening quote, and its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key's opening quote.
    pub(crate) key: u32,
    /// The value's first byte.
    pub(crate) start: u32,
    /// One past the value's last byte; zero means that the member is absent.
    pub(crate) end: u32,
}

/// The members found, one place for each [`Slot`].
pub(crate) type Members = [Member; SLOTS];

/// Something that stands in few messages and is looked for in all: the scan notes whether it came by one, so that
/// a long message need not be searched again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Word {
    /// A value that is null.
    Null,
    /// A key or value that is `"blob"`.
    Blob,
    /// A key or value that is `"resource_link"`.
    ResourceLink,
    /// A member of the message itself that the envelope does not have.
    OtherMember,
}

/// Which of them stand in a message, wherever.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Words(u8);

impl Words {
    fn note(&mut self, word: Word) {
        self.0 |= 1 << word as u8;
    }

    pub(crate) fn has(self, word: Word) -> bool {
        self.0 & 1 << word as u8 != 0
    }
}

/// What a scan found.
#[derive(Debug, Clone)]
pub(crate) struct Scanned {
    pub(crate) members: Members,
    pub(crate) words: Words,
}

/// Checks `text`, makes it one line, and finds its members.
///
/// # Errors
///
/// [`ScanError`] says what is wrong and where; `text` may then be changed up to that place.
pub(crate) fn scan(text: &mut [u8]) -> Result<Scanned, ScanError> {
    if let Err(error) = std::str::from_utf8(text) {
        return Err(ScanError::Utf8 { at: error.valid_up_to() });
    }
    if text.len() > u32::MAX as usize {
        return Err(ScanError::TooLong);
    }
    let (open, words) = ([Level::OUTSIDE; 4], Words::default());
    let mut scanner = Scanner { text, at: 0, objects: 0, depth: 0, open, words };
    scanner.space();
    match scanner.peek() {
        Some(b'{') => {}
        Some(b'[') => return Err(ScanError::Batch),
        Some(_) if scanner.value_is_scalar() => return Err(ScanError::NotObject),
        Some(_) => return Err(ScanError::Syntax { at: scanner.at }),
        None => return Err(ScanError::Incomplete),
    }
    let mut members = [Member::default(); SLOTS];
    scanner.run(&mut members)?;
    scanner.space();
    if scanner.at < scanner.text.len() {
        return Err(ScanError::Trailing { at: scanner.at });
    }
    Ok(Scanned { members, words: scanner.words })
}

/// What the scanner knows of one open object near the top.
#[derive(Clone, Copy)]
struct Level {
    context: Context,
    /// The member being read, if it is one we look for.
    slot: Option<Slot>,
}

impl Level {
    const OUTSIDE: Self = Self { context: Context::Outside, slot: None };
}

struct Scanner<'t> {
    text: &'t mut [u8],
    at: usize,
    /// One bit a level: set for an object, clear for an array.
    objects: u128,
    depth: usize,
    /// The levels that can hold members we look for.
    open: [Level; 4],
    words: Words,
}

impl Scanner<'_> {
    /// Reads the one value that stands at the cursor.
    fn run(&mut self, members: &mut Members) -> Result<(), ScanError> {
        loop {
            // A value begins here.
            let opened = match self.peek().ok_or(ScanError::Incomplete)? {
                b'{' => self.open(true, members)?,
                b'[' => self.open(false, members)?,
                b'"' => {
                    self.string()?;
                    false
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => {
                    self.words.note(Word::Null);
                    self.word(b"null")?
                }
                _ => self.number()?,
            };
            if opened {
                continue;
            }
            if self.after_value(members)? {
                return Ok(());
            }
        }
    }

    /// Opens an object or array. True when a value stands at the cursor, false when it closed at once.
    fn open(&mut self, object: bool, members: &mut Members) -> Result<bool, ScanError> {
        if self.depth == MAX_DEPTH {
            return Err(ScanError::TooDeep { at: self.at });
        }
        let context = match self.depth {
            0 => Context::Top,
            depth => self
                .level(depth)
                .and_then(|level| level.slot)
                .map_or(Context::Outside, Slot::inside),
        };
        self.at += 1;
        self.depth += 1;
        let bit = 1_u128 << (self.depth - 1);
        self.objects = if object { self.objects | bit } else { self.objects & !bit };
        if let Some(level) = self.open.get_mut(self.depth - 1) {
            let context = if object { context } else { Context::Outside };
            *level = Level { context, slot: None };
        }
        self.space();
        let close = if object { b'}' } else { b']' };
        if self.peek().ok_or(ScanError::Incomplete)? == close {
            self.at += 1;
            self.depth -= 1;
            return Ok(false);
        }
        if object {
            self.key(members)?;
        }
        Ok(true)
    }

    /// Goes on after a value: to the next one, or out of the levels that end here.
    /// True when the outermost value has ended.
    fn after_value(&mut self, members: &mut Members) -> Result<bool, ScanError> {
        loop {
            if let Some(slot) = self.level(self.depth).and_then(|level| level.slot) {
                members[slot as usize].end = self.at as u32;
                self.open[self.depth - 1].slot = None;
            }
            if self.depth == 0 {
                return Ok(true);
            }
            self.space();
            let object = self.objects >> (self.depth - 1) & 1 == 1;
            match (self.peek().ok_or(ScanError::Incomplete)?, object) {
                (b',', _) => {
                    self.at += 1;
                    self.space();
                    if object {
                        self.key(members)?;
                    }
                    return Ok(false);
                }
                (b'}', true) | (b']', false) => {
                    self.at += 1;
                    self.depth -= 1;
                }
                _ => return Err(ScanError::Syntax { at: self.at }),
            }
        }
    }

    /// Reads a key and its colon, notes it if it is one we look for, and stops before the value.
    fn key(&mut self, members: &mut Members) -> Result<(), ScanError> {
        let key_at = self.at;
        if self.peek().ok_or(ScanError::Incomplete)? != b'"' {
            return Err(ScanError::Syntax { at: self.at });
        }
        self.string()?;
        let key_end = self.at;
        self.space();
        if self.peek().ok_or(ScanError::Incomplete)? != b':' {
            return Err(ScanError::Syntax { at: self.at });
        }
        self.at += 1;
        self.space();
        let Some(level) = self.level(self.depth) else { return Ok(()) };
        if level.context == Context::Outside {
            return Ok(());
        }
        let slot = Slot::find(level.context, &self.text[key_at + 1..key_end - 1]);
        if let Some(slot) = slot {
            if members[slot as usize].end != 0 {
                return Err(ScanError::Duplicate { name: slot.name(), at: key_at });
            }
            members[slot as usize] =
                Member { key: key_at as u32, start: self.at as u32, end: self.at as u32 };
        } else if level.context == Context::Top {
            self.words.note(Word::OtherMember);
        }
        self.open[self.depth - 1].slot = slot;
        Ok(())
    }

    fn level(&self, depth: usize) -> Option<&Level> {
        self.open.get(depth.checked_sub(1)?)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Passes white space, and turns line ends in it into spaces.
    fn space(&mut self) {
        while let Some(byte) = self.text.get_mut(self.at) {
            match byte {
                b' ' | b'\t' => {}
                b'\n' | b'\r' => *byte = b' ',
                _ => return,
            }
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<bool, ScanError> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(false);
        }
        if word.starts_with(rest) {
            return Err(ScanError::Incomplete);
        }
        Err(ScanError::Syntax { at: self.at })
    }

    fn value_is_scalar(&self) -> bool {
        matches!(self.peek(), Some(b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9'))
    }

    fn number(&mut self) -> Result<bool, ScanError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            Some(_) => return Err(ScanError::Syntax { at: start }),
            None => return Err(ScanError::Incomplete),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(false)
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        self.digits();
        match self.peek() {
            None if self.at == start => Err(ScanError::Incomplete),
            _ if self.at == start => Err(ScanError::Syntax { at: start }),
            _ => Ok(()),
        }
    }

    /// Passes a string, from its opening quote to past its closing one.
    fn string(&mut self) -> Result<(), ScanError> {
        self.at += 1;
        let start = self.at;
        loop {
            self.at += plain_prefix(&self.text[self.at..]);
            match self.peek().ok_or(ScanError::Incomplete)? {
                b'"' => {
                    match &self.text[start..self.at] {
                        b"blob" => self.words.note(Word::Blob),
                        b"resource_link" => self.words.note(Word::ResourceLink),
                        _ => {}
                    }
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                _ => return Err(ScanError::Syntax { at: self.at }),
            }
        }
    }

    fn escape(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        self.at += 1;
        match self.peek().ok_or(ScanError::Incomplete)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                let is_whole = match self.hex_unit()? {
                    0xD800..=0xDBFF => matches!(self.pair_follows()?, Some(0xDC00..=0xDFFF)),
                    unit => !(0xDC00..=0xDFFF).contains(&unit),
                };
                if !is_whole {
                    return Err(ScanError::Surrogate { at: start });
                }
            }
            _ => return Err(ScanError::Syntax { at: start }),
        }
        Ok(())
    }

    /// The second `\uXXXX` of a pair, if one follows.
    fn pair_follows(&mut self) -> Result<Option<u16>, ScanError> {
        for expected in *b"\\u" {
            match self.peek() {
                None => return Err(ScanError::Incomplete),
                Some(byte) if byte != expected => return Ok(None),
                Some(_) if expected == b'\\' => self.at += 1,
                Some(_) => {}
            }
        }
        self.hex_unit().map(Some)
    }

    /// Four hexadecimal digits after a `u` at the cursor.
    fn hex_unit(&mut self) -> Result<u16, ScanError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(ScanError::Incomplete)?;
            let digit = (byte as char).to_digit(16).ok_or(ScanError::Syntax { at: self.at })?;
            unit = unit << 4 | digit as u16;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// How many bytes pass as they are inside a string: no quote, no backslash, no control character.
fn plain_prefix(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let mut passed = 0;
    // Eight bytes at a time: a byte that is zero after the XOR, or below 0x20, sets its high bit.
    for chunk in text.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let special = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let special = special & HIGH;
        if special != 0 {
            return passed + special.trailing_zeros() as usize / 8;
        }
        passed += 8;
    }
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    passed + text[passed..].iter().position(special).unwrap_or(text.len() - passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, ScanError>) {
        let mut bytes = text.as_bytes().to_vec();
        let found = scan(&mut bytes).map(|_| ());
        match expected {
            Ok(line) => {
                assert_eq!(found, Ok(()), "{text}");
                assert_eq!(std::str::from_utf8(&bytes).unwrap(), line);
            }
            Err(error) => assert_eq!(found, Err(error), "{text}"),
        }
    }

    #[test]
    fn line_ends_between_tokens_become_spaces() {
        check("{\r\n\"a\" :\n[1,\r2]}\n", Ok("{  \"a\" : [1, 2]} "));
    }

    #[test]
    fn strings_keep_every_byte() {
        let text = r#"{"a":"\n \u00e9 \ud83d\ude00 日本語 \/ 0123456789abcdef"}"#;
        check(text, Ok(text));
    }

    #[test]
    fn numbers_keep_their_text() {
        let text = r#"{"a":[0,-0,1.0,1e400,123456789012345678901234567890,-1.5E-7]}"#;
        check(text, Ok(text));
    }

    #[test]
    fn a_text_cut_anywhere_is_incomplete() {
        let text =
            r#"{"id":1,"a":[true,null,-1.5e3,"x\u00e9\ud83d\ude00"],"params":{"name":"日"}}"#;
        for cut in 1..text.len() {
            if !text.is_char_boundary(cut) {
                continue;
            }
            let mut bytes = text.as_bytes()[..cut].to_vec();
            assert_eq!(scan(&mut bytes).map(|_| ()), Err(ScanError::Incomplete), "cut at {cut}");
        }
    }

    #[test]
    fn bad_json_is_told_with_its_place() {
        check("{\"a\":01}", Err(ScanError::Syntax { at: 6 }));
        check("{\"a\":.5}", Err(ScanError::Syntax { at: 5 }));
        check("{\"a\":1.}", Err(ScanError::Syntax { at: 7 }));
        check("{\"a\":NaN}", Err(ScanError::Syntax { at: 5 }));
        check("{\"a\":\"\t\"}", Err(ScanError::Syntax { at: 6 }));
        check("{\"a\" 1}", Err(ScanError::Syntax { at: 5 }));
        check("{\"a\":1,}", Err(ScanError::Syntax { at: 7 }));
        check("{a:1}", Err(ScanError::Syntax { at: 1 }));
        check("{\"a\":[1}", Err(ScanError::Syntax { at: 7 }));
        check("{\"a\":\"\\x\"}", Err(ScanError::Syntax { at: 6 }));
        check("hello", Err(ScanError::Syntax { at: 0 }));
    }

    #[test]
    fn what_is_no_single_object_is_refused() {
        check("", Err(ScanError::Incomplete));
        check("[]", Err(ScanError::Batch));
        check("\"x\"", Err(ScanError::NotObject));
        check("{} {}", Err(ScanError::Trailing { at: 3 }));
    }

    #[test]
    fn half_a_surrogate_pair_is_refused() {
        check(r#"{"a":"\ud83d"}"#, Err(ScanError::Surrogate { at: 6 }));
        check(r#"{"a":"\ude00"}"#, Err(ScanError::Surrogate { at: 6 }));
        check(r#"{"a":"\ud83d\u0041"}"#, Err(ScanError::Surrogate { at: 6 }));
        check(r#"{"a":"\ud83d\n"}"#, Err(ScanError::Surrogate { at: 6 }));
    }

    #[test]
    fn depth_has_a_limit() {
        let nested =
            |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        let deepest = nested(MAX_DEPTH);
        check(&deepest, Ok(&deepest));
        check(&nested(MAX_DEPTH + 1), Err(ScanError::TooDeep { at: 5 + MAX_DEPTH - 1 }));
    }

    #[test]
    fn a_member_we_read_may_stand_once_however_it_is_spelt() {
        check(r#"{"id":1,"id":2}"#, Err(ScanError::Duplicate { name: "id", at: 8 }));
        check(r#"{"id":1,"\u0069d":2}"#, Err(ScanError::Duplicate { name: "id", at: 8 }));
        check(
            r#"{"params":{"name":"a","nam\u0065":"b"}}"#,
            Err(ScanError::Duplicate { name: "name", at: 22 }),
        );
        let inside = r#"{"params":{"arguments":{"id":1,"id":2}}}"#;
        check(inside, Ok(inside));
    }
}
