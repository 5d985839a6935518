//! Newline framing, with a limit on the length of a line.
//!
//! A carriage return ends a line too: some servers write CRLF, and some nothing but CR. Inside JSON
//! text it can only stand between tokens, and lines that belong together are joined again later.
//!
//! A line over the limit is dropped to its end and reported once, and the lines after it are kept:
//! a reader that ended there would lose every later answer.
//!
//! Some servers write `Content-Length` frames. Where that may be, a header begins a frame, and its body stands for a
//! line. Each body is followed by the next header or line, whichever comes.

use bytes::{Buf, BytesMut};
use memchr::{memchr, memchr2};

use super::lengths::{content_length, is_other_header};

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
    takes_frames: bool,
    has_framed: bool,
    part: Part,
}

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A line.
    Line,
    /// The rest of the headers of a frame, to a blank line. The newline of the last one may still come.
    Headers { length: usize, after_return: bool },
    /// The body of a frame.
    Body { length: usize },
    /// The rest of a body that is too long.
    Dropped { left: usize },
}

/// How far the reading of a frame got.
enum FrameStep {
    Again,
    Wait,
    Read(Result<BytesMut, LineTooLong>),
}

/// Headers longer than this are none.
const MAX_HEADER: usize = 1024;

/// So much is kept of a line that is dropped: it may say whose it was.
const KEPT_OF_DROPPED: usize = 256;

impl Lines {
    /// Nothing read yet; a line may be `limit` bytes long.
    pub fn new(limit: usize) -> Self {
        let (buffer, dropped) = (BytesMut::new(), BytesMut::new());
        Self {
            buffer,
            searched: 0,
            limit,
            dropping: false,
            dropped,
            saw_return: false,
            takes_frames: false,
            has_framed: false,
            part: Part::Line,
        }
    }

    /// Says whether a `Content-Length` header begins a frame.
    pub fn take_frames(&mut self, takes_frames: bool) {
        self.takes_frames = takes_frames;
    }

    /// Whether a frame was read.
    pub fn has_framed(&self) -> bool {
        self.has_framed
    }

    /// Where to put bytes that were read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole line without its newline, or `None` until more bytes come.
    pub fn next_line(&mut self) -> Option<Result<BytesMut, LineTooLong>> {
        loop {
            match self.next_of_frame() {
                None => {}
                Some(FrameStep::Again) => continue,
                Some(FrameStep::Wait) => return None,
                Some(FrameStep::Read(body)) => return Some(body),
            }
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
            let after_return = self.buffer[end] == b'\r';
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            if std::mem::take(&mut self.dropping) {
                self.saw_return |= after_return;
                continue;
            }
            if self.takes_frames {
                if let Some(length) = content_length(&line) {
                    self.part = Part::Headers { length, after_return };
                    continue;
                }
                if is_other_header(&line) {
                    continue;
                }
            }
            self.saw_return |= after_return;
            if line.len() > self.limit {
                self.dropped = beginning(&line);
                return Some(Err(LineTooLong { limit: self.limit }));
            }
            return Some(Ok(line));
        }
    }

    /// Goes on with a frame; `None` if a line is read.
    fn next_of_frame(&mut self) -> Option<FrameStep> {
        match self.part {
            Part::Line => return None,
            Part::Headers { length, after_return: true } => {
                match self.buffer.first() {
                    None => return Some(FrameStep::Wait),
                    Some(b'\n') => self.buffer.advance(1),
                    Some(_) => {}
                }
                self.part = Part::Headers { length, after_return: false };
            }
            Part::Headers { length, after_return: false } => {
                let Some(end) = memchr(b'\n', &self.buffer) else {
                    if self.buffer.len() <= MAX_HEADER {
                        return Some(FrameStep::Wait);
                    }
                    self.part = Part::Line;
                    return None;
                };
                let header = self.buffer.split_to(end);
                self.buffer.advance(1);
                if header.trim_ascii().is_empty() {
                    self.part = Part::Body { length };
                } else if let Some(length) = content_length(&header) {
                    self.part = Part::Headers { length, after_return: false };
                }
            }
            Part::Body { length } => return Some(self.next_body(length)),
            Part::Dropped { left } => {
                let dropped = left.min(self.buffer.len());
                self.buffer.advance(dropped);
                if dropped < left {
                    self.part = Part::Dropped { left: left - dropped };
                    return Some(FrameStep::Wait);
                }
                self.part = Part::Line;
            }
        }
        Some(FrameStep::Again)
    }

