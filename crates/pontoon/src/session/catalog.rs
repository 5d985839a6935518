//! The catalogue: what each server offers, known without asking it again.
//!
//! It is learnt by throw-away children (`learn`) and kept on disk, so that `initialize`,
//! `server/discover` and the lists are answered at once and start nothing. A server that cannot be
//! learnt is tried again with growing pauses, and delays no other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::headers::ParamRules;
use pontoon_wire::{Era, json, method, string_value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::kept;
use super::learn::{Learnt, learn};
use super::relearn::Relearning;
use super::turns::Turns;
use crate::back::Back;
use crate::client::Person;
use crate::clock::now;

/// The pauses between tries grow up to this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How soon a server is tried again because calls of it failed.
const DOUBT: Duration = Duration::from_secs(10);

/// How soon a server is learnt again of which an era was not heard; this grows, too.
pub(super) const UNHEARD: Duration = Duration::from_secs(60);

/// How old a catalogue may grow before it is learnt anew.
pub(super) const MAX_AGE: Duration = Duration::from_secs(3600);

/// What a server offers, in each era it speaks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// What it offers in the legacy era, if it speaks it.
    pub legacy: Option<Facts>,
    /// What it offers in the modern era, if it speaks it.
    pub modern: Option<Facts>,
    /// The rules for headers that repeat arguments, for each tool that has any.
    #[serde(skip)]
    pub rules: HashMap<String, ParamRules>,
}

/// What a server offers in one era; all of it JSON text as the server wrote it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// Its capabilities.
    pub capabilities: Box<RawValue>,
    /// Its name and version.
    pub server_info: Option<Box<RawValue>>,
    /// How to use it.
    pub instructions: Option<Box<RawValue>>,
    /// Its lists by method, each with all its items.
    pub lists: HashMap<String, Vec<Box<RawValue>>>,
    /// The caching hints of its lists, by method.
    pub hints: HashMap<String, (u64, String)>,
}

impl Catalog {
    /// The era a child is opened in for a client of this era: the same if the server speaks it.
    pub fn child_era(&self, client: Era) -> Era {
        match (client, &self.legacy, &self.modern) {
            (Era::Legacy, Some(_), _) | (Era::Modern, Some(_), None) => Era::Legacy,
            _ => Era::Modern,
        }
    }

    /// Whether the server is known to speak this era.
    pub fn speaks(&self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy.is_some(),
            Era::Modern => self.modern.is_some(),
        }
    }

    /// What a client of this era is told.
    pub fn facts(&self, client: Era) -> Option<&Facts> {
        match self.child_era(client) {
            Era::Legacy => self.legacy.as_ref(),
            Era::Modern => self.modern.as_ref(),
        }
    }

    /// What a server offers in one era.
    pub(super) fn of(era: Era, facts: Facts) -> Self {
        match era {
            Era::Legacy => Self { legacy: Some(facts), ..Self::default() },
            Era::Modern => Self { modern: Some(facts), ..Self::default() },
        }
    }

    /// Which eras it speaks, and nothing else of it.
    pub(super) fn eras_only(&self) -> Self {
        let nothing = |facts: &Option<Facts>| facts.as_ref().map(|_| Facts::default());
        let (legacy, modern) = (nothing(&self.legacy), nothing(&self.modern));
        Self { legacy, modern, rules: HashMap::new() }
    }

    /// Whether clients of every era are offered the same by both.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        Facts::offer_the_same(self.legacy.as_ref(), other.legacy.as_ref())
            && Facts::offer_the_same(self.modern.as_ref(), other.modern.as_ref())
    }

    /// The bytes of its texts.
    pub(super) fn size(&self) -> usize {
        [&self.legacy, &self.modern].into_iter().flatten().map(Facts::size).sum()
    }

    /// Leaves these tools out.
    pub(super) fn hide(&mut self, tools: &[String]) {
        if tools.is_empty() {
            return;
        }
        for facts in [&mut self.legacy, &mut self.modern].into_iter().flatten() {
            let Some(list) = facts.lists.get_mut(method::LIST_TOOLS) else { continue };
            list.retain(|tool| {
                let name = json::find(tool.get().as_bytes(), "name").and_then(string_value);
                !name.is_some_and(|name| tools.iter().any(|hidden| *hidden == name))
            });
        }
    }

    /// Reads the header rules out of the tools.
    pub(super) fn read_rules(&mut self) {
        let facts = [&self.modern, &self.legacy];
        let tools =
            facts.into_iter().flatten().filter_map(|facts| facts.lists.get(method::LIST_TOOLS));
        for tool in tools.flatten() {
            let text = tool.get().as_bytes();
            let name =
                json::find(text, "name").and_then(string_value).map(|name| name.into_owned());
            let schema = json::find(text, "inputSchema").map(ParamRules::from_tool_schema);
            if let (Some(name), Some(Ok(Some(rules)))) = (name, schema) {
                self.rules.entry(name).or_insert(rules);
            }
        }
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            capabilities: RawValue::from_string("{}".to_owned()).expect("a JSON object"),
            server_info: None,
            instructions: None,
            lists: HashMap::new(),
            hints: HashMap::new(),
        }
    }
}

