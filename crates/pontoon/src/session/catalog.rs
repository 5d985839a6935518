//! The catalogue: what each server offers, known without asking it again.
//!
//! It is learnt by throw-away children, one for each era, and kept on disk, so that `initialize`,
//! `server/discover` and the lists are answered at once and start nothing. A server that cannot be
//! learnt is tried again with growing pauses, and delays no other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::headers::ParamRules;
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, json, method, string_value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::kept;
use crate::back::Back;
use crate::back::children::{StartError, chain, modern_request, now, own_info, own_request_with};
use crate::back::handshake::{HandshakeError, Opening};
use crate::back::link::Purpose;
use crate::back::live::Live;
use crate::back::mailbox::Heard;
use crate::call::list_member;

/// How many pages of a list are read: a server that never ends one is wrong.
const MAX_PAGES: usize = 1000;

/// The pauses between tries grow up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long after a change the lists are read again.
const SETTLE: Duration = Duration::from_secs(2);

/// How soon a server is tried again because calls of it failed.
const DOUBT: Duration = Duration::from_secs(10);

/// How long a start counts among those at once. One that takes longer waits for something, and takes
/// nothing from the others.
const BUSY: Duration = Duration::from_secs(2);

/// How much longer than the legacy era the modern one may take to be learnt.
const PROBE: Duration = Duration::from_secs(10);

/// How soon a server is learnt again of which an era was not heard; this grows, too.
const UNHEARD: Duration = Duration::from_secs(60);

