//! Bytes held for clients: bodies that are being read, answers that come and that were not yet taken.
//! One budget for all of them, and a share of it for each client.
//!
//! They are counted before they are there, and for as long as they are there: a [`Hold`] rides with the
//! memory it counts. What is small is not counted: the number of connections bounds that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pontoon_wire::{Message, Text};

use crate::client::Principal;

/// A body or an answer up to this size is not counted.
pub const SMALL: usize = 16 * 1024;

/// What a connection may take in small things and buffers.
const OF_CONNECTION: usize = 64 * 1024;

/// The fewest and the most connections that are served at once.
const CONNECTIONS: (usize, usize) = (128, 10_000);

/// With a small budget one client may have more than a quarter: one body and one answer are worth having.
const LEAST_SHARE: usize = 16 * 1024 * 1024;

/// How many bytes may be held.
#[derive(Debug, Clone, Copy)]
pub enum Budget {
    /// So many.
    Bytes(usize),
    /// What this finds out when it first matters: a bridge with one client mostly ends before it does.
    Later(&'static LazyLock<usize>),
}

impl Budget {
    /// The number of bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Later(bytes) => **bytes,
        }
    }
}

impl From<usize> for Budget {
    fn from(bytes: usize) -> Self {
        Self::Bytes(bytes)
    }
}

/// The budget, and what is used of it.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Budget,
    used: AtomicUsize,
    clients: Mutex<HashMap<Principal, OfClient>>,
}

/// What is held for one client.
#[derive(Debug, Default)]
struct OfClient {
    /// Bodies, which are refused beyond its share.
    bodies: usize,
    /// Answers that it has not taken.
    answers: usize,
}

/// There is no room for more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The budget of all is used up.
    #[error("the bridge holds as many bytes for its clients as it may (MCPO_MEMORY_BUDGET)")]
    All,
    /// This client has its share.
    #[error(
        "as much is held for this client as one may have of MCPO_MEMORY_BUDGET: finish the requests that \
         are being sent and take the answers that are waiting"
    )]
    Share,
}

/// When it is worth another try.
pub const RETRY_SECONDS: u32 = 5;

impl Full {
    /// The HTTP status that says the same.
    pub fn status(self) -> u16 {
        match self {
            Self::All => 503,
            Self::Share => 429,
        }
    }
}

impl HeldBytes {
    /// Nothing yet, of this budget.
    pub fn new(budget: impl Into<Budget>) -> Arc<Self> {
        let budget = budget.into();
        Arc::new(Self { budget, used: AtomicUsize::new(0), clients: Mutex::default() })
    }

    /// How many bytes are held, and how many may be.
    pub fn used(&self) -> (usize, usize) {
        (self.used.load(Ordering::Relaxed), self.limit())
    }

    /// How many bytes may be held.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// How many connections the budget is good for.
    pub fn max_connections(&self) -> usize {
        let (fewest, most) = CONNECTIONS;
        (self.limit() / OF_CONNECTION).clamp(fewest, most)
    }

    /// Nothing yet, for this client; `None` for what a server says, which is no client's yet.
    pub fn hold(self: &Arc<Self>, client: Option<&Principal>) -> Hold {
        Hold { held: Arc::clone(self), client: client.cloned(), bytes: 0 }
    }

    /// Whether this client has more than its share, as far as that can be held against it. At one address
    /// there may be many, who would all have to wait for the one that takes no answers: as long as half
    /// of the budget is free, they need not.
    pub fn has_its_share(&self, client: &Principal) -> bool {
        let is_address = matches!(client, Principal::Address(_));
        if is_address && self.used.load(Ordering::Relaxed) <= self.limit() / 2 {
            return false;
        }
        let is_above = |held: &OfClient| held.bodies + held.answers > self.share();
        self.lock().get(client).is_some_and(is_above)
    }

    /// The answer, counted for this client until it has been sent or dropped. It is never refused: for all
    /// it was counted when it came.
    pub fn charge(self: &Arc<Self>, client: &Principal, answer: Text) -> Text {
        if answer.len() <= SMALL {
            return answer;
        }
        let charge = |piece: &Bytes| {
            if piece.len() <= SMALL {
                return piece.clone();
            }
            self.lock().entry(client.clone()).or_default().answers += piece.len();
            let (held, client) = (Arc::clone(self), client.clone());
            Bytes::from_owner(Charged { piece: piece.clone(), held, client })
        };
        Text::Pieces(answer.pieces().iter().map(charge).collect())
    }

    /// What one client may have.
    fn share(&self) -> usize {
        (self.limit() / 4).max(LEAST_SHARE).min(self.limit())
    }

    fn limit(&self) -> usize {
        self.budget.bytes()
    }

