//! One conversation with one server over a stream of frames: requests out, answers and notes back.
//!
//! Requests come in, and what the server says about them comes out. Nothing here knows of processes, jobs or
//! places to keep a server in. `link` moves the frames, `handshake` opens the conversation; a [`Conversation`] is one that is
//! open, with what its client's session wants to hear of it.

pub(crate) mod abilities;
pub(crate) mod carrier;
pub(crate) mod channel;
pub(crate) mod feeding;
pub mod handshake;
pub(crate) mod incoming;
pub mod link;
pub mod list_changes;
pub mod mailbox;
pub(crate) mod reader;
pub mod requests;
pub(crate) mod state;
pub(crate) mod websocket;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::{Era, Message, Rewrite, Slot, json, method};

use self::feeding::{FedSessions, Feeding};
use self::incoming::refusal;
use self::link::{Link, Listening, Purpose};
use self::list_changes::ListChanges;
use self::mailbox::ServerEvent;
use self::requests::{modern_request, own_request, own_request_with};
use crate::client::Client;
use crate::clock::now;

/// A conversation with a server, ready for calls once it was opened.
#[derive(Debug)]
pub struct Conversation {
    /// Moves the frames.
    pub link: Link,
    /// The era it was opened in; before that it means nothing.
    pub era: Era,
    /// What the server answered to `initialize`, in the legacy era.
    pub hello: Option<Message>,
    /// Calls that wait for a person.
    waiting_calls: AtomicUsize,
    /// The sessions that hear of changes.
    fed: FedSessions,
    /// The log level the server was last told.
    log_level: Mutex<Option<Bytes>>,
    /// Tells the catalogue when a list changes.
    _watching: Listening,
}

/// Why a request of the bridge's own has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// The server answered with an error.
    Refused(String),
    /// It did not answer in time.
    Slow,
    /// It is gone.
    Gone,
}

impl Conversation {
    /// A conversation in which nothing was said yet. `changes` hears when the server says that one of its
    /// lists changed.
    pub(crate) fn new(link: Link, changes: &Arc<ListChanges>) -> Self {
        let changes = Arc::clone(changes);
        let watching = link.listen(Arc::new(move |note| {
            if note.method().ends_with("/list_changed") {
                changes.note(now());
            }
        }));
        Self {
            link,
            era: Era::Modern,
            hello: None,
            waiting_calls: AtomicUsize::new(0),
            fed: FedSessions::default(),
            log_level: Mutex::new(None),
            _watching: watching,
        }
    }

    /// The same with an application. From the catalogue its clients hear that lists changed, once the new ones are
    /// known.
    pub(crate) fn with_app(mut self) -> Self {
        self.fed.is_app = true;
        self
    }

