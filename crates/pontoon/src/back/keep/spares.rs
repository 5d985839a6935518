//! Spares: children started and initialised ahead, each in a job of its own, each used once.
//!
//! A legacy `initialize` fixes the revision and the client's capabilities, so a spare belongs to a
//! class. Classes follow demand: a call that finds no spare of its class starts cold, and from then on
//! spares of that class are kept too, within the number that was asked for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::{Era, Revision};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::start_pauses::pause_after;
use crate::back::child::launcher::{Audience, HANDSHAKE, Launcher};
use crate::back::child::ready::ReadyChild;
use crate::back::conversation::handshake::Opening;
use crate::back::conversation::requests::own_info;
use crate::client::{Client, Key, Person};
use crate::clock::now;
use crate::config::Warm;
use crate::errors::chain;

/// A class nobody asked for in this time gets no more spares.
const FORGET_CLASS: Duration = Duration::from_secs(600);

/// A spare that dies sooner tells against its server; one that lived so long shows that it is well.
const PROBATION: Duration = Duration::from_secs(60);

/// `auto` keeps no more than this many.
const MOST: usize = 64;

/// More classes than this are not remembered: clients may come with any capabilities.
const MAX_CLASSES: usize = 16;

/// Clients with longer capabilities than this have no class.
const MAX_CAPABILITIES: usize = 4096;

/// How fast the arrival rate forgets, in seconds.
const RATE_MEMORY: f64 = 10.0;

/// How often is looked after the spares when nothing happens.
const LOOK: Duration = Duration::from_secs(2);

/// The memory that the spares of all servers may take, and take.
#[derive(Debug)]
pub struct WarmMemory {
    limit: u64,
    used: AtomicU64,
}

impl WarmMemory {
    /// Memory of this many bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.used.load(Ordering::Acquire).saturating_add(bytes) <= self.limit
    }
}