    /// The body of a frame, if it is one: headers may also be what a server logs.
    fn next_body(&mut self, length: usize) -> FrameStep {
        match self.buffer.first() {
            None => return FrameStep::Wait,
            Some(b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n') => {}
            Some(_) => {
                self.part = Part::Line;
                return FrameStep::Again;
            }
        }
        if length > self.limit {
            self.dropped = beginning(&self.buffer);
            self.part = Part::Dropped { left: length };
            return FrameStep::Read(Err(LineTooLong { limit: self.limit }));
        }
        if self.buffer.len() < length {
            return FrameStep::Wait;
        }
        (self.part, self.has_framed) = (Part::Line, true);
        FrameStep::Read(Ok(self.buffer.split_to(length)))
    }

    /// Drops the line that is being read, to its end.
    pub fn drop_line(&mut self) {
        self.dropped = beginning(&self.buffer);
        match self.part {
            Part::Body { length } => {
                self.part = Part::Dropped { left: length.saturating_sub(self.buffer.len()) };
            }
            Part::Line | Part::Headers { .. } | Part::Dropped { .. } => self.dropping = true,
        }
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
        self.part = Part::Line;
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

    #[track_caller]
    fn check_frames(limit: usize, text: &str, expected: &[Result<&str, LineTooLong>]) {
        for size in 1..=text.len() {
            let mut lines = Lines::new(limit);
            lines.take_frames(true);
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.buffer().extend_from_slice(piece);
                while let Some(line) = lines.next_line() {
                    found.push(line.map(|line| String::from_utf8(line.to_vec()).unwrap()));
                }
            }
            found.extend(lines.finish().map(|rest| Ok(String::from_utf8(rest.to_vec()).unwrap())));
            found.retain(|line| line.as_ref().is_ok_and(|line| !line.is_empty()) || line.is_err());
            let expected: Vec<_> = expected.iter().map(|line| line.map(str::to_owned)).collect();
            assert_eq!(found, expected, "in pieces of {size}");
            assert!(!lines.take_return(), "its line ends belong to the frame");
        }
    }

    #[test]
    fn frames_are_read_however_the_bytes_come() {
        let frames =
            "Content-Length: 5\r\n\r\n{ \n }Content-Type: x\r\ncontent-length:2\r\nX: y\r\n\r\n{}";
        check_frames(99, frames, &[Ok("{ \n }"), Ok("{}")]);
        check_frames(99, "Content-Length: 2\n\n{}\nlog\n", &[Ok("{}"), Ok("log")]);
    }

    #[test]
    fn a_frame_that_is_too_long_is_dropped_and_the_next_one_kept() {
        let frames = "Content-Length: 25\n\n{12345678901234567890123}Content-Length: 2\n\n{}";
        check_frames(20, frames, &[Err(LineTooLong { limit: 20 }), Ok("{}")]);
    }

    #[test]
    fn headers_without_a_message_are_a_log() {
        check_frames(99, "Content-Length: 500\n\nhello\n{}\n", &[Ok("hello"), Ok("{}")]);
        let mut lines = Lines::new(99);
        lines.buffer().extend_from_slice(b"Content-Length: 2\n\n{}\n");
        let found: Vec<_> = std::iter::from_fn(|| lines.next_line()).flatten().collect();
        assert_eq!(found, ["Content-Length: 2", "", "{}"], "where frames are not looked for");
    }
}
