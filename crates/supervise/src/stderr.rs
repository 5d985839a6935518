//! What a child complains about on its standard error: always drained, its first and last lines kept.
//!
//! However much a child writes, memory stays the same: a line keeps its first bytes, and of too many
//! lines those in the middle are lost. What is kept is fit for a log: no control characters, no terminal codes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};

use crate::exit::Exit;
use crate::plain::plain_text;
use crate::unix;

/// How many lines are the last ones.
const LINES: usize = 20;

/// How much is kept of the first lines, and how much of the last, in bytes.
const KEPT_BYTES: usize = 32 << 10;

/// What a line counts besides its text: short ones take room, too.
const LINE_COST: usize = 32;

/// How many bytes of a line are kept.
const LINE_BYTES: usize = 500;

/// How many are looked at, for terminal codes go.
const SEEN_BYTES: usize = 4 * LINE_BYTES;

/// How much is read after the child has ended. A pipe holds less, so more is being written by a
/// process that escaped, and nobody waits for that.
const LAST_BYTES: usize = 1 << 20;

/// The lines a child wrote to its standard error, the first and the last. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Complaints {
    shared: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    kept: Kept,
    lines: Lines,
    /// Where they come from, until its end.
    pipe: Option<Arc<pipe::Receiver>>,
}

/// The lines that are kept.
#[derive(Debug, Default)]
struct Kept {
    first: Vec<String>,
    first_bytes: usize,
    /// Empty until a line does not fit into the first.
    last: VecDeque<String>,
    last_bytes: usize,
    /// How many lines there were.
    count: u64,
    listener: Option<mpsc::Sender<String>>,
}

impl Complaints {
    /// The last lines that are not empty, oldest first: at most 20, each of at most 500 bytes.
    pub fn last_lines(&self) -> Vec<String> {
        let heard = self.lock();
        let Kept { first, last, .. } = &heard.kept;
        let lines = first.iter().chain(last);
        lines.skip((first.len() + last.len()).saturating_sub(LINES)).cloned().collect()
    }

    /// How many lines there were so far.
    pub fn count(&self) -> u64 {
        self.lock().kept.count
    }

    /// What was written after the first so many lines, up to this moment. Of more than 64 KiB the middle is left out, and
    /// one line says how much that is; of what a child wrote late, the beginning.
    pub fn lines_after(&self, count: u64) -> Vec<String> {
        let mut heard = self.lock();
        // What was written before an answer that has come is in the pipe, if it is not here.
        if let Some(pipe) = heard.pipe.clone() {
            heard.take_rest(&pipe);
        }
        heard.kept.after(count)
    }

    /// Sends every line from now on to `listener` as well, in place of an earlier one. A line for
    /// which it has no room is not sent.
    pub fn set_listener(&self, listener: mpsc::Sender<String>) {
        self.lock().kept.listener = Some(listener);
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Nothing panics inside, and lines would be whole if it did.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn take(&mut self, bytes: &[u8]) {
        self.lines.take(bytes, &mut self.kept);
    }

    /// Reads what is in the pipe, without waiting for more.
    ///
    /// Not through the runtime: it would say that there is nothing as long as it has not heard from
    /// the system that there is something.
    fn take_rest(&mut self, pipe: &pipe::Receiver) {
        let mut bytes = [0; 8192];
        let mut left = LAST_BYTES;
        while left > 0 {
            match unix::read(pipe.as_fd(), &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(size) => {
                    self.take(&bytes[..size]);
                    left = left.saturating_sub(size);
                }
            }
        }
    }

    /// Nothing comes any more.
    fn end(&mut self) {
        self.lines.end(&mut self.kept);
        self.pipe = None;
    }
}

impl Kept {
    fn push(&mut self, line: String) {
        if let Some(listener) = &self.listener
            && let Err(mpsc::error::TrySendError::Closed(_)) = listener.try_send(line.clone())
        {
            self.listener = None;
        }
        self.count += 1;
        let cost = line.len() + LINE_COST;
        if self.last.is_empty() && self.first_bytes + cost <= KEPT_BYTES {
            self.first_bytes += cost;
            return self.first.push(line);
        }
        self.last_bytes += cost;
        self.last.push_back(line);
        while self.last_bytes > KEPT_BYTES
            && let Some(oldest) = self.last.pop_front()
        {
            self.last_bytes -= oldest.len() + LINE_COST;
        }
    }

