//! Catalogues of servers whose processes differ by who calls: learnt with each person's own values, once.
//!
//! They are in memory only, for they may tell what a person may do. A person for whom the server does not start
//! hears why, and is tried again later; that concerns no other person. What is the same for everybody,
//! the eras, is the entry's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pontoon_wire::Era;
use tokio::sync::watch;

use super::catalog::Catalog;
use super::entry::{CatalogState, Entry, show};
use super::learn::{learn, learn_era};
use super::learning::{LONGEST_PAUSE, MAX_AGE, UNHEARD};
use super::lists::LearnError;
use super::relearn::Relearning;
use crate::back::conversation::list_changes::Burst;
use crate::client::{Person, Principal};
use crate::clock::now;
use crate::config::ServerName;

/// The first pause after a try that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// More bytes of catalogues than these are not kept, in all and of one.
const MAX_BYTES: usize = 64 << 20;
const MAX_CATALOG: usize = 8 << 20;

/// What is counted for a person besides the texts.
const OVERHEAD: usize = 1024;

/// The catalogues of all people.
#[derive(Debug, Default)]
pub struct PersonalCatalogs {
    people: Mutex<HashMap<PersonName, Acquaintance>>,
}

/// Whose catalogue, and of which server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PersonName {
    server: ServerName,
    /// Of what is started, so that a changed server is learnt again.
    fingerprint: u64,
    who: Principal,
    /// A hash of what is filled in for the person.
    values: [u8; 32],
    /// The era of the clients it is for.
    era: Era,
}

/// What came of learning.
type LearntCatalog = Result<Arc<Catalog>, String>;

/// How far a server is known to a person.
#[derive(Debug)]
struct Acquaintance {
    /// What the last try gave, and when.
    last: Option<(LearntCatalog, Instant)>,
    /// When that began.
    began: Instant,
    /// How often its server is believed that its lists changed.
    again: Relearning,
    /// How long that holds: what it offers grows old, and a failure is no reason for ever.
    holds: Duration,
    /// Since what it offers was learnt, tries to learn it again failed: there is none before this, and the
    /// pause after the next grows from this.
    failed: Option<(Instant, Duration)>,
    /// The try that is under way.
    learning: Option<watch::Receiver<Option<LearntCatalog>>>,
}

/// What is to be done for a person.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing: this is known.
    Known(LearntCatalog),
    /// To learn again what changed, while this still serves.
    Again(Arc<Catalog>),
    /// To wait for the try that is under way.
    Wait(watch::Receiver<Option<LearntCatalog>>),
    /// To learn.
    Learn,
}

/// A try that is under way.
pub(super) struct Try {
    name: PersonName,
    outcome: watch::Sender<Option<LearntCatalog>>,
    began: Instant,
}

impl Try {
    /// What will come of it.
    pub(super) fn outcome(&self) -> watch::Receiver<Option<LearntCatalog>> {
        self.outcome.subscribe()
    }
}

impl PersonName {
    /// `None` if the server has nothing that depends on the person.
    pub(super) fn new(entry: &Entry, person: &Person, era: Era) -> Option<Self> {
        Some(Self {
            server: entry.back.server.name.clone(),
            fingerprint: entry.back.server.fingerprint,
            who: person.principal.clone(),
            values: entry.back.person_hash(person)?,
            era,
        })
    }
}

impl PersonalCatalogs {
    /// What is to be done for this person now. `changed` is when the server last said that its lists
    /// changed.
    pub(super) fn look(&self, name: &PersonName, changed: Option<Burst>, now: Instant) -> Look {
        let people = self.lock();
        let Some(known) = people.get(name) else { return Look::Learn };
        known.look(changed, now)
    }

    /// Begins a try, unless there is nothing to be learnt any more.
    pub(super) fn begin(
        &self,
        name: &PersonName,
        changed: Option<Burst>,
        now: Instant,
    ) -> Result<Try, Look> {
        let mut people = self.lock();
        let known = people.entry(name.clone()).or_insert_with(Acquaintance::new);
        match known.look(changed, now) {
            Look::Learn | Look::Again(_) => {
                let (outcome, learning) = watch::channel(None);
                known.learning = Some(learning);
                Ok(Try { name: name.clone(), outcome, began: now })
            }
            look => Err(look),
        }
    }

    /// The try that is under way for this person.
    pub(super) fn under_way(
        &self,
        name: &PersonName,
    ) -> Option<watch::Receiver<Option<LearntCatalog>>> {
        self.lock().get(name)?.under_way().cloned()
    }

