//! Turns: which servers are learnt now, of all that are to be.
//!
//! A few at once, for each is a process that starts. One that a client waits for does not wait for its
//! turn, and those that no client waits for make room: what they began is given up, and begun again.

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::Era;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::catalog::{Entry, Facts, State, Wanted};
use super::learn::{Findings, Learnt, PROBE};
use crate::client::Person;
use crate::clock::now;
use crate::errors::chain;

/// How long a start counts among those at once. One that takes longer waits for something, and takes
/// nothing from the others.
const BUSY: Duration = Duration::from_secs(2);

/// A start that has not taken longer is begun again if a client comes that needs the other era first.
const YOUNG: Duration = Duration::from_millis(500);

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
        let mut findings = Findings::default();
        while let Some(first) = self.next_era(&findings, is_unknown) {
            let share = tokio::select! {
                biased;
                Some(permit) = turns.take() => Share::Turn { _permit: permit },
                () = self.until_wanted(&[first, first.other()], &findings), if is_unknown => {
                    Share::Awaited { _awaited: turns.count_awaited() }
                }
                else => Share::Nothing,
            };
            // A client may have come while this waited.
            let first = self.next_era(&findings, is_unknown).unwrap_or(first);
            let is_done = self.learn_with(turns, share, &mut findings, first, is_unknown).await;
            let other = first.other();
            if is_done && is_unknown && self.wanted.borrow().has(first) && !findings.has(other) {
                // What no client waits for takes nothing from those that have just got what they waited for.
                tokio::select! {
                    () = self.back.until_quiet() => {}
                    () = self.until_wanted(&[other], &findings) => {}
                }
            }
        }
        findings.into_learnt()
    }

    /// The era that is learnt next, if one is left. A server that refuses the modern one can be asked for the
    /// other with the same process, so that is first, unless only the other is waited for.
    fn next_era(&self, findings: &Findings, is_unknown: bool) -> Option<Era> {
        let wanted = *self.wanted.borrow();
        match (findings.has(Era::Legacy), findings.has(Era::Modern)) {
            (true, true) => None,
            (true, false) => Some(Era::Modern),
            (false, true) => Some(Era::Legacy),
            (false, false) => {
                let is_for_legacy = wanted.has(Era::Legacy) && !wanted.has(Era::Modern);
                Some(if is_unknown && is_for_legacy { Era::Legacy } else { Era::Modern })
            }
        }
    }

    /// Waits until a client waits for one of these eras that was not looked at.
    fn until_wanted(&self, eras: &[Era], findings: &Findings) -> impl Future<Output = ()> + use<> {
        let eras: Vec<_> = eras.iter().copied().filter(|era| !findings.has(*era)).collect();
        let mut wanted = self.wanted.subscribe();
        async move {
            let is_one = |wanted: &Wanted| eras.iter().any(|era| wanted.has(*era));
            // The sender is the entry's, and so it is there.
            drop(wanted.wait_for(is_one).await);
        }
    }

    /// Learns this era of the server, and the other if that shows by the way; false if it had to make room
    /// for a server that a client waits for, or is to begin with the other era.
    async fn learn_with<'a>(
        &self,
        turns: &'a Turns,
        mut share: Share<'a>,
        findings: &mut Findings,
        first: Era,
        is_unknown: bool,
    ) -> bool {
        let nobody = Person::local();
        let mut wanted = std::pin::pin!(self.until_wanted(&[first, first.other()], findings));
        let other_wanted = self.until_wanted(&[first.other()], findings);
        let is_half = findings.has(first.other());
        let late = async {
            tokio::select! {
                () = tokio::time::sleep(PROBE) => {}
                () = other_wanted, if is_unknown => {}
            }
        };
        let tell = |era, facts: &Facts| self.set_half(era, facts);
        let mut learning = std::pin::pin!(findings.learn(&self.back, &nobody, first, late, tell));
        let mut busy = std::pin::pin!(tokio::time::sleep(BUSY));
        let began = now();
        loop {
            let has_turn = matches!(share, Share::Turn { .. });
            tokio::select! {
                biased;
                () = &mut wanted, if is_unknown && has_turn => {
                    share = Share::Awaited { _awaited: turns.count_awaited() };
                    let is_other = !self.wanted.borrow().has(first) && !is_half;
                    if is_other && began.elapsed() < YOUNG {
                        return false;
                    }
                }
                () = &mut learning => return true,
                () = &mut busy, if !matches!(share, Share::Nothing) => share = Share::Nothing,
                () = turns.is_awaited(), if has_turn => return false,
            }
        }
    }
}
