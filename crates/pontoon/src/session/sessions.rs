//! Every client with us: the table of sessions, those that come and go on, and those that end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use indexmap::IndexMap;
use pontoon_wire::Era;
use tokio_util::task::TaskTracker;

use super::admit::Admission;
use super::ended::{self, EndedSessions};
use super::entry::Entry;
use super::legacy::Session;
use super::memory::Memory;
use super::personal::PersonalCatalogs;
use crate::call::CallError;
use crate::client::{Person, Principal};
use crate::clock::now;
use crate::held_bytes::HeldBytes;
use crate::ids::Ids;
use crate::observe::metrics::Limit;

/// More sessions than this are not opened.
const MAX_SESSIONS: usize = 10_000;

/// The servers by name, in the order of the configuration.
pub type Entries = IndexMap<String, Arc<Entry>>;

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
    pub(super) personal: Arc<PersonalCatalogs>,
    /// The calls under way, for an orderly stop.
    pub tasks: TaskTracker,
    /// What the streams of all sessions keep.
    pub(super) memory: Arc<Memory>,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    table: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    /// Makes their ids.
    pub(super) ids: Arc<Ids>,
    /// Those that have ended and must not go on, though their ids are good.
    ended: Mutex<EndedSessions>,
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
            memory: Memory::of_all(held.budget()),
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
        let new = Arc::new(entries);
        let before = {
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *entries, Arc::clone(&new))
        };
        let open: Vec<_> = self.lock().values().cloned().collect();
        for session in &open {
            let name = session.server.as_str();
            if let (Some(before), Some(now)) = (before.get(name), new.get(name))
                && !Arc::ptr_eq(before, now)
            {
                self.announce_to(session, before.known_to(Era::Legacy));
            }
        }
    }

    /// Takes a session in, if there is room for it; gives the one that has its id.
    pub(super) fn add(&self, session: Arc<Session>) -> Result<Arc<Session>, CallError> {
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
        let known = self.entries().get(session.server.as_str()).map(|it| it.known_to(Era::Legacy));
        self.announce_to(&session, known.flatten());
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
        let known = self.lock().get(id).cloned();
        // The code in the id was checked for this server and this person when the session came into the table,
        // and checking it takes longer than all else here. A guess learns nothing from the time: it is compared with
        // an id only where their hashes agree, and those have a secret.
        let is_checked =
            |known: &Arc<Session>| known.server == *name && known.principal == person.principal;
        if let Some(session) = known.as_ref().filter(|known| is_checked(known)) {
            return Ok(Arc::clone(session));
        }
        let facts = self.ids.read_session(id, name.as_str(), &person.principal);
        let facts = facts.ok_or(NoSession::Unknown)?;
        if let Some(session) = known {
            return Ok(session);
        }
        let hello = facts.to_go_on(now).filter(|_| !self.has_ended(id));
        let hello = hello.ok_or(NoSession::Unknown)?;
        let session = Session::new(id.into(), name, hello, person, &self.ids, &self.memory);
        let session = self.add(Arc::new(session)).map_err(NoSession::Busy)?;
        // Its client may have ended it since it was looked for.
        if self.has_ended(id) {
            self.lock().remove(id);
            session.end();
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
        self.memory.sweep(now());
        self.entries().values().for_each(|entry| entry.back.sweep());
    }

    /// Ends a session at its client's wish.
    pub fn close(&self, session: &Session) {
        // In this order: a request that misses it in the table finds that it has ended.
        self.bury(session);
        self.lock().remove(&session.id);
        self.end(session);
    }

    /// Lets go of a session that its client has not used for long, or that has to make room. Where no
    /// process keeps its state the client loses nothing, so it may go on when it is back. Else
    /// that process goes with it, and it has to open another.
    ///
    /// To be called before it leaves the table; then it is to be ended.
    fn let_go(&self, session: &Session) {
        let entries = self.entries();
        let entry = entries.get(session.server.as_str());
        if entry.is_none_or(|entry| entry.back.server.mode.is_stateful()) {
            self.bury(session);
        }
    }

    /// Sees that the id of a session is not good here any more.
    fn bury(&self, session: &Session) {
        let short = self.ids.short(&session.id);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).add(short);
    }

    fn has_ended(&self, id: &str) -> bool {
        let short = self.ids.short(id);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(short)
    }

    /// Ends a session: its calls, its streams, and the children that are its own.
    fn end(&self, session: &Session) {
        session.end();
        if let Some(entry) = self.entries().get(session.server.as_str()) {
            entry.back.end_session(&session.id);
        }
    }

    /// The sessions with this server.
    pub(super) fn of_server(&self, entry: &Entry) -> Vec<Arc<Session>> {
        let name = &entry.back.server.name;
        self.lock().values().filter(|session| session.server == *name).cloned().collect()
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

#[cfg(test)]
mod tests {
    use pontoon_wire::{Era, method};

    use super::super::legacy::hello;
    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
    use crate::back::pair::STATEFUL;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn pass(time: Duration) {
        let until = tokio::time::Instant::now() + time;
        tokio::time::sleep_until(until).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_not_used_for_half_an_hour_ends_and_its_process_with_it() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| server.mode = STATEFUL);
        let (idle, used) = (TestClient::open(&bridge).await, TestClient::open(&bridge).await);
        assert!(idle.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
        bridge.servers.until_living(1).await;
        pass(29 * MINUTE).await;
        assert_eq!(used.ask(1, method::PING, "").await.status, 200);
        assert_eq!((bridge.site.sessions.count(), bridge.servers.living()), (2, 1));
        pass(2 * MINUTE).await;
        assert_eq!((bridge.site.sessions.count(), bridge.servers.living()), (1, 0));
        // What its process knew is gone, so it may not go on as if nothing was.
        assert_eq!(idle.call(2, "echo", "{}").await.status, 404);
        assert_eq!(used.ask(2, method::PING, "").await.status, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_without_a_process_of_its_own_goes_on_whenever_its_client_is_back() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let client = TestClient::open(&bridge).await;
        pass(31 * MINUTE).await;
        assert_eq!(bridge.site.sessions.count(), 0, "nothing is held for it");
        assert!(client.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
        assert_eq!(bridge.site.sessions.count(), 1);
        assert_eq!(client.bare("DELETE", None).await.status, 200);
        assert_eq!(client.call(2, "echo", "{}").await.status, 404, "that it ended, it said itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_with_something_under_way_is_not_idle() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| {
            (server.mode, server.timeout) = (STATEFUL, 240 * MINUTE);
        });
        let (calling, hearing) = (TestClient::open(&bridge).await, TestClient::open(&bridge).await);
        assert!(hearing.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
        let call = calling.call(1, "wait", "{\"seconds\":7200}").await;
        let feed = hearing.bare("GET", None).await;
        assert_eq!(bridge.servers.living(), 2);
        pass(119 * MINUTE).await;
        let left = (bridge.site.sessions.count(), bridge.servers.living());
        assert_eq!(left, (2, 1), "of the processes the one at work");
        assert!(call.answer().await.contains("\"by\":"), "after two hours");
        drop(feed);
        pass(31 * MINUTE).await;
        assert_eq!((bridge.site.sessions.count(), bridge.servers.living()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_stream_keeps_is_forgotten_two_minutes_after_it_was_heard() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let client = TestClient::open(&bridge).await;
        let mut stream = client.call(1, "note", "{}").await;
        let primed = stream.event().await.unwrap();
        let primed = primed.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
        assert!(stream.answer().await.contains("\"by\""));
        pass(MINUTE).await;
        let again = client.bare("GET", Some(primed)).await;
        assert!(again.answer().await.contains("\"by\""));
        pass(2 * MINUTE).await;
        assert_eq!(client.bare("GET", Some(primed)).await.status, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_of_the_table_is_for_its_person_and_its_server_only() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let (sessions, entry) = (&bridge.site.sessions, bridge.entry());
        let person = |user: &str| Person {
            principal: Principal::of_user(None, user),
            ..Person::clone(&Person::local())
        };
        let take_in = |server: &str| {
            let initialize = crate::app::test_bridge::request::initialize("2025-11-25", "{}");
            let hello = hello(&pontoon_wire::Message::parse(initialize.as_bytes()).unwrap());
            let ada = person("ada");
            let id = sessions.ids.session(server, &ada.principal, &hello, SystemTime::now());
            let (ids, memory) = (&sessions.ids, &sessions.memory);
            let name = server.parse().unwrap();
            let session = Session::new(Arc::clone(&id), &name, hello, &ada, ids, memory);
            sessions.add(Arc::new(session)).unwrap();
            id
        };
        let (here, elsewhere) = (take_in("demo"), take_in("other"));
        let find = |id: &str, user: &str| {
            sessions
                .find(&entry, id, &person(user), SystemTime::now())
                .map(|found| found.id.clone())
        };
        assert_eq!(find(&here, "ada").unwrap(), here);
        assert!(matches!(find(&here, "bob"), Err(NoSession::Unknown)));
        assert!(matches!(find(&elsewhere, "ada"), Err(NoSession::Unknown)));
    }

    /// Takes in a session of this user.
    fn add(sessions: &Sessions, user: &str, number: usize) -> Result<Arc<Session>, CallError> {
        let initialize = crate::app::test_bridge::request::initialize("2025-11-25", "{}");
        let hello = hello(&pontoon_wire::Message::parse(initialize.as_bytes()).unwrap());
        let person =
            Person { principal: Principal::of_user(None, user), ..Person::clone(&Person::local()) };
        let (id, name) = (format!("{user} {number}").into(), "demo".parse().unwrap());
        let session = Session::new(id, &name, hello, &person, &sessions.ids, &sessions.memory);
        sessions.add(Arc::new(session))
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_half_of_all_sessions_loses_the_stalest_for_another_and_nobody_else_does() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let sessions = &bridge.site.sessions;
        let first = add(sessions, "greedy", 0).unwrap();
        add(sessions, "polite", 0).unwrap();
        pass(MINUTE).await;
        for number in 1..MAX_SESSIONS / 2 {
            add(sessions, "greedy", number).unwrap();
        }
        let is_there = |id: &str| sessions.lock().contains_key(id);
        assert!(is_there(&first.id));
        add(sessions, "greedy", MAX_SESSIONS).unwrap();
        assert_eq!(
            (is_there("greedy 0"), is_there("greedy 1"), is_there("polite 0")),
            (false, true, true)
        );
        assert!(
            first.begin(bytes::Bytes::from_static(b"1"), Default::default()).is_none(),
            "it ended"
        );
        // One that is in use is not taken, and then there is no room.
        let all: Vec<_> = sessions.lock().values().cloned().collect();
        let open: Vec<_> =
            all.iter().map(|it| it.begin(bytes::Bytes::new(), Default::default())).collect();
        let refused = add(sessions, "greedy", MAX_SESSIONS + 1).unwrap_err();
        assert!(matches!(refused, CallError::Busy { retry_after_seconds: 60, .. }), "{refused}");
        assert!(add(sessions, "polite", 1).is_ok());
        drop(open);
    }
}
