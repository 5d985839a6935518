//! A child that is ready for calls: its conversation, its process, and what it does for a session.
//!
//! Dropping it closes its input and lets it climb down the stop ladder in the background.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pontoon_supervise::{Child, Complaints, Exit, Ladder};
use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, Message, Rewrite, Slot, era, method, quoted};
use tokio_util::task::TaskTracker;

use super::children::{modern_request, now, own_request, own_request_with, said};
use super::link::{Asked, Link, Listening, Purpose};
use super::mailbox::Heard;
use super::place::{Place, Temporary};
use super::questions::can_answer;
use super::usage::Usage;
use crate::call::Feed;
use crate::client::Client;
use crate::jobs::{Held, Snapshot};
use crate::observe::heals::HealLog;
use crate::observe::metrics::ServerMetrics;
use crate::observe::redact::Redactor;
use crate::outbox::{Item, Outbox};

/// A child that is ready for calls.
#[derive(Debug)]
pub struct Live {
    /// The conversation with it.
    pub link: Link,
    /// The era it was opened in.
    pub era: Era,
    /// What it answered to `initialize`, in the legacy era.
    pub hello: Option<Message>,
    /// Taken when the child is stopped.
    pub(super) child: Option<Child>,
    pub(super) pid: u32,
    pub(super) heals: Arc<HealLog>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) redactor: Arc<Redactor>,
    pub(super) stopping: Arc<AtomicUsize>,
    pub(super) ends_by_itself: Arc<AtomicBool>,
    /// Whether it is kept from files that it was not given.
    pub(super) is_walled: bool,
    /// How it was used.
    pub usage: Usage,
    /// Whether it was a spare, and so may have died before anyone looked.
    pub(super) has_waited: bool,
    /// Whether its client was told that it has ended.
    pub(super) is_told: AtomicBool,
    /// Whether it was told to end because it answered nothing any more.
    pub(super) is_ending: AtomicBool,
    /// What lay in its job when it was ready.
    pub(super) before: Option<Snapshot>,
    /// Where its end is waited for.
    pub(super) endings: TaskTracker,
    /// Counts it among the living; taken when it is stopped.
    pub(super) living: Option<Counted>,
    /// Where it works; taken when it is stopped.
    pub(super) place: Option<Place>,
    /// Its temporary files; taken when it is stopped.
    pub(super) temporary: Option<Temporary>,
    /// The state that it keeps in memory for its conversation; taken when it is stopped.
    pub(super) held: Option<Held>,
    /// Calls of this child that wait for a person.
    pub(super) parked: AtomicUsize,
    /// Tells the catalogue when a list changes.
    pub(super) _watching: Option<Listening>,
    pub(super) complaints: Complaints,
    /// What keeps the client's session hearing of changes.
    pub(super) feeding: Mutex<Option<(Arc<Outbox>, Feeding)>>,
    /// The log level the child was last told.
    pub(super) log_level: Mutex<Option<Bytes>>,
}

#[derive(Debug)]
pub(super) enum Feeding {
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

impl Drop for Live {
    fn drop(&mut self) {
        // Abnormal is an end that nobody asked for and that was no success. Once asked, a server may
        // end as it likes: many report a failure when their input closes.
        let exit = self.child.as_ref().and_then(Child::try_exit);
        let is_abnormal = exit.is_some_and(|exit| !exit.is_success());
        // Input closes first: a well-behaved server exits at its end.
        self.link.close_input();
        let Some(child) = self.child.take() else { return };
        // Without a runtime the child's own handle kills it as it is dropped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let left = Left {
                is_abnormal,
                was_alive: exit.is_none() && !self.is_ending(),
                ends_by_itself: Arc::clone(&self.ends_by_itself),
                _living: self.living.take(),
                place: self.place.take(),
                _temporary: self.temporary.take(),
                held: self.held.take(),
                complaints: self.complaints.clone(),
                heals: Arc::clone(&self.heals),
                metrics: Arc::clone(&self.metrics),
                _stopping: Counted::new(&self.stopping),
            };
            self.endings.spawn_on(stop(child, left), &runtime);
        }
    }
}

/// What programs say when a file is kept from them.
const REFUSALS: [&str; 5] =
    ["EACCES", "EPERM", "ermission denied", "not permitted", "PermissionError"];

/// What a child complains of.
pub(super) struct Words {
    complaints: Complaints,
    redactor: Arc<Redactor>,
    is_walled: bool,
}

impl Words {
    /// The last of it, without what the child was told in confidence.
    pub(super) fn last(&self) -> Vec<String> {
        let lines = self.complaints.last_lines();
        let mut lines: Vec<_> =
            lines.iter().map(|line| self.redactor.value("last_words", line)).collect();
        let is_refused = |line: &String| REFUSALS.iter().any(|word| line.contains(word));
        if self.is_walled && lines.iter().any(is_refused) {
            lines.push(HINT.to_owned());
        }
        lines
    }
}

