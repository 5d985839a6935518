//! What a child complains about on its standard error: always drained, the last lines kept.
//!
//! However much a child writes, memory stays the same: a line keeps its first bytes, and the
//! lines kept are few. What is kept is fit for a log: no control characters, no terminal codes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};

use crate::exit::Exit;
use crate::unix;

/// How many lines are kept.
const LINES: usize = 20;

/// How many bytes of a line are kept.
const LINE_BYTES: usize = 500;

/// How much is read after the child has ended. A pipe holds less, so more is being written by a
/// process that escaped, and nobody waits for that.
const LAST_BYTES: usize = 1 << 20;

/// The last lines a child wrote to its standard error. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Complaints {
    shared: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    listener: Option<mpsc::Sender<String>>,
}

impl Complaints {
    /// The last lines that are not empty, oldest first: at most 20, each of at most 500 bytes.
    pub fn last_lines(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }

    /// Sends every line from now on to `listener` as well, in place of an earlier one. A line for
    /// which it has no room is not sent.
    pub fn set_listener(&self, listener: mpsc::Sender<String>) {
        self.lock().listener = Some(listener);
    }

    fn has_listener(&self) -> bool {
        self.lock().listener.is_some()
    }

    fn push(&self, line: String) {
        let mut kept = self.lock();
        if let Some(listener) = &kept.listener
            && let Err(mpsc::error::TrySendError::Closed(_)) = listener.try_send(line.clone())
        {
            kept.listener = None;
        }
        if kept.lines.len() == LINES {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics inside, and lines would be whole if it did.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drains `pipe` in a task. Once `ended` is known and the pipe is empty, the exit is published:
/// whoever hears of the end finds the last words there.
pub(crate) fn drain(
    pipe: pipe::Receiver,
    ended: oneshot::Receiver<Exit>,
) -> (Complaints, watch::Receiver<Option<Exit>>) {
    let complaints = Complaints::default();
    let mut lines = Lines::new(complaints.clone());
    let (exit, exited) = watch::channel(None);
    tokio::spawn(async move {
        let mut ended = ended;
        let end = tokio::select! {
            end = &mut ended => {
                drain_rest(&pipe, &mut lines);
                end
            }
            () = drain_all(&pipe, &mut lines) => {
                // The child closed it, and lives on perhaps.
                drop(pipe);
                ended.await
            }
        };
        lines.end();
        exit.send_replace(Some(end.unwrap_or(Exit::Unknown)));
    });
    (complaints, exited)
}

/// Reads to the end of the pipe.
async fn drain_all(pipe: &pipe::Receiver, lines: &mut Lines) {
    loop {
        if pipe.readable().await.is_err() {
            return;
        }
        // In its own block: the buffer is not kept by a task that only waits.
        let result = {
            let mut bytes = [0; 8192];
            pipe.try_read(&mut bytes).inspect(|size| lines.take(&bytes[..*size]))
        };
        match result {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            // A child that floods this pipe must not keep the thread for itself.
            Ok(_) => tokio::task::coop::consume_budget().await,
            Err(_) => {}
        }
    }
}

/// Reads what is in the pipe, without waiting for more.
///
/// Not through the runtime: it would say that there is nothing as long as it has not heard from
/// the system that there is something.
fn drain_rest(pipe: &pipe::Receiver, lines: &mut Lines) {
    let mut bytes = [0; 8192];
    let mut left = LAST_BYTES;
    while left > 0 {
        match unix::read(pipe.as_fd(), &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(size) => {
                lines.take(&bytes[..size]);
                left = left.saturating_sub(size);
            }
        }
    }
}

/// Cuts bytes into lines.
#[derive(Debug)]
struct Lines {
    complaints: Complaints,
    /// What is kept of the current line.
    line: Vec<u8>,
    /// How many bytes of the current line were looked at.
    seen: usize,
    state: State,
}

/// Where in a terminal code we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and characters that announce one more, as in the choice of a character set.
    Charset,
    /// In `ESC [`, up to a letter.
    Control,
    /// In `ESC ]` and the like, up to BEL or `ESC \`.
    Message,
}

impl Lines {
    /// What is looked at of a line, terminal codes and all.
    const SEEN_BYTES: usize = 4 * LINE_BYTES;

    fn new(complaints: Complaints) -> Self {
        Self { complaints, line: Vec::new(), seen: 0, state: State::Text }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // Most lines of a flood are pushed out by those behind them in the same read, and when
        // nobody listens there is no need to look at them. Some may be empty, hence the margin.
        if let Some(end) = memchr::memrchr_iter(b'\n', bytes).nth(3 * LINES)
            && !self.complaints.has_listener()
        {
            self.line.clear();
            self.end();
            rest = &bytes[end + 1..];
        }
        // A progress bar returns to the start of its line: each state of it is a line here.
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            self.take_piece(&rest[..end]);
            self.end();
            rest = &rest[end + 1..];
        }
        self.take_piece(rest);
    }

    /// Takes bytes of one line.
    fn take_piece(&mut self, bytes: &[u8]) {
        let left = Self::SEEN_BYTES - self.seen;
        let bytes = &bytes[..bytes.len().min(left)];
        self.seen += bytes.len();
        for byte in bytes {
            self.take_byte(*byte);
        }
    }

    fn take_byte(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (_, 0x1b) => State::Escape,
            (State::Text, _) => {
                // One byte over the limit, to know whether a character was cut.
                if self.line.len() <= LINE_BYTES && (byte >= b' ' || byte == b'\t') {
                    self.line.push(byte);
                }
                State::Text
            }
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Message,
            (State::Escape | State::Charset, b' '..=b'/') => State::Charset,
            (State::Escape | State::Charset, _) => State::Text,
            (State::Control, 0x40..=0x7e) => State::Text,
            (State::Message, 0x07) => State::Text,
            (state @ (State::Control | State::Message), _) => state,
        };
    }

