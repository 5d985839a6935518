//! Learning a server in its turn, now and whenever that is due.
//!
//! A server that cannot be learnt is tried again with growing pauses, and delays no other. What was known stays
//! known meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::{Era, method};

use super::catalog::{Catalog, Facts};
use super::entry::{CatalogState, Entry, Wanted, show};
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
        if self.back.app().is_some() {
            // As a call does, it waits for an application that is away.
            let known = self.catalog_of_app(method::CALL_TOOL).await;
            return known.map_err(|why| why.to_string());
        }
        if let CatalogState::Learning = self.state() {
            self.set(learn(&self.back, &Person::local()).await?).await;
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
                    let is_whole = self.set(learnt).await;
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
    async fn set(&self, learnt: Learnt) -> bool {
        let before = match self.state() {
            CatalogState::Ready(catalog) => Some(catalog),
            _ => None,
        };
        let unheard = learnt.unheard().map(|(era, why)| (era, why.to_string()));
        let mut catalog = learnt.into_catalog(before.as_deref());
        catalog.takes_frames = self.back.takes_frames();
        if let Some(before) = &before {
            catalog.keep_order(before, &self.back.server, &self.back.heals);
        }
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
            && let Err(error) = kept::write(file, &catalog, SystemTime::now(), Some(kept::UNUSED))
        {
            tracing::warn!(file = %file.display(), error = &error as &dyn std::error::Error, "catalogue not kept");
        }
        let catalog = show(&self.back, catalog, true).await;
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
        let tell = |era, facts: &Facts| self.set_half(era, facts.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};

    const SECOND: Duration = Duration::from_secs(1);

    /// How long after each other a server was tried; the processes of one try are started at one time.
    fn pauses(server: &ToolServer) -> Vec<u64> {
        let starts = server.starts();
        let gaps = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs());
        gaps.filter(|gap| *gap > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_learnt_is_tried_with_growing_pauses_until_it_is_well() {
        let server = ToolServer::new(Era::Legacy);
        server.break_starts(usize::MAX);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        // Calls of clients start nothing: this one only hears.
        let client = TestClient::modern(&bridge);
        let (status, text) = client.call(1, "echo", "{}").await.refusal().await;
        assert_eq!(status, 502);
        assert!(text.starts_with("the server `demo` does not start: "), "{text}");
        let until = tokio::time::Instant::now() + 240 * SECOND;
        tokio::time::sleep_until(until).await;
        assert_eq!(pauses(&server), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(bridge.entry().trouble().is_some());
        let began = tokio::time::Instant::now();
        server.break_starts(0);
        bridge.until_known().await;
        assert!(began.elapsed() <= LONGEST_PAUSE, "{:?}", began.elapsed());
        assert_eq!(bridge.entry().trouble(), None);
        assert!(client.call(2, "echo", "{}").await.answer().await.contains("\"by\""));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_known_stays_known_when_the_server_breaks_and_is_mended() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        bridge.until_known().await;
        server.break_starts(usize::MAX);
        let client = TestClient::modern(&bridge);
        let began = tokio::time::Instant::now();
        let starts = server.starts().len();
        let (status, _) = client.call(1, "echo", "{}").await.refusal().await;
        assert_eq!((status, bridge.entry().trouble()), (502, None), "one call is no proof");
        let failed = server.starts().len();
        assert_eq!(failed, starts + 1);
        // Soon after a call failed, the bridge looks whether the server fails for all clients.
        while bridge.entry().trouble().is_none() {
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(server.starts()[failed].duration_since(began).as_secs(), DOUBT.as_secs());
        assert!(client.ask(2, "tools/list", "").await.body().await.contains("tool0"));
        server.break_starts(0);
        while bridge.entry().trouble().is_some() {
            tokio::time::sleep(SECOND).await;
        }
        assert!(client.call(3, "echo", "{}").await.answer().await.contains("\"by\""));
    }

    #[tokio::test(start_paused = true)]
    async fn a_catalogue_is_learnt_anew_after_an_hour() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        bridge.until_known().await;
        let learnt = tokio::time::Instant::now();
        let starts = server.starts().len();
        tokio::time::sleep_until(learnt + 2 * MAX_AGE + SECOND).await;
        let again = server.starts()[starts..].to_vec();
        let after: Vec<_> = again.iter().map(|at| (*at - learnt).as_secs()).collect();
        assert_eq!(after, [MAX_AGE.as_secs(), 2 * MAX_AGE.as_secs()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_start_costs_a_server_no_era() {
        let folder = tempfile::tempdir().unwrap();
        let server = ToolServer::of_both_eras();
        // Longer than a server that runs may take to answer.
        server.slow_starts(PROBE + 2 * SECOND);
        let bridge = TestBridge::start(server.servers(), |settings, _| {
            settings.state_dir = Some(folder.path().to_owned());
        });
        bridge.until_known().await;
        let kept = kept::read(&kept::file_of(&bridge.entry().back.server, folder.path())).unwrap();
        assert!(kept.legacy.is_some() && kept.modern.is_some(), "{kept:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_era_that_was_not_heard_is_not_stored_and_is_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = ToolServer::new(Era::Legacy).mute_in(Era::Modern);
        let bridge = TestBridge::start(server.servers(), |settings, _| {
            settings.state_dir = Some(folder.path().to_owned());
        });
        bridge.until_known().await;
        let file = kept::file_of(&bridge.entry().back.server, folder.path());
        assert!(kept::read(&file).is_none(), "what was not heard is no fact");
        let client = TestClient::modern(&bridge);
        assert!(client.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
        let (learnt, starts) = (tokio::time::Instant::now(), server.starts().len());
        tokio::time::sleep_until(learnt + UNHEARD + SECOND).await;
        assert!(server.starts().len() > starts, "it is asked again after a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_legacy_client_does_not_wait_for_the_other_era() {
        let server = ToolServer::new(Era::Legacy).mute_in(Era::Modern);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let began = tokio::time::Instant::now();
        let client = TestClient::open(&bridge).await;
        assert!(client.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
        assert_eq!(began.elapsed().as_secs(), 0);
        assert!(matches!(bridge.entry().state(), CatalogState::Learning), "or this shows nothing");
    }
}
