//! Memory for what streams keep for clients that may come back: of one session, and of all.
//!
//! A stream counts what it keeps, which takes no lock. Only when that is too much, streams that have
//! ended forget, the oldest first; if it is still too much, a stream that writes keeps nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::held_bytes::Budget;

/// What the streams of one session keep, in bytes, and how many that have ended are remembered.
const OF_SESSION: (usize, usize) = (8 * 1024 * 1024, 32);

/// The same for all sessions together.
const OF_ALL: (usize, usize) = (64 * 1024 * 1024, 10_000);

/// A client that heard a stream to its end has this long to come back to it.
pub const LIFE: Duration = Duration::from_secs(120);

/// Memory that streams share.
#[derive(Debug)]
pub struct Memory {
    limit: usize,
    /// What is held for clients, of which an eighth is the limit, too.
    budget: Budget,
    max_ended: usize,
    used: AtomicUsize,
    ended: Mutex<VecDeque<EndedStream>>,
}

/// Lets a stream that has ended forget what it keeps.
pub(super) type Forget = Box<dyn Fn() + Send + Sync>;

struct EndedStream {
    forget: Forget,
    /// When it was heard to its end; `None` while an answer waits in it.
    heard: Option<Instant>,
}

impl Memory {
    /// Memory of one session.
    pub fn of_session() -> Arc<Self> {
        Self::new(OF_SESSION, usize::MAX)
    }

    /// Memory of all sessions: an eighth of the budget for what is held for clients, at most.
    pub fn of_all(budget: impl Into<Budget>) -> Arc<Self> {
        Self::new(OF_ALL, budget)
    }

    fn new((limit, max_ended): (usize, usize), budget: impl Into<Budget>) -> Arc<Self> {
        let budget = budget.into();
        Arc::new(Self {
            limit,
            budget,
            max_ended,
            used: AtomicUsize::new(0),
            ended: Mutex::default(),
        })
    }

    /// Counts that a stream keeps so much where it kept so much before.
    pub(super) fn count(&self, before: usize, after: usize) {
        // The sum wraps around, so this takes away as well.
        self.used.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Lets streams that have ended forget, as long as too much is kept. False if it still is.
    pub(super) fn make_room(&self) -> bool {
        while self.is_full() {
            let Some(oldest) = self.lock().pop_front() else { return false };
            (oldest.forget)();
        }
        true
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit.min(self.budget.bytes() / 8)
    }

    /// Notes that a stream has ended, and when it was heard to its end.
    pub(super) fn end(&self, forget: Forget, heard: Option<Instant>) {
        let mut ended = self.lock();
        ended.push_back(EndedStream { forget, heard });
        let oldest = if ended.len() > self.max_ended { ended.pop_front() } else { None };
        drop(ended);
        oldest.iter().for_each(|ended| (ended.forget)());
    }

    /// Lets streams forget that were heard to their end long ago.
    pub fn sweep(&self, now: Instant) {
        let is_old =
            |heard: Instant| now.checked_duration_since(heard).is_some_and(|age| age >= LIFE);
        let mut ended = self.lock();
        let all = std::mem::take(&mut *ended);
        let (old, young): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|ended| ended.heard.is_some_and(is_old));
        *ended = young;
        drop(ended);
        old.iter().for_each(|ended| (ended.forget)());
    }

    /// How many bytes are kept.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<EndedStream>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EndedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndedStream").field("heard", &self.heard).finish_non_exhaustive()
    }
}
