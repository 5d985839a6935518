//! The children that are kept for conversations: one for each key, found again, let go in time.
//!
//! An anonymous address may have several, as `max_processes_per_ip` says. A client that begins too
//! many conversations loses the one it left alone longest; one whose are all at work is told to wait. One
//! that lost its child to another client's is told so.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pontoon_wire::Era;
use tokio::sync::Notify;

use super::Back;
use super::budget::Budget;
use super::children::{Lease, Use, now, opening_for};
use super::live::{Live, Waits};
use super::pool_key::{Answers, PoolKey};
use crate::call::CallError;
use crate::client::{Client, Key, Principal};
use crate::clock::{Clock, Stage};
use crate::config::{Mode, Server};
use crate::jobs::Held;
use crate::observe::metrics::Limit;
use crate::permits::Permit;

/// Up to this many conversations are remembered that have yet to hear that their child had to go.
const MAX_UNTOLD: usize = 4096;

/// How a process ended that was let go of for another client's.
const EVICTED: &str = "it had to make room for those of others, MCPO_STATEFUL_MAX_TOTAL_PROCESSES";

/// A conversation that comes back sooner has not been at another replica.
const LEFT_ALONE: Duration = Duration::from_millis(50);

/// The kept children of one server.
#[derive(Debug)]
pub struct Pool {
    server: Arc<Server>,
    slots: Mutex<HashMap<PoolKey, Arc<Slot>>>,
    /// Conversations whose child had to go for another client's, the oldest first.
    untold: Mutex<VecDeque<PoolKey>>,
    budget: Budget,
}

/// The children of one conversation.
#[derive(Debug)]
pub struct Slot {
    owner: Principal,
    /// Held while a child starts, so that a client's first two calls start only one.
    children: tokio::sync::Mutex<Vec<Arc<Live>>>,
    /// Calls that use it or are about to.
    users: AtomicUsize,
    last_used: Mutex<Instant>,
    /// How the state of the conversation was lost, until a call hears of it.
    lost: Mutex<Option<String>>,
    /// Told when a call ends or begins to wait for a person: there may be a child for another.
    freed: Notify,
}

/// Says that a slot is in use.
#[derive(Debug)]
struct InUse(Arc<Slot>);

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now();
        self.0.users.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}

/// A kept child in use; its idle clock starts when this is dropped.
#[derive(Debug)]
pub struct Using {
    /// The child.
    pub live: Arc<Live>,
    slot: InUse,
    wanted_for: Use,
}

impl Using {
    /// Says that its call waits for a person until the guard is dropped. Others may want a child of
    /// their own meanwhile.
    pub(super) fn park(&self) -> Waits<'_> {
        let waits = self.live.park();
        self.slot.0.freed.notify_waiters();
        waits
    }

    /// Ends the child if it answers nothing any more. Calls that come meanwhile wait for what is
    /// found: one that hangs gets none of them.
    pub(super) async fn end_if_it_hangs(&self) {
        let _others_wait = self.slot.0.children.lock().await;
        if !self.live.is_responsive().await {
            self.live.end();
        }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if self.wanted_for != Use::Listen {
            self.live.usage.end(now());
        }
    }
}

/// What is to be done for a call.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// This child takes it.
    Use(usize),
    /// Another child is started.
    Start,
    /// All children have as much to do as they may.
    Wait,
}

/// Decides by the number of calls that each fit child has, if it may be given more at all.
fn choose(calls: &[Option<usize>], max_children: usize, max_in_flight: usize) -> Choice {
    let open = || calls.iter().enumerate().filter_map(|(at, calls)| Some((at, (*calls)?)));
    let Some((at, least)) = open().min_by_key(|(_, calls)| *calls) else {
        // All of them wait for a person, and only so many may. Others need not wait for that.
        return Choice::Start;
    };
    match least {
        0 => Choice::Use(at),
        _ if open().count() < max_children => Choice::Start,
        _ if least < max_in_flight => Choice::Use(at),
        _ => Choice::Wait,
    }
}

