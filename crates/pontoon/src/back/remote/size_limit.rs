//! How long a message an application takes, learnt when it refused one.
//!
//! It is known only in memory, of the application as it is now: one that introduces itself in other words, or that has
//! refused nothing for a while, is tried again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// Messages up to this length are taken by every application.
const SMALL: usize = 1024;

/// How long a refusal is believed.
const BELIEVED: Duration = Duration::from_secs(600);

/// How long a message an application takes.
#[derive(Debug, Default)]
pub(crate) struct SizeLimit(Mutex<Lengths>);

#[derive(Debug, Default)]
struct Lengths {
    /// What the application said of itself when it was met.
    hello: Bytes,
    /// The longest that was answered.
    taken: usize,
    /// The shortest that was refused, and when that was.
    refused: Option<(usize, Instant)>,
}

impl SizeLimit {
    /// Says what the application says of itself. Another one has other limits.
    pub(crate) fn meet(&self, hello: &[u8]) {
        let mut learnt = self.lock();
        if learnt.hello != hello {
            *learnt = Lengths { hello: Bytes::copy_from_slice(hello), ..Lengths::default() };
        }
    }

    /// Says that a message of this length was answered.
    pub(crate) fn note_taken(&self, bytes: usize) {
        if bytes <= SMALL {
            return;
        }
        let mut learnt = self.lock();
        learnt.taken = learnt.taken.max(bytes);
        let taken = learnt.taken;
        learnt.refused = learnt.refused.filter(|(refused, _)| *refused > taken);
    }

    /// Says that a message of this length was refused.
    pub(crate) fn note_refused(&self, bytes: usize, now: Instant) {
        let mut learnt = self.lock();
        let shortest = learnt.refused.map_or(bytes, |(refused, _)| refused.min(bytes));
        // What was taken once and is refused now: the application has changed without a word.
        learnt.taken = learnt.taken.min(bytes.saturating_sub(1));
        learnt.refused = Some((shortest, now));
    }

    /// The length that was refused before, if a message of this one would be too.
    pub(crate) fn refuses(&self, bytes: usize, now: Instant) -> Option<usize> {
        if bytes <= SMALL {
            return None;
        }
        let (refused, then) = self.lock().refused?;
        let is_believed = now.saturating_duration_since(then) < BELIEVED;
        (is_believed && bytes >= refused).then_some(refused)
    }

    fn lock(&self) -> MutexGuard<'_, Lengths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_long_as_what_was_refused_is_not_sent_again() {
        let (limit, now) = (SizeLimit::default(), crate::clock::now());
        limit.note_refused(50_000, now);
        limit.note_refused(70_000, now);
        assert_eq!(limit.refuses(49_999, now), None);
        assert_eq!(limit.refuses(50_000, now), Some(50_000));
        assert_eq!(limit.refuses(1 << 20, now), Some(50_000));
    }

    #[test]
    fn it_is_forgotten_with_time_with_what_was_taken_and_with_another_application() {
        let (limit, now) = (SizeLimit::default(), crate::clock::now());
        limit.meet(b"one");
        limit.note_refused(50_000, now);
        limit.meet(b"one");
        assert!(limit.refuses(50_000, now).is_some(), "it is the same");
        assert!(limit.refuses(50_000, now + BELIEVED).is_none());
        limit.note_taken(50_000);
        assert!(limit.refuses(50_000, now).is_none());
        limit.note_refused(50_000, now);
        assert!(limit.refuses(50_000, now).is_some());
        limit.meet(b"two");
        assert!(limit.refuses(50_000, now).is_none());
    }

    #[test]
    fn what_is_short_is_always_sent() {
        let (limit, now) = (SizeLimit::default(), crate::clock::now());
        limit.note_refused(10, now);
        assert_eq!(limit.refuses(SMALL, now), None);
    }
}
