//! Head starts: children of clients that wait until their server is known.
//!
//! The era of a server decides how a child is opened, not how it is started. So the first clients of a server
//! have a child started while it is learnt, where it will work and with the values of the person who
//! asks; it is opened when the era is known. Nothing was said to it before: it is as fresh as any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Instrument;

use crate::back::child::launcher::{Audience, Launcher, Unopened};
use crate::back::child::ready::ReadyChild;
use crate::back::child::workspace::{DirectoryId, Workspace};
use crate::back::conversation::handshake::Opening;
use crate::client::{Client, Key, Person};
use crate::clock::{Clock, now};
use crate::errors::chain;
use crate::jobs::SessionWorkspace;

/// The most head starts that a server has at once; learning it takes one or two more processes.
const MOST: usize = 2;

/// How long one is kept whose server is not learnt.
const LONGEST: Duration = Duration::from_secs(90);

/// How long one is kept after its server was learnt: a client calls soon, or not at all.
const UNUSED: Duration = Duration::from_secs(10);

/// The head starts of one server.
#[derive(Debug)]
pub(crate) struct HeadStarts {
    launcher: Arc<Launcher>,
    all: Mutex<AllHeadStarts>,
}

#[derive(Debug, Default)]
struct AllHeadStarts {
    ready: Vec<HeadStart>,
    starting: Vec<StartingAhead>,
    /// The server is known, or cannot be.
    is_settled: bool,
    is_over: bool,
}

/// A child that is on its way.
#[derive(Debug)]
struct StartingAhead {
    /// The conversation it is started for.
    key: Key,
    person: Option<[u8; 32]>,
    /// What its person is offered is known meanwhile.
    is_settled: bool,
    /// Its conversation did not wait for it.
    is_too_late: bool,
}

/// A child that waits until its server is known.
#[derive(Debug)]
pub(crate) struct HeadStart {
    unopened: Unopened,
    /// The directory it works in, as it was when it started.
    directory: Option<DirectoryId>,
    /// The conversation in whose folder it works; `None` if any that comes may have it.
    key: Option<Key>,
    /// A hash of what it got from its person.
    person: Option<[u8; 32]>,
    /// How long its start took.
    took: Duration,
    until: Instant,
}

impl HeadStart {
    /// Where it works.
    pub(crate) fn workspace(&self) -> Option<Workspace> {
        self.unopened.0.workspace.clone()
    }

    /// Whether the directory it works in is still there, and no other is in its place.
    async fn is_in_place(&self) -> bool {
        match self.workspace() {
            Some(it) => self.directory.is_some() && it.directory_id().await == self.directory,
            None => false,
        }
    }
}

impl HeadStarts {
    /// None yet.
    pub(crate) fn new(launcher: Arc<Launcher>) -> Self {
        Self { launcher, all: Mutex::default() }
    }

    /// Starts a child for a client that waits until the server is known.
    pub(crate) fn start(self: &Arc<Self>, key: &Key, person: &Arc<Person>) {
        // What cannot be told from others will be refused, or gets a process that is made when it is used.
        if self.launcher.server.has_sessions() && !key.can_return() {
            return;
        }
        let mut all = self.lock();
        if all.is_over || all.ready.len() + all.starting.len() >= MOST {
            return;
        }
        // A conversation has one folder, in which only one of them may work, and all clients have one process.
        let has_one = || {
            let ready = all.ready.iter().filter_map(|it| it.key.as_ref());
            ready.chain(all.starting.iter().map(|it| &it.key)).any(|known| known == key)
        };
        if self.is_for_one(key) && has_one() {
            return;
        }
        let hash = self.launcher.person_hash(person);
        all.starting.push(StartingAhead {
            key: key.clone(),
            person: hash,
            is_settled: false,
            is_too_late: false,
        });
        drop(all);
        let (starts, key, person) = (Arc::clone(self), key.clone(), Arc::clone(person));
        tokio::spawn(async move { starts.start_now(key, &person).await }.in_current_span());
    }