/// How old a catalogue may grow before it is learnt anew.
const MAX_AGE: Duration = Duration::from_secs(3600);

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

    /// What a client of this era is told.
    pub fn facts(&self, client: Era) -> Option<&Facts> {
        match self.child_era(client) {
            Era::Legacy => self.legacy.as_ref(),
            Era::Modern => self.modern.as_ref(),
        }
    }

    /// Leaves these tools out.
    fn hide(&mut self, tools: &[String]) {
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

impl Facts {
    /// The same without the folders of the child that told them: they are gone by the time anyone
    /// reads them, and servers do like to tell where they work.
    fn without_paths(self, live: &Live) -> Self {
        let temporary = live.temporary_directory();
        self.without_path(live.directory(), ".").without_path(temporary, "/tmp")
    }

    fn without_path(mut self, directory: Option<&Path>, instead: &str) -> Self {
        let Some(directory) = directory.and_then(Path::to_str) else { return self };
        let directory = pontoon_wire::quoted(directory);
        let written = directory.trim_matches('"');
        let forget = |raw: &mut Box<RawValue>| {
            if raw.get().contains(written)
                && let Ok(without) = RawValue::from_string(raw.get().replace(written, instead))
            {
                *raw = without;
            }
        };
        self.instructions.iter_mut().for_each(forget);
        self.lists.values_mut().flatten().for_each(forget);
        self
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
}

/// The catalogue of one server, and the task that keeps it.
#[derive(Debug)]
pub struct Entry {
    /// The server's children.
    pub back: Arc<Back>,
    state: watch::Sender<State>,
    /// Told when a client waits for it.
    wanted: Notify,
    /// Why the last try to learn it failed, if it did.
    trouble: Mutex<Option<String>>,
    file: Option<PathBuf>,
}

impl Entry {
    /// An entry that begins with what is on disk, if there is anything.
    pub fn new(back: Arc<Back>, state_dir: Option<&Path>) -> Self {
        let file = state_dir.map(|dir| {
            dir.join("catalog")
                .join(format!("{}-{:016x}.json", back.server.name, back.server.fingerprint))
        });
        let hidden = &back.server.disabled_tools;
        let kept = file.as_deref().and_then(kept::read).map(|mut catalog| {
            catalog.hide(hidden);
            State::Ready(Arc::new(catalog))
        });
        let state = watch::Sender::new(kept.unwrap_or(State::Learning));
        Self { back, state, wanted: Notify::new(), trouble: Mutex::default(), file }
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
            Ok(State::Failed(why)) => Err(why),
            Ok(State::Learning) | Err(_) => Err("the bridge is stopping".to_owned()),
        }
    }

    /// The catalogue, once there is one.
    pub async fn ready(&self) -> Option<Arc<Catalog>> {
        let mut state = self.state.subscribe();
        let ready = state.wait_for(|state| matches!(state, State::Ready(_))).await.ok()?;
        match &*ready {
            State::Ready(catalog) => Some(Arc::clone(catalog)),
            State::Learning | State::Failed(_) => None,
        }
    }

    /// The catalogue for a client that waits: the server is learnt before those that no client waits for.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub async fn catalog_for_client(&self) -> Result<Arc<Catalog>, String> {
        self.wanted.notify_one();
        self.catalog().await
    }

    /// The catalogue, learnt now if it is not on disk.
    ///
    /// # Errors
    ///
    /// Why the server could not be learnt, for people.
    pub async fn learnt(&self) -> Result<Arc<Catalog>, String> {
        if let State::Learning = self.state() {
            self.set(learn(&self.back).await?);
        }
        self.catalog().await
    }

    /// Learns the server as soon as it has its turn: at once if a client waits for it, or if there is
    /// no program to start.
    async fn learn_in_turn(&self, starts: &Semaphore) -> Result<Learnt, String> {
        self.back.server.find_program().map_err(|error| chain(&error))?;
        let is_unknown = matches!(self.state(), State::Learning);
        let permit = tokio::select! {
            biased;
            permit = starts.acquire() => permit.ok(),
            () = self.wanted.notified(), if is_unknown => None,
        };
        let mut learning = std::pin::pin!(learn(&self.back));
        tokio::select! {
            learnt = &mut learning => return learnt,
            () = tokio::time::sleep(BUSY) => drop(permit),
        }
        learning.await
    }

    /// Learns the server now and whenever it is due. `starts` bounds how many servers start at once.
    pub async fn keep(self: Arc<Self>, starts: Arc<Semaphore>) {
        let (mut pause, mut unheard) = (Duration::from_secs(1), UNHEARD);
        loop {
            let wait = match self.learn_in_turn(&starts).await {
                Ok(learnt) => {
                    pause = Duration::from_secs(1);
                    let is_whole = self.set(learnt);
                    self.set_trouble(None);
                    let wait = if is_whole { MAX_AGE } else { unheard };
                    unheard = if is_whole { UNHEARD } else { (2 * unheard).min(MAX_AGE) };
                    wait
                }
                Err(why) => {
                    tracing::error!(server = %self.back.server.name, why, retry_in = ?pause, "server failed");
                    self.set_trouble(Some(&why));
                    // What was known stays known: the server may be well for a real call.
                    self.state.send_if_modified(|state| {
                        let is_unknown = !matches!(state, State::Ready(_));
                        if is_unknown {
                            *state = State::Failed(why);
                        }
                        is_unknown
                    });
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            let learnt = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Whether it works for nobody any more is for `/health` to tell.
                () = self.back.doubted.notified() => tokio::time::sleep_until(learnt + DOUBT).await,
                // Changes come in bursts, and each is a reason to look only once.
                () = self.back.changed.notified() => tokio::time::sleep(SETTLE).await,
            }
        }
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
            && let Err(error) = kept::write(file, &catalog)
        {
            tracing::warn!(file = %file.display(), error = &error as &dyn std::error::Error, "catalogue not kept");
        }
        catalog.hide(&self.back.server.disabled_tools);
        self.state.send_replace(State::Ready(Arc::new(catalog)));
        unheard.is_none()
    }
}

/// What was learnt of each era, or why not.
struct Learnt {
    legacy: Result<Facts, LearnError>,
    modern: Result<Facts, LearnError>,
}

/// Why an era could not be learnt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LearnError {
    /// The server said that it does not speak it.
    #[error("{0}")]
    Refused(String),
    /// Something went wrong, which says nothing about the server's eras.
    #[error("{0}")]
    Failed(String),
    /// Nothing was heard in time, which says as little. Another try may show more.
    #[error("{0}")]
    Slow(String),
}

impl Learnt {
    /// The era of which nothing was heard, if there is one: that it was slow proves nothing.
    fn unheard(&self) -> Option<(Era, &LearnError)> {
        match (&self.legacy, &self.modern) {
            (Err(why @ LearnError::Slow(_)), _) => Some((Era::Legacy, why)),
            (_, Err(why @ LearnError::Slow(_))) => Some((Era::Modern, why)),
            _ => None,
        }
    }