    /// The lines after the first so many.
    fn after(&self, count: u64) -> Vec<String> {
        // The numbers of the lines that are kept: from zero on, and those before the last.
        let (first, last) = (self.first.len() as u64, self.count - self.last.len() as u64);
        let skip = |from: u64| usize::try_from(count.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut lines: Vec<_> = self.first.iter().skip(skip(0)).cloned().collect();
        let left_out = last.saturating_sub(count.max(first));
        if left_out > 0 {
            lines.push(format!("[{left_out} lines are left out here]"));
        }
        lines.extend(self.last.iter().skip(skip(last)).cloned());
        lines
    }
}

/// Drains `pipe` in a task. Once `ended` is known and the pipe is empty, the exit is published:
/// whoever hears of the end finds the last words there.
pub(crate) fn drain(
    pipe: pipe::Receiver,
    ended: oneshot::Receiver<Exit>,
) -> (Complaints, watch::Receiver<Option<Exit>>) {
    let (complaints, pipe) = (Complaints::default(), Arc::new(pipe));
    complaints.lock().pipe = Some(Arc::clone(&pipe));
    let (exit, exited) = watch::channel(None);
    let heard = complaints.clone();
    tokio::spawn(async move {
        let mut ended = ended;
        let end = tokio::select! {
            end = &mut ended => {
                let mut heard = heard.lock();
                heard.take_rest(&pipe);
                heard.end();
                end
            }
            () = drain_all(&pipe, &heard) => {
                // The child closed it, and lives on perhaps.
                heard.lock().end();
                drop(pipe);
                ended.await
            }
        };
        exit.send_replace(Some(end.unwrap_or(Exit::Unknown)));
    });
    (complaints, exited)
}

/// Reads to the end of the pipe.
async fn drain_all(pipe: &pipe::Receiver, complaints: &Complaints) {
    loop {
        if pipe.readable().await.is_err() {
            return;
        }
        // In its own block: the buffer is not kept by a task that only waits.
        let result = {
            let mut bytes = [0; 8192];
            // Locked before it is read: others may read it, too, and what comes first has to stay first.
            let mut heard = complaints.lock();
            pipe.try_read(&mut bytes).inspect(|size| heard.take(&bytes[..*size]))
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

/// Cuts bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    /// What is looked at of the current line, terminal codes and all.
    line: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], kept: &mut Kept) {
        let mut rest = bytes;
        // A progress bar returns to the start of its line: each state of it is a line here.
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            self.take_piece(&rest[..end]);
            self.end(kept);
            rest = &rest[end + 1..];
        }
        self.take_piece(rest);
    }

    /// Takes bytes of one line.
    fn take_piece(&mut self, bytes: &[u8]) {
        let left = SEEN_BYTES - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(left)]);
    }

    /// Ends the line, and keeps it if there is anything on it.
    fn end(&mut self, kept: &mut Kept) {
        let mut line = plain_text(String::from_utf8_lossy(&self.line).into_owned());
        self.line.clear();
        let whole = line.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = whole.take_while(|end| *end <= LINE_BYTES).last().unwrap_or(0);
        line.truncate(line[..end].trim_end().len());
        if !line.is_empty() {
            kept.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What a child said that wrote these.
    fn heard(chunks: &[&[u8]]) -> Complaints {
        let complaints = Complaints::default();
        let mut heard = complaints.lock();
        chunks.iter().for_each(|chunk| heard.take(chunk));
        heard.end();
        drop(heard);
        complaints
    }

    fn check(chunks: &[&[u8]], expected: &[&str]) {
        let complaints = heard(chunks);
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
        check(&["c1 \u{9b}31m bidi \u{202e}".as_bytes()], &["c1  bidi"]);
    }

    #[test]
    fn an_unfinished_code_does_not_eat_the_next_line() {
        check(&[b"\x1b]0;never ended\nnext"], &["0;never ended", "next"]);
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
    fn only_the_last_lines_are_last_words() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        let last: Vec<String> = (80..100).map(|n| n.to_string()).collect();
        let last: Vec<&str> = last.iter().map(String::as_str).collect();
        check(&[text.as_bytes()], &last);
    }

    #[test]
    fn all_is_kept_up_to_a_limit_and_then_its_beginning_and_its_end() {
        let numbers = |range: std::ops::Range<u64>| range.map(|n| format!("{n:05}\n"));
        let said = |count| heard(&[numbers(0..count).collect::<String>().as_bytes()]);
        let complaints = said(500);
        let all: Vec<_> = numbers(0..500).map(|line| line.trim_end().to_owned()).collect();
        assert_eq!((complaints.lines_after(0), complaints.count()), (all.clone(), 500));
        assert_eq!(complaints.lines_after(400), all[400..]);
        assert!(complaints.lines_after(500).is_empty() && complaints.lines_after(501).is_empty());

        let complaints = said(100_000);
        let lines = complaints.lines_after(0);
        let each = KEPT_BYTES / (5 + LINE_COST);
        assert_eq!(lines.len(), 2 * each + 1, "it does not grow");
        assert_eq!((lines[0].as_str(), lines[2 * each].as_str()), ("00000", "99999"));
        assert_eq!(lines[each], format!("[{} lines are left out here]", 100_000 - 2 * each));
        let late = complaints.lines_after(99_998);
        assert_eq!(late, ["99998", "99999"], "what is there is not said to be left out");
        let half = complaints.lines_after(50_000);
        let left_out = 50_000 - each;
        assert_eq!(half[0], format!("[{left_out} lines are left out here]"));
        assert_eq!(half.len(), each + 1);
    }

    #[tokio::test]
    async fn what_was_written_before_now_is_there_now() {
        let (writer, reader) = pipe::pipe().unwrap();
        let mut writer = std::fs::File::from(writer.into_blocking_fd().unwrap());
        let (_ended, ends) = oneshot::channel();
        let (complaints, _) = drain(reader, ends);
        // The task that reads it has not run yet: this one has not waited.
        writer.write_all(b"one\ntwo\nhalf").unwrap();
        assert_eq!(complaints.lines_after(0), ["one", "two"]);
        writer.write_all(b" a line\n").unwrap();
        assert_eq!(complaints.lines_after(2), ["half a line"]);
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
        complaints.lock().take(b"one\ntwo\n");
        assert_eq!(heard.try_recv().unwrap(), "one");
        assert!(heard.try_recv().is_err());
        drop(heard);
        complaints.lock().take(b"three\n");
        assert_eq!(complaints.last_lines(), ["one", "two", "three"]);
    }
}
