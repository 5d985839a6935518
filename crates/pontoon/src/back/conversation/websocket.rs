//! A WebSocket as the carrier of a conversation: a message in each frame, signs of life, and how it ended.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message as Frame, Utf8Bytes};

use crate::config::Silence;

/// After this many questions without any answer the other side is gone, if it ever answered one.
const MISSES: u32 = 3;

/// How long the other side may take to close in order.
const CLOSING: Duration = Duration::from_secs(2);

/// How many messages it has that are not sent.
const QUEUE: usize = 16;

/// What stands for a code where there is none.
const NO_CODE: u16 = 1005;

const CLOSED: &str = "the connection was closed";

/// What happens at a WebSocket.
#[derive(Debug)]
pub(super) enum SocketEvent {
    /// A message came.
    Frame(BytesMut),
    /// It takes another message.
    Room,
    /// It has ended.
    End,
}

/// What a WebSocket stands on.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// How a WebSocket ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SocketEnd {
    /// The code that the other side closed it with, if it did so in order.
    pub(crate) code: Option<u16>,
    /// The same in words.
    pub(crate) words: String,
}

/// How long the last ping took to be answered.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// Zero if none was.
    micros: AtomicU64,
}

impl RoundTrip {
    /// It, if there was one.
    pub(crate) fn last(&self) -> Option<Duration> {
        let micros = self.micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros.max(1), Ordering::Relaxed);
    }
}

/// A WebSocket.
pub(crate) struct WebSocket {
    stream: WebSocketStream<Box<dyn Duplex>>,
    queue: VecDeque<Bytes>,
    /// More waits than the queue was given.
    is_short: bool,
    /// Something was written that may still lie in a buffer.
    needs_flush: bool,
    /// What happened when it could not be written to any more. It is read on, for a moment.
    broken: Option<String>,
    /// It is to be closed when everything was written.
    is_closing: bool,
    signs: SignsOfLife,
    /// When the other side is asked for a sign of life, or given up.
    alarm: Pin<Box<Sleep>>,
    /// When a ping was sent whose answer is awaited.
    pinged: Option<Instant>,
    round_trip: Arc<RoundTrip>,
    end: Option<SocketEnd>,
}

impl std::fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocket").field("end", &self.end).finish_non_exhaustive()
    }
}

impl WebSocket {
    /// A WebSocket that was opened, whose other side may be silent for so long.
    pub(crate) fn new(stream: WebSocketStream<Box<dyn Duplex>>, silence: Silence) -> Self {
        Self {
            stream,
            queue: VecDeque::new(),
            is_short: false,
            needs_flush: false,
            broken: None,
            is_closing: false,
            signs: SignsOfLife::new(silence, Instant::now()),
            alarm: Box::pin(tokio::time::sleep(silence.ping_after)),
            pinged: None,
            round_trip: Arc::default(),
            end: None,
        }
    }

