//! Head starts: children of clients that wait until their server is known.
//!
//! The era of a server decides how a child is opened, not how it is started. So the first clients of a server
//! have a child started while it is learnt, where it will work and with the values of the person who
//! asks; it is opened when the era is known. Nothing was said to it before: it is as fresh as any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Instrument;

use super::Back;
use super::children::{Audience, Unopened, chain, now};
use super::handshake::Opening;
use super::live::Live;
use super::place::{Place, Spot};
use crate::client::{Client, Key, Person};
use crate::clock::Clock;
use crate::config::Mode;
use crate::jobs::SessionWorkspace;

/// The most head starts that a server has at once; learning it takes one or two more processes.
const MOST: usize = 2;

/// How long one is kept whose server is not learnt.
const LONGEST: Duration = Duration::from_secs(90);

/// How long one is kept after its server was learnt: a client calls soon, or not at all.
const UNUSED: Duration = Duration::from_secs(10);

/// How long is waited for clients that are about to be served.
const QUIET: Duration = Duration::from_secs(5);

/// The head starts of one server.
#[derive(Debug, Default)]
pub(super) struct HeadStarts {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    ready: Vec<HeadStart>,
    /// Of these conversations one is starting.
    starting: Vec<Key>,
    /// The server is known, or cannot be.
    is_settled: bool,
    is_over: bool,
}

/// A child that waits until its server is known.
#[derive(Debug)]
pub(super) struct HeadStart {
    unopened: Unopened,
    /// The directory it works in, as it was when it started.
    spot: Option<Spot>,
    /// The conversation in whose folder it works; `None` if it works in a job of its own.
    key: Option<Key>,
    /// A hash of what it got from its person.
    person: Option<[u8; 32]>,
    /// How long its start took.
    took: Duration,
    until: Instant,
}

impl HeadStart {
    /// Where it works.
    pub(super) fn place(&self) -> Option<Place> {
        self.unopened.0.place.clone()
    }

    /// Whether the directory it works in is still there, and no other is in its place.
    async fn is_in_place(&self) -> bool {
        match self.place() {
            Some(place) => self.spot.is_some() && place.spot().await == self.spot,
            None => false,
        }
    }
}

impl HeadStarts {
    /// Those that no client came for.
    fn take_old(&self, now: Instant) -> Vec<HeadStart> {
        let mut table = self.lock();
        let (kept, old) =
            std::mem::take(&mut table.ready).into_iter().partition(|it| it.until > now);
        table.ready = kept;
        old
    }

    /// All of them; there will be no more.
    fn take_all(&self) -> Vec<HeadStart> {
        let mut table = self.lock();
        table.is_over = true;
        std::mem::take(&mut table.ready)
    }

    fn take(&self, key: Option<&Key>, person: Option<[u8; 32]>) -> Option<HeadStart> {
        let mut table = self.lock();
        let fits = |it: &HeadStart| it.key.as_ref() == key && it.person == person;
        let at = table.ready.iter().position(|it| fits(it) && it.unopened.0.is_fit())?;
        Some(table.ready.swap_remove(at))
    }

    fn is_empty(&self) -> bool {
        self.lock().ready.is_empty()
    }

