//! Exchanges that wait for a person: found again by the state their client was given.
//!
//! A modern client that is asked something gets its answer at once (`input_required`) and later
//! sends its request again. Meanwhile the child that asked is parked here, under a state that
//! cannot be guessed, for the same client only, for a limited time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::children::{Lease, Live, now};
use crate::call::{Call, Key};

/// How long a person may think.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How many exchanges of one server may wait at once.
const MAX_PARKED: usize = 256;

/// The exchanges of one server that wait.
#[derive(Debug, Default)]
pub struct Parking {
    places: Arc<Mutex<HashMap<String, Place>>>,
}

#[derive(Debug)]
struct Place {
    key: Key,
    until: Instant,
    what: Parked,
}

#[derive(Debug)]
enum Parked {
    /// An exchange whose child has asked something; the client's next request goes to it.
    Exchange(oneshot::Sender<Call>),
    /// A child that will recognise its own state.
    Child(Lease),
    /// A child that works on a task; it is asked about it more than once.
    Task(Arc<Live>),
}

/// What was parked under a state.
#[derive(Debug)]
pub enum Found {
    /// Send the request there.
    Exchange(oneshot::Sender<Call>),
    /// Give the request to this child.
    Child(Lease),
}

/// A place that is given up when this is dropped.
#[derive(Debug)]
pub struct Ticket {
    state: String,
    places: Arc<Mutex<HashMap<String, Place>>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.state);
    }
}

impl Parking {
    /// Parks an exchange under a new state; the client's next request arrives at the receiver.
    /// `None` when too many wait already.
    pub fn park(&self, key: &Key) -> Option<(String, Ticket, oneshot::Receiver<Call>)> {
        let state =
            format!("pontoon.{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let (sender, receiver) = oneshot::channel();
        self.put(state.clone(), key, Parked::Exchange(sender))?;
        let ticket = Ticket { state: state.clone(), places: Arc::clone(&self.places) };
        Some((state, ticket, receiver))
    }

    /// Keeps a child under the state it made itself. Without room the child is let go, and a new one
    /// will have to do.
    pub fn keep(&self, state: &str, key: &Key, lease: Lease) {
        self.put(state.to_owned(), key, Parked::Child(lease));
    }

    /// Keeps a child that works on a task, so that later questions about it find it.
    pub fn keep_task(&self, task: &str, key: &Key, live: Arc<Live>) {
        self.put(task.to_owned(), key, Parked::Task(live));
    }

    fn put(&self, state: String, key: &Key, what: Parked) -> Option<()> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        places.retain(|_, place| place.until > now);
        if places.len() >= MAX_PARKED {
            return None;
        }
        places.insert(state, Place { key: key.clone(), until: now + PATIENCE, what });
        Some(())
    }

    /// What this client parked under a state. A state of another client is not found.
    pub fn find(&self, state: &str, key: &Key) -> Option<Found> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.get_mut(state)?;
        if place.key != *key {
            return None;
        }
        if let Parked::Task(live) = &place.what {
            place.until = now() + PATIENCE;
            return Some(Found::Child(Lease::Task(Arc::clone(live))));
        }
        match places.remove(state)?.what {
            Parked::Exchange(sender) => Some(Found::Exchange(sender)),
            Parked::Child(lease) => Some(Found::Child(lease)),
            Parked::Task(_) => None,
        }
    }

    /// Lets go of what waited for too long.
    pub fn sweep(&self) {
        let now = now();
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, place| place.until > now);
    }

    /// Lets go of everything.
    pub fn clear(&self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn only_the_client_that_was_asked_finds_its_exchange_and_only_once() {
        let parking = Parking::default();
        let alice = Key::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let bob = Key::Session("bob".into());
        let (state, _ticket, _receiver) = parking.park(&alice).unwrap();
        assert!(parking.find(&state, &bob).is_none());
        assert!(parking.find("pontoon.guess", &alice).is_none());
        assert!(parking.find(&state, &alice).is_some());
        assert!(parking.find(&state, &alice).is_none());
    }

    #[test]
    fn a_ticket_gives_its_place_up() {
        let parking = Parking::default();
        let key = Key::Session("a".into());
        let places: Vec<_> = (0..MAX_PARKED).map(|_| parking.park(&key).unwrap()).collect();
        assert!(parking.park(&key).is_none());
        drop(places);
        assert!(parking.park(&key).is_some());
    }
}