/// Lets go of children whose conversation has gone on at another replica since their last call: what
/// they have in memory is not how it stands.
async fn forget_outdated(children: &mut Vec<Arc<Live>>) {
    let now = now();
    let was_left_alone = |live: &Arc<Live>| {
        live.usage.in_flight() == 0 && live.usage.ages(now).1 >= LEFT_ALONE && live.held.is_some()
    };
    // They have one folder, and all of them are outdated or none is.
    let Some(live) = children.iter().find(|live| was_left_alone(live)).cloned() else { return };
    let looking =
        tokio::task::spawn_blocking(move || live.held.as_ref().is_some_and(Held::is_outdated));
    if looking.await.unwrap_or(false) {
        children.clear();
    }
}

/// Lets go of the newest idle children that are more than there may be: those that were started
/// while others waited for a person.
fn trim(children: &mut Vec<Arc<Live>>, client: &Client, max_children: usize) {
    let mut extra = children.iter().filter(|live| !live.is_waiting(client)).count();
    for at in (0..children.len()).rev() {
        if extra <= max_children {
            return;
        }
        if children[at].usage.in_flight() == 0 && !children[at].is_waiting(client) {
            children.remove(at);
            extra -= 1;
        }
    }
}

impl Pool {
    /// No child yet.
    pub fn new(server: Arc<Server>, budget: Budget) -> Arc<Self> {
        let (slots, untold) = Default::default();
        let pool = Arc::new(Self { server, slots, untold, budget });
        pool.budget.include(&pool);
        pool
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back the places of children that have ended by themselves: of these only the news is
    /// kept, for their clients.
    pub(super) fn reclaim(&self) {
        for slot in self.lock().values() {
            // One that is in use just now is looked at by whoever uses it.
            let Ok(children) = slot.children.try_lock() else { continue };
            for live in children.iter().filter(|live| !live.is_fit()) {
                if !live.is_ending() {
                    live.kill();
                }
                live.usage.give_back();
            }
        }
    }

    /// Since when such an owner has left alone what was left alone longest; `None` if all is in use.
    pub(super) fn idle_since(&self, may_go: impl Fn(&Principal) -> bool) -> Option<Instant> {
        let slots = self.lock();
        oldest_idle(&slots, |_, owner| may_go(owner)).map(|(_, slot)| slot.last_used())
    }

    /// Lets go of that. False if it is in use by now. `is_told`: its client is to hear of it.
    pub(super) fn evict_oldest(&self, may_go: impl Fn(&Principal) -> bool, is_told: bool) -> bool {
        // Held until it is noted, so that no call of its client comes between.
        let mut slots = self.lock();
        let Some((key, has_state)) = self.evict(&mut slots, |_, owner| may_go(owner)) else {
            return false;
        };
        if is_told && has_state {
            let mut untold = self.untold();
            untold.push_back(key);
            if untold.len() > MAX_UNTOLD {
                untold.pop_front();
            }
        }
        true
    }

    /// Lets go of what was left alone longest of what may go; `None` if all of it is in use. Says whether
    /// there was state that its client may rely on.
    fn evict(
        &self,
        slots: &mut HashMap<PoolKey, Arc<Slot>>,
        may_go: impl Fn(&PoolKey, &Principal) -> bool,
    ) -> Option<(PoolKey, bool)> {
        let oldest = oldest_idle(slots, may_go).map(|(key, _)| key.clone())?;
        tracing::info!(server = %self.server.name, "let go of a client's oldest idle child");
        let slot = slots.remove(&oldest)?;
        // Its place is free also while its children are still looked at.
        let Ok(children) = slot.children.try_lock() else { return Some((oldest, true)) };
        children.iter().for_each(|live| live.usage.give_back());
        let has_state = children.iter().any(|live| live.usage.has_answered());
        Some((oldest, has_state || slot.is_loss_untold()))
    }

    /// Whether this conversation has yet to hear that its child had to go.
    fn was_evicted(&self, key: &PoolKey) -> bool {
        let mut untold = self.untold();
        let place = untold.iter().position(|gone| gone == key);
        place.is_some_and(|place| untold.remove(place).is_some())
    }

    fn untold(&self) -> MutexGuard<'_, VecDeque<PoolKey>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was left alone longest of what may go.
fn oldest_idle(
    slots: &HashMap<PoolKey, Arc<Slot>>,
    may_go: impl Fn(&PoolKey, &Principal) -> bool,
) -> Option<(&PoolKey, &Arc<Slot>)> {
    let idle = slots
        .iter()
        .filter(|(key, slot)| slot.users.load(Ordering::Acquire) == 0 && may_go(key, &slot.owner));
    idle.min_by_key(|(_, slot)| slot.last_used())
}

/// Who wants a child, what for, and how many the conversation may have.
struct Wanted<'c> {
    wanted_for: Use,
    client: &'c Client,
    child_era: Era,
    max_children: usize,
}

impl Back {
    /// A kept child for this client, started if need be.
    pub(super) async fn lease_kept(
        &self,
        wanted_for: Use,
        client: &Client,
        child_era: Era,
        clock: &Clock,
    ) -> Result<Lease, CallError> {
        let key = self.pool_key(client, child_era);
        let max_children = match (wanted_for, key.is_conversation(), self.server.mode) {
            (Use::Call | Use::Again, false, Mode::Stateful { per_address, .. }) => per_address,
            _ => 1,
        };
        let slot = self.slot(key.clone(), &client.person.principal)?;
        let wanted = Wanted { wanted_for, client, child_era, max_children };
        match self.lease_in(&slot.0, &wanted, clock).await {
            Ok(live) => Ok(Lease::Kept(Using { live, slot, wanted_for })),
            Err(error) => {
                drop(slot);
                self.forget_empty(&key);
                Err(error)
            }
        }
    }

