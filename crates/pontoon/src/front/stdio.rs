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
use crate::session::Sessions;
use crate::session::entry::Entry;

/// How long open calls may go on when the client has closed its output.
const GRACE: Duration = Duration::from_secs(30);

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
}

impl StdioFront {
    /// A client that has said nothing yet; its messages may be this long.
    pub fn new(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let peer = StreamPeer::Local(Person::at_stdio());
        let client = StreamClient::new(sessions, entry, peer);
        Self { client: Arc::new(client), max_message }
    }

    /// The same for a client that is another bridge.
    pub fn of_bridge(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let peer = StreamPeer::Bridge(Person::at_stdio());
        let client = StreamClient::new(sessions, entry, peer);
        Self { client: Arc::new(client), max_message }
    }

    /// Serves the client until it leaves.
    pub async fn serve(
        self: &Arc<Self>,
        mut input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> ClientEnd {
        let answers = &self.client.answers;
        let mut lines = Lines::new(self.max_message);
        let mut unwritten = Unwritten::default();
        let mut is_open = true;
        let mut grace = std::pin::pin!(tokio::time::sleep(GRACE));
        let end = loop {
            while answers.has_room()
                && let Some(line) = lines.next_line()
            {
                match line {
                    Ok(line) => self.take(line).await,
                    Err(too_long) => {
                        self.client.refuse(Refusal::invalid(413, too_long.to_string()));
                    }
                }
            }
            lines.buffer().reserve(8 * 1024);
            let may_read = is_open && answers.has_room();
            tokio::select! {
                read = input.read_buf(lines.buffer()), if may_read => if !matches!(read, Ok(1..)) {
                    is_open = false;
                    if let Some(rest) = lines.finish() {
                        self.take(rest).await;
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

    async fn take(&self, line: BytesMut) {
        if let Some(opening) = self.client.take(line, None) {
            opening.await;
        }
    }
}