    /// When what this person knows is to be learnt again, because the server said that its lists changed.
    pub(super) fn due(&self, name: &PersonName, changed: Option<Burst>) -> Option<Instant> {
        let people = self.lock();
        let known = people.get(name)?;
        let is_known = matches!(known.last, Some((Ok(_), _)));
        known.due(changed).filter(|_| is_known)
    }

    /// What the server offers this person, as far as that is known.
    pub(super) fn known(&self, name: &PersonName) -> Option<Arc<Catalog>> {
        let people = self.lock();
        let (outcome, _) = people.get(name)?.last.as_ref()?;
        outcome.as_ref().ok().cloned()
    }

    /// Takes over what came of a try. `is_whole` is false if an era was not heard. A failure takes nothing from
    /// a person whose catalogue still holds.
    fn finish(&self, tried: &Try, outcome: &LearntCatalog, is_whole: bool, now: Instant) {
        let mut people = self.lock();
        let known = people.entry(tried.name.clone()).or_insert_with(Acquaintance::new);
        known.learning = None;
        if let (Err(_), Some(Ok(catalog))) = (outcome, known.current(now)) {
            let kept = Ok(Arc::clone(catalog));
            let pause = known.failed.map_or(FIRST_PAUSE, |(_, before)| 2 * before);
            let pause = pause.min(LONGEST_PAUSE);
            known.failed = Some((now + pause, pause));
            drop(people);
            tried.outcome.send_replace(Some(kept));
            return;
        }
        let had_failed = matches!(known.last, Some((Err(_), _)));
        known.holds = match outcome {
            Ok(_) if is_whole => MAX_AGE,
            Ok(_) => UNHEARD,
            Err(_) if had_failed => (2 * known.holds).min(LONGEST_PAUSE),
            Err(_) => FIRST_PAUSE,
        };
        if let (Some((Ok(before), at)), Ok(new)) = (&known.last, outcome)
            && now.saturating_duration_since(*at) < MAX_AGE
        {
            // It was learnt again because the server had said so.
            known.again.looked(new.offers_the_same(before));
        }
        known.last = Some((outcome.clone(), now));
        known.began = tried.began;
        known.failed = None;
        if known.size() > MAX_CATALOG {
            people.remove(&tried.name);
        }
        let mut held: usize = people.values().map(Acquaintance::size).sum();
        while held > MAX_BYTES {
            let oldest = people.iter().filter_map(|(name, it)| Some((it.idle_since()?, name)));
            let oldest = oldest.min_by_key(|(at, _)| *at).map(|(_, name)| name.clone());
            let Some(gone) = oldest.and_then(|name| people.remove(&name)) else { break };
            held -= gone.size();
        }
        drop(people);
        tried.outcome.send_replace(Some(outcome.clone()));
    }

