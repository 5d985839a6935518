//! Turns: which servers are learnt now, of all that are to be.
//!
//! A few at once, for each is two processes that start. One that a client waits for does not wait for its
//! turn, and those that no client waits for make room: what they began is given up, and begun again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::catalog::{Entry, State};
use super::learn::{Learnt, learn};
use crate::back::children::chain;
use crate::client::Person;

/// How long a start counts among those at once. One that takes longer waits for something, and takes
/// nothing from the others.
const BUSY: Duration = Duration::from_secs(2);

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    starts: Semaphore,
    /// Servers that start, and that clients wait for.
    awaited: watch::Sender<usize>,
}

/// Counts a server that a client waits for.
struct Awaited<'a>(&'a Turns);

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

    fn count_awaited(&self) -> Awaited<'_> {
        self.awaited.send_modify(|count| *count += 1);
        Awaited(self)
    }

    /// The turn of a server that no client waits for.
    async fn take(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.starts.acquire().await.ok()?;
        self.awaited.subscribe().wait_for(|count| *count == 0).await.ok()?;
        Some(permit)
    }

    /// Waits until a client waits for a server.
    async fn is_awaited(&self) {
        // The sender is ours, and so it is there.
        drop(self.awaited.subscribe().wait_for(|count| *count > 0).await);
    }
}

/// What a server that starts has of the others' room.
enum Share<'a> {
    /// Its turn: no client waits for it.
    Turn { _permit: SemaphorePermit<'a> },
    /// A client waits for it.
    Awaited { _awaited: Awaited<'a> },
    /// Nothing any more.
    Nothing,
}

impl Entry {
    /// Learns the server as soon as it has its turn: at once if a client waits for it, or if there is
    /// no program to start.
    pub(super) async fn learn_in_turn(&self, turns: &Turns) -> Result<Learnt, String> {
        self.back.server.find_program().map_err(|error| chain(&error))?;
        let is_unknown = matches!(self.state(), State::Learning);
        loop {
            let share = tokio::select! {
                biased;
                Some(permit) = turns.take() => Share::Turn { _permit: permit },
                () = self.wanted.notified(), if is_unknown => {
                    Share::Awaited { _awaited: turns.count_awaited() }
                }
                else => Share::Nothing,
            };
            if let Some(learnt) = self.learn_with(turns, share, is_unknown).await {
                return learnt;
            }
        }
    }

    /// Learns the server; `None` if it had to make room for one that a client waits for.
    async fn learn_with<'a>(
        &self,
        turns: &'a Turns,
        mut share: Share<'a>,
        is_unknown: bool,
    ) -> Option<Result<Learnt, String>> {
        let nobody = Person::local();
        let mut learning =
            std::pin::pin!(learn(&self.back, &nobody, |legacy| self.set_legacy(legacy)));
        let mut busy = std::pin::pin!(tokio::time::sleep(BUSY));
        loop {
            let has_turn = matches!(share, Share::Turn { .. });
            tokio::select! {
                learnt = &mut learning => return Some(learnt),
                () = &mut busy, if !matches!(share, Share::Nothing) => share = Share::Nothing,
                () = self.wanted.notified(), if is_unknown && has_turn => {
                    share = Share::Awaited { _awaited: turns.count_awaited() };
                }
                () = turns.is_awaited(), if has_turn => return None,
            }
        }
    }
}
