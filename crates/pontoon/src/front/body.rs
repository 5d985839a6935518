//! Response bodies: a text in pieces, a stream of events, or a part of a file.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pontoon_wire::Text;
use pontoon_wire::framing::events;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::files::file_body::FileBody;
use super::mcp::sse_stream::SseBody;
use crate::ids::EventIds;
use crate::session::stream::{Connection, Event};

/// A silent stream says this often that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client that hung up waits before it comes back.
const RETRY_MS: u64 = 500;

/// A body.
pub enum ResponseBody {
    /// All of it is there.
    Text(std::collections::VecDeque<Bytes>),
    /// Events as they come.
    Events(Box<EventBody>),
    /// Every answer of a client of the older transport, as they come.
    Sse(Box<SseBody>),
    /// A part of a file, read as it is sent.
    File(FileBody),
}

impl ResponseBody {
    /// Nothing.
    pub fn empty() -> Self {
        Self::Text(Default::default())
    }

    /// Whether it goes on for as long as somebody has something to say.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Events(_) | Self::Sse(_))
    }

    /// A text.
    pub fn text(text: &Text) -> Self {
        Self::Text(text.pieces().iter().filter(|piece| !piece.is_empty()).cloned().collect())
    }
}

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

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
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

impl Body for ResponseBody {
    type Data = Bytes;
    /// Only a file can fail: then the connection ends, because the length was promised already.
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = match self.get_mut() {
            Self::Text(pieces) => pieces.pop_front(),
            Self::Events(events) => std::task::ready!(events.poll(context)),
            Self::Sse(stream) => std::task::ready!(stream.poll(context)),
            Self::File(file) => return file.poll(context).map_ok(Frame::data),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(pieces) => pieces.is_empty(),
            Self::Events(events) => events.is_over && events.ready.is_empty(),
            Self::Sse(stream) => stream.is_over(),
            Self::File(file) => file.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Self::Events(_) | Self::Sse(_) => SizeHint::default(),
            Self::File(file) => SizeHint::with_exact(file.left()),
        }
    }
}