    /// Whether it takes another message: what it has not sent yet stays counted where it was.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
    }

    /// Sends this message in its turn.
    pub(super) fn send(&mut self, message: Bytes) {
        self.queue.push_back(message);
    }

    /// Says that more messages wait: it tells when it takes one.
    pub(super) fn tell_room(&mut self) {
        self.is_short = true;
    }

    /// Says whether a call is under way: then silence means less.
    pub(super) fn set_busy(&mut self, is_busy: bool) {
        self.signs.set_busy(is_busy, Instant::now());
    }

    /// Where it says how long pings take.
    pub(super) fn round_trip(&self) -> Arc<RoundTrip> {
        Arc::clone(&self.round_trip)
    }

    /// Closes it when everything was sent.
    pub(super) fn close(&mut self) {
        if !self.is_closing {
            self.is_closing = true;
            self.alarm.as_mut().reset(Instant::now() + CLOSING);
        }
    }

    /// How it ended, once it has.
    pub(super) fn end(&self) -> Option<&SocketEnd> {
        self.end.as_ref()
    }

    /// What happens next; meanwhile what is to be sent is sent. Cancel safe: everything lies in the socket.
    pub(super) async fn next_event(&mut self) -> SocketEvent {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<SocketEvent> {
        loop {
            if self.end.is_some() {
                return Poll::Ready(SocketEvent::End);
            }
            if let Poll::Ready(Err(error)) = self.poll_send(context) {
                // Why the other side went may still be there to be read.
                self.broken = Some(in_words(&error));
                self.alarm.as_mut().reset(Instant::now() + CLOSING);
            }
            if self.is_short && self.has_room() {
                self.is_short = false;
                return Poll::Ready(SocketEvent::Room);
            }
            match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.signs.heard(Instant::now());
                    if let Some(message) = self.take(frame) {
                        return Poll::Ready(SocketEvent::Frame(message));
                    }
                }
                Poll::Ready(Some(Err(error))) => self.fail(&error),
                Poll::Ready(None) => {
                    let words = self.broken.take();
                    self.finish(None, words.unwrap_or_else(|| CLOSED.to_owned()));
                }
                Poll::Pending => {
                    if self.alarm.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.ring();
                }
            }
        }
    }

    /// Writes what waits, as far as there is room.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<tungstenite::Result<()>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        while !self.queue.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_ready(context))?;
            let Some(message) = self.queue.pop_front() else { break };
            // What the scanner has passed is UTF-8.
            let text = Utf8Bytes::try_from(message)
                .map_err(|_| tungstenite::Error::Utf8("a message of ours".to_owned()))?;
            Pin::new(&mut self.stream).start_send(Frame::Text(text))?;
            self.needs_flush = true;
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.needs_flush = false;
        }
        if self.is_closing {
            ready!(Pin::new(&mut self.stream).poll_close(context))?;
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, frame: Frame) -> Option<BytesMut> {
        let bytes = match frame {
            Frame::Text(text) => Bytes::from(text),
            // Some applications send their JSON so.
            Frame::Binary(bytes) => bytes,
            Frame::Pong(_) => {
                self.signs.answers_pings = true;
                if let Some(pinged) = self.pinged.take() {
                    self.round_trip.note(pinged.elapsed());
                }
                return None;
            }
            Frame::Ping(_) | Frame::Frame(_) => {
                // Its answer was put into the buffer by the library.
                self.needs_flush = true;
                return None;
            }
            Frame::Close(close) => {
                // The library's own answer to it goes out with the next look at the stream.
                self.note_close(close);
                return None;
            }
        };
        Some(bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])))
    }

    fn note_close(&mut self, close: Option<CloseFrame>) {
        let code = close.as_ref().map_or(NO_CODE, |close| u16::from(close.code));
        let words = match close {
            Some(close) if !close.reason.is_empty() => {
                format!("it closed the connection ({}: {})", u16::from(close.code), close.reason)
            }
            Some(close) => format!("it closed the connection ({})", u16::from(close.code)),
            None => "it closed the connection".to_owned(),
        };
        self.finish(Some(code), words);
    }

    fn fail(&mut self, error: &tungstenite::Error) {
        let words = self.broken.take().unwrap_or_else(|| in_words(error));
        self.finish(None, words);
    }

    fn finish(&mut self, code: Option<u16>, words: String) {
        if self.end.is_none() {
            self.end = Some(SocketEnd { code, words });
        }
    }

    /// Time has passed in silence.
    fn ring(&mut self) {
        let now = Instant::now();
        if let Some(words) = self.broken.take() {
            return self.finish(None, words);
        }
        if self.is_closing {
            return self.finish(None, "the connection was closed by us".to_owned());
        }
        match self.signs.look(now) {
            Remedy::Later(then) => self.alarm.as_mut().reset(then),
            Remedy::Ask(then) => {
                self.alarm.as_mut().reset(then);
                // If it cannot be taken now, the connection is as silent as if it had been.
                if Pin::new(&mut self.stream).start_send(Frame::Ping(Bytes::new())).is_ok() {
                    self.needs_flush = true;
                    self.pinged = Some(now);
                }
            }
            Remedy::Gone(silence) => {
                let seconds = silence.as_secs();
                self.finish(None, format!("it gave no sign of life for {seconds} s"));
            }
        }
    }
}