impl Facts {
    /// Whether both offer the same, or there is neither.
    pub(super) fn offer_the_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.map(Self::offers) == other.map(Self::offers)
    }

    /// All that is offered, in an order of its own: a server may give its lists in another one each time.
    fn offers(&self) -> Vec<(&str, &str)> {
        let lists = self.lists.iter();
        let items =
            lists.flat_map(|(list, items)| items.iter().map(|it| (list.as_str(), it.get())));
        let told = self.instructions.iter().map(|told| ("instructions", told.get()));
        let mut all: Vec<_> = items.chain(told).collect();
        all.push(("capabilities", self.capabilities.get()));
        all.sort_unstable();
        all
    }

    fn size(&self) -> usize {
        let told = [&self.server_info, &self.instructions].into_iter().flatten();
        let items = self.lists.values().flatten();
        let texts = told.chain(items).map(|text| text.get().len());
        texts.sum::<usize>() + self.capabilities.get().len()
    }
}

/// Where a server stands.
#[derive(Debug, Clone)]
pub enum State {
    /// It is being learnt for the first time.
    Learning,
    /// It is known.
    Ready(Arc<Catalog>),
    /// It could not be learnt; the reason is for people.
    Failed(String),
    /// It does not start without the values of a person, for this reason, and is learnt with the first
    /// one's.
    Waiting(String),
}

/// The eras of clients that wait, or did, until a server was known.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wanted {
    legacy: bool,
    modern: bool,
}

impl Wanted {
    pub(super) fn has(self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy,
            Era::Modern => self.modern,
        }
    }

    fn add(&mut self, era: Era) {
        match era {
            Era::Legacy => self.legacy = true,
            Era::Modern => self.modern = true,
        }
    }
}

/// The catalogue of one server, and the task that keeps it.
#[derive(Debug)]
pub struct Entry {
    /// The server's children.
    pub back: Arc<Back>,
    state: watch::Sender<State>,
    /// What it offers in the era that is known, while the other one is not yet.
    half: watch::Sender<Option<Arc<Catalog>>>,
    /// The eras of the clients that wait for it, or did.
    pub(super) wanted: watch::Sender<Wanted>,
    /// Why the last try to learn it failed, if it did.
    trouble: Mutex<Option<String>>,
    file: Option<PathBuf>,
}

impl Entry {
    /// An entry that begins with what is on disk, if there is anything.
    pub fn new(back: Arc<Back>, state_dir: Option<&Path>) -> Self {
        let file = state_dir.map(|dir| kept::file_of(&back.server, dir));
        let hidden = &back.server.disabled_tools;
        let kept = file.as_deref().and_then(kept::read).map(|mut catalog| {
            catalog.hide(hidden);
            State::Ready(Arc::new(catalog))
        });
        let state = watch::Sender::new(kept.unwrap_or(State::Learning));
        Self {
            back,
            state,
            half: watch::Sender::new(None),
            wanted: watch::Sender::default(),
            trouble: Mutex::default(),
            file,
        }
    }