/// The spares of one server.
#[derive(Debug)]
pub struct Spares {
    launcher: Arc<Launcher>,
    state: Mutex<SpareState>,
    /// Told when one was taken or missed.
    asked: Notify,
    memory: Arc<WarmMemory>,
    starts: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct SpareState {
    classes: Vec<Class>,
    rate: Rate,
    /// How long a start takes, and how much memory a spare has; from the last one.
    start_seconds: f64,
    bytes: u64,
    failures: u32,
    /// How many times in a row spares died before they were used or proved, and when last.
    deaths: u32,
    died_at: Option<Instant>,
    not_before: Option<Instant>,
    is_over: bool,
}

#[derive(Debug)]
struct Class {
    opening: Opening,
    ready: VecDeque<Spare>,
    starting: usize,
    last_asked: Instant,
}

/// A child that waits for its one use.
#[derive(Debug)]
struct Spare {
    child: ReadyChild,
    since: Instant,
    _share: MemoryShare,
}

/// What a spare takes of the memory for spares.
#[derive(Debug)]
struct MemoryShare {
    bytes: u64,
    memory: Arc<WarmMemory>,
}

impl MemoryShare {
    fn take(memory: &Arc<WarmMemory>, bytes: u64) -> Self {
        memory.used.fetch_add(bytes, Ordering::AcqRel);
        Self { bytes, memory: Arc::clone(memory) }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Arrivals a second, newer ones counting more.
#[derive(Debug, Default)]
struct Rate {
    per_second: f64,
    at: Option<Instant>,
}

impl Rate {
    fn faded(&self, now: Instant) -> f64 {
        let age = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.per_second * (-age / RATE_MEMORY).exp()
    }

    fn arrive(&mut self, now: Instant) {
        self.per_second = self.faded(now) + 1.0 / RATE_MEMORY;
        self.at = Some(now);
    }
}

/// How many spares are wanted: as many as were asked for, or for `auto` as many as arrive while two
/// are started one after the other, and one more.
fn wanted(warm: Warm, rate: f64, start_seconds: f64) -> usize {
    match warm {
        Warm::Fixed(count) => count,
        Warm::Auto => {
            // The sign and size are bounded right here.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let arriving = (rate * start_seconds * 2.0).round().clamp(0.0, 1e6) as usize;
            (arriving + 1).min(MOST)
        }
    }
}

/// How the wanted number is shared among classes: the one asked for last gets what is left over.
fn shares(wanted: usize, classes: usize) -> Vec<usize> {
    (0..classes).map(|at| wanted / classes + usize::from(at < wanted % classes)).collect()
}

impl Spares {
    /// None yet.
    pub(crate) fn new(
        launcher: Arc<Launcher>,
        memory: Arc<WarmMemory>,
        starts: Arc<Semaphore>,
    ) -> Self {
        Self { launcher, state: Mutex::default(), asked: Notify::new(), memory, starts }
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.lock().classes.iter().map(|class| class.ready.len()).sum()
    }

    /// Says that a child of this server was started for a call: it is worth to start others ahead.
    pub fn encourage(&self) {
        let mut state = self.lock();
        (state.deaths, state.failures, state.not_before) = (0, 0, None);
    }

    /// How long a start waits for the call that made it due: little beside what it takes itself.
    fn pause(&self) -> Duration {
        Duration::from_secs_f64((self.lock().start_seconds / 20.0).clamp(0.0, 0.01))
    }

    /// Lets go of all of them, for good.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let classes = std::mem::take(&mut state.classes);
        drop(state);
        drop(classes);
        self.asked.notify_one();
    }

    fn take_of(&self, class: &Opening, now: Instant) -> Option<ReadyChild> {
        let mut state = self.lock();
        state.rate.arrive(now);
        let class = state.class(class, now);
        class.last_asked = now;
        // One that died while it waited is passed over.
        let mut dead: Vec<Spare> = Vec::new();
        let child = loop {
            let Some(spare) = class.ready.pop_front() else { break None };
            match spare.child.is_fit() {
                true => break Some(spare.child),
                false => dead.push(spare),
            }
        };
        if child.is_some() {
            state.deaths = 0;
        }
        let seen: Vec<_> = dead.iter().map(|spare| (false, spare.since)).collect();
        state.judge(&seen, now);
        drop(state);
        drop(dead);
        self.asked.notify_one();
        child
    }

    /// The class that lacks a spare most urgently, counted as starting, and what it may take.
    fn next_start(&self, warm: Warm, now: Instant) -> Option<(Opening, MemoryShare)> {
        // Dropped after the lock: whoever lets go of a child may take a while.
        let mut gone = Vec::new();
        let mut state = self.lock();
        let mut seen = Vec::new();
        for class in &mut state.classes {
            for spare in std::mem::take(&mut class.ready) {
                let is_fit = spare.child.is_fit();
                seen.push((is_fit, spare.since));
                if is_fit { class.ready.push_back(spare) } else { gone.push(spare) }
            }
        }
        // Each death is judged once.
        state.judge(&seen, now);
        let estimate = state.bytes;
        if state.is_over || state.not_before.is_some_and(|until| until > now) {
            return None;
        }
        // A server whose spares do not start or do not stay, or whose size is not known, is tried with one at a time.
        let is_tried = state.failures > 0 || state.deaths > 1 || state.bytes == 0;
        if is_tried && state.classes.iter().any(|class| class.starting > 0) {
            return None;
        }
        let wanted = wanted(warm, state.rate.faded(now), state.start_seconds);
        state.classes.sort_by_key(|class| std::cmp::Reverse(class.last_asked));
        let is_asked =
            |class: &Class| now.saturating_duration_since(class.last_asked) < FORGET_CLASS;
        let active = state.classes.iter().filter(|class| is_asked(class)).count().max(1);
        // With nobody asking, the class asked for last stays warm.
        let shares = shares(wanted, active.min(state.classes.len()).max(1));
        let mut next = None;
        for (at, class) in state.classes.iter_mut().enumerate() {
            let share = shares.get(at).copied().unwrap_or_default();
            while class.ready.len() > share {
                gone.extend(class.ready.pop_back());
            }
            let has_room =
                self.memory.has_room(estimate) || class.ready.len() + class.starting == 0;
            if next.is_none() && class.ready.len() + class.starting < share && has_room {
                class.starting += 1;
                next = Some((class.opening.clone(), MemoryShare::take(&self.memory, estimate)));
            }
        }
        state
            .classes
            .retain(|class| is_asked(class) || !class.ready.is_empty() || class.starting > 0);
        next
    }

    fn lock(&self) -> MutexGuard<'_, SpareState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpareState {
    /// Counts a start that failed. Gives how long the next one has to wait.
    fn fail(&mut self, now: Instant) -> Duration {
        // Those that were started together fail together, which is once.
        if self.not_before.is_none_or(|until| until <= now) {
            self.failures = self.failures.saturating_add(1);
        }
        let pause = pause_after(self.failures);
        self.not_before = Some(now + pause);
        pause
    }

    /// Judges the server by its spares: whether each is fit, and since when it was there. Once all may
    /// die, as when somebody tidies up; if the next ones die too, those after them have to wait.
    fn judge(&mut self, spares: &[(bool, Instant)], now: Instant) {
        let is_young = |since: Instant| now.saturating_duration_since(since) < PROBATION;
        // Those that were there when others died are no news.
        let is_news = |since: Instant| self.died_at.is_none_or(|at| since >= at);
        if spares.iter().any(|(is_fit, since)| !is_fit && is_young(*since) && is_news(*since)) {
            self.deaths = self.deaths.saturating_add(1);
            self.died_at = Some(now);
            if self.deaths > 1 {
                self.not_before = Some(now + pause_after(self.deaths - 1));
            }
        } else if spares.iter().any(|(is_fit, since)| *is_fit && !is_young(*since)) {
            self.deaths = 0;
        }
    }

    /// Learns from a start. That it went well does not yet show that the spare will stay.
    fn started(&mut self, seconds: f64, bytes: u64) {
        (self.start_seconds, self.bytes, self.failures) = (seconds, bytes, 0);
        self.not_before = None;
    }

    fn class(&mut self, opening: &Opening, now: Instant) -> &mut Class {
        let at = self.classes.iter().position(|class| class.opening == *opening);
        let at = at.unwrap_or_else(|| {
            if self.classes.len() >= MAX_CLASSES {
                let oldest = self.classes.iter().enumerate().min_by_key(|(_, it)| it.last_asked);
                let oldest = oldest.map(|(at, _)| at);
                oldest.map(|at| self.classes.swap_remove(at));
            }
            let (opening, ready) = (opening.clone(), VecDeque::new());
            self.classes.push(Class { opening, ready, starting: 0, last_asked: now });
            self.classes.len() - 1
        });
        &mut self.classes[at]
    }
}

/// The class a call belongs to: what it opens with, under our own name. The same capabilities in
/// other words are the same class.
fn class_of(opening: &Opening) -> Option<Opening> {
    let Opening::Legacy { revision, capabilities, .. } = opening else {
        return Some(Opening::Modern);
    };
    if capabilities.len() > MAX_CAPABILITIES {
        return None;
    }
    let mut capabilities: serde_json::Value = serde_json::from_slice(capabilities).ok()?;
    capabilities.sort_all_objects();
    let capabilities = capabilities.to_string().into();
    Some(Opening::Legacy { revision: *revision, capabilities, info: own_info() })
}

impl Spares {
    /// A spare for a call that opens its child like this, if one is ready.
    pub(crate) fn take(&self, opening: &Opening) -> Option<ReadyChild> {
        if self.launcher.server.warm == Warm::Fixed(0) {
            return None;
        }
        let mut child = class_of(opening).and_then(|class| self.take_of(&class, now()));
        self.launcher.metrics.spare(child.is_some());
        if let Some(child) = &mut child {
            child.has_waited = true;
        }
        child
    }

