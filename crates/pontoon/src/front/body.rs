//! Response bodies: a text in pieces, a stream of events, or a part of a file.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pontoon_wire::Text;

use super::files::file_body::FileBody;
use super::mcp::event_body::EventBody;
use super::mcp::sse_stream::SseBody;

/// A body.
pub enum ResponseBody {
    /// All of it is there.
    Text(VecDeque<Bytes>),
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

    /// Whether it goes on for as long as there are events.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Events(_) | Self::Sse(_))
    }

    /// A text.
    pub fn text(text: &Text) -> Self {
        Self::Text(text.pieces().iter().filter(|piece| !piece.is_empty()).cloned().collect())
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
            Self::Events(events) => events.is_over(),
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
