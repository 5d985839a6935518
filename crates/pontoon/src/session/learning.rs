//! Learning a server in its turn, now and whenever that is due.
//!
//! A server that cannot be learnt is tried again with growing pauses, and delays no other. What was known stays
//! known meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::{Era, method};

use super::catalog::{Catalog, Facts};
use super::entry::{CatalogState, Entry, Wanted};
use super::kept;
use super::learn::{Findings, Learnt, PROBE, learn};
use super::relearn::Relearning;
use super::turns::{Awaited, Turn, Turns};
use crate::client::Person;
use crate::clock::{now, since};
use crate::errors::chain;

/// The pauses between tries grow up to this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How soon a server is tried again because calls of it failed.
const DOUBT: Duration = Duration::from_secs(10);

/// How soon a server is learnt again of which an era was not heard; this grows, too.
pub(super) const UNHEARD: Duration = Duration::from_secs(60);

/// How old a catalogue may grow before it is learnt anew.
pub(super) const MAX_AGE: Duration = Duration::from_secs(3600);

/// How long a start counts among those at once. One that takes longer waits for something, and takes
/// nothing from the others.
const BUSY: Duration = Duration::from_secs(2);

/// A start that has not taken longer is begun again if a client comes that needs the other era first.
const YOUNG: Duration = Duration::from_millis(500);

/// What a server that starts has of the others' room.
enum Share<'a> {
    /// Its turn: no client waits for it.
    Turn { _permit: Turn<'a> },
    /// A client waits for it.
    Awaited { _awaited: Awaited<'a> },
    /// Nothing any more.
    Nothing,
}

impl Entry {
    /// The catalogue, learnt now if it is not on disk.
    ///
    /// # Errors
    ///
    /// Why the server could not be learnt, for people.
    pub async fn learnt(&self) -> Result<Arc<Catalog>, String> {
        if let CatalogState::Learning = self.state() {
            self.set(learn(&self.back, &Person::local()).await?);
        }
        self.catalog().await
    }

    /// Learns the server now and whenever it is due, in its turn.
    pub async fn keep(self: Arc<Self>, turns: Arc<Turns>) {
        let (mut pause, mut unheard) = (Duration::from_secs(1), UNHEARD);
        let mut again = Relearning::default();
        // What was known when a child said that it changed.
        let mut doubtful: Option<Arc<Catalog>> = None;
        loop {
            let began = now();
            let wait = match self.learn_in_turn(&turns).await {
                Ok(learnt) => {
                    pause = Duration::from_secs(1);
                    let is_whole = self.set(learnt);
                    self.set_trouble(None);
                    let wait = if is_whole { MAX_AGE } else { unheard };
                    unheard = if is_whole { UNHEARD } else { (2 * unheard).min(MAX_AGE) };
                    wait
                }
                Err(why) if self.waits_for_person() => {
                    let server = &self.back.server.name;
                    tracing::info!(%server, why, "the server is learnt with the first person's values");
                    self.set_unless_known(CatalogState::Waiting(why));
                    return self.back.settle_ahead();
                }
                Err(why) => {
                    tracing::error!(server = %self.back.server.name, why, retry_in = ?pause, "server failed");
                    self.set_trouble(Some(&why));
                    // What was known stays known: the server may be well for a real call.
                    self.set_unless_known(CatalogState::Failed(why));
                    self.back.settle_ahead();
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            if let (Some(before), Some(known)) = (doubtful.take(), self.known_to(Era::Modern)) {
                again.looked(known.offers_the_same(&before));
            }
            let learnt = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Whether it works for nobody any more is for `/health` to tell.
                () = self.back.doubted() => tokio::time::sleep_until(learnt + DOUBT).await,
                () = self.until_due_again(again, began) => doubtful = self.known_to(Era::Modern),
            }
        }
    }

    /// Waits until a child has said that its lists changed, and they are to be read again.
    async fn until_due_again(&self, again: Relearning, began: Instant) {
        loop {
            self.back.changed().heard().await;
            let said = self.back.changed().last();
            if let Some(due) = said.and_then(|said| again.due(began, said)) {
                return tokio::time::sleep_until(due.into()).await;
            }
        }
    }

    /// Whether only a person can tell if the server works: its program is there, but it may need what
    /// nobody has.
    fn waits_for_person(&self) -> bool {
        self.back.server.is_personal() && self.back.server.find_program().is_ok()
    }

    /// Takes over what was learnt; false if an era was not heard that the server may speak.
    fn set(&self, learnt: Learnt) -> bool {
        let before = match self.state() {
            CatalogState::Ready(catalog) => Some(catalog),
            _ => None,
        };
        let unheard = learnt.unheard().map(|(era, why)| (era, why.to_string()));
        let mut catalog = learnt.into_catalog(before.as_deref());
        if let Some((era, why)) = &unheard {
            let server = &self.back.server.name;
            tracing::warn!(%server, ?era, why, "an era of the server is not known; it is tried again");
        }
        let tools = |facts: &Option<Facts>| {
            facts.as_ref().map(|facts| facts.lists.get(method::LIST_TOOLS).map_or(0, Vec::len))
        };
        tracing::info!(
            server = %self.back.server.name,
            legacy_tools = tools(&catalog.legacy), modern_tools = tools(&catalog.modern),
            "server ready"
        );
        // What was not heard this time is no fact for the next start.
        if let (Some(file), None) = (&self.file, &unheard)
            && let Err(error) = kept::write(file, &catalog, SystemTime::now())
        {
            tracing::warn!(file = %file.display(), error = &error as &dyn std::error::Error, "catalogue not kept");
        }
        catalog.hide(&self.back.server.disabled_tools);
        self.state.send_replace(CatalogState::Ready(Arc::new(catalog)));
        self.half.send_replace(None);
        self.back.settle_ahead();
        unheard.is_none()
    }

    /// Learns the server as soon as it has its turn: at once if a client waits for it, or if there is
    /// no program to start.
    pub(super) async fn learn_in_turn(&self, turns: &Turns) -> Result<Learnt, String> {
        self.back.server.find_program().map_err(|error| chain(&error))?;
        let is_unknown = matches!(self.state(), CatalogState::Learning);
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
                    if is_other && since(began) < YOUNG {
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