/// What to do about it.
const HINT: &str = "(its isolation keeps it from files that are not its own; if it needs some of \
                    them, name their folder in `isolation.read`, or in `isolation.write`)";

/// Counts a child for as long as this is held.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a child leaves when it goes.
struct Left {
    is_abnormal: bool,
    /// Whether it still ran when it was asked to go.
    was_alive: bool,
    /// Whether one of its server has ended when its input did.
    ends_by_itself: Arc<AtomicBool>,
    place: Option<Place>,
    _temporary: Option<Temporary>,
    held: Option<Held>,
    complaints: Complaints,
    heals: Arc<HealLog>,
    metrics: Arc<ServerMetrics>,
    _living: Option<Counted>,
    _stopping: Counted,
}

/// Stops a child, notes if its input's end was not enough (H27), and puts its last words beside its
/// files.
async fn stop(child: Child, mut left: Left) {
    if let Some(held) = left.held.take() {
        // It blocks on the disk. Once the child is gone, nothing says any more that it has state.
        drop(tokio::task::spawn_blocking(move || drop(held)).await);
    }
    let ladder = Ladder::default();
    let asked = now();
    let exit = child.stop(&ladder).await;
    let is_in_time = asked.elapsed() < ladder.after_close;
    if left.was_alive && is_in_time {
        left.ends_by_itself.store(true, Ordering::Relaxed);
    }
    // A busy machine may be late with an end, and may leave a good server too little time for it.
    let is_made_to = matches!(exit, Exit::Signal(_)) && !is_in_time;
    if is_made_to && !left.ends_by_itself.load(Ordering::Relaxed) {
        left.heals.note(Heal::H27);
    }
    left.metrics.child_exited(left.is_abnormal);
    let (lines, how) = (left.complaints.last_lines(), exit.to_string());
    let is_orderly = exit == Exit::Code(0);
    let ended = match &left.place {
        // Of a child that ended in order and without a word there is nothing to tell.
        Some(Place::Job(own)) if own.is_kept() && !(is_orderly && lines.is_empty()) => {
            let own = Arc::clone(own);
            tokio::task::spawn_blocking(move || {
                if !lines.is_empty() {
                    own.job.write_log(&lines);
                }
                if !is_orderly {
                    own.job.note_exit(&how);
                }
            })
        }
        // Many that are asked to go need a signal, which is not worth a line for each.
        Some(Place::Space(space)) if left.is_abnormal || !lines.is_empty() => {
            let space = Arc::clone(space);
            tokio::task::spawn_blocking(move || space.write_log(&lines, &how, SystemTime::now()))
        }
        _ => return,
    };
    // The place is let go of last: until then it counts as in use.
    drop(ended.await);
}

impl Live {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// How the child ended and what it last complained of, waiting a moment for its exit.
    pub async fn obituary(&self) -> String {
        let how = self.exit_within(Duration::from_secs(1)).await;
        let how = how.unwrap_or_else(|| "closed its pipes".to_owned());
        format!("{how}{}", said(&self.last_words()))
    }

    /// What it last complained of, without what it was told in confidence.
    pub(super) fn last_words(&self) -> Vec<String> {
        self.words().last()
    }

    /// What it complains of, also when it is gone.
    pub(super) fn words(&self) -> Words {
        Words {
            complaints: self.complaints.clone(),
            redactor: Arc::clone(&self.redactor),
            is_walled: self.is_walled,
        }
    }

    /// How the child ended, if it does within this time.
    pub(super) async fn exit_within(&self, patience: Duration) -> Option<String> {
        let child = self.child.as_ref()?;
        let exit = tokio::time::timeout(patience, child.exited()).await.ok()?;
        Some(match child.has_outlived() {
            true => "was killed when its time to live was over (`run_time`)".to_owned(),
            false => exit.to_string(),
        })
    }

    /// Kills the child and all it started, now.
    pub fn kill(&self) {
        self.child.iter().for_each(Child::kill);
    }

