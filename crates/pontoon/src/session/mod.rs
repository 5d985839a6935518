//! The middle: whose call it is, whether it may run, and who answers.
//!
//! [`Sessions::submit`] takes a call from a front. What the catalogue knows is answered here; the
//! rest becomes a task of the server's back, and the middle is done with it.

pub mod admit;
pub mod answers;
pub mod catalog;
mod ended;
mod kept;
mod known;
mod learn;
pub mod legacy;
mod listen;
mod lists;
pub mod memory;
pub mod personal;
mod relearn;
pub mod stream;
pub mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind as MessageKind, Message, Slot, method, quoted};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use self::admit::Admission;
use self::catalog::{Catalog, Entry};
use self::ended::Ended;
use self::legacy::Session;
use self::memory::Memory;
use self::personal::PersonalCatalogs;
use crate::back::children::Use;
use crate::call::{Call, CallError};
use crate::client::{Client, Key, Person, Principal};
use crate::clock::Stage;
use crate::config::{Mode, Server};
use crate::held_bytes::HeldBytes;
use crate::ids::Ids;
use crate::observe::metrics::{CallEnding, Limit, RequestKind};

/// Sessions without a sign of life end after this.
const SESSION_LIFE: Duration = Duration::from_secs(1800);

/// More sessions than this are not opened.
const MAX_SESSIONS: usize = 10_000;

/// The servers by name.
pub type Entries = HashMap<String, Arc<Entry>>;

/// Every client with us, and every server they can talk to.
#[derive(Debug)]
pub struct Sessions {
    /// The servers by name; another table when the configuration changes.
    entries: RwLock<Arc<Entries>>,
    /// The limits on calls.
    pub admission: Admission,
    /// How a front end is to say who asks, told where it did not.
    pub ways_to_say_who: String,
    /// What servers that differ by who calls offer each person.
    personal: Arc<PersonalCatalogs>,
    /// The calls under way, for an orderly stop.
    pub tasks: TaskTracker,
    /// What the streams of all sessions keep.
    memory: Arc<Memory>,
    /// The bytes that are held for clients.
    held: Arc<HeldBytes>,
    table: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    /// Makes their ids.
    ids: Arc<Ids>,
    /// Those that have ended and must not go on, though their ids are good.
    ended: Mutex<Ended>,
}

/// Why a session cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoSession {
    /// It is none of ours, is another's, has ended, or is too old.
    #[error("the session is unknown or has ended: send `initialize` again")]
    Unknown,
    /// It could go on here, but there is no room for it.
    #[error(transparent)]
    Busy(CallError),
}

impl Sessions {
    /// No client yet.
    pub fn new(
        entries: Entries,
        admission: Admission,
        held: Arc<HeldBytes>,
        ids: Arc<Ids>,
        ways_to_say_who: String,
    ) -> Self {
        Self {
            entries: RwLock::new(Arc::new(entries)),
            admission,
            ways_to_say_who,
            personal: Arc::default(),
            tasks: TaskTracker::new(),
            memory: Memory::of_all(held.used().1),
            held,
            table: Mutex::default(),
            ids,
            ended: Mutex::default(),
        }
    }

    /// The servers as they are now.
    pub fn entries(&self) -> Arc<Entries> {
        Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves these servers from now on. Calls that are under way go on with what they have.
    pub fn replace(&self, entries: Entries) {
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries);
    }

    /// Opens a session, and gives it with the answer to `initialize`. `key_of` tells whose child will serve
    /// the session with this id.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the server cannot be used or there are too many sessions.
    pub async fn open(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        initialize: &Message,
        person: &Arc<Person>,
        key_of: impl FnOnce(&Arc<str>) -> Key,
    ) -> Result<(Arc<Session>, String), CallError> {
        let began = Instant::now();
        let opened = self.try_open(entry, initialize, person, key_of).await;
        let ending = opened
            .as_ref()
            .map_or_else(|error| CallEnding::of_status(error.status()), |_| CallEnding::Answered);
        entry.back.metrics.call_ended(RequestKind::Handshake, ending, began.elapsed());
        opened
    }

    async fn try_open(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        initialize: &Message,
        person: &Arc<Person>,
        key_of: impl FnOnce(&Arc<str>) -> Key,
    ) -> Result<(Arc<Session>, String), CallError> {
        let name = &entry.back.server.name;
        let hello = legacy::hello(initialize);
        let id = self.ids.session(name.as_str(), &person.principal, &hello, SystemTime::now());
        let key = key_of(&id);
        let catalog = self.catalog(entry, &key, person, Era::Legacy, method::INITIALIZE);
        let catalog = known::in_time(entry, &entry.back.clock(initialize), catalog).await?;
        let facts = catalog.facts(Era::Legacy).ok_or(CallError::Internal)?;
        let session = Session::new(id, name, hello, person, &self.ids, &self.memory);
        let session = self.add(Arc::new(session))?;
        let result = answers::initialize(facts, session.revision, &entry.back.server);
        Ok((session, result))
    }