    /// The catalogue. An era that was known stays known if only something went wrong this time.
    fn into_catalog(self, before: Option<&Catalog>) -> Catalog {
        let keep = |learnt: Result<Facts, LearnError>, before: Option<&Facts>| match learnt {
            Ok(facts) => Some(facts),
            Err(LearnError::Refused(_)) => None,
            Err(LearnError::Failed(_) | LearnError::Slow(_)) => before.cloned(),
        };
        let mut catalog = Catalog {
            legacy: keep(self.legacy, before.and_then(|before| before.legacy.as_ref())),
            modern: keep(self.modern, before.and_then(|before| before.modern.as_ref())),
            rules: HashMap::new(),
        };
        catalog.read_rules();
        catalog
    }
}

/// Learns what a server offers, in both eras at once, each from a child of its own.
async fn learn(back: &Back) -> Result<Learnt, String> {
    let known = CancellationToken::new();
    let (legacy, modern) = tokio::join!(
        async {
            let _known = known.clone().drop_guard();
            learn_legacy(back).await
        },
        learn_modern(back, &known)
    );
    if let (Err(legacy), Err(modern)) = (&legacy, &modern) {
        let (legacy, modern) = (legacy.to_string(), modern.to_string());
        return Err(match legacy == modern {
            true => legacy,
            false => format!("{legacy} (and for the modern era: {modern})"),
        });
    }
    Ok(Learnt { legacy, modern })
}

async fn learn_legacy(back: &Back) -> Result<Facts, LearnError> {
    let opening = Opening::Legacy {
        revision: Revision::NEWEST_LEGACY,
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
    };
    let live = back.start_to_learn(&opening).await.map_err(|error| match &error {
        StartError::Handshake { error: HandshakeError::Refused(_), .. } => {
            LearnError::Refused(chain(&error))
        }
        StartError::Handshake { error: HandshakeError::Silent, .. } => {
            LearnError::Slow(chain(&error))
        }
        _ => LearnError::Failed(chain(&error)),
    })?;
    let silent = || LearnError::Failed("it did not answer `initialize`".to_owned());
    let hello = live.hello.clone().ok_or_else(silent)?;
    let result = hello.raw(Slot::Result).unwrap_or(b"{}");
    let facts = learn_lists(&live, result, json::find(result, "serverInfo")).await?;
    Ok(facts.without_paths(&live))
}

/// A server of the legacy era alone may never answer, so this waits not much longer than the other
/// child takes, which is `known` then: both have the same way to start.
async fn learn_modern(back: &Back, known: &CancellationToken) -> Result<Facts, LearnError> {
    let live = back.start_to_learn(&Opening::Modern).await;
    let live = live.map_err(|error| LearnError::Failed(chain(&error)))?;
    let late = async {
        known.cancelled().await;
        tokio::time::sleep(PROBE).await;
    };
    let discovered = tokio::select! {
        discovered = ask(&live, method::DISCOVER, "{}") => discovered?,
        () = late => {
            let (seconds, method) = (PROBE.as_secs(), method::DISCOVER);
            let text = format!("it did not answer `{method}` within {seconds} s of the other era");
            return Err(LearnError::Slow(text));
        }
    };
    let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
    let versions = json::find(result, "supportedVersions").unwrap_or(b"[]");
    let mut versions = json::elements(versions, 0..versions.len()).map(|range| &versions[range]);
    let newest = format!("\"{}\"", Revision::NEWEST_MODERN);
    if !versions.any(|version| version == newest.as_bytes()) {
        return Err(LearnError::Refused(format!("it does not speak {}", Revision::NEWEST_MODERN)));
    }
    let facts = learn_lists(&live, result, discovered.raw(Slot::ResultServerInfo)).await?;
    Ok(facts.without_paths(&live))
}