    fn take(&self, more: usize) -> Result<(), Full> {
        let room = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.limit());
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map(drop).map_err(|_| Full::All)
    }

    fn take_for(&self, client: &Principal, more: usize) -> Result<(), Full> {
        let mut clients = self.lock();
        if clients.get(client).map_or(0, |held| held.bodies) + more > self.share() {
            return Err(Full::Share);
        }
        clients.entry(client.clone()).or_default().bodies += more;
        Ok(())
    }

    /// Takes away from what is held for a client.
    fn give_back_for(&self, client: &Principal, give_back: impl FnOnce(&mut OfClient)) {
        let mut clients = self.lock();
        if let Some(held) = clients.get_mut(client) {
            give_back(held);
            if held.bodies + held.answers == 0 {
                clients.remove(client);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, OfClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of an answer, counted for its client.
struct Charged {
    piece: Bytes,
    held: Arc<HeldBytes>,
    client: Principal,
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.held.give_back_for(&self.client, |held| held.answers -= self.piece.len());
    }
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<HeldBytes>,
    client: Option<Principal>,
    bytes: usize,
}

impl Hold {
    /// Counts memory of this size, which is about to be taken. What is small counts as nothing.
    ///
    /// # Errors
    ///
    /// [`Full`] when there is no room; then nothing has changed.
    pub fn grow_to(&mut self, size: usize) -> Result<(), Full> {
        let Some(more) = size.checked_sub(self.bytes).filter(|_| size > SMALL) else {
            return Ok(());
        };
        if more == 0 {
            return Ok(());
        }
        if let Some(client) = &self.client {
            self.held.take_for(client, more)?;
        }
        if let Err(full) = self.held.take(more) {
            if let Some(client) = &self.client {
                self.held.give_back_for(client, |held| held.bodies -= more);
            }
            return Err(full);
        }
        self.bytes += more;
        Ok(())
    }

    /// Moves this many bytes, or all there are, to a hold of their own.
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut part = self.none();
        part.bytes = bytes;
        part
    }

    /// A hold like this one that counts nothing yet.
    pub fn none(&self) -> Self {
        self.held.hold(self.client.as_ref())
    }

    /// The message, which is counted for as long as it or a text made from it is there.
    pub fn ride_with(self, message: Message) -> Message {
        if self.is_empty() { message } else { message.keeping(Arc::new(self)) }
    }

    /// Whether it counts anything.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.held.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(client) = &self.client {
            self.held.give_back_for(client, |held| held.bodies -= self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn user(name: &str) -> Principal {
        Principal::Credential(name.into())
    }

    #[test]
    fn bytes_are_counted_before_they_are_there_and_until_they_are_gone() {
        let held = HeldBytes::new(10 * MIB);
        let mut hold = held.hold(None);
        hold.grow_to(SMALL).unwrap();
        assert_eq!(held.used().0, 0, "what is small is free");
        hold.grow_to(6 * MIB).unwrap();
        hold.grow_to(2 * MIB).unwrap();
        assert_eq!(held.used().0, 6 * MIB);
        let mut other = held.hold(None);
        assert_eq!(other.grow_to(5 * MIB), Err(Full::All));
        assert!(other.is_empty());
        let part = hold.split(4 * MIB);
        drop(hold);
        assert_eq!(held.used().0, 4 * MIB);
        other.grow_to(6 * MIB).unwrap();
        drop((part, other));
        assert_eq!(held.used().0, 0);
    }

    #[test]
    fn one_client_has_its_share_and_others_have_the_rest() {
        let held = HeldBytes::new(80 * MIB);
        let (mut first, mut second) = (held.hold(Some(&user("a"))), held.hold(Some(&user("a"))));
        first.grow_to(10 * MIB).unwrap();
        assert_eq!(second.grow_to(10 * MIB + 1), Err(Full::Share));
        assert_eq!(held.used().0, 10 * MIB, "nothing was taken");
        second.grow_to(10 * MIB).unwrap();
        held.hold(Some(&user("b"))).grow_to(20 * MIB).unwrap();
        drop((first, second));
        assert!(held.lock().is_empty());
    }

    #[test]
    fn an_answer_that_waits_is_held_against_a_client_until_it_is_gone() {
        let held = HeldBytes::new(64 * MIB);
        let answer = || Text::from(Bytes::from(vec![b'x'; 17 * MIB]));
        let waiting = held.charge(&user("a"), answer());
        assert_eq!(waiting.len(), 17 * MIB);
        assert!(held.has_its_share(&user("a")) && !held.has_its_share(&user("b")));
        let half_sent = waiting.pieces()[0].slice(MIB..);
        drop(waiting);
        assert!(held.has_its_share(&user("a")), "the memory is still there");
        drop(half_sent);
        assert!(!held.has_its_share(&user("a")));
        let address = Principal::Address([10, 0, 0, 1].into());
        let _waiting = held.charge(&address, answer());
        assert!(!held.has_its_share(&address), "there is room for all");
        let mut others = held.hold(None);
        others.grow_to(33 * MIB).unwrap();
        assert!(held.has_its_share(&address) && !held.has_its_share(&user("b")));
    }

    #[test]
    fn a_small_budget_has_fewer_connections() {
        assert_eq!(HeldBytes::new(1 << 40).max_connections(), 10_000);
        assert_eq!(HeldBytes::new(128 * MIB).max_connections(), 2048);
        assert_eq!(HeldBytes::new(0).max_connections(), 128);
    }
}
