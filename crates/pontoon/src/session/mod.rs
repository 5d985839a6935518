//! The middle: whose call it is, whether it may run, and who answers.
//!
//! [`Sessions::submit`] takes a call from a front. What the catalogue knows is answered here; the
//! rest becomes a task of the server's back, and the middle is done with it.

pub mod admit;
pub mod answers;
pub mod catalog;
pub mod legacy;
pub mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind, Message, Slot, method, quoted};
use tokio_util::task::TaskTracker;

use self::admit::Admission;
use self::catalog::{Catalog, Entry, State};
use self::legacy::Session;
use crate::back::listen::{Filter, end};
use crate::call::{Call, CallError, plain_notification};
use crate::config::Mode;

/// Sessions without a sign of life end after this.
const SESSION_LIFE: Duration = Duration::from_secs(1800);

/// More sessions than this are not opened.
const MAX_SESSIONS: usize = 10_000;

/// Every client with us, and every server they can talk to.
#[derive(Debug)]
pub struct Sessions {
    /// The servers by name.
    pub entries: HashMap<String, Arc<Entry>>,
    /// The limits on calls.
    pub admission: Admission,
    /// The calls under way, for an orderly stop.
    pub tasks: TaskTracker,
    table: Mutex<HashMap<Arc<str>, Arc<Session>>>,
}

impl Sessions {
    /// No client yet.
    pub fn new(entries: Vec<Entry>, admission: Admission) -> Self {
        let named = |entry: Entry| (entry.back.server.name.to_string(), Arc::new(entry));
        Self {
            entries: entries.into_iter().map(named).collect(),
            admission,
            tasks: TaskTracker::new(),
            table: Mutex::default(),
        }
    }

    /// Opens a session, and gives it with the answer to `initialize`.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the server cannot be used or there are too many sessions.
    pub async fn open(
        &self,
        entry: &Arc<Entry>,
        initialize: &Message,
    ) -> Result<(Arc<Session>, String), CallError> {
        let catalog = entry.catalog().await.map_err(|why| failed(entry, &why))?;
        let facts = catalog.facts(Era::Legacy).ok_or(CallError::Internal)?;
        let session = Arc::new(Session::open(Arc::clone(entry), initialize));
        let mut table = self.lock();
        if table.len() >= MAX_SESSIONS && !evict_stalest(&mut table) {
            let what = format!("all {MAX_SESSIONS} sessions are in use");
            return Err(CallError::Busy { what, retry_after_seconds: 60 });
        }
        table.insert(Arc::clone(&session.id), Arc::clone(&session));
        let result = answers::initialize(facts, session.revision, entry.back.server.mode);
        Ok((session, result))
    }

    /// The session with this id, if it is one of this server's.
    pub fn find(&self, entry: &Arc<Entry>, id: &str) -> Option<Arc<Session>> {
        let session = self.lock().get(id).cloned()?;
        Arc::ptr_eq(&session.entry, entry).then_some(session)
    }

