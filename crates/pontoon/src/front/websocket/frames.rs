//! The frames of a client's WebSocket, both ways.
//!
//! The library finds frames in what comes, and says what breaks the protocol. What goes out, also the library's own
//! answers to pings, waits in one queue here, so that large messages are not copied. What comes is counted before
//! a message is whole.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use pontoon_wire::Text;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{
    CloseFrame, Role, WebSocketConfig, WebSocketContext,
};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use super::super::answer_stream::AnswerStream;
use super::super::unwritten::Unwritten;
use crate::client::Principal;
use crate::held_bytes::{Full, HeldBytes, Hold, SMALL};

/// So much is read at once: more costs more than it brings.
const READ: usize = 8 * 1024;

/// With so much unwritten no further answer is taken, and twice that nothing is read.
const BATCH: usize = 64 * 1024;

/// The head of a sign of life from a client, in bytes.
const CONTROL_HEAD: usize = 6;

/// The longest reason in a close frame, in bytes.
const MAX_REASON: usize = 123;

/// What happened at a WebSocket.
#[derive(Debug)]
pub(super) enum Happened {
    /// A message came, counted if it is large.
    Message(BytesMut, Option<Hold>),
    /// A sign of life came; whether it is the answer to a ping of ours.
    Sign { is_pong: bool },
    /// All answers were sent, and no more will come.
    AllSaid,
    /// The client has closed it, or is gone.
    Gone,
    /// It cannot go on, for a reason that the client is to hear.
    Fault(CloseCode, String),
}

/// A WebSocket of a client.
pub(super) struct Frames<S> {
    stream: S,
    context: WebSocketContext,
    unwritten: Unwritten,
    incoming: Incoming,
    max_message: usize,
}