    async fn lease_in(
        &self,
        slot: &Slot,
        wanted: &Wanted<'_>,
        clock: &Clock,
    ) -> Result<Arc<Live>, CallError> {
        let &Wanted { wanted_for, client, child_era, max_children } = wanted;
        let max_in_flight = match wanted_for {
            Use::Call | Use::Again => self.server.max_in_flight,
            Use::Listen => usize::MAX,
        };
        let give_up = now() + self.around.queue_wait;
        loop {
            // Made before looking, so that nothing that happens meanwhile is missed.
            let freed = slot.freed.notified();
            {
                let mut children = slot.children.lock().await;
                self.bury(&mut children).await.into_iter().for_each(|how| slot.lose(how));
                if wanted_for.hears_of_loss()
                    && let Some(how) = slot.take_loss()
                {
                    return Err(self.state_lost(&how));
                }
                forget_outdated(&mut children).await;
                trim(&mut children, client, max_children);
                let calls: Vec<_> = children
                    .iter()
                    .map(|live| (!live.is_waiting(client)).then(|| live.usage.in_flight()))
                    .collect();
                let live = match choose(&calls, max_children, max_in_flight) {
                    Choice::Use(at) => {
                        let live = Arc::clone(&children[at]);
                        live.refeed(client);
                        Some(live)
                    }
                    Choice::Start => {
                        self.check_stopping()?;
                        let place = self.place(&client.person.principal)?;
                        let opening = opening_for(client, child_era);
                        let started =
                            self.start_kept(&opening, client, wanted_for, slot, clock).await?;
                        started.usage.keep(place);
                        let live = Arc::new(started);
                        children.push(Arc::clone(&live));
                        Some(live)
                    }
                    Choice::Wait => None,
                };
                if let Some(live) = live {
                    if wanted_for != Use::Listen {
                        // Counted before anyone else chooses.
                        live.usage.begin();
                    }
                    return Ok(live);
                }
            }
            let left = give_up.saturating_duration_since(now());
            clock.enter(Stage::Place);
            let freed = tokio::time::timeout(left, freed).await;
            clock.enter(Stage::Starting);
            if freed.is_err() {
                self.around.metrics.refused(Limit::InFlight);
                let what = format!(
                    "busy: {} calls are under way in this conversation with the server `{}` (max_in_flight)",
                    self.server.max_in_flight, self.server.name
                );
                return Err(CallError::Busy { what, retry_after_seconds: 5 });
            }
        }
    }

