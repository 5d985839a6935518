//! Frames with their length in front: four bytes, big-endian, then as many bytes of JSON.
//!
//! A frame over the limit is reported once and skipped, so that the connection lives on. Memory grows with
//! the bytes that arrive, never with the length that was announced.

use bytes::{Buf, BytesMut};

/// How many bytes the length takes.
pub const PREFIX_BYTES: usize = 4;

/// A frame that is longer than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes is over the limit of {limit}")]
pub struct FrameTooLong {
    /// Its length.
    pub length: usize,
    /// The longest there may be.
    pub limit: usize,
}

/// Bytes in, frames out.
#[derive(Debug)]
pub struct Frames {
    buffer: BytesMut,
    limit: usize,
    /// What is left of a frame that is skipped.
    skip: usize,
}

impl Frames {
    /// Nothing read yet; a frame may have `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit, skip: 0 }
    }

    /// Where to put bytes that were read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole frame without its length, or `None` until more bytes come.
    pub fn next_frame(&mut self) -> Option<Result<BytesMut, FrameTooLong>> {
        self.skip_over();
        let prefix = self.buffer.first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > self.limit {
            self.buffer.advance(PREFIX_BYTES);
            self.skip = length;
            self.skip_over();
            return Some(Err(FrameTooLong { length, limit: self.limit }));
        }
        if self.buffer.len() < PREFIX_BYTES + length {
            return None;
        }
        self.buffer.advance(PREFIX_BYTES);
        Some(Ok(self.buffer.split_to(length)))
    }

    /// Whether a frame has begun that is not whole yet.
    pub fn is_inside(&self) -> bool {
        self.skip > 0 || !self.buffer.is_empty()
    }

    fn skip_over(&mut self) {
        let skipped = self.skip.min(self.buffer.len());
        self.buffer.advance(skipped);
        self.skip -= skipped;
    }
}

/// The length that stands in front of a frame.
///
/// # Errors
///
/// [`FrameTooLong`] when the frame may not be sent.
pub fn prefix(length: usize, limit: usize) -> Result<[u8; PREFIX_BYTES], FrameTooLong> {
    let short = u32::try_from(length).ok().filter(|_| length <= limit);
    short.map(u32::to_be_bytes).ok_or(FrameTooLong { length, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LONG: Result<&str, FrameTooLong> = Err(FrameTooLong { length: 9, limit: 4 });

    /// The same bytes give the same frames, however they come in.
    fn check(bytes: &[u8], expected: &[Result<&str, FrameTooLong>], is_inside: bool) {
        for size in 1..=bytes.len() {
            let mut frames = Frames::new(4);
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                frames.buffer().extend_from_slice(piece);
                while let Some(frame) = frames.next_frame() {
                    found.push(frame.map(|frame| String::from_utf8(frame.to_vec()).unwrap()));
                }
            }
            let found: Vec<_> = found.iter().map(|it| it.as_deref().map_err(|&it| it)).collect();
            assert_eq!(found, expected, "in pieces of {size}");
            assert_eq!(frames.is_inside(), is_inside);
        }
    }

    #[test]
    fn frames_come_whole_and_in_order() {
        check(b"\0\0\0\x02{}\0\0\0\0\0\0\0\x03abc", &[Ok("{}"), Ok(""), Ok("abc")], false);
        check(b"\0\0\0\x02{}\0\0\0\x03a", &[Ok("{}")], true);
        check(b"\0\0\0", &[], true);
    }

    #[test]
    fn a_frame_over_the_limit_is_skipped_and_the_next_is_read() {
        check(b"\0\0\0\x09123456789\0\0\0\x02{}", &[TOO_LONG, Ok("{}")], false);
        check(b"\0\0\0\x0912345", &[TOO_LONG], true);
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut frames = Frames::new(usize::MAX);
        frames.buffer().extend_from_slice(&[0xff; 4]);
        assert!(frames.next_frame().is_none());
        assert!(frames.buffer().capacity() < 1024);
    }

    #[test]
    fn what_may_not_be_read_is_not_sent() {
        assert_eq!(prefix(4, 4), Ok([0, 0, 0, 4]));
        assert_eq!(prefix(5, 4), Err(FrameTooLong { length: 5, limit: 4 }));
    }
}