    async fn start_now(&self, key: Key, person: &Person) {
        let began = now();
        let started = self.spawn(&key, person).await;
        let mut all = self.lock();
        let Some(at) = all.starting.iter().position(|it| it.key == key) else { return };
        let start = all.starting.swap_remove(at);
        let key = Some(key).filter(|key| self.is_for_one(key));
        match started {
            Ok((unopened, directory)) if !all.is_over && !start.is_too_late => {
                // A person's own catalogue is learnt whether or not the server is known.
                let is_settled = start.is_settled || (all.is_settled && start.person.is_none());
                let patience = if is_settled { UNUSED } else { LONGEST };
                let (took, until) = (now().duration_since(began), now() + patience);
                let person = start.person;
                all.ready.push(HeadStart { unopened, directory, key, person, took, until });
            }
            Ok(unused) => {
                drop(all);
                self.launcher.metrics.child_started(now().duration_since(began));
                drop(unused);
            }
            Err(why) => {
                // Its client hears of it: the server cannot be learnt, or its own start fails, too.
                tracing::debug!(server = %self.launcher.server.name, why, "no head start");
            }
        }
    }

    /// Starts a process where it will work for this conversation, or says why not. Gives the directory as
    /// well.
    async fn spawn(
        &self,
        key: &Key,
        person: &Person,
    ) -> Result<(Unopened, Option<DirectoryId>), String> {
        let launcher = &self.launcher;
        let workspace = match launcher.keeps_files_of(key) {
            true => {
                let space = launcher.session_of(key, person).await;
                let space = space.map_err(|error| chain(&error))?;
                let is_kept = launcher.server.mode.is_stateful();
                // Another replica may have its process, or its loss is still to be told.
                if is_kept && !is_free(&space).await {
                    return Err("the conversation has state elsewhere".to_owned());
                }
                Workspace::Session(space)
            }
            false => launcher.own_workspace().await.map_err(|error| chain(&error))?,
        };
        let directory = workspace.directory_id().await;
        let spawned = launcher.spawn(person, workspace, launcher.is_of_one_client(key)).await;
        Ok((spawned.map_err(|error| chain(&error))?, directory))
    }

    /// Says that the server is known now, or that it cannot be, so that the clients that waited go on.
    pub(crate) fn settle(&self) {
        self.lock().is_settled = true;
        self.shorten(|_| true);
    }

    /// The same of one person, where what a server offers differs by that.
    pub(crate) fn settle_of(&self, person: &Person) {
        let hash = self.launcher.person_hash(person);
        self.shorten(|of| of == hash);
    }

    fn shorten(&self, is_settled: impl Fn(Option<[u8; 32]>) -> bool) {
        let until = now() + UNUSED;
        let mut all = self.lock();
        let AllHeadStarts { ready, starting, .. } = &mut *all;
        let settled = ready.iter_mut().filter(|it| is_settled(it.person));
        settled.for_each(|it| it.until = it.until.min(until));
        let settled = starting.iter_mut().filter(|it| is_settled(it.person));
        settled.for_each(|it| it.is_settled = true);
    }

    /// Whether there is none, and none on its way.
    pub(crate) fn is_idle(&self) -> bool {
        let all = self.lock();
        all.ready.is_empty() && all.starting.is_empty()
    }

    /// Lets go of those that no client came for.
    pub(crate) fn sweep(&self) {
        let now = now();
        let old: Vec<_> = self.lock().ready.extract_if(.., |it| it.until <= now).collect();
        self.count_unused(&old);
    }

    /// Lets go of all of them, for good.
    pub(crate) fn end(&self) {
        let mut all = self.lock();
        all.is_over = true;
        let ready = std::mem::take(&mut all.ready);
        drop(all);
        self.count_unused(&ready);
    }

    /// Counts what was started for no use; it ends with what holds it.
    fn count_unused(&self, unused: &[HeadStart]) {
        unused.iter().for_each(|it| self.launcher.metrics.child_started(it.took));
    }

