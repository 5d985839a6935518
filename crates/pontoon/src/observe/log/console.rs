//! The console: standard output or standard error as a place for whole lines.
//!
//! Nothing is buffered here, so what is written is there, and a line that could not be written whole
//! never spoils the next.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};

/// Where lines go.
#[derive(Debug)]
pub(super) struct Console<W = File> {
    to: W,
    /// Whether the last thing that arrived was a piece of a line.
    is_torn: bool,
}

impl Console {
    /// Standard output or standard error.
    pub(super) fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { to: File::from(descriptor.try_clone_to_owned()?), is_torn: false })
    }
}

impl<W: Write + AsFd> Console<W> {
    /// Writes whole lines, and waits for a reader that is slow. An error costs these lines only.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        self.write_all(lines)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.to.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.is_torn = bytes[length - 1] != b'\n';
                    bytes = &bytes[length..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that shares it with us may have made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until something can be written.
    fn wait(&self) -> io::Result<()> {
        let mut descriptors = [PollFd::new(&self.to, PollFlags::OUT)];
        match poll(&mut descriptors, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A writer that takes so many bytes, then fails once, and goes on.
    struct Breaks {
        to: UnixStream,
        room: usize,
    }

    impl AsFd for Breaks {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.to.as_fd()
        }
    }

    impl Write for Breaks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                self.room = usize::MAX;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let length = self.to.write(&bytes[..bytes.len().min(self.room)])?;
            self.room -= length;
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What arrives of two writes when the first finds room for so many bytes.
    fn check(room: usize, expected: &str) {
        let (to, mut from) = UnixStream::pair().unwrap();
        let mut console = Console { to: Breaks { to, room }, is_torn: false };
        assert_eq!(console.write(b"one\ntwo\n").is_ok(), room >= 8);
        console.write(b"three\n").unwrap();
        drop(console);
        let mut arrived = String::new();
        from.read_to_string(&mut arrived).unwrap();
        assert_eq!(arrived, expected);
    }

    #[test]
    fn half_a_line_does_not_spoil_the_next() {
        check(100, "one\ntwo\nthree\n");
        check(6, "one\ntw\nthree\n");
        check(4, "one\nthree\n");
        check(2, "on\nthree\n");
    }

    #[test]
    fn a_reader_that_is_slow_is_waited_for() {
        let (to, mut from) = UnixStream::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        let line = [b"x".repeat(1 << 20), b"\n".to_vec()].concat();
        let sent = line.clone();
        let writing = std::thread::spawn(move || {
            Console { to, is_torn: false }.write(&sent).unwrap();
        });
        let mut arrived = Vec::new();
        from.read_to_end(&mut arrived).unwrap();
        writing.join().unwrap();
        assert!(arrived == line);
    }
}