    /// Says that a call waits for a person until the guard is dropped.
    pub(crate) fn wait_for_person(&self) -> WaitsForPerson<'_> {
        self.waiting_calls.fetch_add(1, Ordering::AcqRel);
        WaitsForPerson(self)
    }

    /// Whether it has a call that waits for a person, and `client` is one of several that share it.
    pub(crate) fn is_waiting(&self, client: &Client) -> bool {
        client.key.is_shared() && self.waiting_calls.load(Ordering::Acquire) > 0
    }

    /// Whether the server answers a small question within two seconds: one whose tool hung may be well.
    pub async fn is_responsive(&self) -> bool {
        self.is_responsive_within(Duration::from_secs(2)).await
    }

    /// Whether the server answers a small question within this time.
    pub(crate) async fn is_responsive_within(&self, patience: Duration) -> bool {
        let request = match self.era {
            Era::Legacy => Rewrite::new(own_request(method::PING)),
            Era::Modern => modern_request(own_request(method::DISCOVER)),
        };
        let deadline = now() + patience;
        let mut asked = self.link.ask(request, Some(deadline), Purpose::Listen);
        loop {
            match asked.next_event().await {
                ServerEvent::Answer(answer) => {
                    self.link.note_unknown(&answer);
                    return true;
                }
                event if event.is_end() => return false,
                _ => {}
            }
        }
    }

    /// The answer to a request of the bridge's own, as this conversation's era has it. What the server asks
    /// meanwhile is refused.
    pub(crate) async fn result_of(
        &self,
        method: &str,
        params: &str,
        patience: Duration,
    ) -> Result<Message, NoResult> {
        let request = own_request_with(method, params);
        let request = match self.era {
            Era::Legacy => Rewrite::new(request),
            Era::Modern => modern_request(request),
        };
        let mut asked = self.link.ask(request, Some(now() + patience), Purpose::Own);
        loop {
            match asked.next_event().await {
                ServerEvent::Answer(answer) if answer.has(Slot::Error) => {
                    let text = answer.string(Slot::ErrorMessage).unwrap_or_default();
                    let text = format!("it answered `{method}` with an error: {text}");
                    return Err(NoResult::Refused(text));
                }
                ServerEvent::Answer(answer) => return Ok(answer),
                ServerEvent::TimedOut(_) => return Err(NoResult::Slow),
                ServerEvent::Gone
                | ServerEvent::Unsent
                | ServerEvent::Clogged
                | ServerEvent::Ended
                | ServerEvent::TooLong
                | ServerEvent::Lost(_) => return Err(NoResult::Gone),
                ServerEvent::Question(question) if question.method() == method => {
                    return Err(NoResult::Refused("it sends back what it is sent".to_owned()));
                }
                ServerEvent::Question(question) => {
                    self.link.say(refusal(&question, "nobody is there to be asked"));
                }
                ServerEvent::Note(_)
                | ServerEvent::Log(_)
                | ServerEvent::Resumed(_)
                | ServerEvent::Release => {}
            }
        }
    }

    /// Makes it ready for the calls of this client.
    pub(crate) fn begin_for(&self, client: &Client) {
        if let Some(level) = client.log_level.as_ref().filter(|_| client.era() == Era::Legacy) {
            self.set_log_level(level);
        }
    }

    /// Tells a legacy server which log level the client wants, if it was told another.
    pub fn set_log_level(&self, level: &Bytes) {
        let mut told = self.log_level.lock().unwrap_or_else(PoisonError::into_inner);
        if self.era == Era::Modern || told.as_ref() == Some(level) || !self.offers("logging") {
            return;
        }
        *told = Some(level.clone());
        let level = String::from_utf8_lossy(level);
        let params = format!("{{\"level\":{level}}}");
        self.link.ask_and_forget(method::SET_LEVEL, &params);
    }

    /// The capabilities a legacy server named, a JSON object.
    pub(crate) fn capabilities(&self) -> &[u8] {
        let hello = self.hello.as_ref().and_then(|hello| hello.raw(Slot::Result));
        hello.and_then(|hello| json::find(hello, "capabilities")).unwrap_or(b"{}")
    }

    fn offers(&self, capability: &str) -> bool {
        json::find(self.capabilities(), capability).is_some()
    }

    /// Tells these when a modern server says that one of its lists changed.
    pub(crate) fn hear_of_lists(&self, changes: &Arc<ListChanges>) -> Feeding {
        feeding::hear_of_lists(&self.link, changes)
    }

    /// Subscribes at a legacy server to a resource.
    pub fn subscribe(&self, uri: &str) {
        feeding::subscribe(&self.link, uri);
    }

    /// Lets a session hear what belongs to no call, unless it does already.
    pub(crate) fn refeed(&self, client: &Client) {
        if !self.fed.is_fed(client) {
            self.feed(client);
        }
    }

    /// Lets a legacy client's session hear what belongs to no call of its.
    pub fn feed(&self, client: &Client) {
        self.fed.feed(&self.link, self.era, client);
    }

    /// A session hears no more, and an application does not tell what no other wants to hear.
    pub(crate) fn unfeed(&self, client: &Client) {
        self.fed.unfeed(&self.link, self.era, client);
    }

    /// Whether a session of another client is subscribed to this resource.
    pub(crate) fn is_wanted_by_others(&self, client: &Client, uri: &str) -> bool {
        self.fed.is_wanted_by_others(client, uri)
    }
}

/// A call that waits for a person.
#[derive(Debug)]
pub struct WaitsForPerson<'c>(&'c Conversation);

impl Drop for WaitsForPerson<'_> {
    fn drop(&mut self) {
        self.0.waiting_calls.fetch_sub(1, Ordering::AcqRel);
    }
}
