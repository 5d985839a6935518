//! One legacy client with us: its revision, capabilities, open calls, questions and streams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::{Message, Revision, Slot};
use tokio_util::sync::CancellationToken;

use super::memory::Memory;
use super::stream::Stream;
use crate::back::call::listen::MAX_URIS;
use crate::back::conversation::requests::own_info;
use crate::call::{Feed, Questions};
use crate::client::{Client, Key, Person, Principal};
use crate::clock::now;
use crate::config::ServerName;
use crate::ids::{EventIds, Hello, Ids};

/// The largest capabilities or client info that are kept, in bytes; larger ones count as none.
const MAX_HELLO: usize = 64 * 1024;

/// The longest address of a resource that can be subscribed to.
const MAX_URI: usize = 4096;

/// Streams that a session keeps for a client that may come back.
const MAX_STREAMS: usize = 32;

/// What an `initialize` request says of its client.
pub fn hello(initialize: &Message) -> Hello {
    let asked = initialize.string(Slot::ProtocolVersion).unwrap_or_default();
    // Copied, so that a small value does not keep a large body alive for as long as the session.
    let object = |slot| {
        let raw = initialize.raw(slot).filter(|raw| raw.first() == Some(&b'{'))?;
        (raw.len() <= MAX_HELLO).then(|| Bytes::copy_from_slice(raw))
    };
    Hello {
        revision: Revision::negotiate(&asked),
        capabilities: object(Slot::Capabilities).unwrap_or_else(|| Bytes::from_static(b"{}")),
        info: object(Slot::ClientInfo),
    }
}

/// The client that an `initialize` request introduces, before it has a session.
pub fn introduced(initialize: &Message, person: &Arc<Person>) -> Arc<Client> {
    let hello = hello(initialize);
    Arc::new(Client {
        revision: hello.revision,
        capabilities: hello.capabilities,
        info: hello.info.unwrap_or_else(own_info),
        log_level: None,
        key: Key::Everyone,
        person: Arc::clone(person),
        feed: None,
        subscriptions: Vec::new(),
    })
}

/// One legacy client with us.
#[derive(Debug)]
pub struct Session {
    /// The id the client was given.
    pub id: Arc<str>,
    /// The server it talks to.
    pub server: ServerName,
    /// The revision that was agreed.
    pub revision: Revision,
    /// Questions the client has not answered yet.
    pub questions: Arc<Questions>,
    /// What belongs to no call, for the client's GET stream.
    pub feed: Arc<Stream>,
    /// Whether a GET stream is open.
    pub is_fed: AtomicBool,
    /// Who opened it.
    pub principal: Principal,
    /// The ids of its events.
    pub events: EventIds,
    /// Fires when it ends.
    pub(super) over: CancellationToken,
    capabilities: Bytes,
    info: Bytes,
    next_stream: AtomicU64,
    /// Where its streams count what they keep: its own share, and what all sessions have.
    memories: [Arc<Memory>; 2],
    state: Mutex<SessionState>,
}

#[derive(Debug)]
struct SessionState {
    log_level: Option<Bytes>,
    subscriptions: BTreeSet<String>,
    /// By numbers of ours: a client may use an id twice at once.
    open: BTreeMap<u64, (Bytes, CancellationToken)>,
    next_open: u64,
    streams: VecDeque<Arc<Stream>>,
    last_used: Instant,
    /// No call begins any more.
    has_ended: bool,
}

impl Session {
    /// The session with this id, whose client said this. `all` is what its streams share with others.
    pub fn new(
        id: Arc<str>,
        server: &ServerName,
        hello: Hello,
        person: &Person,
        ids: &Arc<Ids>,
        all: &Arc<Memory>,
    ) -> Self {
        let memories = [Memory::of_session(), Arc::clone(all)];
        Self {
            events: EventIds { ids: Arc::clone(ids), session: Arc::clone(&id) },
            id,
            server: server.clone(),
            principal: person.principal.clone(),
            revision: hello.revision,
            questions: Arc::default(),
            feed: Stream::new(0, Bytes::new(), memories.to_vec()),
            is_fed: AtomicBool::new(false),
            over: CancellationToken::new(),
            capabilities: hello.capabilities,
            info: hello.info.unwrap_or_else(own_info),
            next_stream: AtomicU64::new(1),
            memories,
            state: Mutex::new(SessionState {
                log_level: None,
                subscriptions: BTreeSet::new(),
                open: BTreeMap::new(),
                next_open: 0,
                streams: VecDeque::new(),
                last_used: now(),
                has_ended: false,
            }),
        }
    }

    /// The client as a call sees it.
    pub fn client(&self, key: Key, person: Arc<Person>) -> Arc<Client> {
        let state = self.lock();
        Arc::new(Client {
            revision: self.revision,
            capabilities: self.capabilities.clone(),
            info: self.info.clone(),
            log_level: state.log_level.clone(),
            key,
            person,
            feed: Some(Feed {
                outbox: Arc::clone(&self.feed.outbox),
                questions: Arc::clone(&self.questions),
            }),
            subscriptions: state.subscriptions.iter().cloned().collect(),
        })
    }