    /// A child that was started ahead for such a client, and that still is where it should work. One that is on its
    /// way to this conversation is not waited for.
    pub(crate) async fn take(&self, client: &Client) -> Option<HeadStart> {
        if self.is_idle() {
            return None;
        }
        let key = Some(&client.key).filter(|key| self.is_for_one(key));
        let found = self.take_fit(key, self.launcher.person_hash(&client.person))?;
        let is_in_place = found.is_in_place().await;
        if !is_in_place {
            self.count_unused(std::slice::from_ref(&found));
        }
        is_in_place.then_some(found)
    }

    fn take_fit(&self, key: Option<&Key>, person: Option<[u8; 32]>) -> Option<HeadStart> {
        let mut all = self.lock();
        let fits = |it: &HeadStart| it.key.as_ref() == key && it.person == person;
        let Some(at) = all.ready.iter().position(|it| fits(it) && it.unopened.0.is_fit()) else {
            // The conversation does not wait for one that is on its way, and has no use for a second.
            let late = all.starting.iter_mut().filter(|it| Some(&it.key) == key);
            late.for_each(|it| it.is_too_late = true);
            return None;
        };
        Some(all.ready.swap_remove(at))
    }

    /// The same, opened for that client.
    pub(crate) async fn open(
        &self,
        found: Option<HeadStart>,
        opening: &Opening,
        client: &Client,
        clock: &Clock,
    ) -> Option<ReadyChild> {
        let found = found?;
        let began = now().checked_sub(found.took).unwrap_or_else(now);
        let opened = self.launcher.open(found.unopened, opening, client, Audience::Client(clock));
        // It may have tired of waiting. A new one shows whether the server works.
        let mut child = self.launcher.counted(Ok(opened.await.ok()?), began).ok()?;
        child.has_waited = true;
        self.launcher.begin(&child, client);
        Some(child)
    }

    /// Whether there is only one for those who have this key.
    fn is_for_one(&self, key: &Key) -> bool {
        self.launcher.keeps_files_of(key) || *key == Key::Everyone
    }

    fn lock(&self) -> MutexGuard<'_, AllHeadStarts> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no process keeps state for this conversation, nor did one that was lost.
async fn is_free(space: &Arc<SessionWorkspace>) -> bool {
    let space = Arc::clone(space);
    tokio::task::spawn_blocking(move || space.is_free()).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use pontoon_wire::Revision;

    use super::*;
    use crate::back::pair::{Pair, STATEFUL, client, naming};

    #[tokio::test(start_paused = true)]
    async fn a_head_start_serves_the_first_call_of_its_conversation() {
        let pair = Pair::new(naming(), |server| server.mode = STATEFUL);
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        pair.back.start_ahead(&ada.key, &ada.person);
        while pair.back.living() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(pair.call_tool(&ada, "x").await.contains("x by 1"));
        assert_eq!((pair.servers.started(), pair.back.living()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_comes_after_the_call_it_was_started_for_goes_at_once() {
        let pair = Pair::new(naming(), |server| server.mode = STATEFUL);
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        pair.back.start_ahead(&ada.key, &ada.person);
        let began = tokio::time::Instant::now();
        // It is still on its way when the call is made.
        let answer = pair.call_tool(&ada, "x").await;
        assert!(answer.contains("x by"), "{answer}");
        let mut look = tokio::time::interval(Duration::from_millis(100));
        while !pair.back.keep.head_starts.is_idle() || pair.back.living() > 1 {
            look.tick().await;
            assert!(began.elapsed() < UNUSED, "it stays: {:?}", pair.back.keep.head_starts);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_no_client_comes_for_goes_after_a_while() {
        let pair = Pair::new(naming(), |_| {});
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        pair.back.start_ahead(&ada.key, &ada.person);
        // What the server offers is known before the process is there.
        pair.back.settle_ahead();
        while pair.back.living() == 0 {
            tokio::task::yield_now().await;
        }
        let mut look = tokio::time::interval(Duration::from_secs(1));
        let began = tokio::time::Instant::now();
        while pair.back.living() > 0 && began.elapsed() < LONGEST {
            look.tick().await;
            pair.back.sweep();
        }
        let waited = began.elapsed();
        assert!(waited >= UNUSED && waited < 2 * UNUSED, "{waited:?}");
    }
}
