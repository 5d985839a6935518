//! Our own standard input and output as streams of the runtime, whatever they are.
//!
//! Python gives its children pipes, Node gives them sockets, a shell a terminal or a file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Standard input.
///
/// # Errors
///
/// When the system cannot watch it.
pub(super) fn input() -> io::Result<Box<dyn AsyncRead + Unpin>> {
    let stdin = io::stdin();
    Ok(match kind(stdin.as_fd())? {
        // Opened anew, so that only we do not wait at it. The pipe of another user cannot be opened so.
        FileType::Fifo => match pipe::OpenOptions::new().open_receiver("/dev/fd/0") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        FileType::Socket => Box::new(socket(stdin.as_fd())?),
        _ => Box::new(tokio::io::stdin()),
    })
}

/// Standard output.
///
/// # Errors
///
/// When the system cannot watch it.
pub(super) fn output() -> io::Result<Box<dyn AsyncWrite + Unpin>> {
    let stdout = io::stdout();
    Ok(match kind(stdout.as_fd())? {
        FileType::Fifo => match pipe::OpenOptions::new().open_sender("/dev/fd/1") {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        FileType::Socket => Box::new(socket(stdout.as_fd())?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(stream)?.st_mode))
}

fn socket(stream: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(stream.try_clone_to_owned()?);
    // Our end is ours alone: the program that started us has the other one.
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