    /// Ends the line, and keeps it if there is anything on it.
    fn end(&mut self) {
        if !self.line.is_empty() {
            let line = clean(&self.line);
            if !line.is_empty() {
                self.complaints.push(line);
            }
            self.line.clear();
        }
        self.seen = 0;
        // No terminal code goes on in the next line, or an unfinished one would eat what follows.
        self.state = State::Text;
    }
}

/// A line as text of at most [`LINE_BYTES`], without what would disturb a log.
fn clean(line: &[u8]) -> String {
    let is_harmless = |c: &char| {
        // Controls of writing direction make a line read differently from what it says.
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut text = String::with_capacity(line.len().min(LINE_BYTES));
    let line = String::from_utf8_lossy(line);
    for c in line.trim_end().chars() {
        let c = if c == '\t' { ' ' } else { c };
        if text.len() + c.len_utf8() > LINE_BYTES {
            break;
        }
        if is_harmless(&c) {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&[u8]], expected: &[&str]) {
        let complaints = Complaints::default();
        let mut lines = Lines::new(complaints.clone());
        for chunk in chunks {
            lines.take(chunk);
        }
        lines.end();
        assert_eq!(complaints.last_lines(), expected);
    }

    #[test]
    fn lines_are_joined_across_reads() {
        check(&[b"one\ntw", b"o\r\n\n", b"three"], &["one", "two", "three"]);
    }

    #[test]
    fn terminal_codes_and_control_characters_are_gone() {
        check(&[b"\x1b[1;31mred\x1b[0m \x07bell\ttab \x00nul"], &["red bell tab nul"]);
        check(&[b"\x1b]0;title\x07after \x1b]8;;http://x\x1b\\link"], &["after link"]);
        check(&[b"a\x1b", b"[3", b"2mb\x1b(Bc\x1b=d"], &["abcd"]);
        check(&["c1 \u{9b}31m bidi \u{202e}".as_bytes()], &["c1 31m bidi "]);
    }

    #[test]
    fn an_unfinished_code_does_not_eat_the_next_line() {
        check(&[b"\x1b]0;never ended\nnext"], &["next"]);
    }

    #[test]
    fn progress_bars_are_lines() {
        check(&[b"10%\r20%\r\n"], &["10%", "20%"]);
    }

    #[test]
    fn a_long_line_keeps_its_start_and_whole_characters() {
        let long = "x".repeat(10_000);
        check(&[long.as_bytes(), b"\nnext"], &[&long[..LINE_BYTES], "next"]);
        // 499 bytes, then a character of three.
        let cut = format!("{}{}", "x".repeat(499), "漢".repeat(10));
        check(&[cut.as_bytes()], &[&"x".repeat(499)]);
        check(&["日本語\n".as_bytes()], &["日本語"]);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        let last: Vec<String> = (80..100).map(|n| n.to_string()).collect();
        let last: Vec<&str> = last.iter().map(String::as_str).collect();
        check(&[text.as_bytes()], &last);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        check(&[b"a\xffb"], &["a\u{fffd}b"]);
    }

    #[test]
    fn a_full_or_closed_listener_delays_nobody() {
        let complaints = Complaints::default();
        let (listener, mut heard) = mpsc::channel(1);
        complaints.set_listener(listener);
        let mut lines = Lines::new(complaints.clone());
        lines.take(b"one\ntwo\n");
        assert_eq!(heard.try_recv().unwrap(), "one");
        assert!(heard.try_recv().is_err());
        drop(heard);
        lines.take(b"three\n");
        assert_eq!(complaints.last_lines(), ["one", "two", "three"]);
    }
}
