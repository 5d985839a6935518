//! How a kept child is used: what it has to do, since when, and the place it holds.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::permits::Permit;

/// How a kept child was used.
#[derive(Debug)]
pub struct Usage {
    created: Instant,
    in_flight: AtomicUsize,
    taken: AtomicU64,
    has_answered: AtomicBool,
    last_used: Mutex<Instant>,
    place: Mutex<Option<Permit>>,
}

impl Usage {
    /// A child that begins now.
    pub fn new(now: Instant) -> Self {
        Self {
            created: now,
            in_flight: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            last_used: Mutex::new(now),
            place: Mutex::new(None),
        }
    }

    /// Lets the child hold a place of the budget for as long as it is kept.
    pub(crate) fn keep(&self, place: Permit) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }

    /// Gives the place back.
    pub(crate) fn give_back(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// A call begins.
    pub(crate) fn begin(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// Says that it has answered a call: from now on it may keep state that a client relies on.
    pub(crate) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Release);
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Acquire)
    }

    /// A call is over.
    pub(crate) fn end(&self, now: Instant) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Calls under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Calls it was given so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// How long ago it was started, and how long ago it was last used.
    pub fn ages(&self, now: Instant) -> (Duration, Duration) {
        let last_used = *self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        (now.saturating_duration_since(self.created), now.saturating_duration_since(last_used))
    }
}
