//! Lines that are no messages: banners, JSON split over lines or joined on one, odd bytes, batches (H01-H04, H06, H15), and
//! messages that are not to be used (H26).
//!
//! A proper line costs one scan and nothing more. Everything else goes the slow way.

use bytes::{Buf, BytesMut};

use super::text::readable;
use super::{Heal, Heals};
use crate::json::elements;
use crate::message::{Kind, Message};
use crate::scan::{ScanError, scan};

/// How many places on a line are tried as the start of a message behind log text.
const MAX_TRIES: usize = 16;

/// How many messages on one line are told apart; each costs a look at the rest of the line.
const MAX_JOINED: usize = 256;

/// What a line turned out to be.
#[derive(Debug)]
pub enum Found {
    /// A message.
    Message(Message),
    /// Text for the log.
    Noise(BytesMut),
    /// Meant as a message, but not to be used.
    Refused(BytesMut, ScanError),
}

/// Makes messages out of a server's lines. What is repaired is for the `Heals` to say that each line comes with.
#[derive(Debug)]
pub struct LineDoctor {
    limit: usize,
    joining: Option<Joining>,
    found: std::collections::VecDeque<Found>,
}

/// JSON that began on an earlier line and has not ended yet.
#[derive(Debug)]
struct Joining {
    text: BytesMut,
    balance: Balance,
}

