//! A stream of events as a response body: encoded, numbered, and kept alive while it is silent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::framing::events;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ids::EventIds;
use crate::session::stream::{Connection, Event};

/// A silent stream says this often that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client that hung up waits before it comes back.
const RETRY_MS: u64 = 500;

/// A stream of events.
pub struct EventBody {
    connection: Connection,
    /// Bytes that are encoded and not yet sent.
    ready: std::collections::VecDeque<Bytes>,
    /// The ids that events carry, so that the client can come back.
    ids: Option<EventIds>,
    alive: Pin<Box<Sleep>>,
    is_over: bool,
    /// Cancels the call when the client goes away, where the era says so.
    _cancel: Option<DropGuard>,
    /// Told when the stream ends, however it ends.
    _on_end: Option<OnEnd>,
}

/// Runs when it is dropped.
pub struct OnEnd(pub Box<dyn FnMut() + Send>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// How a stream of events behaves.
pub struct EventOptions {
    /// The ids that events carry, if any.
    pub ids: Option<EventIds>,
    /// Whether it begins with an empty event that carries an id, for clients that know what it means.
    pub is_primed: bool,
    /// Cancelled when the client goes away.
    pub cancel: Option<CancellationToken>,
    /// Runs when the stream ends.
    pub on_end: Option<OnEnd>,
}

impl EventBody {
    /// The events of a connection, beginning with one that was already taken.
    pub fn new(connection: Connection, first: Option<Event>, options: EventOptions) -> Self {
        let mut body = Self {
            connection,
            ready: Default::default(),
            ids: options.ids,
            alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            is_over: false,
            _cancel: options.cancel.map(CancellationToken::drop_guard),
            _on_end: options.on_end,
        };
        if let (true, Some(id)) = (options.is_primed, body.id_of(0)) {
            body.ready.push_back(events::priming(&id, Some(RETRY_MS)));
        }
        first.into_iter().for_each(|first| body.encode(first));
        body
    }

    /// The id of the event with this number.
    fn id_of(&self, number: u64) -> Option<String> {
        self.ids.as_ref().map(|ids| ids.of(self.connection.stream().number, number))
    }

    fn encode(&mut self, event: Event) {
        match event {
            Event::Message(number, text) => {
                let id = self.id_of(number);
                self.ready.extend(events::event(id.as_deref(), None, text.pieces()));
            }
            Event::End => self.is_over = true,
        }
    }

    /// Whether all was sent.
    pub fn is_over(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    /// The next bytes.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.connection.poll_event(context) {
                Poll::Ready(event) => {
                    self.encode(event);
                    self.alive.as_mut().reset(tokio::time::Instant::now() + KEEP_ALIVE);
                }
                Poll::Pending => {
                    if self.alive.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.alive.as_mut().reset(tokio::time::Instant::now() + KEEP_ALIVE);
                    self.ready.push_back(Bytes::from_static(events::KEEP_ALIVE));
                }
            }
        }
    }
}
