//! A child that is kept for a conversation, or for everybody: what it has to do, since when, and the state it may have.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pontoon_supervise::Exit;

use crate::back::child::ready::ReadyChild;
use crate::clock::now;
use crate::permits::Permit;

/// For whom a child is kept.
#[derive(Debug)]
pub(crate) enum KeptFor {
    /// A conversation, with this place among those that may be kept in all.
    Conversation(Permit),
    /// Everybody. There are no more of these than servers and eras, and what they have in memory is no client's.
    Everyone,
}

/// A child that is kept.
#[derive(Debug)]
pub struct KeptChild {
    child: ReadyChild,
    created: Instant,
    in_flight: AtomicUsize,
    /// Whether it can have state that a client relies on.
    keeps_state: bool,
    /// Whether it has answered a call: from then on it may have that.
    has_answered: AtomicBool,
    /// Whether its client knows that it has ended.
    is_loss_told: AtomicBool,
    /// Whether it gets no more calls, and ends with those it has.
    is_retired: AtomicBool,
    last_used: Mutex<Instant>,
    /// Its place among those that may be kept in all, if it needs one.
    place: Mutex<Option<Permit>>,
}

impl std::ops::Deref for KeptChild {
    type Target = ReadyChild;

    fn deref(&self) -> &ReadyChild {
        &self.child
    }
}

impl KeptChild {
    /// Keeps a child, which holds its place for as long as it is kept.
    pub(crate) fn new(child: ReadyChild, kept_for: KeptFor) -> Self {
        let now = now();
        let place = match kept_for {
            KeptFor::Conversation(place) => Some(place),
            KeptFor::Everyone => None,
        };
        let (in_flight, has_answered, is_loss_told, is_retired) = Default::default();
        Self {
            child,
            created: now,
            in_flight,
            keeps_state: place.is_some(),
            has_answered,
            is_loss_told,
            is_retired,
            last_used: Mutex::new(now),
            place: Mutex::new(place),
        }
    }

    /// Gives its place back.
    pub(crate) fn give_back_place(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// A call begins.
    pub(crate) fn begin_call(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// A call is over.
    pub(crate) fn end_call(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now();
        let is_last = self.in_flight.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && self.is_retired() {
            self.end();
        }
    }

    /// Ends it, for it answers nothing any more. If it is everybody's, calls of others may be open that it still
    /// works on: then it gets no more, and ends with the last of them. The call that found out is one of its calls.
    pub(crate) fn give_up(&self) {
        if self.keeps_state || self.in_flight() <= 1 {
            return self.end();
        }
        self.is_retired.store(true, Ordering::Release);
        // The others may have ended just now.
        if self.in_flight() <= 1 {
            self.end();
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Says that it has answered a call, and may have state from now on.
    pub(crate) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Release);
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Acquire)
    }

    /// Whether it may have state by now that a client relies on.
    pub(crate) fn may_have_state(&self) -> bool {
        self.keeps_state && self.has_answered()
    }

    /// Says that its client hears of its end, so that nothing else need tell it.
    pub(crate) fn note_loss_told(&self) {
        self.is_loss_told.store(true, Ordering::Release);
    }

    /// Whether it had state that its client believes in and has not heard of its end. A server
    /// that ended by itself and in order had nothing more to keep. The next to ask hears no.
    pub(crate) fn is_untold_loss(&self) -> bool {
        let is_orderly = self.exit() == Some(Exit::Code(0)) && !self.is_ending();
        !is_orderly && self.may_have_state() && !self.is_loss_told.swap(true, Ordering::AcqRel)
    }

    /// How it ended, in a few words.
    pub(crate) fn epitaph(&self) -> String {
        if self.is_ending() {
            return "it answered nothing any more and was stopped".to_owned();
        }
        self.exit().map_or_else(|| "it closed its pipes".to_owned(), |exit| format!("it {exit}"))
    }

    /// Calls under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// How long ago it was started, and how long ago it was last used.
    pub fn ages(&self, now: Instant) -> (Duration, Duration) {
        let last_used = *self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        (now.saturating_duration_since(self.created), now.saturating_duration_since(last_used))
    }
}
