//! What children say of their lists: that one changed, and when that was.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// When a child of a server last said that one of its lists changed.
#[derive(Debug, Default)]
pub struct ListChanges {
    last: Mutex<Option<Instant>>,
    said: Notify,
}

impl ListChanges {
    /// Takes note that a child says so now.
    pub fn note(&self, now: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.said.notify_one();
    }

    /// When that was said last.
    pub fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is said. Cancel safe: what was said while nothing waited is heard by the next.
    pub async fn heard(&self) {
        self.said.notified().await;
    }
}