    /// Keeps the spares ready until they are ended, or `stop`. `era` is the one that most calls will want.
    pub(crate) async fn keep_ready(self: Arc<Self>, era: Era, stop: CancellationToken) {
        let warm = self.launcher.server.warm;
        if warm == Warm::Fixed(0) {
            return;
        }
        let first = match era {
            Era::Modern => Opening::Modern,
            Era::Legacy => Opening::Legacy {
                revision: Revision::NEWEST_LEGACY,
                capabilities: Bytes::from_static(b"{}"),
                info: own_info(),
            },
        };
        self.lock().class(&first, now());
        loop {
            while let Some((opening, share)) = self.next_start(warm, now()) {
                let Ok(permit) = Arc::clone(&self.starts).acquire_owned().await else { return };
                let spares = Arc::clone(&self);
                tokio::spawn(async move {
                    spares.start_one(&opening, share).await;
                    drop(permit);
                    spares.asked.notify_one();
                });
            }
            if self.lock().is_over {
                return;
            }
            tokio::select! {
                // The call that took one goes first: a start would be in its way.
                () = self.asked.notified() => tokio::time::sleep(self.pause()).await,
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn start_one(&self, opening: &Opening, expected: MemoryShare) {
        let began = now();
        let started = Box::pin(self.start_warm(opening)).await;
        let mut state = self.lock();
        let seconds = now().duration_since(began).as_secs_f64();
        let is_over = state.is_over;
        let class = state.class(opening, began);
        class.starting = class.starting.saturating_sub(1);
        match started {
            Ok(child) if !is_over => {
                let bytes = resident_bytes(child.id());
                drop(expected);
                let share = MemoryShare::take(&self.memory, bytes);
                class.ready.push_back(Spare { child, since: now(), _share: share });
                state.started(seconds, bytes);
            }
            Ok(child) => {
                drop(state);
                drop(child);
            }
            Err(error) => {
                let pause = state.fail(now());
                drop(state);
                let server = &self.launcher.server.name;
                tracing::warn!(%server, error, retry_in = ?pause, "no spare started");
            }
        }
    }

    /// Starts a child that is ready to be used at once.
    async fn start_warm(&self, opening: &Opening) -> Result<ReadyChild, String> {
        let workspace = self.launcher.own_workspace().await.map_err(|error| chain(&error))?;
        let client = client_to_come(opening);
        let started = self.launcher.start(opening, &client, workspace, Audience::Later);
        let mut child = started.await.map_err(|error| chain(&error))?;
        // A modern child says nothing by itself: one question shows that it is up.
        match child.era == Era::Legacy || child.is_responsive_within(HANDSHAKE).await {
            true => {
                // By now it has started: what it wrote meanwhile was made by no call.
                if child.before.is_some() {
                    child.before = child.scan().await;
                }
                Ok(child)
            }
            false => {
                self.launcher.metrics.child_failed();
                Err(format!("it did not answer: it {}", child.obituary().await))
            }
        }
    }
}

/// What is known of the client that a spare is started for.
fn client_to_come(opening: &Opening) -> Client {
    let (revision, capabilities) = match opening {
        Opening::Legacy { revision, capabilities, .. } => (*revision, capabilities.clone()),
        Opening::Modern => (Revision::NEWEST_MODERN, Bytes::from_static(b"{}")),
    };
    Client {
        revision,
        capabilities,
        info: own_info(),
        log_level: None,
        key: Key::Once(Uuid::nil()),
        person: Person::local(),
        feed: None,
        subscriptions: Vec::new(),
    }
}

/// The memory of a process, as far as it can be known.
fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for_are_shared_among_the_classes() {
        assert_eq!(shares(5, 1), [5]);
        assert_eq!(shares(5, 2), [3, 2]);
        assert_eq!(shares(1, 3), [1, 0, 0]);
        assert_eq!(wanted(Warm::Fixed(3), 1000.0, 9.0), 3);
    }

    fn legacy(capabilities: &'static str) -> Opening {
        let (revision, info) = (Revision::NEWEST_LEGACY, Bytes::from_static(b"{}"));
        Opening::Legacy { revision, capabilities: capabilities.into(), info }
    }

    #[test]
    fn a_class_is_what_a_client_can_do_and_not_how_it_says_so() {
        let class = |capabilities| class_of(&legacy(capabilities));
        let plain = class(r#"{"roots":{},"sampling":{"a":1}}"#);
        assert!(plain.is_some());
        assert_eq!(plain, class(r#"{ "sampling": {"a": 1}, "roots": {} }"#));
        assert_ne!(plain, class(r#"{"roots":{},"sampling":{"a":2}}"#));
        assert_ne!(plain, class("{}"));
        let long: &'static str = format!("{{\"a\":\"{}\"}}", "x".repeat(5000)).leak();
        assert_eq!(class(long), None);
    }

    #[test]
    fn spares_that_start_and_die_are_started_ever_more_rarely() {
        let second = Duration::from_secs(1);
        let (mut state, mut now) = (SpareState::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            state.started(0.1, 1);
            assert_eq!(state.not_before, None);
            let since = now;
            now += second;
            state.judge(&[(false, since), (false, since), (true, since)], now);
            let until = state.not_before;
            state.judge(&[(false, since)], now + second);
            assert_eq!(state.not_before, until, "those that were there together count once");
            now = until.unwrap_or(now);
            pauses.push(until.map_or(0, |until| (until - since - second).as_secs()));
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        state.judge(&[(true, now)], now + PROBATION);
        assert_eq!(state.deaths, 0, "one that stays shows that all is well");
        state.judge(&[(false, now)], now + PROBATION);
        assert_eq!(state.deaths, 0, "one that had its time may go");
    }

    #[test]
    fn so_many_classes_are_remembered_and_no_more() {
        let mut state = SpareState::default();
        let start = Instant::now();
        for number in 0..100u32 {
            let capabilities: &'static str = format!("{{\"a\":{number}}}").leak();
            let opening = class_of(&legacy(capabilities)).unwrap();
            let now = start + Duration::from_secs(u64::from(number));
            state.class(&opening, now).last_asked = now;
        }
        assert_eq!(state.classes.len(), MAX_CLASSES);
        let oldest = state.classes.iter().map(|class| class.last_asked).min().unwrap();
        assert_eq!(
            oldest,
            start + Duration::from_secs(100 - MAX_CLASSES as u64),
            "the newest stay"
        );
    }

    #[test]
    fn auto_follows_the_arrival_rate() {
        assert_eq!(wanted(Warm::Auto, 0.0, 0.3), 1);
        assert_eq!(wanted(Warm::Auto, 0.01, 3.0), 1);
        assert_eq!(wanted(Warm::Auto, 10.0, 0.3), 7);
        assert_eq!(wanted(Warm::Auto, 1e9, 3.0), MOST);
        let start = Instant::now();
        let mut rate = Rate::default();
        for tenth in 0..600u32 {
            rate.arrive(start + Duration::from_millis(100) * tenth);
        }
        let now = start + Duration::from_secs(60);
        assert!((9.0..11.0).contains(&rate.faded(now)), "{}", rate.faded(now));
        assert!(rate.faded(now + Duration::from_secs(60)) < 0.1);
    }
}