impl LineDoctor {
    /// A doctor that joins lines up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, joining: None, found: Default::default() }
    }

    /// Takes a line; what it holds is then given by [`LineDoctor::next_found`].
    pub fn take(&mut self, mut line: BytesMut, heals: &mut Heals) {
        match (scan(&mut line), self.joining.is_some()) {
            (Ok(scanned), false) => {
                if line.first() != Some(&b'{') || line.last() != Some(&b'}') {
                    heals.note(Heal::H04);
                }
                self.push(Message::scanned(line, scanned));
            }
            (Ok(scanned), true) => {
                let message = Message::scanned(line, scanned);
                match message.kind() {
                    // Part of the value that is being joined.
                    Kind::Unclear => self.join(&BytesMut::from(message.text().as_ref()), heals),
                    _ => {
                        self.give_up_joining(heals);
                        self.push(message);
                    }
                }
            }
            (Err(_), true) => self.join(&line, heals),
            (Err(error), false) => self.mend(line, error, heals),
        }
    }

    /// The end of the stream: what was left without a newline.
    pub fn finish(&mut self, rest: Option<BytesMut>, heals: &mut Heals) {
        if let Some(rest) = rest {
            let before = self.found.len();
            self.take(rest, heals);
            let is_message = |found: &Found| matches!(found, Found::Message(_));
            if self.found.iter().skip(before).any(is_message) && !heals.found(Heal::H03) {
                for found in self.found.iter_mut().skip(before) {
                    if let Found::Message(message) = found {
                        *found = Found::Noise(BytesMut::from(message.text().as_ref()));
                    }
                }
            }
        }
        self.give_up_joining(heals);
    }

    /// The next message or noise.
    pub fn next_found(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    fn push(&mut self, message: Message) {
        self.found.push_back(Found::Message(message));
    }

    fn push_noise(&mut self, text: BytesMut) {
        self.found.push_back(Found::Noise(text));
    }

    fn mend(&mut self, mut line: BytesMut, mut error: ScanError, heals: &mut Heals) {
        if is_blank(&line) {
            return;
        }
        if strip_odd_bytes(&mut line) {
            match scan(&mut line) {
                Ok(_) if !heals.found(Heal::H04) => return self.push_noise(line),
                Ok(scanned) => return self.push(Message::scanned(line, scanned)),
                Err(after) => error = after,
            }
        }
        if let ScanError::Utf8 { .. } | ScanError::Surrogate { .. } = error
            && let Some(mut text) = readable(&line)
        {
            error = match scan(&mut text) {
                // Text of a log, in whatever encoding.
                Err(ScanError::Syntax { .. } | ScanError::NotObject) => {
                    return self.divert(line, heals);
                }
                _ if !heals.found(Heal::H06) => return self.push_noise(line),
                Ok(scanned) => return self.push(Message::scanned(text, scanned)),
                Err(after) => after,
            };
            line = text;
        }
        match error {
            ScanError::Trailing { .. } if !heals.found(Heal::H03) => self.push_noise(line),
            ScanError::Trailing { at } => self.take_joined(line, at, heals),
            ScanError::Incomplete if line.first() == Some(&b'{') => self.begin_joining(line),
            ScanError::Batch => self.take_batch(line, heals),
            ScanError::TooDeep { .. } | ScanError::Duplicate { .. } | ScanError::TooLong => {
                heals.note(Heal::H26);
                self.found.push_back(Found::Refused(line, error));
            }
            _ => self.divert(line, heals),
        }
    }

    /// Several values on one line; the first ends at `at`. A loop and a bound, because how many
    /// there are is for the server to say: a recursion would end with the stack.
    fn take_joined(&mut self, mut line: BytesMut, mut at: usize, heals: &mut Heals) {
        for _ in 0..MAX_JOINED {
            let mut rest = line.split_off(at);
            self.take(line, heals);
            strip_odd_bytes(&mut rest);
            line = rest;
            match scan(&mut line) {
                Err(ScanError::Trailing { at: next }) => at = next,
                _ => return self.take(line, heals),
            }
        }
        heals.note(Heal::H01);
        self.push_noise(line);
    }

    /// An array: a batch if all its items are objects, and text for the log if it is no JSON at all.
    fn take_batch(&mut self, line: BytesMut, heals: &mut Heals) {
        const BEFORE: &[u8] = b"{\"\":";
        // In an object, for that is what the scanner reads.
        let mut object = BytesMut::with_capacity(line.len() + BEFORE.len() + 1);
        object.extend_from_slice(BEFORE);
        object.extend_from_slice(&line);
        object.extend_from_slice(b"}");
        match scan(&mut object) {
            Ok(_) => {}
            Err(error @ ScanError::Surrogate { .. }) => return self.mend(line, error, heals),
            Err(error @ ScanError::TooDeep { .. }) => {
                heals.note(Heal::H26);
                return self.found.push_back(Found::Refused(line, error));
            }
            // A log line may begin with a bracket, too.
            Err(_) if is_begun_batch(&line) => return self.begin_joining(line),
            Err(_) => return self.divert(line, heals),
        }
        let items = || elements(&object, BEFORE.len()..object.len() - 1);
        if items().any(|item| object[item.start] != b'{') {
            return self.divert(line, heals);
        }
        if !heals.found(Heal::H15) {
            return self.push_noise(line);
        }
        for item in items().take(MAX_JOINED) {
            self.take(BytesMut::from(&object[item]), heals);
        }
        let more = items().nth(MAX_JOINED).map(|next| next.start);
        if let Some(more) = more {
            heals.note(Heal::H26);
            self.push_noise(object.split_off(more));
        }
    }

    /// Log text; a whole message behind it on the same line is kept.
    fn divert(&mut self, mut line: BytesMut, heals: &mut Heals) {
        if !heals.found(Heal::H01) {
            return self.push_noise(line);
        }
        let starts: Vec<_> = memchr::memchr_iter(b'{', &line).take(MAX_TRIES).collect();
        for start in starts.into_iter().filter(|start| *start > 0) {
            let mut rest = BytesMut::from(&line[start..]);
            let Ok(scanned) = scan(&mut rest) else { continue };
            let message = Message::scanned(rest, scanned);
            if message.kind() != Kind::Unclear && message.has(crate::Slot::Jsonrpc) {
                line.truncate(start);
                self.push_noise(line);
                return self.push(message);
            }
        }
        self.push_noise(line);
    }

    fn begin_joining(&mut self, text: BytesMut) {
        let mut balance = Balance::default();
        balance.feed(&text);
        self.joining = Some(Joining { text, balance });
    }

    /// Adds a line to the value that began earlier, and takes the value if it is whole.
    fn join(&mut self, line: &BytesMut, heals: &mut Heals) {
        let Some(joining) = &mut self.joining else { return };
        joining.text.extend_from_slice(b" ");
        joining.text.extend_from_slice(line);
        joining.balance.feed(line);
        if joining.text.len() > self.limit {
            return self.give_up_joining(heals);
        }
        if joining.balance.depth > 0 {
            return;
        }
        let Some(Joining { mut text, .. }) = self.joining.take() else { return };
        let scanned = scan(&mut text);
        if let Err(ScanError::Syntax { .. } | ScanError::Incomplete | ScanError::NotObject) =
            scanned
        {
            heals.note(Heal::H01);
            return self.push_noise(text);
        }
        if !heals.found(Heal::H02) {
            return self.push_noise(text);
        }
        match scanned {
            Ok(scanned) => self.push(Message::scanned(text, scanned)),
            Err(ScanError::Trailing { at }) => {
                let rest = text.split_off(at);
                self.take(text, heals);
                self.take(rest, heals);
            }
            Err(error) => self.mend(text, error, heals),
        }
    }

    fn give_up_joining(&mut self, heals: &mut Heals) {
        if let Some(Joining { text, .. }) = self.joining.take() {
            heals.note(Heal::H01);
            self.push_noise(text);
        }
    }
}

