//! Server-sent events: written, read, and kept for a client that comes back.
//!
//! [`event`] frames one JSON line for an event stream, [`Decoder`] reads a stream in whatever
//! pieces it comes, and [`Replay`] remembers the last events of a stream within bounds. Which
//! stream an event belongs to, and what its id looks like outside, is for others to say.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A comment that keeps an idle stream open; clients skip it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Up to this size an event is copied into one piece: a copy is cheaper than three writes.
const ONE_PIECE_BYTES: usize = 4096;

/// The pieces of one event, to be written in order: a head, the slices of `data`, a tail.
///
/// A large payload is not copied. `data` is one JSON line in any number of slices and holds no CR
/// and no LF; `id` holds no line break and no NUL.
pub fn event(id: Option<&str>, retry_ms: Option<u64>, data: &[Bytes]) -> Vec<Bytes> {
    debug_assert!(data.iter().all(|part| memchr::memchr2(b'\r', b'\n', part).is_none()));
    let head = head(id, retry_ms);
    let size = data.iter().map(Bytes::len).sum::<usize>();
    if size <= ONE_PIECE_BYTES {
        let mut whole = BytesMut::with_capacity(head.len() + size + 2);
        whole.extend_from_slice(head.as_bytes());
        data.iter().for_each(|part| whole.extend_from_slice(part));
        whole.extend_from_slice(b"\n\n");
        return vec![whole.freeze()];
    }
    let mut pieces = Vec::with_capacity(data.len() + 2);
    pieces.push(Bytes::from(head));
    pieces.extend_from_slice(data);
    pieces.push(Bytes::from_static(b"\n\n"));
    pieces
}

/// The event that opens a resumable stream: an id, no data, and how long to wait before coming back.
///
/// Only clients of 2025-11-25 and later expect it; older ones try to parse the empty data.
pub fn priming(id: &str, retry_ms: Option<u64>) -> Bytes {
    Bytes::from(head(Some(id), retry_ms) + "\n\n")
}

fn head(id: Option<&str>, retry_ms: Option<u64>) -> String {
    let mut head = String::with_capacity(64);
    if let Some(id) = id {
        debug_assert!(!id.contains(['\r', '\n', '\0']));
        head.extend(["id: ", id, "\n"]);
    }
    if let Some(retry_ms) = retry_ms {
        head.extend(["retry: ", &retry_ms.to_string(), "\n"]);
    }
    head + "data: "
}

/// One event of a stream. Events that only move the position (an id, no data) are given too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event type, when the stream named one; without a name it is a `message`.
    pub kind: Option<String>,
    /// The data lines, joined by LF; empty when there was none.
    pub data: Bytes,
    /// The id this event set, which a client sends back as `Last-Event-ID`.
    pub id: Option<String>,
    /// How long the server wants a client to wait before it connects again.
    pub retry_ms: Option<u64>,
}

/// An event passed the limit. It was thrown away up to its end; the events after it are intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit that was passed.
    pub limit: usize,
}

/// Reads an event stream that comes in pieces.
///
/// It is an iterator that takes more: `None` means that the next event is not complete yet.
///
/// ```
/// # use pontoon_wire::framing::events::Decoder;
/// let mut decoder = Decoder::new(1024);
/// decoder.push(b"id: 7\ndata: {\"a\"");
/// assert!(decoder.next().is_none());
/// decoder.push(b":1}\n\n");
/// let event = decoder.next().unwrap().unwrap();
/// assert_eq!((event.id.as_deref(), &event.data[..]), (Some("7"), &b"{\"a\":1}"[..]));
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    state: State,
    /// How much of a byte order mark was seen; past it when the stream has begun.
    mark: usize,
    /// The last byte was a CR, so a LF now belongs to the same line end.
    after_cr: bool,
    /// The field name, or the value of a field other than data, as far as it came.
    text: Vec<u8>,
    data: BytesMut,
    has_data: bool,
    event: Event,
    ready: VecDeque<Result<Event, TooLong>>,
}