    /// Learns what the server offers this person, to the end.
    pub(super) async fn learn(&self, tried: Try, entry: &Entry, person: &Arc<Person>) {
        let before = self.known(&tried.name);
        let learnt = tokio::select! {
            learnt = learn_for(entry, person, tried.name.era, before.as_deref()) => learnt,
            () = entry.back.stop.cancelled() => Err("it is no longer served so".to_owned()),
        };
        entry.back.settle_ahead_of(person);
        let is_whole = learnt.as_ref().is_ok_and(|(_, is_whole)| *is_whole);
        let outcome = learnt.map(|(catalog, _)| Arc::new(catalog));
        let server = &entry.back.server.name;
        match &outcome {
            Ok(_) => tracing::info!(%server, "server ready for a person"),
            Err(why) => tracing::warn!(%server, why, "the server does not start for a person"),
        }
        self.finish(&tried, &outcome, is_whole, now());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PersonName, Acquaintance>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acquaintance {
    fn new() -> Self {
        let (began, again) = (now(), Relearning::default());
        Self { last: None, began, again, holds: Duration::ZERO, failed: None, learning: None }
    }

    fn look(&self, changed: Option<Burst>, now: Instant) -> Look {
        match (self.current(now), self.under_way()) {
            (Some(Ok(catalog)), None) if self.due(changed).is_some_and(|due| due <= now) => {
                Look::Again(Arc::clone(catalog))
            }
            (Some(outcome @ Ok(_)), _) => Look::Known(outcome.clone()),
            (_, Some(learning)) => Look::Wait(learning.clone()),
            (Some(outcome), None) => Look::Known(outcome.clone()),
            (None, None) => Look::Learn,
        }
    }

    /// What the last try gave, for as long as that holds.
    fn current(&self, now: Instant) -> Option<&LearntCatalog> {
        let (outcome, at) = self.last.as_ref()?;
        (now.saturating_duration_since(*at) < self.holds).then_some(outcome)
    }

    fn under_way(&self) -> Option<&watch::Receiver<Option<LearntCatalog>>> {
        // A try that ended without a word was given up with its task.
        self.learning.as_ref().filter(|learning| learning.has_changed().is_ok())
    }

    /// When the lists are to be read again, if the server has said that they changed.
    fn due(&self, changed: Option<Burst>) -> Option<Instant> {
        let due = self.again.due(self.began, changed?)?;
        Some(self.failed.map_or(due, |(until, _)| due.max(until)))
    }

    fn size(&self) -> usize {
        OVERHEAD
            + match &self.last {
                Some((Ok(catalog), _)) => catalog.size(),
                Some((Err(why), _)) => why.len(),
                None => 0,
            }
    }

    /// Since when it is as it is; `None` while it is learnt.
    fn idle_since(&self) -> Option<Instant> {
        self.learning.is_none().then_some(())?;
        self.last.as_ref().map(|(_, at)| *at)
    }
}

/// What came of a try, once it is over.
pub(super) async fn outcome(mut learning: watch::Receiver<Option<LearntCatalog>>) -> LearntCatalog {
    let outcome = learning.wait_for(Option::is_some).await;
    let outcome = outcome.ok().and_then(|outcome| outcome.clone());
    outcome.unwrap_or_else(|| Err("the bridge is stopping".to_owned()))
}

/// Learns what a server offers this person: of an era that it is known to speak, or else of both. Its tools are in the
/// order that they had before. Gives with it whether every era was heard.
async fn learn_for(
    entry: &Entry,
    person: &Arc<Person>,
    client: Era,
    before: Option<&Catalog>,
) -> Result<(Catalog, bool), String> {
    let back = &entry.back;
    let shown = async |mut catalog: Catalog| {
        if let Some(before) = before {
            catalog.keep_order(before, &back.server, &back.heals);
        }
        show(back, catalog, true).await
    };
    if let CatalogState::Ready(eras) = entry.state() {
        let era = eras.child_era(client);
        match learn_era(back, person, era).await {
            Ok(facts) => return Ok((shown(Catalog::of(era, facts)).await, true)),
            Err(why @ LearnError::Gone) => return Err(why.to_string()),
            Err(LearnError::Failed(why) | LearnError::Slow(why)) => return Err(why),
            // It is not what it was.
            Err(LearnError::Refused(_)) => {}
        }
    }
    let learnt = learn(back, person).await?;
    let is_whole = learnt.unheard().is_none();
    let catalog = shown(learnt.into_catalog(None)).await;
    if is_whole {
        entry.set_eras(&catalog);
    }
    Ok((catalog, is_whole))
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Facts;
    use super::*;
    use pontoon_wire::method;
    use serde_json::value::RawValue;

    fn name(who: &str, values: u8) -> PersonName {
        PersonName {
            server: "demo".parse().unwrap(),
            fingerprint: 1,
            who: Principal::of_user(None, who),
            values: [values; 32],
            era: Era::Modern,
        }
    }

    /// What a server offers, in so many bytes.
    fn offer(bytes: usize) -> LearntCatalog {
        let tool = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
        let mut facts = Facts::default();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), vec![tool]);
        Ok(Arc::new(Catalog::of(Era::Modern, facts)))
    }

    /// What a server said at one time.
    fn once(at: Instant) -> Option<Burst> {
        Some(Burst { began: at, last: at })
    }

    fn try_it(people: &PersonalCatalogs, name: &PersonName, outcome: &LearntCatalog, at: Instant) {
        let Ok(tried) = people.begin(name, None, at) else {
            panic!("{:?}", people.look(name, None, at))
        };
        people.finish(&tried, outcome, true, at);
    }

    fn is_known(people: &PersonalCatalogs, name: &PersonName, at: Instant) -> bool {
        matches!(people.look(name, None, at), Look::Known(Ok(_)))
    }

    #[test]
    fn a_catalogue_is_of_one_person_and_for_an_hour() {
        let (people, now) = (PersonalCatalogs::default(), Instant::now());
        try_it(&people, &name("ada", 1), &offer(1), now);
        assert!(is_known(&people, &name("ada", 1), now));
        assert!(!is_known(&people, &name("ben", 1), now), "another person");
        assert!(!is_known(&people, &name("ada", 2), now), "another credential");
        assert!(!is_known(&people, &name("ada", 1), now + MAX_AGE));
        try_it(&people, &name("ada", 1), &offer(1), now + MAX_AGE);
        assert!(is_known(&people, &name("ada", 1), now + MAX_AGE), "learnt anew");
    }

