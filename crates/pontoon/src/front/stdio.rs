//! One client on standard input and output, a message on each line.
//!
//! Reading and writing share one loop, so a client that writes before it reads is not blocked. What the messages
//! mean is in `stream_client`.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use pontoon_wire::framing::lines::Lines;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::refusal::Refusal;
use super::stream_client::{StreamClient, StreamPeer};
use super::unwritten::Unwritten;
use crate::client::Person;
use crate::held_bytes::{HeldBytes, Hold, SMALL};
use crate::session::Sessions;
use crate::session::entry::Entry;

/// How long open calls may go on when the client has closed its output.
const GRACE: Duration = Duration::from_secs(30);

/// How long another bridge waits for room for a long message, and how often that is looked for.
const ROOM: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How the client left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEnd {
    /// It closed its output, and has all its answers.
    Done,
    /// It reads no more.
    Gone,
}

/// One client on a stream of lines.
#[derive(Debug)]
pub struct StdioFront {
    client: Arc<StreamClient>,
    max_message: usize,
    /// Where long messages are counted, of a client that is another bridge.
    held: Option<Arc<HeldBytes>>,
}

impl StdioFront {
    /// A client that has said nothing yet; its messages may be this long.
    pub fn new(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let peer = StreamPeer::Local(Person::at_stdio());
        let client = StreamClient::new(sessions, entry, peer);
        Self { client: Arc::new(client), max_message, held: None }
    }

    /// The same for a client that is another bridge.
    pub fn of_bridge(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let peer = StreamPeer::Bridge(Person::at_stdio());
        let held = Some(Arc::clone(&sessions.held));
        let client = StreamClient::new(sessions, entry, peer);
        Self { client: Arc::new(client), max_message, held }
    }

    /// Serves the client until it leaves.
    pub async fn serve(
        self: &Arc<Self>,
        mut input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> ClientEnd {
        let answers = &self.client.answers;
        let mut lines = Lines::new(self.max_message);
        let mut counted = CountedLines::new(self.held.as_ref());
        let mut unwritten = Unwritten::default();
        let mut is_open = true;
        let mut grace = std::pin::pin!(tokio::time::sleep(GRACE));
        let end = loop {
            while answers.has_room()
                && let Some(line) = lines.next_line()
            {
                match line {
                    Ok(line) => {
                        let (line, hold) = counted.take(line);
                        self.take(line, hold).await;
                    }
                    Err(too_long) => {
                        self.client.refuse(Refusal::invalid(413, too_long.to_string()));
                    }
                }
            }
            counted.shrink(lines.buffer());
            let may_read = is_open && answers.has_room();
            let is_full = may_read && !counted.has_room(lines.buffer());
            if counted.full_since.is_some_and(|since| since.elapsed() > ROOM) {
                tracing::warn!(
                    "a message of another bridge is too long for what is free: that bridge is sent away"
                );
                break ClientEnd::Gone;
            }
            tokio::select! {
                read = input.read_buf(lines.buffer()), if may_read && !is_full => if !matches!(read, Ok(1..)) {
                    is_open = false;
                    if let Some(rest) = lines.finish() {
                        self.take(rest, None).await;
                    }
                    // Another bridge has no more use for its calls then; a client may still read.
                    if self.held.is_some() {
                        break ClientEnd::Gone;
                    }
                    self.client.end();
                    grace.as_mut().reset(tokio::time::Instant::now() + GRACE);
                },
                message = std::future::poll_fn(|context| answers.poll_message(context)),
                    if unwritten.is_empty() => match message {
                        Some(message) => unwritten.put(b"", &message, b"\n"),
                        None => break ClientEnd::Done,
                    },
                written = unwritten.write_to(&mut output), if !unwritten.is_empty() => {
                    if written.is_err() {
                        break ClientEnd::Gone;
                    }
                    answers.note_written();
                }
                () = tokio::time::sleep(LOOK_AGAIN), if is_full => {}
                () = &mut grace, if !is_open => break ClientEnd::Done,
            }
        };
        self.leave();
        end
    }

    /// The client is gone, and so is what was done for it.
    pub fn leave(&self) {
        self.client.leave();
    }

    /// Tells the client, which is another bridge, that no more calls are welcome.
    pub fn say_leaving(&self) {
        self.client.say_leaving();
    }

    /// Takes no more calls, and lets it end with the answers that are under way.
    pub fn finish(&self) {
        self.client.answers.end();
    }

    /// Whether the client has said nothing yet.
    pub fn is_unused(&self) -> bool {
        self.client.answers.is_unused()
    }

    async fn take(&self, line: BytesMut, hold: Option<Hold>) {
        if let Some(opening) = self.client.take(line, hold) {
            opening.await;
        }
    }
}

/// Counts the lines of another bridge: those that are long, from when they begin to come until nothing of them is held.
struct CountedLines {
    hold: Option<Hold>,
    /// Since when there is no room for more.
    full_since: Option<tokio::time::Instant>,
}

impl CountedLines {
    fn new(held: Option<&Arc<HeldBytes>>) -> Self {
        Self { hold: held.map(|held| held.hold(None)), full_since: None }
    }

    /// Makes room to read into, if there is any.
    fn has_room(&mut self, buffer: &mut BytesMut) -> bool {
        let more = buffer.len().clamp(8 * 1024, 1024 * 1024);
        if let Some(hold) = &mut self.hold
            && hold.grow_to(buffer.len() + more).is_err()
        {
            self.full_since.get_or_insert_with(tokio::time::Instant::now);
            return false;
        }
        self.full_since = None;
        buffer.reserve(more);
        true
    }

    /// A line that came, with what counts it.
    fn take(&mut self, line: BytesMut) -> (BytesMut, Option<Hold>) {
        match &mut self.hold {
            // What is short must not keep the memory of the long line before it.
            Some(hold) if line.len() <= SMALL && !hold.is_empty() => {
                (BytesMut::from(&line[..]), None)
            }
            Some(hold) if line.len() > SMALL => {
                let hold = hold.split(line.len());
                (line, Some(hold))
            }
            _ => (line, None),
        }
    }

    /// Lets go of the memory of a long line that is over.
    fn shrink(&mut self, buffer: &mut BytesMut) {
        if let Some(hold) = &mut self.hold
            && !hold.is_empty()
            && buffer.len() <= SMALL
        {
            *buffer = BytesMut::from(&buffer[..]);
            *hold = hold.none();
        }
    }
}
