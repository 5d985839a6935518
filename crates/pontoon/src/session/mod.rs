//! The middle: whose call it is, whether it may run, and who answers.
//!
//! [`Sessions::submit`] takes a call from a front. What the catalogue knows is answered here; the
//! rest becomes a task of the server's back, and the middle is done with it.

pub mod admit;
mod answered_here;
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

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind as MessageKind, Message, Slot, method};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use self::admit::Admission;
use self::catalog::{Catalog, Entry};
use self::ended::Ended;
use self::legacy::{OpenCall, Session};
use self::memory::Memory;
use self::personal::PersonalCatalogs;
use crate::call::{Call, CallError};
use crate::client::{Client, Key, Person, Principal};
use crate::clock::Stage;
use crate::config::{Mode, Server};
use crate::held_bytes::HeldBytes;
use crate::ids::Ids;
use crate::observe::metrics::{Ending, Kind, Limit};

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

/// How a request came.
#[derive(Debug)]
pub enum Arrival<'h> {
    /// In the session of a legacy client.
    InSession(Arc<Session>),
    /// By itself, as those of modern clients do, with these headers.
    Alone(Vec<(&'h str, &'h [u8])>),
}

/// The same, with the call noted as open where it is one of a session.
enum Arrived<'h> {
    InSession(OpenCall),
    Alone(Vec<(&'h str, &'h [u8])>),
}

impl Arrived<'_> {
    fn into_open(self) -> Option<OpenCall> {
        match self {
            Self::InSession(open) => Some(open),
            Self::Alone(_) => None,
        }
    }
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
            .map_or_else(|error| Ending::of_status(error.status()), |_| Ending::Answered);
        entry.back.metrics.call_ended(Kind::Handshake, ending, began.elapsed());
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
            let entries = self.entries();
            let life = |session: &Session| {
                ended::life(entries.get(session.server.as_str()).map(|it| it.back.server.mode))
            };
            let mut table = self.lock();
            let stale = table.values().filter(|session| session.is_stale(life(session))).cloned();
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

    /// Takes a call to a server, and sees that it is answered. It waits until it is known what the server
    /// offers; a call that is dropped meanwhile was not made.
    ///
    /// Not an `async fn`: a call that can go on at once does so here, and is not moved into a future first.
    pub fn submit<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        arrival: Arrival<'a>,
        mut call: Call,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let began = Instant::now();
        let arrived = match arrival {
            Arrival::Alone(headers) => Some(Arrived::Alone(headers)),
            Arrival::InSession(session) => {
                let open = session.begin(call.reply.id().clone(), call.cancel.clone());
                open.map(Arrived::InSession)
            }
        };
        let waiting = match (arrived, Self::known_now(entry)) {
            (None, _) => {
                let ended = ErrorObject::new(code::UNKNOWN_SESSION, NoSession::Unknown.to_string());
                call.reply.fail(CallError::Told(ended, 404));
                None
            }
            (Some(arrived), Some(catalog)) => {
                self.count_call(entry, &mut call, began);
                self.route(&catalog, entry, arrived, call);
                None
            }
            (Some(arrived), None) => {
                Some(Box::pin(self.submit_when_known(entry, arrived, call, began)))
            }
        };
        async move {
            if let Some(waiting) = waiting {
                waiting.await;
            }
        }
    }

    /// Waits until it is known what the server offers, no longer than the client wants its answer.
    async fn submit_when_known(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        arrived: Arrived<'_>,
        mut call: Call,
        began: Instant,
    ) {
        let known = tokio::select! {
            biased;
            () = call.cancel.cancelled() => None,
            known = self.known(entry, &call) => Some(known),
        };
        self.count_call(entry, &mut call, began);
        match known {
            Some(Ok(catalog)) => self.route(&catalog, entry, arrived, call),
            Some(Err(why)) => call.reply.fail(why),
            None => call.reply.forget(),
        }
    }

    /// Counts a call from when it came.
    fn count_call(&self, entry: &Entry, call: &mut Call, began: Instant) {
        let kind = Kind::of(&call.request.method());
        call.reply.count(&entry.back.metrics, kind, &call.client, began);
        call.reply.count_bytes(&self.held);
    }

    fn route(
        self: &Arc<Self>,
        catalog: &Arc<Catalog>,
        entry: &Arc<Entry>,
        arrived: Arrived<'_>,
        call: Call,
    ) {
        let call = match &arrived {
            Arrived::InSession(open) => answered_here::legacy(catalog, entry, open.session(), call),
            Arrived::Alone(headers) => answered_here::modern(catalog, entry, headers, call),
        };
        let Some(mut call) = call else { return };
        if let Some(refusal) = answered_here::disabled(entry, &call.request) {
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
        let open = arrived.into_open();
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
                entry.back.pass_on(client, catalog.child_era(Era::Legacy), message);
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

fn failed(entry: &Entry, why: &str) -> CallError {
    CallError::ServerFailed(format!(
        "the server `{}` does not start: {}",
        entry.back.server.name,
        entry.back.told_of_start(why)
    ))
}
