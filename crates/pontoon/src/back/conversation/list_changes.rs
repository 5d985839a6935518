//! What children say of their lists: that one changed, and when that was.

use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

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
    last: watch::Sender<Option<Burst>>,
    said: Notify,
}

impl ListChanges {
    /// Takes note that a child says so now.
    pub fn note(&self, now: Instant) {
        self.last.send_modify(|last| {
            let goes_on = |burst: &Burst| now.saturating_duration_since(burst.last) < SETTLE;
            let began = last.filter(goes_on).map_or(now, |burst| burst.began);
            *last = Some(Burst { began, last: now });
        });
        self.said.notify_one();
    }

    /// When that was said last.
    pub fn last(&self) -> Option<Burst> {
        *self.last.borrow()
    }

    /// Hears of all that is said from now on.
    pub fn subscribe(&self) -> watch::Receiver<Option<Burst>> {
        self.last.subscribe()
    }

    /// Waits until it is said. Cancel safe: what was said while nothing waited is heard by the next.
    pub async fn heard(&self) {
        self.said.notified().await;
    }
}