/// What happened, in words.
fn in_words(error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
            CLOSED.to_owned()
        }
        tungstenite::Error::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => "the connection broke off".to_owned(),
        // Inside TLS it is an error that the end was not announced.
        tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the connection broke off".to_owned()
        }
        tungstenite::Error::Io(error) => format!("the connection broke off ({error})"),
        tungstenite::Error::Capacity(error) => format!("it sent too much ({error})"),
        error => format!("the connection failed ({error})"),
    }
}

/// When the other side was heard, and what its silence means.
#[derive(Debug)]
pub(crate) struct SignsOfLife {
    heard: Instant,
    misses: u32,
    /// Whether it answers pings at all: some cannot, and are not blamed.
    pub(crate) answers_pings: bool,
    busy_since: Option<Instant>,
    silence: Silence,
}

/// What is to be done about silence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing until then.
    Later(Instant),
    /// Ask for a sign of life, and look again then.
    Ask(Instant),
    /// The other side is gone: it was silent for so long.
    Gone(Duration),
}

impl SignsOfLife {
    pub(crate) fn new(silence: Silence, now: Instant) -> Self {
        Self { heard: now, misses: 0, answers_pings: false, busy_since: None, silence }
    }

    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.misses = 0;
        self.busy_since = self.busy_since.map(|_| now);
    }

    fn set_busy(&mut self, is_busy: bool, now: Instant) {
        match (is_busy, self.busy_since) {
            (true, None) => self.busy_since = Some(now),
            (false, Some(_)) => {
                // What it missed while it worked is forgiven.
                (self.busy_since, self.misses) = (None, 0);
            }
            _ => {}
        }
    }

    pub(crate) fn look(&mut self, now: Instant) -> Remedy {
        let due = self.heard + self.silence.ping_after;
        if now < due {
            return Remedy::Later(due);
        }
        // One that works on its main thread reads and answers nothing meanwhile.
        let is_spared = self.busy_since.is_some_and(|since| now < since + self.silence.busy_grace);
        if is_spared {
            self.misses = 0;
        } else if self.misses >= MISSES && self.answers_pings {
            return Remedy::Gone(now - self.heard);
        } else {
            self.misses += 1;
        }
        Remedy::Ask(now + self.silence.ping_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PING_AFTER: Duration = Silence::USUAL.ping_after;

    /// How long it takes until one is given up that was last heard at the beginning.
    fn given_up_after(answers_pings: bool, is_busy: bool) -> Option<u64> {
        let began = Instant::now();
        let mut signs = SignsOfLife::new(Silence::USUAL, began);
        signs.answers_pings = answers_pings;
        signs.set_busy(is_busy, began);
        let mut now = began + PING_AFTER;
        while now < began + 1000 * SECOND {
            match signs.look(now) {
                Remedy::Later(then) | Remedy::Ask(then) => now = then,
                Remedy::Gone(silence) => return Some(silence.as_secs()),
            }
        }
        None
    }

    #[test]
    fn one_that_gives_no_sign_of_life_is_given_up_after_three_questions() {
        assert_eq!(given_up_after(true, false), Some(60));
    }

    #[test]
    fn one_that_never_answered_a_ping_is_not_blamed_for_it() {
        assert_eq!(given_up_after(false, false), None);
        assert_eq!(given_up_after(false, true), None);
    }

    #[test]
    fn one_that_works_on_a_call_is_spared_for_a_while() {
        assert_eq!(given_up_after(true, true), Some(165));
    }

    #[test]
    fn what_was_missed_at_work_is_forgiven_when_the_work_is_done() {
        let began = Instant::now();
        let mut signs =
            SignsOfLife::new(Silence { busy_grace: 10 * SECOND, ..Silence::USUAL }, began);
        signs.answers_pings = true;
        signs.set_busy(true, began);
        for times in 1..=3 {
            assert_eq!(
                signs.look(began + times * PING_AFTER),
                Remedy::Ask(began + (times + 1) * PING_AFTER)
            );
        }
        signs.set_busy(false, began + 59 * SECOND);
        assert!(matches!(signs.look(began + 60 * SECOND), Remedy::Ask(_)));
    }
}
