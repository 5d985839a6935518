//! One connection to the program: bytes out, bytes in, and never a wait.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_wire::framing::frames::{FrameTooLong, Frames};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::protocol::MAX_MESSAGE_SIZE;

/// The other end is closed.
pub(super) const GONE: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// A program that takes none of a message for so long is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    frames: Frames,
    /// Since when the program takes nothing.
    stuck_since: Option<Instant>,
}

impl Connection {
    /// Connects. A program that takes no connections might let others wait for ever, and fails at once here.
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        let stream =
            UnixStream::from(rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
        stream.set_nonblocking(true)?;
        rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
        Ok(Self { stream, frames: Frames::new(MAX_MESSAGE_SIZE), stuck_since: None })
    }

    /// Writes what the program takes now, and gives how much that was. A program `is_heard` unless we ourselves
    /// take nothing from it: then it may have to wait as well, and is not to blame.
    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>], is_heard: bool) -> io::Result<usize> {
        match retried(|| rustix::io::writev(&self.stream, pieces)) {
            Err(Errno::AGAIN) => {
                let since = self.stuck_since.filter(|_| is_heard).unwrap_or_else(Instant::now);
                self.stuck_since = Some(since);
                if since.elapsed() > PATIENCE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(0)
            }
            written => {
                self.stuck_since = None;
                Ok(written?)
            }
        }
    }

    /// Whether the program did not take what was last written.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck_since.is_some()
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
