//! Lines that are no messages: banners, JSON split over lines or joined on one, odd bytes (H01-H04).
//!
//! A proper line costs one scan and nothing more. Everything else goes the slow way.

use bytes::{Buf, BytesMut};

use super::{Heal, HealMode, Heals};
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
}

/// Makes messages out of a server's lines.
#[derive(Debug)]
pub struct LineDoctor {
    mode: HealMode,
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
    pub fn new(mode: HealMode, limit: usize) -> Self {
        Self { mode, limit, joining: None, found: Default::default() }
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
            if self.found.iter().skip(before).any(is_message) {
                heals.note(Heal::H03);
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

    fn mend(&mut self, mut line: BytesMut, mut error: ScanError, heals: &mut Heals) {
        if is_blank(&line) {
            return;
        }
        if self.mode != HealMode::Repair {
            if self.mode == HealMode::Warn {
                heals.note(Heal::H01);
            }
            self.found.push_back(Found::Noise(line));
            return;
        }
        if strip_odd_bytes(&mut line) {
            match scan(&mut line) {
                Ok(scanned) => {
                    heals.note(Heal::H04);
                    return self.push(Message::scanned(line, scanned));
                }
                Err(after) => error = after,
            }
        }
        match error {
            ScanError::Trailing { at } => {
                heals.note(Heal::H03);
                self.take_joined(line, at, heals);
            }
            ScanError::Incomplete if line.first() == Some(&b'{') => {
                let mut balance = Balance::default();
                balance.feed(&line);
                self.joining = Some(Joining { text: line, balance });
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
        self.found.push_back(Found::Noise(line));
    }

    /// Log text; a whole message behind it on the same line is kept.
    fn divert(&mut self, mut line: BytesMut, heals: &mut Heals) {
        heals.note(Heal::H01);
        let starts: Vec<_> = memchr::memchr_iter(b'{', &line).take(MAX_TRIES).collect();
        for start in starts.into_iter().filter(|start| *start > 0) {
            let mut rest = BytesMut::from(&line[start..]);
            let Ok(scanned) = scan(&mut rest) else { continue };
            let message = Message::scanned(rest, scanned);
            if message.kind() != Kind::Unclear && message.has(crate::Slot::Jsonrpc) {
                line.truncate(start);
                self.found.push_back(Found::Noise(line));
                return self.push(message);
            }
        }
        self.found.push_back(Found::Noise(line));
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
        match scan(&mut text) {
            Ok(scanned) => {
                heals.note(Heal::H02);
                self.push(Message::scanned(text, scanned));
            }
            Err(ScanError::Trailing { at }) => {
                heals.note(Heal::H02);
                let rest = text.split_off(at);
                self.take(text, heals);
                self.take(rest, heals);
            }
            Err(_) => {
                heals.note(Heal::H01);
                self.found.push_back(Found::Noise(text));
            }
        }
    }

    fn give_up_joining(&mut self, heals: &mut Heals) {
        if let Some(Joining { text, .. }) = self.joining.take() {
            heals.note(Heal::H01);
            self.found.push_back(Found::Noise(text));
        }
    }
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

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str], expected_heals: &[(Heal, u64)]) {
        let mut doctor = LineDoctor::new(HealMode::Repair, 1000);
        let mut heals = Heals::default();
        let (rest, whole) = lines.split_last().unwrap();
        whole.iter().for_each(|line| doctor.take(BytesMut::from(*line), &mut heals));
        doctor.finish((!rest.is_empty()).then(|| BytesMut::from(*rest)), &mut heals);
        let mut found = Vec::new();
        while let Some(next) = doctor.next_found() {
            found.push(match next {
                Found::Message(message) => String::from_utf8(message.text().to_vec()).unwrap(),
                Found::Noise(noise) => format!("noise {}", String::from_utf8_lossy(&noise)),
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
            let mut doctor = LineDoctor::new(HealMode::Repair, 1000);
            let mut heals = Heals::default();
            doctor.take(BytesMut::from(value.repeat(1_000_000).as_bytes()), &mut heals);
            let found = std::iter::from_fn(|| doctor.next_found()).count();
            assert!(found <= MAX_JOINED + 2, "{value:?} gave {found}");
        }
    }
}