    /// Why the last try to learn it failed, if it did. What was learnt before is still served.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, why: Option<&str>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = why.map(str::to_owned);
    }

    /// Where the server stands now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Told whenever the catalogue changes.
    pub fn changes(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The catalogue, once it is known, or why it is not.
    pub async fn catalog(&self) -> Result<Arc<Catalog>, String> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, State::Learning)).await;
        match known.map(|state| state.clone()) {
            Ok(State::Ready(catalog)) => Ok(catalog),
            Ok(State::Failed(why) | State::Waiting(why)) => Err(why),
            Ok(State::Learning) | Err(_) => Err("the bridge is stopping".to_owned()),
        }
    }

    /// The catalogue, once there is one.
    pub async fn ready(&self) -> Option<Arc<Catalog>> {
        let mut state = self.state.subscribe();
        let ready = state.wait_for(|state| matches!(state, State::Ready(_))).await.ok()?;
        match &*ready {
            State::Ready(catalog) => Some(Arc::clone(catalog)),
            State::Learning | State::Failed(_) | State::Waiting(_) => None,
        }
    }

    /// The catalogue for a client of this era that waits: the server is learnt before those that no client
    /// waits for. If it speaks the client's era, it does not matter whether it speaks the other one.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub async fn catalog_for_client(&self, client: Era) -> Result<Arc<Catalog>, String> {
        self.wanted.send_modify(|wanted| wanted.add(client));
        let mut half = self.half.subscribe();
        let speaks =
            |half: &Option<Arc<Catalog>>| half.as_ref().is_some_and(|it| it.speaks(client));
        tokio::select! {
            biased;
            known = self.catalog() => known,
            Ok(known) = half.wait_for(speaks) => {
                known.clone().ok_or_else(|| "it is not known yet".to_owned())
            }
        }
    }

    /// The catalogue, if as much of it is known as a client of this era needs.
    pub fn known_to(&self, client: Era) -> Option<Arc<Catalog>> {
        match self.state() {
            State::Ready(catalog) => Some(catalog),
            _ => self.half.borrow().clone().filter(|half| half.speaks(client)),
        }
    }

    /// Notes what a server offers in one era while the other is learnt.
    pub(super) fn set_half(&self, era: Era, facts: &Facts) {
        let mut catalog = Catalog::of(era, facts.clone());
        self.half.send_modify(|half| {
            if let Some(half) = half.take() {
                catalog.legacy = catalog.legacy.take().or_else(|| half.legacy.clone());
                catalog.modern = catalog.modern.take().or_else(|| half.modern.clone());
            }
            catalog.read_rules();
            catalog.hide(&self.back.server.disabled_tools);
            *half = Some(Arc::new(catalog));
        });
        // Those who waited for it go on, each with what was started for it or without.
        self.back.settle_ahead();
    }

    /// The catalogue, learnt now if it is not on disk.
    ///
    /// # Errors
    ///
    /// Why the server could not be learnt, for people.
    pub async fn learnt(&self) -> Result<Arc<Catalog>, String> {
        if let State::Learning = self.state() {
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
                    self.set_unless_known(State::Waiting(why));
                    return self.back.settle_ahead();
                }
                Err(why) => {
                    tracing::error!(server = %self.back.server.name, why, retry_in = ?pause, "server failed");
                    self.set_trouble(Some(&why));
                    // What was known stays known: the server may be well for a real call.
                    self.set_unless_known(State::Failed(why));
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

    /// Notes the eras of a server that was learnt with a person's values, which are nobody else's.
    pub(super) fn set_eras(&self, catalog: &Catalog) {
        self.set_unless_known(State::Ready(Arc::new(catalog.eras_only())));
    }

    fn set_unless_known(&self, new: State) {
        self.state.send_if_modified(|state| {
            let is_unknown = !matches!(state, State::Ready(_));
            if is_unknown {
                *state = new;
            }
            is_unknown
        });
    }

    /// Takes over what was learnt; false if an era was not heard that the server may speak.
    fn set(&self, learnt: Learnt) -> bool {
        let before = match self.state() {
            State::Ready(catalog) => Some(catalog),
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
        self.state.send_replace(State::Ready(Arc::new(catalog)));
        self.half.send_replace(None);
        self.back.settle_ahead();
        unheard.is_none()
    }
}
