//! What a server said, waiting for the call it belongs to: a small queue with one reader.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use pontoon_wire::{Message, Text};

/// Notes beyond this many, or this many bytes, are dropped: a call that is so far behind, or waits
/// for a person, shows the newest anyway.
const MAX_NOTES: usize = 1024;
const MAX_NOTE_BYTES: usize = 4 * 1024 * 1024;

/// Questions that nobody has looked at yet.
const MAX_QUESTIONS: usize = 64;

/// Something a server said that belongs to one request.
#[derive(Debug)]
pub enum ServerEvent {
    /// Progress or a change on a subscription, ready for the client.
    Note(Text),
    /// A log line.
    Log(Message),
    /// A question to the client. It must be answered or refused.
    Question(Message),
    /// The client answered a question; this is for the server, once it may work again.
    Resumed(Text),
    /// The client may hang up and come back for the answer.
    Release,
    /// The answer; nothing comes after it.
    Answer(Message),
    /// The server ended a subscription; nothing comes after it.
    Ended,
    /// The deadline passed, and the server was told to stop; nothing comes after it.
    TimedOut(Option<String>),
    /// The server said something too long to be read, so the answer may be lost; nothing comes after.
    Lost(String),
    /// Too much waits to be written to the server; nothing comes after it.
    Clogged,
    /// The server refused the request for its length, and closed the connection; nothing comes after it.
    TooLong,
    /// The server was gone before it could read the request; nothing comes after it.
    Unsent,
    /// The server is gone; nothing comes after it.
    Gone,
}

impl ServerEvent {
    /// Whether nothing comes after it.
    pub fn is_end(&self) -> bool {
        !matches!(
            self,
            Self::Note(_) | Self::Log(_) | Self::Question(_) | Self::Resumed(_) | Self::Release
        )
    }
}

/// The queue.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<MailboxState>,
}

#[derive(Debug, Default)]
struct MailboxState {
    heard: VecDeque<ServerEvent>,
    note_bytes: usize,
    waker: Option<Waker>,
    /// Whether the one who read it is gone.
    is_closed: bool,
}

impl Mailbox {
    /// Adds what was heard, if there is room for it; for answers and ends there always is.
    pub fn push(&self, heard: ServerEvent) {
        self.offer(heard);
    }

    /// The same; false if there was no room, or its call is over.
    pub fn offer(&self, heard: ServerEvent) -> bool {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.is_closed {
                return false;
            }
            let bytes = note_bytes(&heard);
            let waiting = state.heard.len();
            let has_room = match &heard {
                ServerEvent::Note(_) | ServerEvent::Log(_) => {
                    waiting < MAX_NOTES && state.note_bytes + bytes <= MAX_NOTE_BYTES
                }
                ServerEvent::Release => !matches!(state.heard.back(), Some(ServerEvent::Release)),
                ServerEvent::Question(_) => {
                    let is_question =
                        |heard: &&ServerEvent| matches!(heard, ServerEvent::Question(_));
                    state.heard.iter().filter(is_question).count() < MAX_QUESTIONS
                }
                _ => true,
            };
            if !has_room {
                return false;
            }
            state.note_bytes += bytes;
            state.heard.push_back(heard);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Takes nothing more, and gives what was not read.
    pub fn close(&self) -> VecDeque<ServerEvent> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        state.note_bytes = 0;
        std::mem::take(&mut state.heard)
    }

    /// Puts something back to the front.
    pub fn put_back(&self, heard: ServerEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.note_bytes += note_bytes(&heard);
        state.heard.push_front(heard);
    }

    /// The next thing heard. Cancel safe: it leaves the queue only as it is returned.
    pub async fn next(&self) -> ServerEvent {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.heard.pop_front() {
                Some(heard) => {
                    state.note_bytes -= note_bytes(&heard);
                    Poll::Ready(heard)
                }
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

fn note_bytes(heard: &ServerEvent) -> usize {
    match heard {
        ServerEvent::Note(text) => text.len(),
        ServerEvent::Log(message) => message.text().len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn notes_are_bounded_by_their_bytes_and_an_answer_always_fits() {
        let mailbox = Mailbox::default();
        let large = || ServerEvent::Note(Bytes::from(vec![b'x'; MAX_NOTE_BYTES / 2 + 1]).into());
        assert!(mailbox.offer(large()));
        assert!(!mailbox.offer(large()));
        assert!(mailbox.offer(ServerEvent::Gone));
        assert!(matches!(mailbox.next().await, ServerEvent::Note(_)));
        assert!(mailbox.offer(large()), "what was read makes room");
    }
}
