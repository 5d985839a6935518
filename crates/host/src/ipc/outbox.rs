//! What waits to be sent on a socket.
//!
//! As a rule nothing does: a message is written where it was made, without waking another task. What the
//! socket does not take waits here, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;

/// With more than this, nothing new is begun.
const ENOUGH_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Outbox {
    stream: OwnedWriteHalf,
    queue: Mutex<Queue>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedWriteHalf) -> Self {
        Self { stream, queue: Mutex::default(), more: Notify::new() }
    }

    /// Ends the connection, also while others still hold on to this.
    pub(crate) fn close(&self) {
        let _ = rustix::net::shutdown(self.stream.as_ref(), rustix::net::Shutdown::Both);
    }

    /// Sends a message, now or as soon as can be.
    pub(crate) fn push(&self, message: Bytes) {
        let mut queue = self.lock();
        let mut rest = message;
        if queue.pieces.is_empty() {
            match self.stream.try_write(&rest) {
                Ok(written) => rest.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The reader of the connection notices, too.
                Err(_) => return,
            }
        }
        if !rest.is_empty() {
            queue.bytes += rest.len();
            queue.pieces.push_back(rest);
            self.more.notify_one();
        }
    }

    /// Sends a message unless others wait: it is not worth waiting for.
    pub(crate) fn push_if_idle(&self, message: Bytes) {
        if self.lock().pieces.is_empty() {
            self.push(message);
        }
    }

    /// Whether so much waits that nothing new should begin.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().bytes >= ENOUGH_BYTES
    }

    /// Waits until something waits here, and sends all of it. Cancel safe: what is not yet sent stays.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        loop {
            let more = self.more.notified();
            if !self.lock().pieces.is_empty() {
                break;
            }
            more.await;
        }
        while !self.lock().pieces.is_empty() {
            self.stream.writable().await?;
            match self.write_some() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn write_some(&self) -> io::Result<()> {
        let mut queue = self.lock();
        while let Some(piece) = queue.pieces.front_mut() {
            let written = self.stream.try_write(piece)?;
            piece.advance(written);
            if piece.is_empty() {
                queue.pieces.pop_front();
            }
            queue.bytes -= written;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