async fn learn_lists(
    live: &Live,
    hello: &[u8],
    server_info: Option<&[u8]>,
) -> Result<Facts, LearnError> {
    let capabilities = json::find(hello, "capabilities").unwrap_or(b"{}");
    let mut facts = Facts {
        capabilities: raw(capabilities)?,
        server_info: server_info.map(raw).transpose()?,
        instructions: json::find(hello, "instructions").map(raw).transpose()?,
        lists: HashMap::new(),
        hints: HashMap::new(),
    };
    for (list, capability) in [
        (method::LIST_TOOLS, "tools"),
        (method::LIST_PROMPTS, "prompts"),
        (method::LIST_RESOURCES, "resources"),
        (method::LIST_TEMPLATES, "resources"),
    ] {
        if json::find(capabilities, capability).is_some() {
            learn_list(live, list, &mut facts).await?;
        }
    }
    Ok(facts)
}

/// Reads all pages of a list.
async fn learn_list(live: &Live, list: &str, facts: &mut Facts) -> Result<(), LearnError> {
    let member = list_member(list).unwrap_or_default();
    let mut items = Vec::new();
    let mut cursor: Option<Bytes> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.as_ref().map_or_else(
            || "{}".to_owned(),
            |cursor| format!("{{\"cursor\":{}}}", String::from_utf8_lossy(cursor)),
        );
        let page = match ask(live, list, &params).await {
            Ok(page) => page,
            // A server may lack a list that its capabilities promise; then it is empty.
            Err(LearnError::Refused(_)) if cursor.is_none() => break,
            Err(LearnError::Slow(why)) => return Err(LearnError::Slow(why)),
            Err(why) => return Err(LearnError::Failed(format!("{list}: {why}"))),
        };
        let result = page.raw(Slot::Result).unwrap_or(b"{}");
        let array = json::find(result, member).unwrap_or(b"[]");
        for range in json::elements(array, 0..array.len()) {
            items.push(raw(&array[range])?);
        }
        note_hints(&page, list, facts);
        let next = page.copy(Slot::NextCursor).filter(|next| next.as_ref() != b"null");
        if next.is_none() || next == cursor {
            break;
        }
        cursor = next;
    }
    facts.lists.insert(list.to_owned(), items);
    Ok(())
}

/// Keeps the strictest of the caching hints on a list's pages.
fn note_hints(page: &Message, list: &str, facts: &mut Facts) {
    let ttl = page.raw(Slot::TtlMs).and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
    let scope = page.string(Slot::CacheScope).map(|scope| scope.into_owned());
    let (ttl, scope) = (ttl.unwrap_or(0), scope.unwrap_or_else(|| "private".to_owned()));
    let hints = facts.hints.entry(list.to_owned()).or_insert_with(|| (ttl, scope.clone()));
    hints.0 = hints.0.min(ttl);
    if scope == "private" {
        hints.1 = scope;
    }
}

fn raw(text: &[u8]) -> Result<Box<RawValue>, LearnError> {
    RawValue::from_string(String::from_utf8_lossy(text).into_owned())
        .map_err(|error| LearnError::Failed(error.to_string()))
}

/// Asks a throw-away child, and gives its result or the reason why there is none.
async fn ask(live: &Live, method: &str, params: &str) -> Result<Message, LearnError> {
    let request = own_request_with(method, params);
    let request = match live.era {
        Era::Legacy => Rewrite::new(request),
        Era::Modern => modern_request(request),
    };
    let patience = 60;
    let deadline = now() + Duration::from_secs(patience);
    let mut asked = live.link.ask(request, Some(deadline), Purpose::Own);
    loop {
        match asked.heard().await {
            Heard::Answer(answer) if answer.has(Slot::Error) => {
                let text = answer.string(Slot::ErrorMessage).unwrap_or_default();
                let text = format!("it answered `{method}` with an error: {text}");
                return Err(LearnError::Refused(text));
            }
            Heard::Answer(answer) => return Ok(answer),
            Heard::TimedOut(_) => {
                let text = format!("it did not answer `{method}` within {patience} s");
                return Err(LearnError::Slow(text));
            }
            Heard::Gone | Heard::Unsent | Heard::Clogged | Heard::Ended | Heard::Lost(_) => {
                return Err(LearnError::Failed(live.obituary().await));
            }
            Heard::Question(question) => {
                crate::back::refuse(&live.link, &question, "nobody is there to be asked");
            }
            Heard::Note(_) | Heard::Log(_) | Heard::Resumed(_) | Heard::Release => {}
        }
    }
}
