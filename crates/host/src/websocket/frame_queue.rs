//! What waits to be sent to one client of a WebSocket: bounded, and the end of a client that does not read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// With more than this, nothing of the client's is read.
const ENOUGH_BYTES: usize = 16 * 1024 * 1024;

/// With more than this, the client is given up. One message may always wait.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct FrameQueue(Mutex<WaitingFrames>);

#[derive(Debug, Default)]
struct WaitingFrames {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// More waited than may.
    is_over: bool,
    /// Nothing is taken in any more.
    is_closed: bool,
    waker: Option<Waker>,
}

impl FrameQueue {
    /// Sends a message in its turn.
    pub(crate) fn push(&self, message: Bytes) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return;
        }
        if !waiting.frames.is_empty() && waiting.bytes + message.len() > MAX_BYTES {
            waiting.is_over = true;
            waiting.close();
        } else {
            waiting.bytes += message.len();
            waiting.frames.push_back(message);
        }
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Sends a message unless others wait: it is not worth waiting for.
    pub(crate) fn push_if_idle(&self, message: Bytes) {
        if self.lock().frames.is_empty() {
            self.push(message);
        }
    }

    /// The next message, when there is one. [`Poll::Pending`] tells when one comes.
    pub(super) fn poll_pop(&self, context: &Context<'_>) -> Poll<Bytes> {
        let mut waiting = self.lock();
        match waiting.frames.pop_front() {
            Some(frame) => {
                waiting.bytes -= frame.len();
                Poll::Ready(frame)
            }
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether so much waits that nothing new should begin.
    pub(super) fn is_full(&self) -> bool {
        self.lock().bytes >= ENOUGH_BYTES
    }

    /// Whether more waited than may.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().frames.is_empty()
    }

    /// Drops what waits and takes nothing more in: tools that still run may hold on to this.
    pub(super) fn close(&self) {
        self.lock().close();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingFrames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingFrames {
    fn close(&mut self) {
        self.is_closed = true;
        self.frames = VecDeque::new();
        self.bytes = 0;
    }
}
