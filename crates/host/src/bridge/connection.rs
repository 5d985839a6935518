//! One connection to the program: bytes out, bytes in, and never a wait.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use bytes::BytesMut;
use pontoon_wire::framing::frames::{FrameTooLong, Frames};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::protocol::MAX_MESSAGE_SIZE;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    frames: Frames,
    /// Whether a call that was sent on it was given up: its answer may still come.
    pub(super) has_given_up: bool,
    /// Since when the program takes nothing, though there is something to send.
    pub(super) stuck_since: Option<Instant>,
}

impl Connection {
    /// Connects. A program that takes no connections might let others wait for ever, and fails at once here.
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        let stream =
            UnixStream::from(rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
        stream.set_nonblocking(true)?;
        rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
        let frames = Frames::new(MAX_MESSAGE_SIZE);
        Ok(Self { stream, frames, has_given_up: false, stuck_since: None })
    }

    /// Writes what the program takes now, and gives how much that was.
    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match retried(|| rustix::io::writev(&self.stream, pieces)) {
            Err(Errno::AGAIN) => 0,
            written => written?,
        };
        self.stuck_since = (written == 0).then(|| self.stuck_since.unwrap_or_else(Instant::now));
        Ok(written)
    }

    /// Reads what there is; `None` if that is nothing yet, 0 at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<usize>> {
        read_some(self.stream.as_fd(), self.frames.buffer())
    }

    /// The next message that was read.
    pub(super) fn next_frame(&mut self) -> Option<Result<BytesMut, FrameTooLong>> {
        self.frames.next_frame()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Reads what there is; `None` if that is nothing yet, 0 at the end.
pub(super) fn read_some(from: BorrowedFd<'_>, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
    let start = buffer.len();
    // Little while little comes, more while a long message grows.
    let more = start.clamp(4 * 1024, 1024 * 1024);
    buffer.resize(start + more, 0);
    let read = retried(|| rustix::io::read(from, &mut buffer[start..]));
    buffer.truncate(start + *read.as_ref().unwrap_or(&0));
    match read {
        Err(Errno::AGAIN) => Ok(None),
        read => Ok(Some(read?)),
    }
}

/// Does it again when a signal came between.
pub(super) fn retried<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
