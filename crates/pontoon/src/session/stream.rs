//! A stream toward a client: an outbox whose messages are numbered and can be heard again.
//!
//! A legacy client whose connection broke asks for what came after the last event it saw. So what
//! was sent stays here for a while, bounded, and the next connection goes on from there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use pontoon_wire::Text;
use pontoon_wire::framing::events::Replay;

use crate::call::Outcome;
use crate::outbox::{Next, Outbox};

/// What a stream keeps for a connection that comes back.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// Its number in the session.
    pub number: u64,
    /// The id of the request it answers; empty for the session's own stream.
    pub request_id: Bytes,
    /// Where its messages come from.
    pub outbox: Arc<Outbox>,
    sent: Mutex<Sent>,
}

#[derive(Debug)]
struct Sent {
    replay: Replay,
    /// Each connection has a number; only the newest is served.
    connection: u64,
    is_over: bool,
}

/// Something to send.
#[derive(Debug)]
pub enum Event {
    /// A message under its number.
    Message(u64, Text),
    /// Nothing comes any more.
    End,
}

/// The messages after this number are not kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the events after this one are no longer kept")]
pub struct TooLate;

impl Stream {
    /// An empty stream.
    pub fn new(number: u64, request_id: Bytes) -> Arc<Self> {
        Arc::new(Self {
            number,
            request_id,
            outbox: Arc::default(),
            sent: Mutex::new(Sent {
                replay: Replay::new(MAX_EVENTS, MAX_BYTES),
                connection: 0,
                is_over: false,
            }),
        })
    }

    /// Serves a new connection, which ends any older one. `after` is the last event it saw.
    ///
    /// # Errors
    ///
    /// [`TooLate`] when events were lost since.
    pub fn connect(self: &Arc<Self>, after: Option<u64>) -> Result<Connection, TooLate> {
        let mut sent = self.lock();
        let again = match after {
            None => Vec::new(),
            Some(after) => {
                let missed = sent.replay.after(after).map_err(|_| TooLate)?;
                missed.map(|(number, pieces)| (number, Text::Pieces(pieces.to_vec()))).collect()
            }
        };
        sent.connection += 1;
        let number = sent.connection;
        drop(sent);
        Ok(Connection { stream: Arc::clone(self), number, again: again.into(), is_done: false })
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that hears a stream.
#[derive(Debug)]
pub struct Connection {
    stream: Arc<Stream>,
    number: u64,
    again: std::collections::VecDeque<(u64, Text)>,
    is_done: bool,
}

impl Connection {
    /// The stream it hears.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The next event.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some((number, text)) = self.again.pop_front() {
            return Poll::Ready(Event::Message(number, text));
        }
        let stream = Arc::clone(&self.stream);
        // What is taken is also kept before a newer connection can ask what it missed.
        let mut sent = stream.lock();
        if self.is_done || sent.is_over || sent.connection != self.number {
            return Poll::Ready(Event::End);
        }
        match stream.outbox.poll_next(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(next) => Poll::Ready(self.keep(&mut sent, next)),
        }
    }

    /// Sends something that was taken from the outbox before there was a connection.
    pub fn take(&mut self, next: Next) -> Event {
        let stream = Arc::clone(&self.stream);
        self.keep(&mut stream.lock(), next)
    }

    fn keep(&mut self, sent: &mut Sent, next: Next) -> Event {
        let text = match next {
            Next::Message(text) => text,
            // This connection ends; what follows waits for the next one.
            Next::Release => {
                self.is_done = true;
                return Event::End;
            }
            Next::End(outcome) => {
                sent.is_over = true;
                self.is_done = true;
                match outcome {
                    Some(outcome) => outcome_text(outcome, &self.stream.request_id),
                    None => return Event::End,
                }
            }
        };
        let number = sent.replay.push(text.pieces().to_vec());
        Event::Message(number, text)
    }
}

/// The JSON-RPC answer that an outcome is.
pub fn outcome_text(outcome: Outcome, id: &Bytes) -> Text {
    match outcome {
        Outcome::Answer(text, _, _) => text,
        Outcome::Failed(error) => {
            Bytes::from(error.to_error().answer(&String::from_utf8_lossy(id))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Item;

    async fn events(connection: &mut Connection, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        for _ in 0..count {
            match std::future::poll_fn(|context| connection.poll_event(context)).await {
                Event::Message(number, text) => {
                    found.push(format!("{number} {}", String::from_utf8_lossy(&text.to_bytes())));
                }
                Event::End => found.push("end".to_owned()),
            }
        }
        found
    }

    fn note(stream: &Stream, text: &'static str) {
        stream.outbox.push(Item::Note(Bytes::from_static(text.as_bytes()).into()));
    }

    #[tokio::test]
    async fn a_connection_that_comes_back_goes_on_where_it_was() {
        let stream = Stream::new(1, Bytes::from_static(b"7"));
        let mut first = stream.connect(None).unwrap();
        note(&stream, "a");
        note(&stream, "b");
        assert_eq!(events(&mut first, 2).await, ["1 a", "2 b"]);
        let mut second = stream.connect(Some(1)).unwrap();
        stream.outbox.finish(Some(Outcome::Answer(Bytes::from_static(b"c").into(), None, None)));
        assert_eq!(events(&mut first, 1).await, ["end"], "the older connection ends");
        assert_eq!(events(&mut second, 3).await, ["2 b", "3 c", "end"]);
        let mut third = stream.connect(Some(2)).unwrap();
        assert_eq!(events(&mut third, 2).await, ["3 c", "end"]);
    }
}