/// The message that is coming.
struct Incoming {
    bytes: usize,
    since: Option<Instant>,
    hold: Hold,
    principal: Principal,
    held: Arc<HeldBytes>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// A WebSocket that has just begun, and of which this came already.
    pub(super) fn new(
        stream: S,
        early: &Bytes,
        max_message: usize,
        held: &Arc<HeldBytes>,
        principal: &Principal,
    ) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ)
            .write_buffer_size(0)
            .max_message_size(Some(max_message))
            .max_frame_size(Some(max_message));
        let context =
            WebSocketContext::from_partially_read(early.to_vec(), Role::Server, Some(config));
        let incoming = Incoming {
            bytes: 0,
            since: None,
            hold: held.hold(Some(principal)),
            principal: principal.clone(),
            held: Arc::clone(held),
        };
        Self { stream, context, unwritten: Unwritten::default(), incoming, max_message }
    }

    /// Since when a message has been coming.
    pub(super) fn incoming_since(&self) -> Option<Instant> {
        self.incoming.since
    }

    /// Sends answers, and hears what comes if the client is to be heard. Cancel safe: all of it lies here.
    pub(super) fn poll(
        &mut self,
        answers: &AnswerStream,
        is_heard: bool,
        context: &mut Context<'_>,
    ) -> Poll<Happened> {
        loop {
            // What was last heard of the answers, if they were asked.
            let mut answer = None;
            while self.unwritten.len() < BATCH {
                match answer.insert(answers.poll_message(context)) {
                    Poll::Ready(Some(message)) => self.put(message),
                    _ => break,
                }
            }
            match self.unwritten.poll_write_to(&mut self.stream, context) {
                Poll::Ready(Err(_)) => return Poll::Ready(Happened::Gone),
                Poll::Ready(Ok(())) => match answer {
                    Some(Poll::Ready(None)) => return Poll::Ready(Happened::AllSaid),
                    // There may be more.
                    Some(Poll::Ready(Some(_))) | None => continue,
                    Some(Poll::Pending) => {}
                },
                Poll::Pending => {}
            }
            if !is_heard || !answers.has_room() || self.unwritten.len() >= 2 * BATCH {
                return Poll::Pending;
            }
            let happened = self.poll_heard(context);
            if happened.is_ready() {
                // What comes of it is most often a call, for which the stream would wake us.
                answers.stay_awake();
                return happened;
            }
            // The library may have answered something.
            if !self.unwritten.is_empty()
                && let Poll::Ready(Err(_)) = self.unwritten.poll_write_to(&mut self.stream, context)
            {
                return Poll::Ready(Happened::Gone);
            }
            return happened;
        }
    }

    /// Asks for a sign of life.
    pub(super) fn ping(&mut self) {
        self.unwritten.push(Bytes::from_static(&[0x89, 0]));
    }

    /// Says goodbye, for this reason, and waits until the client has said it, too.
    pub(super) async fn close(&mut self, code: CloseCode, words: &str) {
        self.say_goodbye(code, words);
        let heard = std::future::poll_fn(|context| {
            loop {
                let written = self.unwritten.poll_write_to(&mut self.stream, context);
                if let Poll::Ready(Err(_)) = written {
                    return Poll::Ready(());
                }
                match ready!(self.poll_heard(context)) {
                    Happened::Message(..) | Happened::Sign { .. } => {}
                    _ => return Poll::Ready(()),
                }
            }
        });
        heard.await;
    }

    /// Says goodbye, for this reason, to a client that cannot be understood: what it still sends is dropped, so that it
    /// hears why.
    pub(super) async fn break_off(&mut self, code: CloseCode, words: &str) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        self.say_goodbye(code, words);
        if self.unwritten.write_to(&mut self.stream).await.is_err() {
            return;
        }
        drop(self.stream.shutdown().await);
        let mut dropped = [0; 4096];
        while let Ok(1..) = self.stream.read(&mut dropped).await {}
    }

    fn say_goodbye(&mut self, code: CloseCode, words: &str) {
        let mut end = words.len().min(MAX_REASON);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        let reason = Utf8Bytes::from(&words[..end]);
        let mut ends = OnlyOut(&mut self.unwritten);
        drop(self.context.close(&mut ends, Some(CloseFrame { code, reason })));
    }

    /// Puts a message into a text frame.
    fn put(&mut self, message: &Text) {
        let mut head = [0x81; 10];
        let size = message.len();
        let head = match (u8::try_from(size), u16::try_from(size)) {
            (Ok(size @ 0..=125), _) => {
                head[1] = size;
                &head[..2]
            }
            (_, Ok(size)) => {
                head[1] = 126;
                head[2..4].copy_from_slice(&size.to_be_bytes());
                &head[..4]
            }
            _ => {
                head[1] = 127;
                head[2..].copy_from_slice(&(size as u64).to_be_bytes());
                &head[..]
            }
        };
        self.unwritten.put(head, message, b"");
    }

    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<Happened> {
        let Self { stream, unwritten, incoming, .. } = self;
        let read = self.context.read(&mut Ends { stream, unwritten, incoming, context });
        let bytes = match read {
            Ok(Frame::Text(text)) => Bytes::from(text),
            // Some clients send their JSON so.
            Ok(Frame::Binary(bytes)) => bytes,
            Ok(Frame::Pong(content)) => {
                self.incoming.forget(content.len());
                return Poll::Ready(Happened::Sign { is_pong: true });
            }
            Ok(Frame::Ping(content)) => {
                self.incoming.forget(content.len());
                return Poll::Ready(Happened::Sign { is_pong: false });
            }
            Ok(Frame::Frame(_)) => return Poll::Ready(Happened::Sign { is_pong: false }),
            Ok(Frame::Close(_)) => {
                // The answer to it is put into the queue, and sent if the client still takes it.
                drop(self.context.flush(&mut OnlyOut(&mut self.unwritten)));
                drop(self.unwritten.poll_write_to(&mut self.stream, context));
                return Poll::Ready(Happened::Gone);
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Poll::Pending;
            }
            Err(error) => return Poll::Ready(self.fault(&error)),
        };
        let hold = self.incoming.whole();
        let text = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        Poll::Ready(Happened::Message(text, hold))
    }

    /// What an error of the library means.
    fn fault(&self, error: &Error) -> Happened {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                let limit = self.max_message;
                let words = format!("the message is longer than {limit} bytes (MCPO_MAX_BODY)");
                Happened::Fault(CloseCode::Size, words)
            }
            Error::Utf8(_) => {
                let words = "a text frame is not UTF-8".to_owned();
                Happened::Fault(CloseCode::Invalid, words)
            }
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Happened::Gone,
            Error::Protocol(error) => Happened::Fault(CloseCode::Protocol, error.to_string()),
            Error::Io(error) => match error.get_ref().and_then(|it| it.downcast_ref::<Full>()) {
                Some(full) => Happened::Fault(CloseCode::Again, format!("busy: {full}")),
                None => Happened::Gone,
            },
            _ => Happened::Gone,
        }
    }
}

