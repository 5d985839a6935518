//! Memory for what streams keep for clients that may come back: of one session, and of all.
//!
//! A stream counts what it keeps, which takes no lock. Only when that is too much, streams that have
//! ended forget, the oldest first; if it is still too much, whoever writes keeps nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::stream::Stream;

/// What the streams of one session keep, in bytes, and how many that have ended are remembered.
const OF_SESSION: (usize, usize) = (8 * 1024 * 1024, 32);

/// The same for all sessions together.
const OF_ALL: (usize, usize) = (64 * 1024 * 1024, 10_000);

/// Whoever heard a stream to its end has so long to come back to it.
pub const LIFE: Duration = Duration::from_secs(120);

/// Memory that streams share.
#[derive(Debug)]
pub struct Memory {
    limit: usize,
    max_ended: usize,
    used: AtomicUsize,
    ended: Mutex<VecDeque<Ended>>,
}

#[derive(Debug)]
struct Ended {
    stream: Weak<Stream>,
    /// When it was heard to its end; `None` while an answer waits in it.
    heard: Option<Instant>,
}

impl Memory {
    /// Memory of one session.
    pub fn of_session() -> Arc<Self> {
        Self::new(OF_SESSION)
    }

    /// Memory of all sessions: an eighth of the budget for what is held for clients, at most.
    pub fn of_all(budget: usize) -> Arc<Self> {
        let (limit, max_ended) = OF_ALL;
        Self::new((limit.min(budget / 8), max_ended))
    }

    fn new((limit, max_ended): (usize, usize)) -> Arc<Self> {
        Arc::new(Self { limit, max_ended, used: AtomicUsize::new(0), ended: Mutex::default() })
    }

    /// Counts that a stream keeps so much where it kept so much before.
    pub(super) fn count(&self, before: usize, after: usize) {
        // The sum wraps around, so this takes away as well.
        self.used.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Lets streams that have ended forget, as long as too much is kept. False if it still is.
    pub(super) fn make_room(&self) -> bool {
        while self.used.load(Ordering::Relaxed) > self.limit {
            let Some(oldest) = self.lock().pop_front() else { return false };
            oldest.forget();
        }
        true
    }

    /// Notes that a stream has ended, and when it was heard to its end.
    pub(super) fn end(&self, stream: &Arc<Stream>, heard: Option<Instant>) {
        let mut ended = self.lock();
        ended.push_back(Ended { stream: Arc::downgrade(stream), heard });
        let oldest = if ended.len() > self.max_ended { ended.pop_front() } else { None };
        drop(ended);
        oldest.iter().for_each(Ended::forget);
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
        old.iter().for_each(Ended::forget);
    }

    /// How many bytes are kept.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ended {
    fn forget(&self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.forget();
        }
    }
}
