//! One client at the WebSocket of an application: messages in, messages out, signs of life, and an end in order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message as Frame, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::FrameQueue;
use super::handshake::linger;
use crate::mcp::{McpClient, Out};
use crate::running::Running;
use crate::tools::Tools;

/// How often a connection is looked at. A client that was silent since then is asked for a sign of life.
const LOOK: Duration = Duration::from_secs(30);

/// A client that was silent for this number of looks is gone.
const SILENT_LOOKS: u32 = 4;

/// How long a client may take to hear the last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the clients of a server have in common.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) name: Arc<str>,
    pub(super) tools: Tools,
    pub(super) stop: CancellationToken,
    /// Where tools run: not where clients are served, for an async function may block though it should not.
    pub(super) runtime: Handle,
}

/// Serves a client until it leaves, breaks a rule, or the server stops. Then its calls are given up.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    service: Service,
    mut changes: watch::Receiver<u64>,
) {
    let queue = Arc::new(FrameQueue::default());
    let given_up = CancellationToken::new();
    let _given_up = given_up.clone().drop_guard();
    let running = Running::on(service.runtime, service.tools.clone(), given_up);
    let out = Out::Frames(Arc::clone(&queue));
    let client = McpClient::with(&service.tools, out, &service.name, running);
    let mut line = Line::new(socket, queue);
    let end = loop {
        tokio::select! {
            () = service.stop.cancelled() => {
                line.keep_sending_until(client.finish()).await;
                break LineEnd::Close(CloseCode::Away, "the application is closing");
            }
            Ok(()) = changes.changed() => client.tell_changed().await,
            event = line.next_event() => match event {
                LineEvent::Message(message) => client.take(message).await,
                LineEvent::End(end) => break end,
            },
        }
    };
    match &end {
        LineEnd::Closed => tracing::debug!("a client has left"),
        LineEnd::Close(_, why) | LineEnd::Lost(why) => tracing::debug!(why, "a client is let go"),
    }
    line.close(end).await;
}

/// What happens at a connection.
#[derive(Debug)]
enum LineEvent {
    Message(BytesMut),
    End(LineEnd),
}

