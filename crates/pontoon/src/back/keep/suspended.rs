//! Exchanges that wait for a person: found again by the state their client was given.
//!
//! A modern client that is asked something gets its answer at once (`input_required`) and later
//! sends its request again. Meanwhile the child that asked is parked here, under a state that
//! cannot be guessed, for the same client only, for a limited time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::lease::Lease;
use crate::back::child::ready::ReadyChild;
use crate::call::Call;
use crate::client::{Key, Principal};
use crate::clock::now;
use crate::config::ServerName;
use crate::ids::{Ids, StatePlace};

/// How long a person may think.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How many exchanges of one server may wait at once, and how many of one client.
pub const MAX_SUSPENDED: usize = 256;
const MAX_OF_CLIENT: usize = 32;

/// The exchanges of one server that wait.
#[derive(Debug)]
pub struct SuspendedCalls {
    ids: Arc<Ids>,
    server: ServerName,
    calls: Arc<Mutex<HashMap<(Key, String), SuspendedCall>>>,
}

#[derive(Debug)]
struct SuspendedCall {
    until: Instant,
    /// Whom it is counted for.
    who: Principal,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Two children gave out this name, so nobody can say which is meant.
    Ambiguous,
    /// An exchange whose child has asked something; the client's next request goes to it.
    Exchange(oneshot::Sender<Call>),
    /// A child that will recognise its own state.
    Child(Lease),
    /// A child that works on a task; it is asked about it more than once.
    Task(Arc<ReadyChild>),
}

/// What was parked under a state.
#[derive(Debug)]
pub enum Suspended {
    /// Send the request there.
    Exchange(oneshot::Sender<Call>),
    /// Give the request to this child.
    Child(Lease),
    /// Two children gave out this name.
    Ambiguous,
    /// A bridge gave out this state that is not this one.
    Elsewhere,
}

/// A place that is given up when this is dropped.
#[derive(Debug)]
pub struct Ticket {
    name: (Key, String),
    calls: Arc<Mutex<HashMap<(Key, String), SuspendedCall>>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl SuspendedCalls {
    /// Nothing waits yet.
    pub fn new(ids: Arc<Ids>, server: ServerName) -> Self {
        Self { ids, server, calls: Arc::default() }
    }

    /// Parks an exchange under a new state; the client's next request arrives at the receiver.
    /// `None` when too many wait already.
    pub fn park(
        &self,
        key: &Key,
        who: &Principal,
    ) -> Option<(String, Ticket, oneshot::Receiver<Call>)> {
        let state = self.ids.state(self.server.as_str(), &key.to_string());
        let (sender, receiver) = oneshot::channel();
        self.put(state.clone(), key, who, What::Exchange(sender))?;
        let name = (key.clone(), state.clone());
        let ticket = Ticket { name, calls: Arc::clone(&self.calls) };
        Some((state, ticket, receiver))
    }

    /// Keeps a child under the state it made itself. Without room the child is let go, and a new one
    /// will have to do.
    pub fn keep(&self, state: &str, key: &Key, who: &Principal, lease: Lease) {
        self.put(state.to_owned(), key, who, What::Child(lease));
    }

    /// Keeps a child that works on a task, so that later questions about it find it.
    pub fn keep_task(&self, task: &str, key: &Key, who: &Principal, live: Arc<ReadyChild>) {
        self.put(task.to_owned(), key, who, What::Task(live));
    }

    fn put(&self, state: String, key: &Key, who: &Principal, what: What) -> Option<()> {
        // Whoever cannot be recognised again would never find it.
        if !key.can_return() {
            return None;
        }
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        calls.retain(|_, place| place.until > now);
        let of_client = calls.iter().filter(|(_, place)| place.who == *who);
        if of_client.clone().count() >= MAX_OF_CLIENT {
            // A client that never comes back takes the place of nobody else.
            let oldest =
                of_client.min_by_key(|(_, place)| place.until).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| calls.remove(&oldest));
        }
        if calls.len() >= MAX_SUSPENDED {
            return None;
        }
        let until = now + PATIENCE;
        let what = match calls.remove(&(key.clone(), state.clone())) {
            Some(_) => What::Ambiguous,
            None => what,
        };
        calls.insert((key.clone(), state), SuspendedCall { until, who: who.clone(), what });
        Some(())
    }

