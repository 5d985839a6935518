//! Where requests begin and end: one that another reader, such as a proxy, could see end elsewhere is not served.
//!
//! hyper takes lines without CR, and a length beside chunks. So the bytes of a connection are looked at on
//! their way to it, without a copy: heads, lengths and chunks as strict as RFC 9112 lets us. Where a line is not, its
//! end and all behind it are made NUL, which no head and no size may have: hyper answers 400 and closes, and
//! finds nothing more to serve. Only in what follows the size of a chunk may be any byte but LF, so there
//! its LF stays. What a head says besides is left to hyper.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose requests are framed in one way only.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    framing: Framing,
}

impl<S> Framed<S> {
    /// A connection that was just opened.
    pub fn new(stream: S) -> Self {
        Self { stream, framing: Framing::default() }
    }

    /// The connection, from now on for something else than requests; `None` if what came was ambiguous.
    pub fn into_inner(self) -> Option<S> {
        (self.framing.part != FramePart::Broken).then_some(self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.framing.part == FramePart::Broken {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buf))?;
        if let Err(why) = this.framing.check(&mut buf.filled_mut()[before..]) {
            tracing::debug!(%why, "a request is refused, and its connection closed");
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Ambiguous {
    #[error("a line ends without CR")]
    BareLf,
    #[error("a header is folded")]
    Folded,
    #[error("the length of the body is said twice, or not as digits")]
    Length,
    #[error(
        "the coding of the body is said twice, or is not `chunked`, or there is a length beside it"
    )]
    Coding,
    #[error("a chunk does not begin with its size, or does not end after it")]
    Chunk,
}

/// Where the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePart {
    /// Before a request line.
    Start,
    /// In the headers.
    Headers,
    /// In a body with this much left.
    Body(u64),
    /// In the line with the size of a chunk.
    Size,
    /// In a chunk with this much left.
    Chunk(u64),
    /// In the line end after a chunk.
    ChunkEnd,
    /// In the lines after the last chunk.
    Trailers,
    /// Behind something ambiguous.
    Broken,
}

/// How many bytes of a line are kept when its rest is not there yet. A line that matters is shorter, or refused.
const KEPT: usize = 128;

#[derive(Debug)]
struct Framing {
    part: FramePart,
    length: Option<u64>,
    is_chunked: bool,
    line: Partial,
}

impl Default for Framing {
    fn default() -> Self {
        let line = Partial { start: [0; KEPT], size: 0, last: 0 };
        Self { part: FramePart::Start, length: None, is_chunked: false, line }
    }
}

/// The part of a line that came before.
#[derive(Debug)]
struct Partial {
    start: [u8; KEPT],
    size: usize,
    last: u8,
}

impl Partial {
    /// What is kept of it.
    fn known(&self) -> &[u8] {
        &self.start[..self.size.min(KEPT)]
    }

    fn add(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        if let Some(room) = self.start.get_mut(self.size..) {
            let kept = room.len().min(bytes.len());
            room[..kept].copy_from_slice(&bytes[..kept]);
        }
        self.size += bytes.len();
        self.last = *last;
    }
}

/// A line without its end; of a long one only the beginning may be known.
#[derive(Clone, Copy)]
struct FrameLine<'l> {
    start: &'l [u8],
    is_whole: bool,
}