    /// Forgets a slot that is not in use, has no child, and no loss to tell.
    fn forget_empty(&self, key: &PoolKey) {
        let mut slots = self.pool.lock();
        let is_empty = slots.get(key).is_some_and(|slot| {
            slot.users.load(Ordering::Acquire) == 0
                && !slot.is_loss_untold()
                && slot.children.try_lock().is_ok_and(|children| children.is_empty())
        });
        if is_empty {
            slots.remove(key);
        }
    }

    /// Takes dead children out. Says how one of them ended with what it kept in memory.
    async fn bury(&self, children: &mut Vec<Arc<Live>>) -> Option<String> {
        for live in children.iter().filter(|live| !live.is_fit() && !live.is_ending()) {
            // Its pipes close a moment before its end is known, and what is told depends on that.
            live.exit_within(Duration::from_secs(1)).await;
        }
        let mut lost = None;
        children.retain(|live| {
            let is_fit = live.is_fit();
            if !is_fit {
                self.heals.note(pontoon_wire::heal::Heal::H28);
                // One that closed its pipes and runs on is of no use to anyone.
                if !live.is_ending() {
                    live.kill();
                }
            }
            if !is_fit && live.is_untold_loss() {
                lost = Some(live.epitaph());
            }
            is_fit
        });
        lost
    }

    /// What a client hears of the process that kept its state, which has ended like this.
    pub(super) fn state_lost(&self, how: &str) -> CallError {
        tracing::warn!(server = %self.server.name, how, "a kept child ended; its client is told");
        let how = self.told(how);
        CallError::StateLost(format!(
            "the process of the server `{}` that kept the state of this conversation has ended ({how}), and what it \
             had in memory is lost. This call was not made. Call again to go on with a new process: open or make \
             again what you need first",
            self.server.name
        ))
    }

    /// Room for one more kept child of this client.
    fn place(&self, owner: &Principal) -> Result<Permit, CallError> {
        if let Some(place) = self.pool.budget.take(owner) {
            return Ok(place);
        }
        self.around.metrics.refused(Limit::TotalProcesses);
        let (used, limit) = self.pool.budget.used();
        let what = match used < limit {
            true => format!(
                "busy: this client has as many processes kept as one may, of {limit} in all \
                 (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)"
            ),
            false => format!(
                "busy: all {limit} processes that may be kept for conversations are in use \
                 (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)"
            ),
        };
        Err(CallError::Busy { what, retry_after_seconds: 60 })
    }

    /// Under what the child of this client is kept.
    fn pool_key(&self, client: &Client, era: Era) -> PoolKey {
        let is_told_once = era == Era::Legacy && client.key.is_shared();
        PoolKey {
            key: client.key.clone(),
            era,
            person: self.person_hash(&client.person),
            answers: is_told_once.then(|| Answers::of(&client.capabilities)),
        }
    }

    /// The client's slot, marked as in use.
    fn slot(&self, key: PoolKey, owner: &Principal) -> Result<InUse, CallError> {
        let mut slots = self.pool.lock();
        if !slots.contains_key(&key) {
            self.make_room(&mut slots, owner, &key)?;
        }
        let slot = slots.entry(key).or_insert_with_key(|key| {
            let lost = self.pool.was_evicted(key).then(|| EVICTED.to_owned());
            Arc::new(Slot {
                owner: owner.clone(),
                children: tokio::sync::Mutex::default(),
                users: AtomicUsize::new(0),
                last_used: Mutex::new(now()),
                lost: Mutex::new(lost),
                freed: Notify::new(),
            })
        });
        slot.users.fetch_add(1, Ordering::AcqRel);
        Ok(InUse(Arc::clone(slot)))
    }

    /// A client may have so many conversations and no more.
    fn make_room(
        &self,
        slots: &mut HashMap<PoolKey, Arc<Slot>>,
        owner: &Principal,
        key: &PoolKey,
    ) -> Result<(), CallError> {
        let Mode::Stateful { per_client, .. } = self.server.mode else { return Ok(()) };
        let is_own =
            |(key, slot): &(&PoolKey, &Arc<Slot>)| slot.owner == *owner && key.is_conversation();
        if !key.is_conversation()
            || slots.iter().filter(is_own).count() < per_client
            || self.pool.evict(slots, |key, who| who == owner && key.is_conversation()).is_some()
        {
            return Ok(());
        }
        self.around.metrics.refused(Limit::ProcessesPerClient);
        let hint = match owner {
            Principal::User(_) => "",
            _ => {
                ". If this is a front end with many users, let it forward who they are \
                 (ENABLE_FORWARD_USER_INFO_HEADERS in Open WebUI) and name it in MCPO_TRUSTED_PROXIES"
            }
        };
        let what = format!(
            "busy: all {per_client} conversations of this client with the server `{}` are at work \
             (max_processes_per_client){hint}",
            self.server.name
        );
        Err(CallError::Busy { what, retry_after_seconds: 5 })
    }