/// Where in a line the decoder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Name,
    /// Behind the colon, where one space may follow.
    Colon(Field),
    Value(Field),
    /// In a comment or an unknown field.
    Ignored,
    /// At the start of a line of an event that was too long.
    Discard,
    /// Further in such a line.
    DiscardLine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Id,
    Kind,
    Retry,
}

impl Field {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"data" => Some(Self::Data),
            b"id" => Some(Self::Id),
            b"event" => Some(Self::Kind),
            b"retry" => Some(Self::Retry),
            _ => None,
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const LONGEST_NAME: usize = "event".len();

impl Decoder {
    /// A decoder at the start of a stream, for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: State::Name,
            mark: 0,
            after_cr: false,
            text: Vec::new(),
            data: BytesMut::new(),
            has_data: false,
            event: Event::default(),
            ready: VecDeque::new(),
        }
    }

    /// Takes the next piece of the stream, of any size.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while self.mark < BYTE_ORDER_MARK.len() {
            match bytes.split_first() {
                None => return,
                Some((&byte, rest)) if byte == BYTE_ORDER_MARK[self.mark] => {
                    bytes = rest;
                    self.mark += 1;
                }
                Some(_) => {
                    // What looked like a mark was the start of a name, if a strange one.
                    let begun = &BYTE_ORDER_MARK[..self.mark];
                    self.mark = BYTE_ORDER_MARK.len();
                    self.lines(begun);
                }
            }
        }
        self.lines(bytes);
    }

    fn lines(&mut self, mut bytes: &[u8]) {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', bytes) {
            self.part_of_line(&bytes[..end]);
            self.end_of_line();
            let is_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_cr {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.part_of_line(bytes);
    }

    fn part_of_line(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            match self.state {
                State::Name => {
                    let colon = part.iter().take(LONGEST_NAME + 1).position(|&byte| byte == b':');
                    let name = &part[..colon.unwrap_or(part.len().min(LONGEST_NAME + 1))];
                    self.text.extend_from_slice(name);
                    if colon.is_none() && self.text.len() <= LONGEST_NAME {
                        return;
                    }
                    let field = colon.and_then(|_| Field::named(&self.text));
                    self.text.clear();
                    self.state = field.map_or(State::Ignored, State::Colon);
                    part = &part[colon.map_or(name.len(), |colon| colon + 1)..];
                }
                State::Colon(field) => {
                    part = part.strip_prefix(b" ").unwrap_or(part);
                    self.begin_value(field);
                }
                State::Value(field) => {
                    if self.size() + part.len() > self.limit {
                        return self.discard(State::DiscardLine);
                    }
                    match field {
                        Field::Data => self.data.extend_from_slice(part),
                        _ => self.text.extend_from_slice(part),
                    }
                    return;
                }
                State::Discard => self.state = State::DiscardLine,
                State::Ignored | State::DiscardLine => return,
            }
        }
    }

    fn begin_value(&mut self, field: Field) {
        self.state = State::Value(field);
        if field == Field::Data && std::mem::replace(&mut self.has_data, true) {
            if self.size() == self.limit {
                return self.discard(State::DiscardLine);
            }
            self.data.extend_from_slice(b"\n");
        }
    }

    fn end_of_line(&mut self) {
        match self.state {
            State::Name if self.text.is_empty() => return self.dispatch(),
            // A name without a colon is a field with an empty value.
            State::Name => match Field::named(&std::mem::take(&mut self.text)) {
                Some(field) => self.begin_value(field),
                None => self.state = State::Ignored,
            },
            State::Colon(field) => self.begin_value(field),
            State::Discard => self.state = State::Name,
            State::Value(_) | State::Ignored | State::DiscardLine => {}
        }
        match self.state {
            State::Value(field) => {
                self.end_of_value(field);
                self.state = State::Name;
            }
            State::DiscardLine => self.state = State::Discard,
            _ => self.state = State::Name,
        }
    }

    fn end_of_value(&mut self, field: Field) {
        let text = String::from_utf8_lossy(&self.text);
        match field {
            Field::Data => {}
            Field::Id if text.contains('\0') => {}
            Field::Id => self.event.id = Some(text.into_owned()),
            Field::Kind => self.event.kind = (!text.is_empty()).then(|| text.into_owned()),
            Field::Retry if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.event.retry_ms = text.parse().ok().or(self.event.retry_ms);
            }
            Field::Retry => {}
        }
        self.text.clear();
    }

    fn dispatch(&mut self) {
        let mut event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry_ms.is_some() {
            event.data = self.data.split().freeze();
            self.ready.push_back(Ok(event));
        }
    }

    fn discard(&mut self, state: State) {
        self.state = state;
        self.text.clear();
        self.data = BytesMut::new();
        self.has_data = false;
        self.event = Event::default();
        self.ready.push_back(Err(TooLong { limit: self.limit }));
    }

    fn size(&self) -> usize {
        let texts = [&self.event.id, &self.event.kind];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        self.data.len() + self.text.len() + texts
    }
}

