//! The table of all kept children, of all servers: found by their conversation, counted, let go in time.
//!
//! The number of places is limited. A newcomer gets the place of one that was left alone, by the rules of
//! `shares`; nothing that is in use goes. A client that lost its child to another client's hears so.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::kept_child::KeptChild;
use super::kept_key::{KeptKey, ServerNumber};
use super::shares::above_their_share;
use crate::client::{Key, Principal};
use crate::clock::now;
use crate::config::ServerName;
use crate::permits::{Permit, Permits};

/// Up to this many conversations are remembered that have yet to hear that their child had to go.
const MAX_UNTOLD: usize = 4096;

/// How a process ended that was let go of for another client's.
const EVICTED: &str = "it had to make room for those of others, MCPO_STATEFUL_MAX_TOTAL_PROCESSES";

/// The kept children of all servers.
#[derive(Debug)]
pub struct KeptTable {
    slots: Mutex<HashMap<KeptKey, Arc<Slot>>>,
    /// Conversations whose child had to go for another client's, the oldest first.
    untold: Mutex<VecDeque<KeptKey>>,
    /// The places for kept children.
    places: Arc<Permits>,
    servers: AtomicU64,
}

/// The children of one conversation.
#[derive(Debug)]
pub(crate) struct Slot {
    server: ServerName,
    owner: Principal,
    /// Held while a child starts, so that a client's first two calls start only one.
    pub(crate) children: tokio::sync::Mutex<Vec<Arc<KeptChild>>>,
    /// Calls that use it or are about to.
    users: AtomicUsize,
    last_used: Mutex<Instant>,
    /// How the state of the conversation was lost, until a call hears of it.
    lost: Mutex<Option<String>>,
    /// Told when a call ends or begins to wait for a person: there may be a child for another.
    pub(crate) freed: Notify,
}

/// A slot in use; its idle clock starts when this is dropped.
#[derive(Debug)]
pub(crate) struct SlotInUse(Arc<Slot>);

impl std::ops::Deref for SlotInUse {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.0
    }
}

impl Drop for SlotInUse {
    fn drop(&mut self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now();
        self.users.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_waiters();
    }
}

impl KeptTable {
    /// A table with this many places.
    pub fn new(limit: usize) -> Arc<Self> {
        let (slots, untold, servers) = Default::default();
        Arc::new(Self { slots, untold, places: Permits::new(limit), servers })
    }

    /// How many children are kept, and how many may be.
    pub fn used(&self) -> (usize, usize) {
        (self.places.in_use(), self.places.limit())
    }

    /// A number for one more server.
    pub(crate) fn add_server(&self) -> ServerNumber {
        ServerNumber(self.servers.fetch_add(1, Ordering::Relaxed))
    }

    /// The slot of a conversation, made if need be. `None` if this client has as many conversations with the
    /// server as it may, all of them at work; one that is not gives way.
    pub(crate) fn enter(
        &self,
        key: &KeptKey,
        owner: &Principal,
        server: &ServerName,
        max_conversations: usize,
    ) -> Option<SlotInUse> {
        let mut evicted = None;
        let mut slots = self.lock();
        // Looked for once: it is there but for a conversation's first call, and its key is long.
        if let Some(slot) = slots.get(key) {
            return Some(slot.enter());
        }
        if key.is_conversation() {
            let is_own = |known: &KeptKey, who: &Principal| {
                known.server == key.server && who == owner && known.is_conversation()
            };
            let own = slots.iter().filter(|(known, slot)| is_own(known, &slot.owner)).count();
            if own >= max_conversations {
                evicted = Some(take_oldest_idle(&mut slots, is_own)?);
            }
        }
        let lost = self.was_evicted(key).then(|| EVICTED.to_owned());
        let slot = Arc::new(Slot {
            server: server.clone(),
            owner: owner.clone(),
            children: tokio::sync::Mutex::default(),
            users: AtomicUsize::new(0),
            last_used: Mutex::new(now()),
            lost: Mutex::new(lost),
            freed: Notify::new(),
        });
        let entered = slot.enter();
        slots.insert(key.clone(), slot);
        drop(slots);
        drop(evicted);
        Some(entered)
    }