/// How a connection ends.
#[derive(Debug)]
enum LineEnd {
    /// The client has closed it, in order.
    Closed,
    /// It is closed by us, for this reason.
    Close(CloseCode, &'static str),
    /// Nothing can be said any more: it broke off, or the client does not read.
    Lost(&'static str),
}

/// A connection to a client.
struct Line<S> {
    socket: WebSocketStream<S>,
    queue: Arc<FrameQueue>,
    /// Something was written that may still lie in a buffer.
    needs_flush: bool,
    /// Counts what the client has taken.
    sent: u64,
    alarm: Pin<Box<Sleep>>,
    last_look: LastLook,
    was_heard: bool,
}

/// What the last look has seen.
#[derive(Debug, Default)]
struct LastLook {
    silent: u32,
    /// What had been sent, if more waited.
    waiting: Option<u64>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    fn new(socket: WebSocketStream<S>, queue: Arc<FrameQueue>) -> Self {
        let (alarm, last_look) = (Box::pin(sleep(LOOK)), LastLook::default());
        Self { socket, queue, needs_flush: false, sent: 0, alarm, last_look, was_heard: false }
    }

    /// What happens next; meanwhile what waits is sent. Cancel safe: everything lies in the socket or the queue.
    async fn next_event(&mut self) -> LineEvent {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<LineEvent> {
        loop {
            let sending = self.poll_send(context);
            if let Poll::Ready(Err(_)) = sending {
                return Poll::Ready(LineEvent::End(LineEnd::Lost("the connection broke off")));
            }
            if self.queue.is_over() {
                return Poll::Ready(LineEvent::End(LineEnd::Lost("it does not read its answers")));
            }
            // Nothing new begins while much waits to be read by the client.
            if !self.queue.is_full() {
                match Pin::new(&mut self.socket).poll_next(context) {
                    Poll::Ready(Some(Ok(frame))) => {
                        self.was_heard = true;
                        match self.take(frame) {
                            Some(event) => return Poll::Ready(event),
                            None => continue,
                        }
                    }
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(LineEvent::End(end_of(&error)));
                    }
                    Poll::Ready(None) => return Poll::Ready(LineEvent::End(LineEnd::Closed)),
                    Poll::Pending => {}
                }
            }
            ready!(self.alarm.as_mut().poll(context));
            if let Some(lost) = self.look() {
                return Poll::Ready(LineEvent::End(LineEnd::Lost(lost)));
            }
        }
    }

    /// Writes what waits. Pending also when nothing does, and then tells when something comes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            ready!(Pin::new(&mut self.socket).poll_ready(context))?;
            match self.queue.poll_pop(context) {
                Poll::Ready(message) => {
                    let text = Utf8Bytes::try_from(message)
                        .map_err(|_| Error::Utf8("a message of ours".to_owned()))?;
                    Pin::new(&mut self.socket).start_send(Frame::Text(text))?;
                    self.needs_flush = true;
                    // The one before it is written, but for what lies in a small buffer.
                    self.sent += 1;
                }
                Poll::Pending if self.needs_flush => {
                    ready!(Pin::new(&mut self.socket).poll_flush(context))?;
                    self.needs_flush = false;
                    self.sent += 1;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take(&mut self, frame: Frame) -> Option<LineEvent> {
        let bytes = match frame {
            Frame::Text(text) => Bytes::from(text),
            Frame::Binary(bytes) => bytes,
            Frame::Close(_) => return Some(LineEvent::End(LineEnd::Closed)),
            Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_) => {
                // The library has put the answer to a ping into its buffer.
                self.needs_flush = true;
                return None;
            }
        };
        let message = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        Some(LineEvent::Message(message))
    }

    /// Time has passed. Says why the client counts as lost, if it does.
    fn look(&mut self) -> Option<&'static str> {
        self.alarm.as_mut().reset(Instant::now() + LOOK);
        let waiting = (self.needs_flush || !self.queue.is_empty()).then_some(self.sent);
        if waiting.is_some() && waiting == self.last_look.waiting {
            return Some("it does not read its answers");
        }
        // One that has taken what waited is there, too.
        let has_read = self.last_look.waiting.is_some();
        let silent = if self.was_heard || has_read { 0 } else { self.last_look.silent + 1 };
        self.was_heard = false;
        self.last_look = LastLook { silent, waiting };
        if silent >= SILENT_LOOKS {
            return Some("it gave no sign of life");
        }
        // One that is not even written to is silent in any case.
        if silent > 0
            && waiting.is_none()
            && Pin::new(&mut self.socket).start_send(Frame::Ping(Bytes::new())).is_ok()
        {
            self.needs_flush = true;
        }
        None
    }

    /// Sends answers while this lasts, and reads nothing.
    async fn keep_sending_until(&mut self, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| {
            let is_broken = matches!(self.poll_send(context), Poll::Ready(Err(_)));
            if is_broken { Poll::Ready(()) } else { work.as_mut().poll(context) }
        })
        .await;
        // What came with the last of it.
        let _ = timeout(
            LAST_WORDS,
            std::future::poll_fn(|context| match self.poll_send(context) {
                Poll::Pending if self.needs_flush || !self.queue.is_empty() => Poll::Pending,
                _ => Poll::Ready(()),
            }),
        )
        .await;
    }

    /// Says the last words, so that they arrive.
    async fn close(mut self, end: LineEnd) {
        self.queue.close();
        let close = match end {
            LineEnd::Lost(_) => return,
            LineEnd::Closed => None,
            LineEnd::Close(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
        };
        let _ = timeout(LAST_WORDS, self.socket.close(close)).await;
        linger(self.socket.get_mut()).await;
    }
}

fn end_of(error: &Error) -> LineEnd {
    match error {
        Error::Capacity(_) => LineEnd::Close(CloseCode::Size, "a message may have 64 MiB"),
        Error::Utf8(_) => LineEnd::Close(CloseCode::Invalid, "text has to be UTF-8"),
        Error::ConnectionClosed | Error::AlreadyClosed => LineEnd::Closed,
        Error::Protocol(
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        )
        | Error::Io(_) => LineEnd::Lost("the connection broke off"),
        _ => LineEnd::Close(CloseCode::Protocol, "these are no frames of a WebSocket client"),
    }
}
