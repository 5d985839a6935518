//! One connection to the program: bytes out, bytes in.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};

/// A program that takes none of a message for so long is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, by the side that writes. One thread at a time does.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    stream: UnixStream,
}

impl Connection {
    /// Connects without waiting: a program that takes no connections may do so for ever. Gives the side that
    /// reads, too.
    pub(super) fn open(socket: &Path, number: u64) -> io::Result<(Self, UnixStream)> {
        let stream =
            UnixStream::from(rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
        stream.set_nonblocking(true)?;
        rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reading = stream.try_clone()?;
        Ok((Self { number, stream }, reading))
    }

    /// Writes what the program takes now, and gives how much that was.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match rustix::net::send(&self.stream, &bytes[written..], SendFlags::DONTWAIT) {
                Ok(sent) => written += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }

    /// Writes all of it, for as long as the program takes some.
    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// Ends the thread that reads it, too, and one that writes.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads what there is.
pub(super) fn read_some(stream: &mut UnixStream, buffer: &mut BytesMut) -> io::Result<usize> {
    let start = buffer.len();
    let more = start.clamp(16 * 1024, 1024 * 1024);
    buffer.resize(start + more, 0);
    let read = loop {
        match stream.read(&mut buffer[start..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    buffer.truncate(start + *read.as_ref().unwrap_or(&0));
    read
}