    /// The slot of a conversation, if there is one, without using it.
    pub(crate) fn find(&self, key: &KeptKey) -> Option<Arc<Slot>> {
        self.lock().get(key).cloned()
    }

    /// Forgets a slot that is not in use, has no child, and no loss to tell.
    pub(crate) fn forget_empty(&self, key: &KeptKey) {
        let mut slots = self.lock();
        let is_empty = slots.get(key).is_some_and(|slot| {
            !slot.is_in_use()
                && !slot.is_loss_untold()
                && slot.children.try_lock().is_ok_and(|children| children.is_empty())
        });
        if is_empty {
            slots.remove(key);
        }
    }

    /// Lets go of the children of a server that match, so that each stops once its last call has ended. Gives
    /// the owner of each conversation.
    pub(crate) fn let_go(
        &self,
        server: ServerNumber,
        matches: impl Fn(&KeptKey, &Slot) -> bool,
    ) -> Vec<Principal> {
        let mut gone = Vec::new();
        self.lock().retain(|key, slot| {
            let goes = key.server == server && matches(key, slot);
            if goes {
                gone.push(Arc::clone(slot));
            }
            !goes
        });
        gone.iter().map(|slot| slot.owner.clone()).collect()
    }

    /// The kept children of a server that can take calls, each with its conversation's name.
    pub(crate) fn children_of(&self, server: ServerNumber) -> Vec<(String, Arc<KeptChild>)> {
        let slots: Vec<_> = {
            let slots = self.lock();
            let own = slots.iter().filter(|(key, _)| key.server == server);
            own.map(|(key, slot)| (key.key.to_string(), Arc::clone(slot))).collect()
        };
        let mut found = Vec::new();
        for (key, slot) in slots {
            // One that is just starting is not there yet, and one that has ended is kept only to be told of.
            let Ok(children) = slot.children.try_lock() else { continue };
            let living = children.iter().filter(|child| child.is_fit());
            found.extend(living.map(|child| (key.clone(), Arc::clone(child))));
        }
        found
    }

    /// A place for one more child of this client, made by letting go of an idle one if need be.
    pub(crate) fn take_place(&self, client: &Principal) -> Option<Permit> {
        let take = || self.places.try_take(client, now());
        if let Some(place) = take() {
            return Some(place);
        }
        self.reclaim(|_| true);
        loop {
            if let Some(place) = take() {
                return Some(place);
            }
            let above = match self.used() {
                (used, limit) if used < limit => HashSet::new(),
                (_, limit) => above_their_share(&self.places.holders(), client, limit),
            };
            let is_gone = self.evict(|owner| above.contains(owner), Hears::OfLoss)
                || self.evict(|owner| owner == client, Hears::Nothing);
            if !is_gone {
                return None;
            }
        }
    }

    /// Takes back the places of children of such servers that have ended by themselves: of these only the news
    /// is kept, for their clients.
    pub(crate) fn reclaim(&self, is_meant: impl Fn(ServerNumber) -> bool) {
        for (_, slot) in self.lock().iter().filter(|(key, _)| is_meant(key.server)) {
            // One that is in use just now is looked at by the call that uses it.
            let Ok(children) = slot.children.try_lock() else { continue };
            for child in children.iter().filter(|child| !child.is_fit()) {
                if !child.is_ending() {
                    child.kill();
                }
                child.give_back_place();
            }
        }
    }

    /// Lets go of what such an owner left alone longest. False if all of it is in use.
    fn evict(&self, may_go: impl Fn(&Principal) -> bool, hears: Hears) -> bool {
        // Held until it is noted, so that no call of its client comes between.
        let mut slots = self.lock();
        // What is everybody's has no place that another could get.
        let may_go = |key: &KeptKey, owner: &Principal| key.key != Key::Everyone && may_go(owner);
        let Some((key, slot)) = take_oldest_idle(&mut slots, may_go) else {
            return false;
        };
        if hears == Hears::OfLoss && slot.has_state() {
            let mut untold = self.untold();
            untold.push_back(key);
            if untold.len() > MAX_UNTOLD {
                untold.pop_front();
            }
        }
        drop(slots);
        drop(slot);
        true
    }