    /// Whether there is none, and none on its way.
    fn is_idle(&self) -> bool {
        let table = self.lock();
        table.ready.is_empty() && table.starting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Back {
    /// Starts a child for a client that waits until the server is known.
    pub fn start_ahead(self: &Arc<Self>, key: &Key, person: &Arc<Person>) {
        // What cannot be told from others will be refused, or gets a process that is made when it is used.
        if self.server.has_sessions() && !key.can_return() {
            return;
        }
        let mut table = self.ahead.lock();
        if table.is_over || table.ready.len() + table.starting.len() >= MOST {
            return;
        }
        // A conversation has one folder, in which only one of them may work.
        let has_one = || {
            let ready = table.ready.iter().filter_map(|it| it.key.as_ref());
            ready.chain(&table.starting).any(|known| known == key)
        };
        if self.keeps_files_of(key) && has_one() {
            return;
        }
        table.starting.push(key.clone());
        drop(table);
        let (back, key, person) = (Arc::clone(self), key.clone(), Arc::clone(person));
        let starting = async move {
            let began = now();
            let started = back.spawn_ahead(&key, &person).await;
            let hash = back.person_hash(&person);
            let mut table = back.ahead.lock();
            if let Some(at) = table.starting.iter().position(|it| *it == key) {
                table.starting.swap_remove(at);
            }
            let key = Some(key).filter(|key| back.keeps_files_of(key));
            match started {
                Ok((unopened, spot)) if !table.is_over => {
                    // A person's own catalogue is learnt whether or not the server is known.
                    let is_settled = table.is_settled && hash.is_none();
                    let patience = if is_settled { UNUSED } else { LONGEST };
                    let (took, until) = (began.elapsed(), now() + patience);
                    table.ready.push(HeadStart { unopened, spot, key, person: hash, took, until });
                }
                Ok(unused) => {
                    drop(table);
                    drop(unused);
                }
                // Its client hears of it: the server cannot be learnt, or its own start fails, too.
                Err(why) => tracing::debug!(server = %back.server.name, why, "no head start"),
            }
        };
        tokio::spawn(starting.in_current_span());
    }

    /// Starts a process where it will work for this conversation, or says why not. Gives the directory as
    /// well.
    async fn spawn_ahead(
        &self,
        key: &Key,
        person: &Person,
    ) -> Result<(Unopened, Option<Spot>), String> {
        let place = match self.keeps_files_of(key) {
            true => {
                let space = self.space_of(key, person).await.map_err(|error| chain(&error))?;
                let is_kept = self.server.mode != Mode::Stateless;
                // Another replica may have its process, or its loss is still to be told.
                if is_kept && !is_free(&space).await {
                    return Err("the conversation has state elsewhere".to_owned());
                }
                Place::Space(space)
            }
            false => self.own_place().await.map_err(|error| chain(&error))?,
        };
        let spot = place.spot().await;
        let is_one_client = !key.is_shared() || self.server.mode == Mode::Stateless;
        let spawned = self.spawn(person, place, is_one_client).await;
        Ok((spawned.map_err(|error| chain(&error))?, spot))
    }

    /// Says that the server is known now, or that it cannot be, so that the clients that waited go on.
    pub fn settle_ahead(&self) {
        self.ahead.lock().is_settled = true;
        self.shorten_ahead(|_| true);
    }

    /// The same of one person, where what a server offers differs by that.
    pub fn settle_ahead_of(&self, person: &Person) {
        let hash = self.person_hash(person);
        self.shorten_ahead(|of| of == hash);
    }

    fn shorten_ahead(&self, is_settled: impl Fn(Option<[u8; 32]>) -> bool) {
        let until = now() + UNUSED;
        let mut table = self.ahead.lock();
        let settled = table.ready.iter_mut().filter(|it| is_settled(it.person));
        settled.for_each(|it| it.until = it.until.min(until));
    }

    /// Waits until the clients that waited for the server have used what was started for them and no call is
    /// under way, for some seconds at most.
    pub async fn until_quiet(&self) {
        let quiet = async {
            loop {
                let ended = self.call_ended.notified();
                if self.ahead.is_idle() && self.running() == 0 {
                    return;
                }
                ended.await;
            }
        };
        drop(tokio::time::timeout(QUIET, quiet).await);
    }

    /// Lets go of those that no client came for.
    pub(super) fn sweep_ahead(&self) {
        self.count_unused(&self.ahead.take_old(now()));
    }

    /// Lets go of all of them, for good.
    pub(super) fn end_ahead(&self) {
        self.count_unused(&self.ahead.take_all());
    }

    /// Counts what was started for no use; it ends with what holds it.
    fn count_unused(&self, unused: &[HeadStart]) {
        unused.iter().for_each(|it| self.metrics.child_started(it.took));
    }

    /// A child that was started ahead for such a client, and that still is where it should work.
    pub(super) async fn take_ahead(&self, client: &Client) -> Option<HeadStart> {
        if self.ahead.is_empty() {
            return None;
        }
        let key = Some(&client.key).filter(|key| self.keeps_files_of(key));
        let found = self.ahead.take(key, self.person_hash(&client.person))?;
        let is_in_place = found.is_in_place().await;
        if !is_in_place {
            self.count_unused(std::slice::from_ref(&found));
        }
        is_in_place.then_some(found)
    }

    /// The same, opened for that client.
    pub(super) async fn open_ahead(
        &self,
        found: Option<HeadStart>,
        opening: &Opening,
        client: &Client,
        clock: &Clock,
    ) -> Option<Live> {
        let found = found?;
        let began = now().checked_sub(found.took).unwrap_or_else(now);
        let opened = self.open(found.unopened, opening, client, Audience::Client(clock)).await;
        // It may have tired of waiting. A new one shows whether the server works.
        let mut live = self.counted(Ok(opened.ok()?), began).ok()?;
        live.has_waited = true;
        self.begin(&live, client);
        Some(live)
    }
}

/// Whether no process keeps state for this conversation, nor did one that was lost.
async fn is_free(space: &Arc<SessionWorkspace>) -> bool {
    let space = Arc::clone(space);
    tokio::task::spawn_blocking(move || space.is_free()).await.unwrap_or(false)
}