    /// The child kept for this client, if it runs.
    pub(super) fn kept(&self, client: &Client, child_era: Era) -> Option<Arc<Live>> {
        let slot = self.pool.lock().get(&self.pool_key(client, child_era)).cloned()?;
        let children = slot.children.try_lock().ok()?;
        children.iter().find(|live| live.is_fit()).cloned()
    }

    /// Lets go of the children that match, so that each stops once its last call has ended.
    fn let_go(&self, matches: impl Fn(&PoolKey, &Slot) -> bool) -> usize {
        let mut slots = self.pool.lock();
        let before = slots.len();
        slots.retain(|key, slot| !matches(key, slot));
        before - slots.len()
    }

    /// Stops the children that a legacy session kept. A chat's child is not the session's.
    pub fn end_session(&self, id: &str) {
        self.let_go(|key, _| matches!(&key.key, Key::Session(session) if session.as_ref() == id));
    }

    /// Stops the children that were idle for too long.
    pub fn stop_idle(&self) {
        let Mode::Stateful { idle, .. } = self.server.mode else { return };
        let now = now();
        let stopped = self.let_go(|_, slot| {
            slot.users.load(Ordering::Acquire) == 0
                && now.saturating_duration_since(slot.last_used()) >= idle
        });
        if stopped > 0 {
            (0..stopped).for_each(|_| self.metrics.idle_timeout());
            tracing::info!(server = %self.server.name, stopped, "stopped idle children");
        }
    }

    /// Stops every kept child.
    pub fn end_all(&self) {
        self.let_go(|_, _| true);
    }

    /// The kept children, each with its conversation's name.
    pub fn kept_children(&self) -> Vec<(String, Arc<Live>)> {
        let slots: Vec<_> = {
            let slots = self.pool.lock();
            slots.iter().map(|(key, slot)| (key.key.to_string(), Arc::clone(slot))).collect()
        };
        let mut found = Vec::new();
        for (key, slot) in slots {
            // One that is just starting is not there yet.
            let Ok(children) = slot.children.try_lock() else { continue };
            // One that has ended is kept only to be told of.
            let living = children.iter().filter(|live| live.is_fit());
            found.extend(living.map(|live| (key.clone(), Arc::clone(live))));
        }
        found
    }
}

impl Slot {
    fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a loss for the next call.
    pub(super) fn lose(&self, how: String) {
        *self.lost() = Some(how);
    }

    /// How state was lost, to be told now and not again.
    fn take_loss(&self) -> Option<String> {
        self.lost().take()
    }

    fn is_loss_untold(&self) -> bool {
        self.lost().is_some()
    }

    fn lost(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_child_is_used_and_another_started_only_when_all_are_busy() {
        assert_eq!(choose(&[], 1, 4), Choice::Start);
        assert_eq!(choose(&[Some(0)], 1, 4), Choice::Use(0));
        assert_eq!(choose(&[Some(2), Some(0)], 2, 4), Choice::Use(1));
        assert_eq!(choose(&[Some(1)], 2, 4), Choice::Start);
        assert_eq!(choose(&[Some(3), Some(1)], 2, 4), Choice::Use(1));
        assert_eq!(choose(&[Some(4), Some(4)], 2, 4), Choice::Wait);
    }

    #[test]
    fn a_child_that_waits_for_a_person_does_not_count() {
        assert_eq!(choose(&[None], 1, 4), Choice::Start);
        assert_eq!(choose(&[None, None], 1, 4), Choice::Start);
        assert_eq!(choose(&[None, Some(1)], 1, 4), Choice::Use(1));
    }
}