    /// Whether this conversation has yet to hear that its child had to go.
    fn was_evicted(&self, key: &KeptKey) -> bool {
        let mut untold = self.untold();
        let at = untold.iter().position(|gone| gone == key);
        at.is_some_and(|at| untold.remove(at).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeptKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, VecDeque<KeptKey>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client hears whose child has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hears {
    OfLoss,
    Nothing,
}

/// Takes out what was left alone longest of what may go; `None` if all of it is in use.
fn take_oldest_idle(
    slots: &mut HashMap<KeptKey, Arc<Slot>>,
    may_go: impl Fn(&KeptKey, &Principal) -> bool,
) -> Option<(KeptKey, Arc<Slot>)> {
    let idle = slots.iter().filter(|(key, slot)| !slot.is_in_use() && may_go(key, &slot.owner));
    let oldest = idle.min_by_key(|(_, slot)| slot.last_used()).map(|(key, _)| key.clone())?;
    let slot = slots.remove(&oldest)?;
    let (server, who) = (&slot.server, slot.owner.words());
    tracing::info!(%server, who, "let go of a client's oldest idle child");
    // Its place is free at once, also while its children are still looked at.
    if let Ok(children) = slot.children.try_lock() {
        children.iter().for_each(|child| child.give_back_place());
    }
    Some((oldest, slot))
}

impl Slot {
    fn enter(self: &Arc<Self>) -> SlotInUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        SlotInUse(Arc::clone(self))
    }

    pub(crate) fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call uses it or is about to.
    pub(crate) fn is_in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Whether there is state that its client may rely on, or a loss of which it has yet to hear.
    fn has_state(&self) -> bool {
        let Ok(children) = self.children.try_lock() else { return true };
        self.is_loss_untold() || children.iter().any(|child| child.may_have_state())
    }

    /// Remembers a loss for the next call.
    pub(crate) fn lose(&self, how: String) {
        *self.lost() = Some(how);
    }

    /// How state was lost, to be told now and not again.
    pub(crate) fn take_loss(&self) -> Option<String> {
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
    use std::time::Duration;

    use pontoon_wire::Revision;

    use crate::back::pair::{Pair, STATEFUL, client, naming};

    #[tokio::test(start_paused = true)]
    async fn a_conversation_keeps_its_child_until_it_was_idle_for_too_long() {
        let pair = Pair::new(naming(), |server| server.mode = STATEFUL);
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        for _ in 0..3 {
            assert!(pair.call_tool(&ada, "x").await.contains("x by 1"));
            tokio::time::advance(Duration::from_secs(1700)).await;
            pair.back.stop_idle();
        }
        tokio::time::advance(Duration::from_secs(101)).await;
        pair.back.stop_idle();
        assert!(pair.back.kept_children().is_empty());
        assert!(pair.call_tool(&ada, "x").await.contains("x by 2"), "it was let go, not lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_too_many_conversations_loses_the_one_left_alone_longest() {
        let pair = Pair::new(naming(), |server| server.mode = STATEFUL);
        for number in 1..=5 {
            let chat = client(Revision::V2025_11_25, &format!("chat {number}"), "{}");
            assert!(pair.call_tool(&chat, "x").await.contains(&format!("x by {number}")));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(pair.back.kept_children().len(), 4, "per_client");
        let second = client(Revision::V2025_11_25, "chat 2", "{}");
        assert!(pair.call_tool(&second, "x").await.contains("x by 2"));
        let first = client(Revision::V2025_11_25, "chat 1", "{}");
        assert!(pair.call_tool(&first, "x").await.contains("x by 6"));
    }

    #[tokio::test(start_paused = true)]
    async fn servers_share_the_places_and_one_ends_only_its_own_children() {
        let one = Pair::new(naming(), |server| server.mode = STATEFUL);
        let other = one.another(|server| server.mode = STATEFUL);
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        one.call_tool(&ada, "x").await;
        other.call_tool(&ada, "x").await;
        assert_eq!(one.around.keep.table.used().0, 2);
        other.back.drain();
        assert_eq!((one.back.kept_children().len(), other.back.kept_children().len()), (1, 0));
    }
}