    /// What this client parked under a state. A state of another client is not found.
    pub fn find(&self, state: &str, key: &Key) -> Option<Suspended> {
        // What is none of ours may be the child's own.
        let place = self.ids.read_state(state, self.server.as_str(), &key.to_string());
        if place == Some(StatePlace::Elsewhere) {
            return Some(Suspended::Elsewhere);
        }
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (key.clone(), state.to_owned());
        let place = calls.get_mut(&name)?;
        match &place.what {
            What::Ambiguous => return Some(Suspended::Ambiguous),
            What::Task(live) if !live.link.is_gone() => {
                place.until = now() + PATIENCE;
                return Some(Suspended::Child(Lease::Task(Arc::clone(live))));
            }
            _ => {}
        }
        match calls.remove(&name)?.what {
            What::Exchange(sender) => Some(Suspended::Exchange(sender)),
            What::Child(lease) => Some(Suspended::Child(lease)),
            What::Task(_) | What::Ambiguous => None,
        }
    }

    /// Lets go of what waited for too long.
    pub fn sweep(&self) {
        let now = now();
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, place| place.until > now);
    }

    /// Lets go of everything.
    pub fn clear(&self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn user(name: &str) -> Principal {
        Principal::of_user(None, name)
    }

    /// The parking of a bridge that began this many seconds after 1970.
    fn suspended(began: u64) -> SuspendedCalls {
        let began = std::time::UNIX_EPOCH + Duration::from_secs(began);
        SuspendedCalls::new(Arc::new(Ids::new(b"secret", "here", began)), "s".parse().unwrap())
    }

    #[test]
    fn a_state_of_another_bridge_is_known_as_such() {
        let key = Key::Session("a".into());
        let (state, _ticket, _receiver) = suspended(1).park(&key, &user("a")).unwrap();
        assert!(matches!(suspended(2).find(&state, &key), Some(Suspended::Elsewhere)));
        let other = Key::Session("b".into());
        assert!(suspended(2).find(&state, &other).is_none(), "it is for one client only");
    }

    #[test]
    fn only_the_client_that_was_asked_finds_its_exchange_and_only_once() {
        let calls = suspended(1);
        let alice = Key::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let bob = Key::Session("bob".into());
        let (state, _ticket, _receiver) = calls.park(&alice, &user("alice")).unwrap();
        assert!(calls.find(&state, &bob).is_none());
        assert!(calls.find("pontoon.guess", &alice).is_none());
        assert!(calls.find(&state, &alice).is_some());
        assert!(calls.find(&state, &alice).is_none());
    }

    #[test]
    fn a_ticket_gives_its_place_up() {
        let calls = suspended(1);
        let key = Key::Session("a".into());
        let keys: Vec<_> = (0..MAX_SUSPENDED).map(|n| Key::Session(n.to_string().into())).collect();
        let places: Vec<_> =
            keys.iter().map(|key| calls.park(key, &user(&key.to_string())).unwrap()).collect();
        assert!(calls.park(&key, &user("a")).is_none());
        drop(places);
        assert!(calls.park(&key, &user("a")).is_some());
    }

    #[test]
    fn a_client_that_never_comes_back_loses_its_own_oldest_place() {
        let calls = suspended(1);
        let key = Key::Session("a".into());
        // In another chat each time, which makes no difference.
        let chat = |n: usize| Key::Chat { key: None, user: None, chat: Some(n.to_string().into()) };
        let mut parked: Vec<_> =
            (0..MAX_OF_CLIENT).map(|n| calls.park(&chat(n), &user("a")).unwrap()).collect();
        parked.push(calls.park(&key, &user("a")).unwrap());
        let (_, _, mut oldest) = parked.remove(0);
        assert!(oldest.try_recv().is_err(), "its exchange hears that nobody will come");
        assert!(calls.find(&parked[0].0, &chat(1)).is_some());
        let once = Key::Once(uuid::Uuid::nil());
        assert!(calls.park(&once, &user("b")).is_none(), "it would never be found again");
    }
}
