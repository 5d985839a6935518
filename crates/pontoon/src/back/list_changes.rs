//! What children say of their lists: that one changed, and when that was.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Changes come in bursts: what is said after a longer silence begins another.
pub const SETTLE: Duration = Duration::from_secs(2);

/// A burst of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// When a child first said so.
    pub began: Instant,
    /// When one last said so.
    pub last: Instant,
}

/// When children of a server last said that one of its lists changed.
#[derive(Debug, Default)]
pub struct ListChanges {
    last: Mutex<Option<Burst>>,
    said: Notify,
}

impl ListChanges {
    /// Takes note that a child says so now.
    pub fn note(&self, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |burst: &Burst| now.saturating_duration_since(burst.last) < SETTLE;
        let began = last.filter(goes_on).map_or(now, |burst| burst.began);
        *last = Some(Burst { began, last: now });
        drop(last);
        self.said.notify_one();
    }

    /// When that was said last.
    pub fn last(&self) -> Option<Burst> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is said. Cancel safe: what was said while nothing waited is heard by the next.
    pub async fn heard(&self) {
        self.said.notified().await;
    }
}