/// Whether a line is the first of an array of objects that goes on.
fn is_begun_batch(line: &[u8]) -> bool {
    let mut balance = Balance::default();
    balance.feed(line);
    balance.depth > 0 && (line == b"[" || line.starts_with(b"[{"))
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

/// Takes a byte order mark, NULs and white space off both ends. True if anything went.
fn strip_odd_bytes(line: &mut BytesMut) -> bool {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    let before = line.len();
    let odd = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    loop {
        let plain = line.iter().position(|byte| !odd(byte)).unwrap_or(line.len());
        line.advance(plain);
        if !line.starts_with(MARK) {
            break;
        }
        line.advance(MARK.len());
    }
    let end = line.iter().rposition(|byte| !odd(byte)).map_or(0, |last| last + 1);
    line.truncate(end);
    line.len() != before
}

/// How deep a text is nested so far, without checking it.
#[derive(Debug, Default)]
struct Balance {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Balance {
    fn feed(&mut self, text: &[u8]) {
        for byte in text {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heal::{HealMode, HealModes};

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str], expected_heals: &[(Heal, u64)]) {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        check_bytes(HealModes::default(), &lines, expected, expected_heals);
    }

    #[track_caller]
    fn check_bytes(
        modes: HealModes,
        lines: &[&[u8]],
        expected: &[&str],
        expected_heals: &[(Heal, u64)],
    ) {
        let mut doctor = LineDoctor::new(1000);
        let mut heals = Heals::new(modes);
        let (rest, whole) = lines.split_last().unwrap();
        whole.iter().for_each(|line| doctor.take(BytesMut::from(*line), &mut heals));
        doctor.finish((!rest.is_empty()).then(|| BytesMut::from(*rest)), &mut heals);
        let mut found = Vec::new();
        while let Some(next) = doctor.next_found() {
            found.push(match next {
                Found::Message(message) => String::from_utf8(message.text().to_vec()).unwrap(),
                Found::Noise(noise) => format!("noise {}", String::from_utf8_lossy(&noise)),
                Found::Refused(_, why) => format!("refused {why}"),
            });
        }
        assert_eq!(found, expected);
        assert_eq!(heals.take(), expected_heals);
    }

    const ONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    const TWO: &str = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;

    #[test]
    fn proper_lines_pass() {
        check(&[ONE, TWO, ""], &[ONE, TWO], &[]);
    }

    #[test]
    fn banners_go_to_the_log_and_a_message_behind_one_is_kept() {
        let behind = format!("[info] ready {{x}} {ONE}");
        check(
            &["Server started", &behind, ""],
            &["noise Server started", "noise [info] ready {x} ", ONE],
            &[(Heal::H01, 2)],
        );
    }

    #[test]
    fn spread_json_is_joined() {
        let joined = r#"{   "jsonrpc": "2.0",   "id": 1,   "result": {     "a": "}"   } }"#;
        check(
            &[
                "{",
                r#"  "jsonrpc": "2.0","#,
                r#"  "id": 1,"#,
                r#"  "result": {"#,
                r#"    "a": "}""#,
                "  }",
                "}",
                "",
            ],
            &[joined],
            &[(Heal::H02, 1)],
        );
    }

    #[test]
    fn a_value_that_never_ends_does_not_eat_the_next_message() {
        check(&["{\"a\":[", ONE, ""], &["noise {\"a\":[", ONE], &[(Heal::H01, 1)]);
    }

    #[test]
    fn joined_messages_are_split_and_the_last_needs_no_newline() {
        let both = format!("{ONE}{TWO}");
        check(&[&both, ""], &[ONE, TWO], &[(Heal::H03, 1)]);
        check(&[ONE, TWO], &[ONE, TWO], &[(Heal::H03, 1)]);
    }

    #[test]
    fn odd_bytes_around_a_message_are_stripped() {
        let marked = format!("\u{feff}{ONE}");
        let padded = format!("\0{ONE}\0");
        check(&[&marked, &padded, ""], &[ONE, ONE], &[(Heal::H04, 2)]);
        let spaced = format!("  {ONE}");
        check(&[&spaced, ""], &[&spaced], &[(Heal::H04, 1)]);
    }

    #[test]
    fn blank_lines_are_nothing() {
        check(&["", "  ", "\0", ""], &[], &[]);
    }

    #[test]
    fn a_line_of_very_many_values_costs_neither_the_stack_nor_the_day() {
        for value in ["{}", "{}\u{feff}", "{}\0 ", "1 ", "[]"] {
            let mut doctor = LineDoctor::new(1000);
            let mut heals = Heals::default();
            doctor.take(BytesMut::from(value.repeat(1_000_000).as_bytes()), &mut heals);
            let found = std::iter::from_fn(|| doctor.next_found()).count();
            assert!(found <= MAX_JOINED + 2, "{value:?} gave {found}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_read_with_replacements() {
        let latin = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"K\xe4se\"}}";
        let healed = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"K\u{fffd}se\"}}";
        check_bytes(HealModes::default(), &[latin, b""], &[healed], &[(Heal::H06, 1)]);
        let lone = r#"{"jsonrpc":"2.0","id":1,"result":{"a":"\ud83d!"}}"#;
        let healed = r#"{"jsonrpc":"2.0","id":1,"result":{"a":"\ufffd!"}}"#;
        check(&[lone, ""], &[healed], &[(Heal::H06, 1)]);
        let spread: [&[u8]; 3] = [b"{\"id\":1,", b"\"result\":\"\xff\"}", b""];
        let both = &[(Heal::H02, 1), (Heal::H06, 1)];
        check_bytes(HealModes::default(), &spread, &["{\"id\":1, \"result\":\"\u{fffd}\"}"], both);
        let log: [&[u8]; 2] = [b"Gr\xfc\xdfe", b""];
        check_bytes(HealModes::default(), &log, &["noise Gr\u{fffd}\u{fffd}e"], &[(Heal::H01, 1)]);
    }

    #[test]
    fn batches_are_taken_apart() {
        let heal = &[(Heal::H15, 1)];
        check(&[&format!("[{ONE}, {TWO}]"), ""], &[ONE, TWO], heal);
        check(&["[]", ""], &[], heal);
        let spread = ["[", " {", "  \"id\":1,", "  \"result\":{}", " },", " {\"id\":2}", "]", ""];
        let apart = ["{   \"id\":1,   \"result\":{}  }", "{\"id\":2}"];
        check(&spread, &apart, &[(Heal::H02, 1), (Heal::H15, 1)]);
        for log in ["[info] ready", "[1,2]", "[\"a\"]", "[info] {\"a\":1}"] {
            check(&[log, ""], &[&format!("noise {log}")], &[(Heal::H01, 1)]);
        }
    }

    #[test]
    fn a_message_that_is_too_deep_or_has_a_member_twice_is_refused_with_the_reason() {
        let deep = format!("{{\"result\":{}1{}}}", "[".repeat(128), "]".repeat(128));
        let heal = &[(Heal::H26, 1)];
        let why = "refused nested deeper than 128 levels, at byte 137";
        check(&[&deep, ""], &[why], heal);
        let twice = r#"{"id":1,"id":2,"result":{}}"#;
        check(&[twice, ""], &["refused the member `id` stands twice, at byte 8"], heal);
        let inside = r#"{"id":1,"result":{"a":1,"a":2}}"#;
        check(&[inside, ""], &[inside], &[]);
    }

    #[test]
    fn without_repair_what_is_broken_is_lost_and_counted_or_not() {
        let joined = format!("{ONE}{TWO}");
        let marked = format!("\u{feff}{ONE}");
        let batch = format!("[{ONE}]");
        let behind = format!("log {ONE}");
        let cases: [(Heal, &[&[u8]]); 7] = [
            (Heal::H01, &[behind.as_bytes(), b""]),
            (Heal::H02, &[b"{", b"\"id\":1,\"result\":{}", b"}", b""]),
            (Heal::H03, &[joined.as_bytes(), b""]),
            (Heal::H03, &[ONE.as_bytes()]),
            (Heal::H04, &[marked.as_bytes(), b""]),
            (Heal::H06, &[b"{\"id\":1,\"result\":\"\xff\"}", b""]),
            (Heal::H15, &[batch.as_bytes(), b""]),
        ];
        for (heal, lines) in cases {
            for mode in [HealMode::Repair, HealMode::Warn, HealMode::Off] {
                let mut doctor = LineDoctor::new(1000);
                let mut heals = Heals::new(HealModes::default().with(heal, mode));
                let (rest, whole) = lines.split_last().unwrap();
                whole.iter().for_each(|line| doctor.take(BytesMut::from(*line), &mut heals));
                doctor.finish((!rest.is_empty()).then(|| BytesMut::from(*rest)), &mut heals);
                let found: Vec<_> = std::iter::from_fn(|| doctor.next_found()).collect();
                let is_message = |found: &Found| matches!(found, Found::Message(_));
                let is_repaired = mode == HealMode::Repair;
                assert_eq!(found.iter().any(is_message), is_repaired, "{heal:?} {mode:?}");
                let count = u64::from(mode != HealMode::Off);
                assert_eq!(heals.count(heal), count, "{heal:?} {mode:?}");
            }
        }
    }
}