impl Iterator for Decoder {
    type Item = Result<Event, TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        self.ready.pop_front()
    }
}

/// The last events of one stream, numbered from 1, so that a client can go on where it stopped.
///
/// It forgets the oldest first. Slices are shared, not copied: a payload cut from a larger buffer
/// keeps that buffer alive.
#[derive(Debug)]
pub struct Replay {
    max_events: usize,
    max_bytes: usize,
    events: VecDeque<Vec<Bytes>>,
    last_seq: u64,
    len_bytes: usize,
}

/// A position that cannot be resumed from: events after it are forgotten, or it never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "event {seq} cannot be resumed from; the events kept are those after {oldest} up to {last}"
)]
pub struct Gone {
    /// The position that was asked for.
    pub seq: u64,
    /// The earliest position that could be resumed from.
    pub oldest: u64,
    /// The last event there was.
    pub last: u64,
}

impl Replay {
    /// An empty replay that keeps at most so many events and so many bytes of payload.
    pub fn new(max_events: usize, max_bytes: usize) -> Self {
        Self { max_events, max_bytes, events: VecDeque::new(), last_seq: 0, len_bytes: 0 }
    }

    /// Keeps a payload and gives its number. One larger than the bound is numbered but not kept.
    pub fn push(&mut self, payload: Vec<Bytes>) -> u64 {
        self.last_seq += 1;
        self.len_bytes += size(&payload);
        self.events.push_back(payload);
        while self.events.len() > self.max_events || self.len_bytes > self.max_bytes {
            let Some(oldest) = self.events.pop_front() else { break };
            self.len_bytes -= size(&oldest);
        }
        self.last_seq
    }

    /// Forgets all events; their numbers stay used.
    pub fn forget(&mut self) {
        self.events = VecDeque::new();
        self.len_bytes = 0;
    }

    /// The events after `seq`, oldest first, with their numbers; `after(0)` is the whole stream.
    ///
    /// # Errors
    ///
    /// [`Gone`] when one of them is forgotten, or when there never was an event `seq`.
    pub fn after(&self, seq: u64) -> Result<impl Iterator<Item = (u64, &[Bytes])>, Gone> {
        let oldest = self.last_seq - self.events.len() as u64;
        if seq < oldest || seq > self.last_seq {
            return Err(Gone { seq, oldest, last: self.last_seq });
        }
        let skipped = (seq - oldest) as usize;
        Ok((seq + 1..).zip(self.events.iter().skip(skipped).map(Vec::as_slice)))
    }