    /// Ends a session at its client's wish.
    pub fn close(&self, session: &Session) {
        self.lock().remove(&session.id);
        session.end();
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
            stale.iter().for_each(|session| drop(table.remove(&session.id)));
            stale
        };
        stale.iter().for_each(|session| session.end());
        self.entries.values().for_each(|entry| entry.back.sweep());
    }

    /// Waits until the server is known.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, to be told to the client.
    pub async fn known(&self, entry: &Entry) -> Result<(), CallError> {
        entry.catalog().await.map(drop).map_err(|why| failed(entry, &why))
    }

    /// Takes a call to a server that is known, and sees that it is answered. `session` is the legacy
    /// client's.
    pub fn submit(self: &Arc<Self>, entry: &Arc<Entry>, session: Option<Arc<Session>>, call: Call) {
        match entry.state() {
            State::Ready(catalog) => self.route(&catalog, entry, session, call),
            State::Failed(why) => call.reply.fail(failed(entry, &why)),
            State::Learning => call.reply.fail(failed(entry, "it is not known yet")),
        }
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
        let child_era = catalog.child_era(call.client.era());
        let is_listen = call.request.method() == method::LISTEN;
        if is_listen && entry.back.server.mode == Mode::Stateless {
            self.tasks.spawn(listen_to_catalog(Arc::clone(entry), call));
            return;
        }
        if !is_listen {
            match self.admission.admit(entry.back.server.mode) {
                Ok(permit) => call.reply.hold(permit),
                Err(busy) => return call.reply.fail(busy),
            }
        }
        let open = session.map(|session| session.begin(call.reply.id().clone()));
        if let Some(open) = &open {
            call.cancel = open.cancel.clone();
        }
        let back = Arc::clone(&entry.back);
        self.tasks.spawn(async move {
            back.take(call, child_era).await;
            drop(open);
        });
    }

    /// Takes a message of a legacy client that wants no answer.
    pub fn note(&self, session: &Session, message: &Message) {
        session.touch();
        if message.kind() == Kind::Answer {
            if !session.questions.answer(message) {
                tracing::debug!("an answer to no question was dropped");
            }
            return;
        }
        match message.method().as_ref() {
            method::INITIALIZED | method::PROGRESS => {}
            method::CANCELLED => session.cancel(message.raw(Slot::RequestId).unwrap_or_default()),
            _ => {
                let State::Ready(catalog) = session.entry.state() else { return };
                let client = session.client();
                let child_era = catalog.child_era(Era::Legacy);
                if let Some(live) = session
                    .entry
                    .back
                    .kept(&client, child_era)
                    .filter(|live| live.era == Era::Legacy)
                {
                    live.link.say(message.clone());
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Session>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room by ending the session that was quiet longest. False if all are in use.
fn evict_stalest(table: &mut HashMap<Arc<str>, Arc<Session>>) -> bool {
    let idle = table.values().filter(|session| session.is_stale(Duration::ZERO));
    let Some(stalest) = idle.min_by_key(|session| session.last_used()).cloned() else {
        return false;
    };
    table.remove(&stalest.id);
    stalest.end();
    true
}

fn failed(entry: &Entry, why: &str) -> CallError {
    CallError::ServerFailed(format!(
        "the server `{}` does not start: {why}",
        entry.back.server.name
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
    if let Some(live) = entry.back.kept(&session.client(), catalog.child_era(Era::Legacy)) {
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
    let client = session.client();
    let live = entry.back.kept(&client, Era::Modern);
    if let (Some(live), Some(feed)) = (live, &client.feed) {
        live.feed(feed, &client.subscriptions);
        call.reply.result("{}");
        return None;
    }
    // The child starts with the subscription already in its feed.
    let back = Arc::clone(&entry.back);
    tokio::spawn(async move {
        match back.lease(&client, Era::Modern).await {
            Ok(_) => call.reply.result("{}"),
            Err(error) => call.reply.fail(error),
        }
    });
    None
}

/// Answers what a modern client may hear from us; gives the call back if it must go to a child.
fn answer_modern(catalog: &Catalog, entry: &Entry, call: Call) -> Option<Call> {
    let method = call.request.method().into_owned();
    if method == method::DISCOVER {
        match catalog.facts(Era::Modern) {
            Some(facts) => call.reply.result(&answers::discover(facts, entry.back.server.mode)),
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

/// With a process for each request, what can change is the catalogue: a subscription hears of that.
async fn listen_to_catalog(entry: Arc<Entry>, call: Call) {
    let Call { request, cancel, reply, .. } = call;
    let mut changes = entry.changes();
    let capabilities = match &*changes.borrow_and_update() {
        State::Ready(catalog) => catalog
            .facts(Era::Modern)
            .map(|facts| facts.capabilities.get().to_owned())
            .unwrap_or_default(),
        _ => String::new(),
    };
    let mut filter = Filter::of(&request).within(capabilities.as_bytes());
    filter.uris.clear();
    reply.note(filter.acknowledgement(reply.id()).into());
    loop {
        tokio::select! {
            () = cancel.cancelled() => return reply.forget(),
            () = entry.back.stop.cancelled() => return end(reply),
            changed = changes.changed() => if changed.is_err() { return end(reply) },
        }
        for list in [method::TOOLS_CHANGED, method::PROMPTS_CHANGED, method::RESOURCES_CHANGED] {
            let note = Message::own(plain_notification(list).to_vec());
            if filter.wants(&note) {
                reply.note(pontoon_wire::era::to_modern_note(&note, reply.id()).into());
            }
        }
    }
}