    /// Takes a session in, if there is room for it; gives the one that has its id.
    fn add(&self, session: Arc<Session>) -> Result<Arc<Session>, CallError> {
        let mut table = self.lock();
        if let Some(known) = table.get(&session.id) {
            return Ok(Arc::clone(known));
        }
        let mut evicted = None;
        if table.len() >= MAX_SESSIONS / 2 {
            let own = table.values().filter(|known| known.principal == session.principal).count();
            let is_full = table.len() >= MAX_SESSIONS;
            if own >= MAX_SESSIONS / 2 {
                evicted = take_stalest(&mut table, &session.principal);
            } else if is_full {
                let greediest = greediest(&table);
                evicted = greediest.and_then(|greediest| take_stalest(&mut table, &greediest));
            }
            if evicted.is_none() && (is_full || own >= MAX_SESSIONS / 2) {
                self.admission.metrics.refused(Limit::Sessions);
                let what = format!("all {MAX_SESSIONS} sessions are in use");
                return Err(CallError::Busy { what, retry_after_seconds: 60 });
            }
        }
        table.insert(Arc::clone(&session.id), Arc::clone(&session));
        evicted.iter().for_each(|session| self.let_go(session));
        drop(table);
        evicted.iter().for_each(|session| self.end(session));
        Ok(session)
    }

    /// The session with this id, if it is one of this server's and of this person's. One that another
    /// bridge opened, or this one before it was started again, goes on here: its id has what it takes.
    ///
    /// # Errors
    ///
    /// [`NoSession`] says why not.
    pub fn find(
        &self,
        entry: &Entry,
        id: &str,
        person: &Person,
        now: SystemTime,
    ) -> Result<Arc<Session>, NoSession> {
        let name = &entry.back.server.name;
        // A forged id ends here: nothing is looked up for it.
        let facts = self.ids.read_session(id, name.as_str(), &person.principal);
        let facts = facts.ok_or(NoSession::Unknown)?;
        if let Some(session) = self.lock().get(id) {
            return Ok(Arc::clone(session));
        }
        let hello = facts.to_go_on(now).filter(|_| !self.has_ended(id));
        let hello = hello.ok_or(NoSession::Unknown)?;
        let session = Session::new(id.into(), name, hello, person, &self.ids, &self.memory);
        let session = self.add(Arc::new(session)).map_err(NoSession::Busy)?;
        // Its client may have ended it since it was looked for.
        if self.has_ended(id) {
            self.lock().remove(id);
            return Err(NoSession::Unknown);
        }
        tracing::info!(server = %name, "a session goes on that was opened elsewhere");
        Ok(session)
    }

