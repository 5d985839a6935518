//! What a server said, waiting for the call it belongs to: a small queue with one reader.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use pontoon_wire::{Message, Text};

/// Notes beyond this many are dropped: a call that is so far behind shows the newest anyway.
const MAX_NOTES: usize = 1024;

/// Something a server said that belongs to one request.
#[derive(Debug)]
pub enum Heard {
    /// Progress or a change on a subscription, ready for the client.
    Note(Text),
    /// A log line.
    Log(Message),
    /// A question to the client. It must be answered or refused.
    Question(Message),
    /// The client answered a question, so the server is at work again.
    Resumed,
    /// The client may hang up and come back for the answer.
    Release,
    /// The answer; nothing comes after it.
    Answer(Message),
    /// The server ended a subscription; nothing comes after it.
    Ended,
    /// The deadline passed, and the server was told to stop; nothing comes after it.
    TimedOut(Option<String>),
    /// The server was gone before it could read the request; nothing comes after it.
    Unsent,
    /// The server is gone; nothing comes after it.
    Gone,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: VecDeque<Heard>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Adds what was heard.
    pub fn push(&self, heard: Heard) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let is_note = matches!(heard, Heard::Note(_) | Heard::Log(_));
            if is_note && state.heard.len() >= MAX_NOTES {
                return;
            }
            state.heard.push_back(heard);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts something back to the front.
    pub fn put_back(&self, heard: Heard) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.heard.push_front(heard);
    }

    /// The next thing heard. Cancel safe: it leaves the queue only as it is returned.
    pub async fn next(&self) -> Heard {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.heard.pop_front() {
                Some(heard) => Poll::Ready(heard),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
