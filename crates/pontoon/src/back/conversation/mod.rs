//! One conversation with one server over a stream of frames: requests out, answers and notes back.
//!
//! Requests come in, and what the server says about them comes out. Nothing here knows of processes, jobs or
//! places to keep a server in. `link` moves the frames, `handshake` opens the conversation; a [`Conversation`] is one that is
//! open, with what its client's session wants to hear of it.

pub(crate) mod abilities;
pub(crate) mod carrier;
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
use pontoon_wire::{Era, Message, Rewrite, Slot, era, json, method, quoted};

use self::abilities::can_answer;
use self::incoming::refusal;
use self::link::{Link, Listening, PendingRequest, Purpose};
use self::list_changes::ListChanges;
use self::mailbox::ServerEvent;
use self::requests::{modern_request, own_request, own_request_with};
use crate::call::Feed;
use crate::client::Client;
use crate::clock::now;
use crate::outbox::{Item, Outbox};

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
    /// What keeps the client's session hearing of changes.
    feeding: Mutex<Option<(Arc<Outbox>, Feeding)>>,
    /// The log level the server was last told.
    log_level: Mutex<Option<Bytes>>,
    /// Whether clients hear of changed lists from the catalogue, and not from the server.
    hides_list_changes: bool,
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

/// What passes on what belongs to no call, until it is dropped.
#[derive(Debug)]
pub(crate) enum Feeding {
    Listener { _listening: Listening },
    Subscription { task: tokio::task::JoinHandle<()> },
}

impl Drop for Feeding {
    fn drop(&mut self) {
        if let Self::Subscription { task } = self {
            task.abort();
        }
    }
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
            feeding: Mutex::new(None),
            log_level: Mutex::new(None),
            hides_list_changes: false,
            _watching: watching,
        }
    }

    /// The same, whose clients do not hear from the server that lists changed: the catalogue tells them, once it
    /// knows the new ones.
    pub(crate) fn without_list_changes(mut self) -> Self {
        self.hides_list_changes = true;
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
                ServerEvent::Answer(_) => return true,
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
        self.say_and_forget(method::SET_LEVEL, &params);
    }

    /// Subscribes at a legacy server to a resource.
    pub fn subscribe(&self, uri: &str) {
        let params = format!("{{\"uri\":{}}}", quoted(uri));
        self.say_and_forget(method::SUBSCRIBE, &params);
    }

    /// Sends a request whose answer changes nothing.
    fn say_and_forget(&self, method: &str, params: &str) {
        let request = Rewrite::new(own_request_with(method, params));
        let mut asked = self.link.ask(request, None, Purpose::Listen);
        tokio::spawn(async move { while !asked.next_event().await.is_end() {} });
    }

    /// The capabilities a legacy server named, a JSON object.
    pub(crate) fn capabilities(&self) -> &[u8] {
        let hello = self.hello.as_ref().and_then(|hello| hello.raw(Slot::Result));
        hello.and_then(|hello| json::find(hello, "capabilities")).unwrap_or(b"{}")
    }

    fn offers(&self, capability: &str) -> bool {
        json::find(self.capabilities(), capability).is_some()
    }

    /// Tells these when a modern server says that one of its lists changed: it does so only if it is asked to.
    pub(crate) fn hear_of_lists(&self, changes: &Arc<ListChanges>) -> Feeding {
        let filter = "{\"notifications\":{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true}}";
        let request = modern_request(own_request_with(method::LISTEN, filter));
        let asked = self.link.ask(request, None, Purpose::Listen);
        let changes = Arc::clone(changes);
        let hear = move |note: &Message| {
            if note.method().ends_with("/list_changed") {
                changes.note(now());
            }
        };
        Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
    }

    /// Lets another session of the same client hear what the last one heard.
    pub(crate) fn refeed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let is_fed = self.feeding.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = is_fed.as_ref().is_some_and(|(to, _)| Arc::ptr_eq(to, &feed.outbox));
        drop(is_fed);
        if !is_same {
            self.feed(client);
        }
    }

    /// Lets a legacy client's session hear what belongs to no call of its. Where several clients
    /// share the server, what it logs or asks could be about another's call: none of them hears that.
    pub fn feed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let (outbox, subscriptions) = (Arc::clone(&feed.outbox), &client.subscriptions);
        let is_shared = !self.link.is_of_one_client();
        let hides_list_changes = self.hides_list_changes;
        let feeding = match self.era {
            Era::Legacy => {
                subscriptions.iter().for_each(|uri| self.subscribe(uri));
                if !is_shared {
                    self.ask_through(feed, client);
                }
                let listener = move |message: &Message| {
                    let method = message.method();
                    let is_hidden = hides_list_changes && method.ends_with("/list_changed");
                    match method == method::LOG {
                        _ if is_hidden => {}
                        true if is_shared => {}
                        true => outbox.push(Item::Log(message.clone().into())),
                        false => outbox.push(Item::Note(message.clone().into())),
                    }
                };
                Feeding::Listener { _listening: self.link.listen(Arc::new(listener)) }
            }
            Era::Modern => {
                let uris: Vec<_> = subscriptions.iter().map(|uri| quoted(uri)).collect();
                let filter = format!(
                    "{{\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":true,\
                     \"resourcesListChanged\":true,\"resourceSubscriptions\":[{}]}}}}",
                    uris.join(",")
                );
                let request = modern_request(own_request_with(method::LISTEN, &filter));
                let asked = self.link.ask(request, None, Purpose::Listen);
                let hear = move |note: &Message| {
                    if !(hides_list_changes && note.method().ends_with("/list_changed")) {
                        outbox.push(Item::Note(era::to_legacy_note(note).into()));
                    }
                };
                Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
            }
        };
        let feeding = Some((Arc::clone(&feed.outbox), feeding));
        *self.feeding.lock().unwrap_or_else(PoisonError::into_inner) = feeding;
    }

    /// Puts questions that belong to no call to the session, if it can answer them.
    fn ask_through(&self, feed: &Feed, client: &Client) {
        // The link must not keep itself alive through what it calls.
        let (feed, link) = (feed.clone(), self.link.weak());
        let (capabilities, era) = (client.capabilities.clone(), client.era());
        self.link.ask_through(Arc::new(move |question| {
            if !can_answer(&capabilities, era, &question.method()) {
                return false;
            }
            let (link, id) = (link.clone(), question.copy(Slot::Id).unwrap_or_default());
            let answerer = move |answer: &Message| {
                if let Some(link) = link.upgrade() {
                    link.say(Rewrite::new(answer.clone()).replace(Slot::Id, id).finish());
                }
            };
            feed.question(question, Box::new(answerer)).is_some()
        }));
    }
}

/// Passes what a modern subscription hears on.
async fn feed_from(mut asked: PendingRequest, hear: impl Fn(&Message)) {
    loop {
        match asked.next_event().await {
            ServerEvent::Note(note) => {
                let Ok(note) = Message::parse(note.to_bytes().as_ref()) else { continue };
                if note.method() != method::ACKNOWLEDGED {
                    hear(&note);
                }
            }
            event if event.is_end() => return,
            _ => {}
        }
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