    #[test]
    fn a_failure_is_tried_again_with_growing_pauses_and_other_values_at_once() {
        let (people, mut now) = (PersonalCatalogs::default(), Instant::now());
        let failure = Err("it exited".to_owned());
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            try_it(&people, &name("ada", 1), &failure, now);
            let early = people.look(&name("ada", 1), None, now + pause - Duration::from_millis(1));
            assert!(matches!(early, Look::Known(Err(_))), "{pause:?}: {early:?}");
            assert!(matches!(people.look(&name("ada", 2), None, now), Look::Learn));
            now += pause;
        }
        try_it(&people, &name("ada", 1), &offer(1), now);
        now += MAX_AGE;
        try_it(&people, &name("ada", 1), &failure, now);
        assert!(matches!(people.look(&name("ada", 1), None, now + FIRST_PAUSE), Look::Learn));
    }

    #[test]
    fn a_server_is_learnt_once_for_all_who_wait_and_again_if_that_was_given_up() {
        let (people, now) = (PersonalCatalogs::default(), Instant::now());
        let tried = people.begin(&name("ada", 1), None, now);
        assert!(matches!(people.begin(&name("ada", 1), None, now), Err(Look::Wait(_))));
        drop(tried);
        assert!(matches!(people.look(&name("ada", 1), None, now), Look::Learn));
    }

    #[test]
    fn what_changed_is_learnt_again_and_ever_more_rarely_if_it_did_not() {
        let (people, now, ada) = (PersonalCatalogs::default(), Instant::now(), name("ada", 1));
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let look = |said, seconds| people.look(&ada, once(at(said)), at(seconds));
        try_it(&people, &ada, &offer(1), at(10));
        assert!(matches!(look(5, 60), Look::Known(_)), "said before");
        assert!(matches!(look(11, 12), Look::Known(_)), "more changes may come");
        assert!(matches!(look(11, 13), Look::Again(_)));
        let again = |said, seconds, bytes| {
            let tried =
                people.begin(&ada, once(at(said)), at(seconds)).unwrap_or_else(|_| panic!());
            people.finish(&tried, &offer(bytes), true, at(seconds));
        };
        again(11, 13, 1);
        assert!(matches!(look(14, 16), Look::Known(_)), "it was the same");
        assert!(matches!(look(14, 17), Look::Again(_)));
        again(14, 17, 2);
        assert!(matches!(look(18, 20), Look::Again(_)), "it was not");
    }

    #[test]
    fn what_is_known_serves_while_it_is_learnt_again_and_after_that_failed() {
        let (people, now, ada) = (PersonalCatalogs::default(), Instant::now(), name("ada", 1));
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let said = once(at(1));
        try_it(&people, &ada, &offer(1), now);
        let mut seconds = 3;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            let tried = people.begin(&ada, said, at(seconds)).unwrap_or_else(|_| panic!());
            let meanwhile = people.look(&ada, said, at(seconds));
            assert!(matches!(meanwhile, Look::Known(Ok(_))), "{meanwhile:?}");
            people.finish(&tried, &Err("it exited".to_owned()), false, at(seconds));
            assert!(matches!(&*tried.outcome().borrow(), Some(Ok(_))));
            seconds += pause;
            let early = people.look(&ada, said, at(seconds) - Duration::from_millis(1));
            assert!(matches!(early, Look::Known(Ok(_))), "{pause}: {early:?}");
            assert!(matches!(people.look(&ada, said, at(seconds)), Look::Again(_)), "{pause}");
        }
        let late = now + MAX_AGE;
        assert!(matches!(people.look(&ada, said, late), Look::Learn), "it is too old to serve");
        try_it(&people, &ada, &Err("it exited".to_owned()), late);
        assert!(matches!(people.look(&ada, said, late), Look::Known(Err(_))));
    }

    #[test]
    fn only_so_many_bytes_are_kept_and_the_oldest_go() {
        let (people, now) = (PersonalCatalogs::default(), Instant::now());
        let at = |number: u64| now + Duration::from_secs(number);
        let large = offer(MAX_CATALOG - 2 * OVERHEAD);
        for number in 0..10 {
            try_it(&people, &name(&number.to_string(), 1), &large, at(number));
        }
        let has = |number: u64| is_known(&people, &name(&number.to_string(), 1), at(10));
        assert!(!has(0) && !has(1) && has(2) && has(9));
        try_it(&people, &name("ada", 1), &offer(MAX_CATALOG), at(10));
        assert_eq!(people.lock().len(), 8);
    }
}
