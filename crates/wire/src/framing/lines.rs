//! Newline framing, with a limit on the length of a line.
//!
//! A carriage return ends a line too: some servers write CRLF, and some nothing but CR. Inside JSON
//! text it can only stand between tokens, and lines that belong together are joined again later.
//!
//! A line over the limit is dropped to its end and reported once, and the lines after it are kept:
//! a reader that ended there would lose every later answer.

use bytes::{Buf, BytesMut};
use memchr::memchr2;

/// A line was longer than the limit and has been dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub struct LineTooLong {
    /// The limit it passed.
    pub limit: usize,
}

/// Splits a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// Up to here the buffer is known to hold no line end.
    searched: usize,
    limit: usize,
    dropping: bool,
    /// How the line began that was dropped last.
    dropped: BytesMut,
    saw_return: bool,
}

/// So much is kept of a line that is dropped: it may say whose it was.
const KEPT_OF_DROPPED: usize = 256;

impl Lines {
    /// Nothing read yet; a line may be `limit` bytes long.
    pub fn new(limit: usize) -> Self {
        let (buffer, dropped) = (BytesMut::new(), BytesMut::new());
        Self { buffer, searched: 0, limit, dropping: false, dropped, saw_return: false }
    }

    /// Where to put bytes that were read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole line without its newline, or `None` until more bytes come.
    pub fn next_line(&mut self) -> Option<Result<BytesMut, LineTooLong>> {
        loop {
            let Some(found) = memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                if self.dropping {
                    self.buffer.clear();
                    self.searched = 0;
                    return None;
                }
                if self.buffer.len() <= self.limit {
                    return None;
                }
                // The memory of the long line goes with it.
                self.drop_line();
                return Some(Err(LineTooLong { limit: self.limit }));
            };
            let end = self.searched + found;
            self.searched = 0;
            self.saw_return |= self.buffer[end] == b'\r';
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            if line.len() > self.limit {
                self.dropped = beginning(&line);
                return Some(Err(LineTooLong { limit: self.limit }));
            }
            return Some(Ok(line));
        }
    }

    /// Drops the line that is being read, to its end.
    pub fn drop_line(&mut self) {
        self.dropping = true;
        self.dropped = beginning(&self.buffer);
        self.buffer = BytesMut::new();
        self.searched = 0;
    }

    /// The beginning of the line that was dropped last.
    pub fn dropped(&self) -> &[u8] {
        &self.dropped
    }

    /// Whether a carriage return ended a line since this was last asked.
    pub fn take_return(&mut self) -> bool {
        std::mem::take(&mut self.saw_return)
    }

    /// What stands after the last newline, once the stream has ended.
    pub fn finish(&mut self) -> Option<BytesMut> {
        self.searched = 0;
        let rest = std::mem::take(&mut self.buffer);
        let dropped = std::mem::take(&mut self.dropping);
        (!rest.is_empty() && !dropped).then_some(rest)
    }
}

fn beginning(line: &[u8]) -> BytesMut {
    BytesMut::from(&line[..line.len().min(KEPT_OF_DROPPED)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(limit: usize, reads: &[&str], expected: &[Result<&str, LineTooLong>]) {
        let mut lines = Lines::new(limit);
        let mut found = Vec::new();
        for read in reads {
            lines.buffer().extend_from_slice(read.as_bytes());
            while let Some(line) = lines.next_line() {
                found.push(line.map(|line| String::from_utf8(line.to_vec()).unwrap()));
            }
        }
        found.extend(lines.finish().map(|rest| Ok(String::from_utf8(rest.to_vec()).unwrap())));
        let expected: Vec<_> = expected.iter().map(|line| line.map(str::to_owned)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_split_however_the_bytes_come() {
        check(9, &["a\nb", "c\n", "\nd"], &[Ok("a"), Ok("bc"), Ok(""), Ok("d")]);
        check(9, &["a", "b", "\n"], &[Ok("ab")]);
        check(9, &["a\r\nb\rc\r", "\n"], &[Ok("a"), Ok(""), Ok("b"), Ok("c"), Ok("")]);
    }

    #[test]
    fn a_line_can_be_dropped_while_it_is_read() {
        let mut lines = Lines::new(100);
        lines.buffer().extend_from_slice(b"first\nhalf of a li");
        assert_eq!(lines.next_line().unwrap().unwrap(), "first");
        assert_eq!(lines.next_line(), None);
        lines.drop_line();
        lines.buffer().extend_from_slice(b"ne\nnext\n");
        assert_eq!(lines.next_line().unwrap().unwrap(), "next");
    }

    #[test]
    fn a_line_over_the_limit_is_dropped_and_the_next_one_kept() {
        let long = Err(LineTooLong { limit: 4 });
        check(4, &["12345\nok\n"], &[long, Ok("ok")]);
        check(4, &["123", "45", "67", "8\nok\n"], &[long, Ok("ok")]);
        check(4, &["1234\n"], &[Ok("1234")]);
        check(4, &["12345"], &[long]);
    }

    #[test]
    fn the_beginning_of_a_line_that_is_dropped_can_be_read() {
        let mut lines = Lines::new(4);
        for text in ["first\n", "second and mo"] {
            lines.buffer().extend_from_slice(text.as_bytes());
            assert!(lines.next_line().unwrap().is_err());
            assert_eq!(lines.dropped(), text.trim_end().as_bytes());
        }
    }
}