    /// A new stream, for the answer to the request with this id.
    pub fn new_stream(&self, request_id: Bytes) -> Arc<Stream> {
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        Stream::new(number, request_id, self.memories.to_vec())
    }

    /// Keeps a stream, so that the client can come back to it.
    pub fn keep_stream(&self, stream: &Arc<Stream>) {
        let mut state = self.lock();
        if state.streams.len() >= MAX_STREAMS {
            state.streams.pop_front();
        }
        state.streams.push_back(Arc::clone(stream));
    }

    /// A stream that was kept; zero is the session's own.
    pub fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        if number == 0 {
            return Some(Arc::clone(&self.feed));
        }
        self.lock().streams.iter().find(|stream| stream.number == number).cloned()
    }

    /// Notes a call as open under the client's id: `cancel` fires when the client cancels it, or when the session
    /// ends. `None` if it has ended already.
    pub fn begin(self: &Arc<Self>, id: Bytes, cancel: CancellationToken) -> Option<OpenCall> {
        let mut state = self.lock();
        if state.has_ended {
            return None;
        }
        state.next_open += 1;
        let number = state.next_open;
        state.open.insert(number, (id, cancel));
        Some(OpenCall { session: Arc::clone(self), number })
    }

    /// Cancels the call that the client gave this id, the newest if it gave it to several.
    pub fn cancel(&self, id: &[u8]) {
        let state = self.lock();
        if let Some((_, cancel)) = state.open.values().rev().find(|(known, _)| known == id) {
            cancel.cancel();
        }
    }

    /// Sets the log level for all of the client's calls from now on.
    pub fn set_log_level(&self, level: &[u8]) {
        self.lock().log_level = Some(Bytes::copy_from_slice(level));
    }

    /// Notes what the client is subscribed to. False if that would be too much.
    pub fn subscribe(&self, uri: String, is_wanted: bool) -> bool {
        let mut state = self.lock();
        if !is_wanted {
            state.subscriptions.remove(&uri);
            return true;
        }
        let has_room = state.subscriptions.len() < MAX_URIS && uri.len() <= MAX_URI;
        if has_room {
            state.subscriptions.insert(uri);
        }
        has_room
    }

    /// Says that the client is there.
    pub fn touch(&self) {
        self.lock().last_used = now();
    }

    /// When the client was last heard of.
    pub fn last_used(&self) -> Instant {
        self.lock().last_used
    }

    /// Whether nothing was heard of the client for this long, and nothing is under way for it.
    pub fn is_stale(&self, age: Duration) -> bool {
        let state = self.lock();
        state.open.is_empty()
            && !self.is_fed.load(Ordering::Acquire)
            && now().saturating_duration_since(state.last_used) >= age
    }

    /// Ends the session: open calls are cancelled, its streams end.
    pub fn end(&self) {
        let open: Vec<_> = {
            let mut state = self.lock();
            state.has_ended = true;
            state.open.values().cloned().collect()
        };
        open.iter().for_each(|(_, cancel)| cancel.cancel());
        self.over.cancel();
        self.feed.outbox.finish(None);
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is open until this is dropped.
#[derive(Debug)]
pub struct OpenCall {
    session: Arc<Session>,
    number: u64,
}

impl OpenCall {
    /// The session it belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.open.remove(&self.number);
        state.last_used = now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<Session> {
        let initialize = Message::parse(&br#"{"id":0,"method":"initialize"}"#[..]).unwrap();
        let (name, all) = ("s".parse().unwrap(), Memory::of_all(usize::MAX));
        let ids = Arc::new(Ids::new(b"secret", "here", std::time::UNIX_EPOCH));
        let hello = hello(&initialize);
        Arc::new(Session::new("id".into(), &name, hello, &Person::local(), &ids, &all))
    }

    /// A call that has begun, and what fires when it is cancelled.
    fn begin(session: &Arc<Session>, id: &'static [u8]) -> (OpenCall, CancellationToken) {
        let cancel = CancellationToken::new();
        let open = session.begin(Bytes::from_static(id), cancel.clone());
        (open.expect("the session goes on"), cancel)
    }

    #[test]
    fn two_calls_of_one_id_are_two_calls() {
        let session = session();
        let [(_open, older), (open, newer)] = [(); 2].map(|()| begin(&session, b"7"));
        session.cancel(b"7");
        assert_eq!((older.is_cancelled(), newer.is_cancelled()), (false, true));
        drop(open);
        assert!(!session.is_stale(Duration::ZERO), "the older one is still open");
        session.cancel(b"7");
        assert!(older.is_cancelled());
    }

    #[test]
    fn the_end_of_a_session_cancels_every_call() {
        let session = session();
        let open = [b"7", b"7", b"8"].map(|id| begin(&session, id));
        session.end();
        assert!(open.iter().all(|(_, cancel)| cancel.is_cancelled()));
    }

    #[test]
    fn no_call_begins_in_a_session_that_has_ended() {
        let session = session();
        session.end();
        let open = session.begin(Bytes::from_static(b"7"), CancellationToken::new());
        assert!(open.is_none(), "its end would cancel nothing of it");
    }
}
