//! Turns: which servers are learnt now, of all that are to be.
//!
//! A few at once, for each is a process that starts. One that a client waits for does not wait for its
//! turn, and those that no client waits for make room: what they began is given up, and begun again.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// The turn of a server.
pub(super) type Turn<'a> = SemaphorePermit<'a>;

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    starts: Semaphore,
    /// Servers that start, and that clients wait for.
    awaited: watch::Sender<usize>,
}

/// Counts a server that a client waits for.
pub(super) struct Awaited<'a>(&'a Turns);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.send_modify(|count| *count -= 1);
    }
}

impl Turns {
    /// Turns for so many servers at once.
    pub fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self { starts: Semaphore::new(at_once), awaited: watch::Sender::new(0) })
    }

    pub(super) fn count_awaited(&self) -> Awaited<'_> {
        self.awaited.send_modify(|count| *count += 1);
        Awaited(self)
    }

    /// The turn of a server that no client waits for.
    pub(super) async fn take(&self) -> Option<Turn<'_>> {
        let permit = self.starts.acquire().await.ok()?;
        self.awaited.subscribe().wait_for(|count| *count == 0).await.ok()?;
        Some(permit)
    }

    /// Waits until a client waits for a server.
    pub(super) async fn is_awaited(&self) {
        // The sender is ours, and so it is there.
        drop(self.awaited.subscribe().wait_for(|count| *count > 0).await);
    }
}