    /// Ends the streams that belong to no call, so that connections can close.
    pub fn end_feeds(&self) {
        self.lock().values().for_each(|session| session.feed.outbox.finish(None));
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends the sessions whose clients are gone, and lets go of what waited too long.
    pub fn sweep(&self) {
        let stale: Vec<_> = {
            let mut table = self.lock();
            let stale = table.values().filter(|session| session.is_stale(SESSION_LIFE)).cloned();
            let stale: Vec<_> = stale.collect();
            for session in &stale {
                self.let_go(session);
                table.remove(&session.id);
            }
            stale
        };
        stale.iter().for_each(|session| self.end(session));
        self.memory.sweep(Instant::now());
        self.entries().values().for_each(|entry| entry.back.sweep());
    }

    /// Takes a call to a server that offers this, and sees that it is answered. `session` is the legacy
    /// client's.
    pub fn submit(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        catalog: &Arc<Catalog>,
        session: Option<Arc<Session>>,
        mut call: Call,
    ) {
        let kind = RequestKind::of(&call.request.method());
        call.reply.count(&entry.back.metrics, kind, &call.client);
        call.reply.count_bytes(&self.held);
        self.route(catalog, entry, session, call);
    }

    fn route(
        self: &Arc<Self>,
        catalog: &Arc<Catalog>,
        entry: &Arc<Entry>,
        session: Option<Arc<Session>>,
        call: Call,
    ) {
        let call = match &session {
            Some(session) => answer_legacy(catalog, entry, session, call),
            None => answer_modern(catalog, entry, call),
        };
        let Some(mut call) = call else { return };
        if let Some(refusal) = disabled(entry, &call.request) {
            return call.reply.error(&refusal);
        }
        let child_era = catalog.child_era(call.client.era());
        let is_listen = call.request.method() == method::LISTEN;
        if is_listen {
            match self.admission.admit_listen(&call.client) {
                Ok(permit) => call.reply.hold(permit),
                Err(busy) => return call.reply.fail(busy),
            }
        }
        let is_unnamed = call.client.key == Key::Unnamed;
        if is_listen && (is_unnamed || entry.back.server.mode == Mode::Stateless) {
            let (entry, catalog) = (Arc::clone(entry), Arc::clone(catalog));
            self.tasks.spawn(Arc::clone(self).listen_to_catalog(entry, catalog, call));
            return;
        }
        if is_unnamed {
            return call.reply.fail(self.unnamed(entry));
        }
        let mut must_wait = false;
        if !is_listen {
            match self.admission.admit(entry.back.server.mode, &call.client) {
                Ok(Some(permit)) => call.reply.hold(permit),
                Ok(None) => must_wait = true,
                Err(busy) => return call.reply.fail(busy),
            }
        }
        let open = session.map(|session| session.begin(call.reply.id().clone()));
        if let Some(open) = &open {
            call.cancel = open.cancel.clone();
        }
        let (sessions, back) = (Arc::clone(self), Arc::clone(&entry.back));
        let taking = async move {
            let call = match must_wait {
                true => Box::pin(sessions.wait_for_turn(&back.server, call)).await,
                false => Some(call),
            };
            if let Some(call) = call {
                back.take(call, child_era).await;
            }
            drop(open);
        };
        self.tasks.spawn(taking.in_current_span());
    }

    /// Why a call is refused of which only the key without a name is known.
    fn unnamed(&self, entry: &Entry) -> CallError {
        self.admission.metrics.refused(Limit::Identity);
        let text = format!(
            "it is not known who asks: the API key that was shown has no name and may be anybody's, but the server \
             `{}` keeps a process or a folder for each person, so this call was not made. What to do: {}",
            entry.back.server.name, self.ways_to_say_who
        );
        CallError::Told(ErrorObject::new(code::FORBIDDEN, text), 403)
    }

    /// Waits until a call may run. `None` if it was cancelled, or its turn did not come.
    async fn wait_for_turn(&self, server: &Server, mut call: Call) -> Option<Call> {
        let (mode, server) = (server.mode, server.name.as_str());
        call.clock.enter(Stage::Turn);
        let permit = tokio::select! {
            () = call.cancel.cancelled() => None,
            permit = call.clock.bound(self.admission.wait(mode, &call.client)) => Some(permit),
        };
        match permit {
            Some(Some(Ok(permit))) => {
                call.reply.hold(permit);
                return Some(call);
            }
            Some(Some(Err(busy))) => call.reply.fail(busy),
            Some(None) => call.reply.fail(call.clock.timed_out(server)),
            None => call.reply.forget(),
        }
        None
    }

    /// Takes a message of a legacy client that wants no answer.
    pub fn note(&self, entry: &Entry, session: &Session, client: &Client, message: &Message) {
        session.touch();
        if message.kind() == MessageKind::Answer {
            if !session.questions.answer(message) {
                tracing::debug!("an answer to no question was dropped");
            }
            return;
        }
        match message.method().as_ref() {
            method::INITIALIZED | method::PROGRESS => {}
            method::CANCELLED => session.cancel(message.raw(Slot::RequestId).unwrap_or_default()),
            _ => {
                let Some(catalog) = entry.known_to(Era::Legacy) else { return };
                let child_era = catalog.child_era(Era::Legacy);
                let live = entry.back.kept(client, child_era);
                if let Some(live) = live.filter(|live| live.era == Era::Legacy) {
                    live.link.say(message.clone());
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Session>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has the most sessions.
fn greediest(table: &HashMap<Arc<str>, Arc<Session>>) -> Option<Principal> {
    let mut counts: HashMap<&Principal, usize> = HashMap::new();
    table.values().for_each(|session| *counts.entry(&session.principal).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(principal, _)| principal.clone())
}

/// Takes out the session of this client that was quiet longest, if one is not in use.
fn take_stalest(
    table: &mut HashMap<Arc<str>, Arc<Session>>,
    whose: &Principal,
) -> Option<Arc<Session>> {
    let idle = table
        .values()
        .filter(|session| session.principal == *whose && session.is_stale(Duration::ZERO));
    let stalest = idle.min_by_key(|session| session.last_used()).cloned()?;
    table.remove(&stalest.id)
}

/// Why a call of a tool that is switched off is refused: for the client it is not there.
fn disabled(entry: &Entry, request: &Message) -> Option<ErrorObject> {
    let disabled = &entry.back.server.disabled_tools;
    if disabled.is_empty() || request.method() != method::CALL_TOOL {
        return None;
    }
    let name = request.string(Slot::Name).unwrap_or_default();
    let is_disabled = disabled.iter().any(|tool| *tool == name);
    is_disabled.then(|| {
        ErrorObject::new(code::INVALID_PARAMS, format!("there is no tool {:?}", name.as_ref()))
    })
}

fn failed(entry: &Entry, why: &str) -> CallError {
    CallError::ServerFailed(format!(
        "the server `{}` does not start: {}",
        entry.back.server.name,
        entry.back.told_of_start(why)
    ))
}

/// Answers what a legacy client may hear from us; gives the call back if it must go to a child.
fn answer_legacy(catalog: &Catalog, entry: &Entry, session: &Session, call: Call) -> Option<Call> {
    let method = call.request.method().into_owned();
    match method.as_str() {
        method::PING => call.reply.result("{}"),
        method::DISCOVER | method::LISTEN => call.reply.error(&answers::no_such_method(&method)),
        method::INITIALIZE => {
            let text = "the session is open already: end it, or send `initialize` without its id";
            call.reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
        method::SET_LEVEL => set_level(catalog, entry, session, call),
        method::SUBSCRIBE | method::UNSUBSCRIBE => return subscribe(catalog, entry, session, call),
        _ => return answer_list(catalog, entry, call),
    }
    None
}

fn set_level(catalog: &Catalog, entry: &Entry, session: &Session, call: Call) {
    if !answers::offers(catalog, Era::Legacy, "logging") {
        return call.reply.error(&answers::no_such_method(method::SET_LEVEL));
    }
    let level = call.request.string(Slot::Level).unwrap_or_default();
    if !method::LOG_LEVELS.contains(&level.as_ref()) {
        let text = format!("`level` must be one of {}", method::LOG_LEVELS.join(", "));
        return call.reply.error(&ErrorObject::new(code::INVALID_PARAMS, text));
    }
    let level = Bytes::from(quoted(&level));
    session.set_log_level(&level);
    if let Some(live) = entry.back.kept(&call.client, catalog.child_era(Era::Legacy)) {
        live.set_log_level(&level);
    }
    call.reply.result("{}");
}

/// A subscription goes to a legacy child as it is; a modern child is listened to anew.
fn subscribe(catalog: &Catalog, entry: &Entry, session: &Session, call: Call) -> Option<Call> {
    if entry.back.server.mode == Mode::Stateless {
        let text = "a server with a process for each request has no subscriptions";
        call.reply.error(&ErrorObject::new(code::METHOD_NOT_FOUND, text));
        return None;
    }
    let uri = call.request.string(Slot::Uri).unwrap_or_default().into_owned();
    if !session.subscribe(uri, call.request.method() == method::SUBSCRIBE) {
        let text = "too many subscriptions in this session, or too long an address";
        call.reply.error(&ErrorObject::new(code::INVALID_PARAMS, text));
        return None;
    }
    if catalog.child_era(Era::Legacy) == Era::Legacy {
        return Some(call);
    }
    // With the new subscription in it, which the call was made without.
    let client = session.client(call.client.key.clone(), Arc::clone(&call.client.person));
    let live = entry.back.kept(&client, Era::Modern);
    if let Some(live) = live {
        live.feed(&client);
        call.reply.result("{}");
        return None;
    }
    // The child starts with the subscription already in its feed.
    let back = Arc::clone(&entry.back);
    tokio::spawn(async move {
        let Call { clock, cancel, reply, .. } = call;
        match back.lease_unless(&cancel, &clock, Use::Listen, &client, Era::Modern).await {
            Some(Ok(_)) => reply.result("{}"),
            Some(Err(error)) => reply.fail(error),
            None => reply.forget(),
        }
    });
    None
}

/// Answers what a modern client may hear from us; gives the call back if it must go to a child.
fn answer_modern(catalog: &Catalog, entry: &Entry, call: Call) -> Option<Call> {
    let method = call.request.method().into_owned();
    if method == method::DISCOVER {
        match catalog.facts(Era::Modern) {
            Some(facts) => call.reply.result(&answers::discover(facts, &entry.back.server)),
            None => call.reply.fail(CallError::Internal),
        }
        return None;
    }
    if method::is_legacy_only(&method) {
        call.reply.error(&answers::no_such_method(&method));
        return None;
    }
    answer_list(catalog, entry, call)
}

/// Lists come from the catalogue, unless the client's own child has said that they changed, or the
/// resources may differ there.
fn answer_list(catalog: &Catalog, entry: &Entry, call: Call) -> Option<Call> {
    let client_era = call.client.era();
    let Some(answer) = answers::list(catalog, &call.request, client_era) else { return Some(call) };
    let is_lively = call.request.method() == method::LIST_RESOURCES;
    let live = entry.back.kept(&call.client, catalog.child_era(client_era));
    if live.is_some_and(|live| is_lively || live.link.lists_changed()) {
        return Some(call);
    }
    match answer {
        Ok(result) => call.reply.result(&result),
        Err(error) => call.reply.error(&error),
    }
    None
}