    /// Asks it to end because it answers nothing any more, or what it was started for is not wanted any more, and
    /// sees to it that it does. Nothing is given to it after that.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.child.iter().for_each(|child| child.end_within(Ladder::default().after_terminate));
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Says that a call of this child waits for a person until the guard is dropped.
    pub(super) fn park(&self) -> Waits<'_> {
        self.parked.fetch_add(1, Ordering::AcqRel);
        Waits(self)
    }

    /// Whether a call can still be given to it.
    pub(super) fn is_fit(&self) -> bool {
        !self.is_ending()
            && !self.link.is_gone()
            && self.child.as_ref().is_some_and(|child| child.try_exit().is_none())
    }

    /// Whether it answers a small question within two seconds: a child whose tool hung may be well.
    pub async fn is_responsive(&self) -> bool {
        self.is_responsive_within(Duration::from_secs(2)).await
    }

    /// Whether it answers a small question within this time.
    pub(super) async fn is_responsive_within(&self, patience: Duration) -> bool {
        let request = match self.era {
            Era::Legacy => Rewrite::new(own_request(method::PING)),
            Era::Modern => modern_request(own_request(method::DISCOVER)),
        };
        let deadline = now() + patience;
        let mut asked = self.link.ask(request, Some(deadline), Purpose::Listen);
        loop {
            match asked.heard().await {
                Heard::Answer(_) => return true,
                heard if heard.is_end() => return false,
                _ => {}
            }
        }
    }

    /// Whether it had state that its client believes in and has not been told of its end. A server
    /// that ended by itself and in order had nothing more to keep.
    pub(super) fn is_untold_loss(&self) -> bool {
        let exit = self.child.as_ref().and_then(Child::try_exit);
        let is_orderly = exit.is_some_and(|exit| exit == Exit::Code(0)) && !self.is_ending();
        !is_orderly && self.usage.has_answered() && !self.is_told.swap(true, Ordering::AcqRel)
    }

    /// How it ended, in a few words.
    pub(super) fn epitaph(&self) -> String {
        if self.is_ending() {
            return "it answered nothing any more and was stopped".to_owned();
        }
        let exit = self.child.as_ref().and_then(Child::try_exit);
        exit.map_or_else(|| "it closed its pipes".to_owned(), |exit| format!("it {exit}"))
    }

    /// The folder it works in.
    pub fn directory(&self) -> Option<&Path> {
        self.place.as_ref().map(Place::directory)
    }

    /// The folder of its temporary files.
    pub fn temporary_directory(&self) -> Option<&Path> {
        self.temporary.as_ref().map(Temporary::directory)
    }

    /// What lies in its job now.
    pub(super) async fn scan(&self) -> Option<Snapshot> {
        self.place.as_ref()?.scan().await
    }

    /// Makes it ready for the calls of this client.
    pub(super) fn begin_for(&self, client: &Client) {
        if let Some(level) = client.log_level.as_ref().filter(|_| client.era() == Era::Legacy) {
            self.set_log_level(level);
        }
    }

    /// Lets another session of the same conversation hear what the last one heard.
    pub(super) fn refeed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let is_fed = self.feeding.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = is_fed.as_ref().is_some_and(|(to, _)| Arc::ptr_eq(to, &feed.outbox));
        drop(is_fed);
        if !is_same {
            self.feed(client);
        }
    }

    /// Tells a legacy child which log level the client wants, if it was told another.
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

    /// Whether it has a call that waits for a person, and `client` is one of several that share it.
    pub(super) fn is_waiting(&self, client: &Client) -> bool {
        client.key.is_shared() && self.parked.load(Ordering::Acquire) > 0
    }

    /// Subscribes a legacy child to a resource.
    pub fn subscribe(&self, uri: &str) {
        let params = format!("{{\"uri\":{}}}", quoted(uri));
        self.say_and_forget(method::SUBSCRIBE, &params);
    }

    /// Sends a request whose answer changes nothing.
    fn say_and_forget(&self, method: &str, params: &str) {
        let request = Rewrite::new(own_request_with(method, params));
        let mut asked = self.link.ask(request, None, Purpose::Listen);
        tokio::spawn(async move { while !asked.heard().await.is_end() {} });
    }

    fn offers(&self, capability: &str) -> bool {
        let hello = self.hello.as_ref().and_then(|hello| hello.raw(Slot::Result));
        let capabilities = hello.and_then(|hello| pontoon_wire::json::find(hello, "capabilities"));
        capabilities.is_some_and(|raw| pontoon_wire::json::find(raw, capability).is_some())
    }

    /// Lets a legacy client's session hear what belongs to no call of its. Where several clients
    /// share the child, what it logs or asks could be about another's call: that is told to nobody.
    pub fn feed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let (outbox, subscriptions) = (Arc::clone(&feed.outbox), &client.subscriptions);
        let is_shared = !self.link.is_of_one_client();
        let feeding = match self.era {
            Era::Legacy => {
                subscriptions.iter().for_each(|uri| self.subscribe(uri));
                if !is_shared {
                    self.ask_through(feed, client);
                }
                let listener = move |message: &Message| {
                    if !(is_shared && message.method() == method::LOG) {
                        outbox.push(Item::Note(message.clone().into()));
                    }
                };
                Feeding::Listener { _listening: self.link.listen(Box::new(listener)) }
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
                Feeding::Subscription { task: tokio::spawn(feed_from(asked, outbox)) }
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
        self.link.ask_through(Box::new(move |question| {
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

/// Passes what a modern subscription hears on to a legacy client.
async fn feed_from(mut asked: Asked, feed: Arc<Outbox>) {
    loop {
        match asked.heard().await {
            Heard::Note(note) => {
                let Ok(note) = Message::parse(note.to_bytes().as_ref()) else { continue };
                if note.method() != method::ACKNOWLEDGED {
                    feed.push(Item::Note(era::to_legacy_note(&note).into()));
                }
            }
            heard if heard.is_end() => return,
            _ => {}
        }
    }
}

/// A call that waits for a person.
#[derive(Debug)]
pub struct Waits<'l>(&'l Live);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.parked.fetch_sub(1, Ordering::AcqRel);
    }
}