impl Incoming {
    /// Counts what came of a message.
    fn count(&mut self, more: usize) -> Result<(), Full> {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += more;
        if self.bytes > SMALL && self.hold.is_empty() && self.held.has_its_share(&self.principal) {
            return Err(Full::Share);
        }
        self.hold.grow_to(self.bytes)
    }

    /// What came was no part of a message, but a sign of life with so much in it.
    fn forget(&mut self, content: usize) {
        self.bytes = self.bytes.saturating_sub(CONTROL_HEAD + content);
        if self.bytes == 0 {
            self.since = None;
        }
    }

    /// The message is whole: what counts it, if anything does, goes with it.
    fn whole(&mut self) -> Option<Hold> {
        (self.bytes, self.since) = (0, None);
        if self.hold.is_empty() {
            return None;
        }
        let next = self.hold.none();
        Some(std::mem::replace(&mut self.hold, next))
    }
}

/// The stream as the library reads it, and the queue as it writes to it.
struct Ends<'e, 'c, S> {
    stream: &'e mut S,
    unwritten: &'e mut Unwritten,
    incoming: &'e mut Incoming,
    context: &'e mut Context<'c>,
}

impl<S: AsyncRead + Unpin> Read for Ends<'_, '_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        match Pin::new(&mut *self.stream).poll_read(self.context, &mut buf) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(read) => {
                read?;
                let read = buf.filled().len();
                self.incoming.count(read).map_err(io::Error::other)?;
                Ok(read)
            }
        }
    }
}

impl<S> Write for Ends<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        OnlyOut(self.unwritten).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The queue, where nothing is read.
struct OnlyOut<'u>(&'u mut Unwritten);

impl Read for OnlyOut<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for OnlyOut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(Bytes::copy_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::call::Outcome;
    use crate::client::Person;

    #[tokio::test(start_paused = true)]
    async fn what_waits_behind_a_large_answer_follows_it_though_nothing_else_happens() {
        let answers = AnswerStream::default();
        // The head of the large one has 10 bytes. It goes out in two halves, of which each fills the stream.
        let sizes = [4 * BATCH - 10, 20];
        for size in sizes {
            let outbox = answers.begin_known(Bytes::from_static(b"1"));
            let text = Bytes::from(vec![b'x'; size]).into();
            outbox.finish(Some(Outcome::Answer(text, None, None)));
        }
        let (ours, mut theirs) = tokio::io::duplex(2 * BATCH);
        let (early, held) = (Bytes::new(), HeldBytes::new(1 << 30));
        let mut frames = Frames::new(ours, &early, 1 << 20, &held, &Person::local().principal);
        // In a task of its own: what wakes the client must not wake the WebSocket.
        let reading = tokio::spawn(async move {
            let mut read = vec![0; 4 * BATCH + 2 + 20];
            // It stays open, or its end would be heard.
            theirs.read_exact(&mut read).await.map(|_| (read, theirs))
        });
        let read = tokio::select! {
            _ = std::future::poll_fn(|context| frames.poll(&answers, true, context)) => {
                panic!("nothing was said to it")
            }
            read = tokio::time::timeout(Duration::from_secs(5), reading) => read,
        };
        let (read, _theirs) =
            read.expect("it waits for no other event").expect("no panic").expect("it is open");
        assert_eq!(read.iter().filter(|byte| **byte == b'x').count(), sizes.iter().sum::<usize>());
    }
}
