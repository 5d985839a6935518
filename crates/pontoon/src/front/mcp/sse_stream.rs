//! One stream of the deprecated HTTP+SSE transport: all answers of a client on one connection.
//!
//! How they get there is in `answer_stream`; this file knows who the streams belong to, and how they look over HTTP.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::framing::events;
use tokio::time::{Instant, Sleep};

use super::super::answer_stream::AnswerStream;
use super::event_body::{KEEP_ALIVE, OnEnd};
use crate::call::CallError;
use crate::client::{Person, Principal};
use crate::config::ServerName;

/// Streams in all, and of one client.
const MAX_STREAMS: usize = 1024;
const MAX_PER_CLIENT: usize = 64;

/// A client that has not begun after this long is let go.
const OPENING: Duration = Duration::from_secs(60);

/// The streams that are open.
#[derive(Debug, Default)]
pub struct SseStreams {
    table: Mutex<HashMap<String, Arc<SseStream>>>,
}

impl SseStreams {
    /// A new stream to this server.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when there are too many.
    pub fn open(&self, server: &ServerName, person: &Person) -> Result<Arc<SseStream>, CallError> {
        let mut table = self.lock();
        let own = table.values().filter(|stream| stream.principal == person.principal).count();
        let what = match (table.len(), own) {
            (MAX_STREAMS.., _) => format!("all {MAX_STREAMS} streams are in use"),
            (_, MAX_PER_CLIENT..) => {
                format!("all {MAX_PER_CLIENT} streams of this client are open")
            }
            _ => {
                let stream = Arc::new(SseStream::new(server, person));
                table.insert(stream.id.clone(), Arc::clone(&stream));
                return Ok(stream);
            }
        };
        Err(CallError::Busy { what, retry_after_seconds: 10 })
    }

    /// The stream of this name, if it is one of this server's and of this person's.
    pub fn find(&self, server: &ServerName, id: &str, person: &Person) -> Option<Arc<SseStream>> {
        let stream = self.lock().get(id).cloned()?;
        let is_theirs = stream.server == *server && stream.principal.lets_in(person);
        is_theirs.then_some(stream)
    }

    /// Lets all of them end with the answers that are under way.
    pub fn end(&self) {
        self.lock().values().for_each(|stream| stream.answers.end());
    }

    /// Forgets a stream that was closed.
    pub fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<SseStream>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream, as those who put something on it see it.
#[derive(Debug)]
pub struct SseStream {
    /// What the client names it by, which cannot be guessed.
    pub id: String,
    /// The server it is for.
    pub server: ServerName,
    /// Whose it is.
    pub principal: Principal,
    /// What is still to be sent on it.
    pub answers: AnswerStream,
    opened: Instant,
}

impl SseStream {
    /// A stream on which nothing was said yet.
    pub fn new(server: &ServerName, person: &Person) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            server: server.clone(),
            principal: person.principal.clone(),
            answers: AnswerStream::default(),
            opened: Instant::now(),
        }
    }

    /// Whether it was opened and then forgotten.
    fn is_forgotten(&self) -> bool {
        self.answers.is_unused() && self.opened.elapsed() >= OPENING
    }
}

/// The stream as a response body.
pub struct SseBody {
    stream: Arc<SseStream>,
    /// Bytes that are encoded and not yet sent.
    ready: VecDeque<Bytes>,
    alive: Pin<Box<Sleep>>,
    is_over: bool,
    /// Told when the client is gone, however it went.
    _on_end: OnEnd,
}

impl SseBody {
    /// A stream that begins with the address to which its messages are posted.
    pub fn new(stream: Arc<SseStream>, endpoint: &str, on_end: OnEnd) -> Self {
        let hello = Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n"));
        Self {
            stream,
            ready: VecDeque::from([hello]),
            alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            is_over: false,
            _on_end: on_end,
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
            match self.stream.answers.poll_message(context) {
                Poll::Ready(Some(text)) => {
                    self.ready.push_back(Bytes::from_static(b"event: message\n"));
                    self.ready.extend(events::event(None, None, text.pieces()));
                }
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => {
                    if self.alive.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.is_over = self.stream.is_forgotten();
                    self.ready.push_back(Bytes::from_static(events::KEEP_ALIVE));
                }
            }
            self.alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        }
    }
}
