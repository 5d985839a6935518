//! One stream of the deprecated HTTP+SSE transport: all answers of a client on one connection.
//!
//! Each call keeps its own bounded outbox, and the stream takes from them in turn. So a client that
//! reads slowly costs no more than its calls, whose number is limited.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::Text;
use pontoon_wire::framing::events;
use tokio::time::{Instant, Sleep};

use super::event_body::{KEEP_ALIVE, OnEnd};
use crate::call::CallError;
use crate::client::{Person, Principal};
use crate::config::ServerName;
use crate::outbox::{Next, Outbox};
use crate::session::legacy::Session;
use crate::session::stream::outcome_text;

/// Streams in all, and of one client.
const MAX_STREAMS: usize = 1024;
const MAX_PER_CLIENT: usize = 64;

/// Answers that a client has not taken yet.
const MAX_CALLS: usize = 256;

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
        self.lock().values().for_each(|stream| stream.end());
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
    opened: Instant,
    state: Mutex<SseState>,
}

#[derive(Debug, Default)]
struct SseState {
    session: Option<Arc<Session>>,
    calls: VecDeque<OwedAnswer>,
    /// Nothing new is put on it; it ends with the last answer.
    is_ending: bool,
    /// The client has hung up.
    is_closed: bool,
    waker: Option<Waker>,
}

/// A call whose answer is still to be sent.
#[derive(Debug)]
struct OwedAnswer {
    request_id: Bytes,
    outbox: Arc<Outbox>,
}

impl SseStream {
    /// A stream on which nothing was said yet.
    pub fn new(server: &ServerName, person: &Person) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            server: server.clone(),
            principal: person.principal.clone(),
            opened: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// The session that was opened on it.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.lock().session.clone()
    }

    /// Makes `session` the stream's own. False if it has one, or the client has hung up.
    pub fn welcome(&self, session: &Arc<Session>) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.session.is_some() {
            return false;
        }
        // While the stream is open the session cannot go stale.
        session.is_fed.store(true, Ordering::Release);
        state.session = Some(Arc::clone(session));
        wake(state);
        true
    }

    /// Where the answer to a request goes.
    ///
    /// # Errors
    ///
    /// [`CallError`] when too many answers wait for the client, or the stream is about to end.
    pub fn begin(&self, request_id: Bytes) -> Result<Arc<Outbox>, CallError> {
        let mut state = self.lock();
        if state.is_closed || state.is_ending {
            return Err(CallError::Stopping);
        }
        if state.calls.len() >= MAX_CALLS {
            let what = format!("{MAX_CALLS} answers wait on this stream: read them");
            return Err(CallError::Busy { what, retry_after_seconds: 1 });
        }
        let outbox = Arc::<Outbox>::default();
        outbox.share_stream();
        state.calls.push_back(OwedAnswer { request_id, outbox: Arc::clone(&outbox) });
        wake(state);
        Ok(outbox)
    }

    /// Lets it end with the answers that are under way.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_ending = true;
        wake(state);
    }

    /// Closes it, and gives the session that ends with it.
    pub fn close(&self) -> Option<Arc<Session>> {
        let mut state = self.lock();
        state.is_closed = true;
        state.calls.clear();
        state.session.take()
    }

    /// The next message, `None` at the end.
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Text>> {
        let mut state = self.lock();
        if let Some(session) = state.session.clone() {
            match poll_outbox(&session.feed.outbox, context) {
                Poll::Ready(Next::Message(text)) => return Poll::Ready(Some(text)),
                // The session has ended, so the stream does, too.
                Poll::Ready(_) => state.is_ending = true,
                Poll::Pending => {}
            }
        }
        for _ in 0..state.calls.len() {
            let Some(call) = state.calls.pop_front() else { break };
            let text = match poll_outbox(&call.outbox, context) {
                Poll::Ready(Next::End(Some(outcome))) => outcome_text(outcome, &call.request_id),
                // It was cancelled, and gets no answer.
                Poll::Ready(Next::End(None) | Next::Release) => continue,
                Poll::Ready(Next::Message(text)) => {
                    state.calls.push_back(call);
                    text
                }
                Poll::Pending => {
                    state.calls.push_back(call);
                    continue;
                }
            };
            return Poll::Ready(Some(text));
        }
        if state.is_ending && state.calls.is_empty() {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether it was opened and then forgotten.
    fn is_forgotten(&self) -> bool {
        let state = self.lock();
        state.session.is_none() && state.calls.is_empty() && self.opened.elapsed() >= OPENING
    }

    fn lock(&self) -> MutexGuard<'_, SseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next thing in an outbox. This client cannot hang up and come back, so it is never let go.
fn poll_outbox(outbox: &Outbox, context: &mut Context<'_>) -> Poll<Next> {
    loop {
        match outbox.poll_next(context) {
            Poll::Ready(Next::Release) => {}
            polled => return polled,
        }
    }
}

fn wake(mut state: MutexGuard<'_, SseState>) {
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
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
            match self.stream.poll_message(context) {
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