impl Framing {
    /// Follows these bytes, and breaks them where they are ambiguous.
    fn check(&mut self, bytes: &mut [u8]) -> Result<(), Ambiguous> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.part {
                FramePart::Body(left) => {
                    at += self.skip(left, rest.len(), FramePart::Body, FramePart::Start)
                }
                FramePart::Chunk(left) => {
                    at += self.skip(left, rest.len(), FramePart::Chunk, FramePart::ChunkEnd)
                }
                _ => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.line.add(rest);
                        return Ok(());
                    };
                    let has_extension = self.part == FramePart::Size
                        && (self.line.known().contains(&b';') || rest[..end].contains(&b';'));
                    if let Err(why) = self.end_line(&rest[..end]) {
                        bytes[at + end + usize::from(has_extension)..].fill(0);
                        self.part = FramePart::Broken;
                        return Err(why);
                    }
                    at += end + 1;
                }
            }
        }
        Ok(())
    }

    /// Passes over what is left of a body or chunk.
    fn skip(
        &mut self,
        left: u64,
        size: usize,
        part: fn(u64) -> FramePart,
        next: FramePart,
    ) -> usize {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(size);
        let left = left - skipped as u64;
        self.part = if left == 0 { next } else { part(left) };
        skipped
    }

    /// Takes a line whose rest is `rest`, up to its LF.
    fn end_line(&mut self, rest: &[u8]) -> Result<(), Ambiguous> {
        if self.line.size == 0 {
            let start = rest.strip_suffix(b"\r").ok_or(Ambiguous::BareLf)?;
            return self.take(FrameLine { start, is_whole: true });
        }
        self.line.add(rest);
        let (start, size, last) = (self.line.start, self.line.size - 1, self.line.last);
        self.line.size = 0;
        if last != b'\r' {
            return Err(Ambiguous::BareLf);
        }
        self.take(FrameLine { start: &start[..size.min(KEPT)], is_whole: size <= KEPT })
    }

    fn take(&mut self, line: FrameLine<'_>) -> Result<(), Ambiguous> {
        let is_empty = line.start.is_empty();
        match self.part {
            // Clients may send an empty line before a request, which means nothing.
            FramePart::Start if is_empty => {}
            FramePart::Start => {
                (self.length, self.is_chunked) = (None, false);
                self.part = FramePart::Headers;
            }
            FramePart::Headers if is_empty => {
                self.part = match self.length {
                    _ if self.is_chunked => FramePart::Size,
                    None | Some(0) => FramePart::Start,
                    Some(length) => FramePart::Body(length),
                };
            }
            FramePart::Headers => self.take_header(line)?,
            // Of a size that is too long to be kept it is not known how long it is.
            FramePart::Size if !line.is_whole && !line.start.contains(&b';') => {
                return Err(Ambiguous::Chunk);
            }
            FramePart::Size => {
                self.part = match chunk_size(line.start).ok_or(Ambiguous::Chunk)? {
                    0 => FramePart::Trailers,
                    size => FramePart::Chunk(size),
                };
            }
            FramePart::ChunkEnd if is_empty => self.part = FramePart::Size,
            FramePart::ChunkEnd => return Err(Ambiguous::Chunk),
            FramePart::Trailers if is_empty => self.part = FramePart::Start,
            FramePart::Trailers | FramePart::Body(_) | FramePart::Chunk(_) | FramePart::Broken => {}
        }
        Ok(())
    }

    fn take_header(&mut self, line: FrameLine<'_>) -> Result<(), Ambiguous> {
        // Few names begin like those that matter.
        match line.start.first() {
            Some(b'c' | b'C' | b't' | b'T') => {}
            Some(b' ' | b'\t') => return Err(Ambiguous::Folded),
            _ => return Ok(()),
        }
        let colon = memchr(b':', line.start).unwrap_or(line.start.len());
        let (name, value) = line.start.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let is_first = line.is_whole && self.length.is_none() && !self.is_chunked;
            let length = decimal(value).filter(|_| is_first);
            self.length = Some(length.ok_or(Ambiguous::Length)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_first = line.is_whole && self.length.is_none() && !self.is_chunked;
            if !is_first || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguous::Coding);
            }
            self.is_chunked = true;
        }
        Ok(())
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// The size in the first line of a chunk, which may have extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = memchr(b';', line).map_or(line, |end| &line[..end]).trim_ascii_end();
    let is_number = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(size).ok().filter(|_| is_number)?, 16).ok()
}

#[cfg(test)]
mod tests;