    /// The number of the last event, 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The bytes of payload kept.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

fn size(payload: &[Bytes]) -> usize {
    payload.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the decoder gives for `input`, which must not depend on where the pieces were cut.
    fn decode(limit: usize, input: &[u8]) -> Vec<Result<Event, TooLong>> {
        let mut whole = Decoder::new(limit);
        whole.push(input);
        let expected: Vec<_> = whole.collect();
        for cut in 0..=input.len() {
            let mut decoder = Decoder::new(limit);
            let mut events = Vec::new();
            for piece in [&input[..cut], &[], &input[cut..]] {
                decoder.push(piece);
                events.extend(decoder.by_ref());
            }
            assert_eq!(events, expected, "cut at {cut} of {:?}", String::from_utf8_lossy(input));
        }
        let mut decoder = Decoder::new(limit);
        input.chunks(1).for_each(|byte| decoder.push(byte));
        assert_eq!(decoder.collect::<Vec<_>>(), expected, "byte by byte");
        expected
    }

    fn check(input: &str, expected: &[Event]) {
        let events: Result<Vec<_>, _> = decode(1 << 20, input.as_bytes()).into_iter().collect();
        assert_eq!(events.unwrap(), expected, "{input:?}");
    }

    fn data(data: &str) -> Event {
        Event { data: Bytes::copy_from_slice(data.as_bytes()), ..Event::default() }
    }

    #[test]
    fn every_line_end_ends_a_line() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = format!("data: one{end}data: two{end}{end}data: three{end}{end}");
            check(&stream, &[data("one\ntwo"), data("three")]);
        }
        check("data: a\r\r\n\ndata: b\n\r\n", &[data("a"), data("b")]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_only() {
        check("\u{feff}data: a\n\n", &[data("a")]);
        check("\u{feff}\u{feff}data: a\n\ndata: b\n\n", &[data("b")]);
        let broken = b"\xEF\xBBdata: a\n\ndata: b\n\n";
        assert_eq!(decode(99, broken), [Ok(data("b"))]);
        assert_eq!(decode(99, b"\xEF\n\ndata: b\n\n"), [Ok(data("b"))]);
    }

    #[test]
    fn comments_and_unknown_fields_are_skipped() {
        check(": hello\n\n:\n\ndata: a\n: x\nfoo: bar\ndatadata: no\ndat: no\n\n", &[data("a")]);
        let keep_alive = std::str::from_utf8(KEEP_ALIVE).unwrap();
        check(keep_alive, &[]);
    }

    #[test]
    fn one_space_after_the_colon_is_skipped() {
        check("data:a\n\ndata: a\n\ndata:  a\n\n", &[data("a"), data("a"), data(" a")]);
        check("data: a: b\n\n", &[data("a: b")]);
    }

    #[test]
    fn empty_data_is_data() {
        check("data\n\ndata:\n\ndata: \n\n", &[data(""), data(""), data("")]);
        check("data\ndata\n\n", &[data("\n")]);
        check("\n\n\n", &[]);
        check("data: unfinished\n", &[]);
    }

    #[test]
    fn ids_kinds_and_retries_are_read() {
        let all = Event {
            kind: Some("message".into()),
            id: Some("a/1".into()),
            retry_ms: Some(3000),
            ..data("x")
        };
        check("event: message\nid: a/1\nretry: 3000\ndata: x\n\ndata: y\n\n", &[all, data("y")]);
        check("event: ping\n\n", &[]);
        let id = |id: &str| Event { id: Some(id.into()), ..Event::default() };
        check("id: 1\n\nid\n\nid: 1\nid: 2\n\n", &[id("1"), id(""), id("2")]);
        check("id: a\0b\n\nid: a\nid: b\0\n\n", &[id("a")]);
        check("retry: 1x\n\nretry: -1\n\nretry:\n\nretry: 99999999999999999999\n\n", &[]);
    }

    #[test]
    fn an_event_over_the_limit_is_reported_once_and_skipped() {
        let long = Err(TooLong { limit: 4 });
        for event in ["data: 12345", "data: 12\ndata: 34", "id: 1\ndata: 2345", "event: pings"] {
            let stream = format!("data: 1234\n\n{event}\ndata: 6\nid: 7\n\ndata: 8\n\n");
            let expected = [Ok(data("1234")), long.clone(), Ok(data("8"))];
            assert_eq!(decode(4, stream.as_bytes()), expected, "{event}");
        }
        let stream = "data\n".repeat(6) + "\ndata: a\n\n";
        assert_eq!(decode(4, stream.as_bytes()), [long, Ok(data("a"))]);
        assert_eq!(decode(4, b": a long comment\ndata: 1\n\n"), [Ok(data("1"))]);
    }

    fn text(pieces: &[Bytes]) -> String {
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn events_are_written_as_they_are_read() {
        let payload = [Bytes::from_static(b"{\"id\""), Bytes::from_static(b":1}")];
        assert_eq!(text(&event(None, None, &payload)), "data: {\"id\":1}\n\n");
        let written = text(&event(Some("s/1"), Some(500), &payload));
        assert_eq!(written, "id: s/1\nretry: 500\ndata: {\"id\":1}\n\n");
        let id = Some("s/1".to_owned());
        check(&written, &[Event { id: id.clone(), retry_ms: Some(500), ..data("{\"id\":1}") }]);

        let priming = text(&[priming("s/1", None)]);
        assert_eq!(priming, "id: s/1\ndata: \n\n");
        check(&priming, &[Event { id, ..data("") }]);
    }

    #[test]
    fn a_large_payload_is_not_copied() {
        let large = Bytes::from(vec![b'x'; ONE_PIECE_BYTES + 1]);
        let pieces = event(Some("1"), None, std::slice::from_ref(&large));
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(decode(1 << 20, &pieces.concat())[0].as_ref().unwrap().data, large);
    }

    /// Pushes payloads of these sizes and compares what is left after `seq`.
    fn check_replay(
        bounds: (usize, usize),
        sizes: &[usize],
        seq: u64,
        expected: Result<&[u64], Gone>,
    ) {
        let mut replay = Replay::new(bounds.0, bounds.1);
        for (index, &size) in sizes.iter().enumerate() {
            let (left, right) = (size / 2, size - size / 2);
            let payload = [left, right].map(|half| Bytes::from(vec![b'x'; half])).to_vec();
            assert_eq!(replay.push(payload), index as u64 + 1);
            assert!(replay.len_bytes() <= bounds.1);
        }
        let kept = replay.after(seq).map(|events| {
            let events = events.inspect(|(seq, payload)| {
                assert_eq!(size(payload), sizes[*seq as usize - 1]);
            });
            events.map(|(seq, _)| seq).collect::<Vec<_>>()
        });
        assert_eq!(kept, expected.map(<[u64]>::to_vec));
    }

    #[test]
    fn a_replay_gives_what_came_after() {
        check_replay((9, 99), &[], 0, Ok(&[]));
        check_replay((9, 99), &[1, 2, 3], 0, Ok(&[1, 2, 3]));
        check_replay((9, 99), &[1, 2, 3], 2, Ok(&[3]));
        check_replay((9, 99), &[1, 2, 3], 3, Ok(&[]));
        check_replay((9, 99), &[1, 2, 3], 4, Err(Gone { seq: 4, oldest: 0, last: 3 }));
    }

    #[test]
    fn a_replay_forgets_the_oldest() {
        check_replay((2, 99), &[1, 2, 3], 1, Ok(&[2, 3]));
        check_replay((2, 99), &[1, 2, 3], 0, Err(Gone { seq: 0, oldest: 1, last: 3 }));
        check_replay((9, 5), &[1, 2, 3], 1, Ok(&[2, 3]));
        check_replay((9, 5), &[1, 2, 3], 0, Err(Gone { seq: 0, oldest: 1, last: 3 }));
        check_replay((9, 5), &[1, 6], 1, Err(Gone { seq: 1, oldest: 2, last: 2 }));
        check_replay((9, 5), &[1, 6], 2, Ok(&[]));
        check_replay((0, 0), &[1], 1, Ok(&[]));
    }
}
