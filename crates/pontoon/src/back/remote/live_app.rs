//! An application that comes and goes: the one connection to it, made anew whenever it was lost.
//!
//! [`LiveApp::connect`] is called again and again by one task, which learns what the application offers; calls
//! lease what that task has connected, and wait a while for it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pontoon_wire::Slot;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::backoff::chance;
use super::connection::AppConnection;
use super::connector::{ConnectError, Connector, LOOK, WAIT};
use super::dial::START_IT;
use super::pauses::Pauses;
use super::sharing::MeetingPoint;
use super::size_limit::SizeLimit;
use super::token::TokenReader;
use crate::back::child::told::Hearers;
use crate::back::conversation::link::{GHOST, LinkOptions};
use crate::back::conversation::list_changes::ListChanges;
use crate::call::CallError;
use crate::client::{Client, Person};
use crate::clock::{now, since};
use crate::config::{AppOptions, AppPlace};
use crate::errors::chain;
use crate::lock::Lock;
use crate::observe::app_status::AppStanding;

/// How long an application may take to hear that we leave.
const CLOSING: Duration = Duration::from_millis(300);

/// How many connections in a row that came and went at once are logged as others are.
const QUICK: u32 = 3;

/// Where an application stands.
#[derive(Debug, Clone)]
pub enum AppState {
    /// It is looked for; the last time in vain, once that was tried.
    Away(Option<Absence>),
    /// It is there.
    Up(Arc<AppConnection>),
}

/// Why there is no connection.
#[derive(Debug, Clone)]
pub struct Absence {
    /// What happened.
    why: String,
    /// What to do about it.
    advice: &'static str,
}

/// One application, and the connection to it.
#[derive(Debug)]
pub struct LiveApp {
    connector: Connector,
    /// What clients hear it called that are not the one who runs the bridge.
    name_for_clients: Option<String>,
    state: watch::Sender<AppState>,
    /// How it stood so far.
    stood: Lock<Stood>,
    /// The clients, in the order in which they came. A conversation is opened for the first.
    clients: watch::Sender<Vec<Arc<Client>>>,
    /// How often a client came or left.
    company: AtomicU64,
    pace: Lock<Pace>,
    size_limit: SizeLimit,
}

/// How long an application has been there or away, and how often it came.
#[derive(Debug)]
struct Stood {
    since: Instant,
    connections: u64,
}

/// How an application stands at one moment, for people.
#[derive(Debug)]
pub struct AppView {
    /// Where it stands.
    pub standing: AppStanding,
    /// How long it has stood so.
    pub since: Duration,
    /// How often it was connected.
    pub connections: u64,
    /// The connection, if there is one.
    pub connection: Option<Arc<AppConnection>>,
    /// The process of the bridge that has it, if it is another's.
    pub through: Option<u32>,
    /// How many clients are here.
    pub clients: usize,
}

/// How the application was found so far.
#[derive(Debug)]
struct Pace {
    pauses: Pauses,
    /// What the log has said of it.
    said: Option<String>,
}

impl LiveApp {
    /// The application that these options describe, not yet looked for. Clients hear it called by this name, and not where
    /// it is, if there is one. What reads its token, and where the ends of connections are waited for, come together.
    pub(crate) fn new(
        options: AppOptions,
        link: LinkOptions,
        changes: Arc<ListChanges>,
        dialling: (TokenReader, TaskTracker),
        name_for_clients: Option<String>,
    ) -> Self {
        let pauses = Pauses::new(options.place.is_local(), options.close_codes.clone());
        let pace = Pace { pauses, said: None };
        let away = match &options.place {
            AppPlace::Comes(_) => {
                Some(Absence { why: "it has not come yet".to_owned(), advice: START_IT })
            }
            AppPlace::At(_) | AppPlace::Ports { .. } | AppPlace::Named { .. } => None,
        };
        Self {
            connector: Connector::new(options, link, changes, dialling),
            name_for_clients,
            state: watch::Sender::new(AppState::Away(away)),
            stood: Lock::new(Stood { since: now(), connections: 0 }),
            clients: watch::Sender::default(),
            company: AtomicU64::new(0),
            pace: Lock::new(pace),
            size_limit: SizeLimit::default(),
        }
    }

    /// Shares the connection with the other bridges of this user.
    pub fn share(&self, point: &Arc<MeetingPoint>) {
        // It is said once, before the application is looked for.
        drop(self.connector.sharing.set(Arc::clone(point)));
    }

    /// A client is there, or has become another than it was. It hears what belongs to no call.
    pub(crate) fn meet(&self, client: &Arc<Client>) {
        let is_new = self.clients.send_if_modified(|clients| {
            let known = clients.iter_mut().find(|it| Arc::ptr_eq(&it.person, &client.person));
            let is_new = known.is_none();
            match known {
                Some(known) => *known = Arc::clone(client),
                None => clients.push(Arc::clone(client)),
            }
            is_new
        });
        if is_new {
            self.company.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(connection) = self.connection() {
            self.introduce(&connection);
        }
    }

    /// A client has left.
    pub(crate) fn part(self: &Arc<Self>, person: &Arc<Person>) {
        let mut left = None;
        self.clients.send_if_modified(|clients| {
            let at = clients.iter().position(|it| Arc::ptr_eq(&it.person, person));
            left = at.map(|at| clients.remove(at));
            false
        });
        if let (Some(client), Some(connection)) = (left, self.connection()) {
            connection.unfeed(&client);
            let company = self.company.fetch_add(1, Ordering::AcqRel) + 1;
            if self.clients.borrow().len() == 1 && !connection.link.is_of_one_client() {
                let (app, connection) = (Arc::downgrade(self), Arc::downgrade(&connection));
                tokio::spawn(be_alone(app, connection, company));
            }
        }
    }

    /// Gives the only client that is left what it had before another came: log messages, its level of them, and questions.
    fn leave_alone(&self, connection: &AppConnection) {
        let mut left = None;
        // None can come meanwhile: it would find the link shared still.
        self.clients.send_if_modified(|clients| {
            if let [client] = &clients[..] {
                connection.link.unshare();
                left = Some(Arc::clone(client));
            }
            false
        });
        if let Some(client) = left {
            connection.feed(&client);
            connection.begin_for(&client);
        }
    }

    /// Lets all clients hear what the application says of no call.
    fn introduce(&self, connection: &AppConnection) {
        let clients = self.clients.borrow().clone();
        if clients.len() > 1 && connection.link.is_of_one_client() {
            connection.link.share();
        }
        clients.iter().for_each(|client| connection.refeed(client));
    }

    /// Where it stands, and told whenever that changes.
    pub fn state(&self) -> watch::Receiver<AppState> {
        self.state.subscribe()
    }

    /// How it stands.
    pub fn view(&self) -> AppView {
        let (connection, clients) = (self.connection(), self.clients.borrow().len());
        let standing = match (&connection, &*self.state.borrow()) {
            (Some(_), _) => AppStanding::Connected,
            (None, AppState::Away(Some(Absence { why, advice }))) => {
                AppStanding::Away { why: why.clone(), advice: (*advice).to_owned() }
            }
            (None, AppState::Away(None)) if clients == 0 => AppStanding::Idle,
            (None, AppState::Away(None)) => AppStanding::Looking,
            (None, AppState::Up(_)) => AppStanding::Away {
                why: "the connection was closed".to_owned(),
                advice: START_IT.to_owned(),
            },
        };
        let through = connection.as_ref().filter(|connection| connection.is_bridge);
        let through = through.and_then(|_| self.connector.sharing.get()?.owner_pid());
        let stood = self.stood.lock();
        let (since, connections) = (since(stood.since), stood.connections);
        AppView { standing, since, connections, connection, through, clients }
    }

    fn set_state(&self, state: AppState) {
        let mut stood = self.stood.lock();
        let is_up = matches!(state, AppState::Up(_));
        stood.connections += u64::from(is_up);
        if is_up != matches!(&*self.state.borrow(), AppState::Up(_)) {
            stood.since = now();
        }
        self.state.send_replace(state);
    }

    /// The connection, if there is one now.
    pub(crate) fn connection(&self) -> Option<Arc<AppConnection>> {
        match &*self.state.borrow() {
            AppState::Up(connection) if connection.is_usable() => Some(Arc::clone(connection)),
            AppState::Up(_) | AppState::Away(_) => None,
        }
    }

    /// How long a message it takes.
    pub(crate) fn size_limit(&self) -> &SizeLimit {
        &self.size_limit
    }

    /// How long a call waits for the application.
    pub fn connect_wait(&self) -> Duration {
        self.connector.options.connect_wait
    }

    /// The connection, as soon as there is one. A call waits for it for a while.
    ///
    /// # Errors
    ///
    /// What to tell the model when there is none.
    pub(crate) async fn lease(&self) -> Result<Arc<AppConnection>, CallError> {
        let mut state = self.state.subscribe();
        let is_up = |state: &AppState| matches!(state, AppState::Up(it) if it.is_usable());
        let up =
            tokio::time::timeout(self.connector.options.connect_wait, state.wait_for(is_up)).await;
        match up.ok().and_then(Result::ok).as_deref() {
            Some(AppState::Up(connection)) => Ok(Arc::clone(connection)),
            _ => Err(self.not_there()),
        }
    }

    /// Why there is no connection, if there is none now.
    pub fn absence(&self) -> Option<String> {
        match &*self.state.borrow() {
            AppState::Up(connection) if connection.is_usable() => None,
            AppState::Away(Some(absence)) => Some(absence.why.clone()),
            AppState::Away(None) | AppState::Up(_) => Some("it is being looked for".to_owned()),
        }
    }

    /// What a model hears whose call could not be made.
    pub fn not_there(&self) -> CallError {
        let (why, advice) = match &*self.state.borrow() {
            AppState::Away(Some(Absence { why, advice })) => (why.clone(), *advice),
            AppState::Away(None) | AppState::Up(_) => ("it is not ready".to_owned(), START_IT),
        };
        // Where it is, is for the one who runs the bridge to know.
        let (app, why) = match &self.name_for_clients {
            Some(name) => (format!("`{name}`"), Hearers::Clients.told(&why, Path::new(""))),
            None => (format!("at {}", self.connector.options.place), why),
        };
        CallError::AppAway(format!(
            "the application {app} cannot be reached ({why}), so this call was not made: {advice} and call again"
        ))
    }

    /// Connects, however long that takes, and makes the connection known.
    pub async fn connect(&self) -> Arc<AppConnection> {
        let mut clients = self.clients.subscribe();
        loop {
            let first = clients.wait_for(|clients| !clients.is_empty()).await;
            let first = first.ok().and_then(|clients| clients.first().cloned());
            let Some(client) = first else { return std::future::pending().await };
            let delayed = |why| self.note_delay(why);
            let pause = match self.connector.connect(&client, &delayed).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    let hello = connection.hello.as_ref().and_then(|hello| hello.raw(Slot::Result));
                    self.size_limit.meet(hello.unwrap_or_default());
                    let (app, era) = (&self.connector.options.place, connection.era);
                    match self.pace.lock().pauses.short_ones() < QUICK {
                        true => tracing::info!(%app, ?era, "application connected"),
                        false => tracing::debug!(%app, ?era, "application connected"),
                    }
                    connection.begin_for(&client);
                    self.set_state(AppState::Up(Arc::clone(&connection)));
                    // They may have got their sessions while this went on.
                    self.introduce(&connection);
                    return connection;
                }
                Err(error) => self.note_failure(&error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes note that calls have to wait, though there is a connection.
    fn note_delay(&self, why: String) {
        tracing::warn!(app = %self.connector.options.place, why, "connected, but not ready");
        self.set_state(AppState::Away(Some(Absence { why, advice: LOOK })));
    }

    /// Takes note that there is no connection, for this reason, and says when to look again.
    fn note_failure(&self, error: &ConnectError) -> Duration {
        let why = chain(error);
        let mut pace = self.pace.lock();
        let app = &self.connector.options.place;
        if let ConnectError::Owner { .. } = error {
            // Bridges that hand the connection over miss each other for a moment.
            tracing::debug!(%app, why, "no connection");
        } else if pace.said.as_ref() != Some(&why) {
            tracing::warn!(%app, why, "no connection; it is tried again and again");
            pace.said = Some(why.clone());
        }
        let pause = pace.pauses.after_failure(error.end(), error.is_unwanted(), chance());
        drop(pace);
        self.set_state(AppState::Away(Some(Absence { why, advice: error.advice() })));
        pause
    }

    /// Closes the connection, and waits a moment until the application has heard of it.
    pub async fn close(&self) {
        let Some(connection) = self.connection() else { return };
        connection.link.close_input();
        drop(tokio::time::timeout(CLOSING, connection.link.gone()).await);
    }

    /// Takes note that the connection is of no use any more, for this reason or for what ended it. It waits as
    /// long as is good before the next try.
    pub async fn lose(&self, connection: &AppConnection, why: Option<&str>) {
        let end = connection.link.end();
        let mut words = why.map_or_else(|| connection.how_it_ended(), str::to_owned);
        let (pause, is_contested, short_ones) = {
            let Pace { pauses, said } = &mut *self.pace.lock();
            let lasted = since(connection.opened);
            let pause = pauses.after_loss(end.as_ref(), lasted, why.is_some(), chance());
            if pauses.short_ones() == 0 {
                *said = None;
            }
            (pause, pauses.is_contested(), pauses.short_ones())
        };
        let (app, mut advice) = (&self.connector.options.place, START_IT);
        if is_contested {
            words += "; it does so soon after each connection, as if another client took our place";
            advice = "close the other client of the application";
        }
        if connection.is_handed_over() {
            advice = WAIT;
            tracing::info!(%app, why = words, "the connection is handed over");
        } else if short_ones > QUICK {
            tracing::debug!(%app, why = words, "application gone");
        } else {
            tracing::warn!(%app, why = words, "application gone");
            if short_ones == QUICK {
                tracing::warn!(
                    %app,
                    "the application comes and goes quickly; until it stays, more of this is logged at debug level only"
                );
            }
        }
        self.set_state(AppState::Away(Some(Absence { why: words, advice })));
        tokio::time::sleep(pause).await;
    }
}

/// Waits until nothing can be heard any more of what the client asked that left, and leaves the application to the one
/// that is there, if it is still alone then.
async fn be_alone(app: Weak<LiveApp>, connection: Weak<AppConnection>, company: u64) {
    tokio::time::sleep(GHOST).await;
    let (Some(app), Some(connection)) = (app.upgrade(), connection.upgrade()) else { return };
    if app.company.load(Ordering::Acquire) == company {
        app.leave_alone(&connection);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pontoon_wire::{Revision, method};

    use super::super::test_app::{AppEnd, TestApp};
    use super::*;
    use crate::back::pair::{client, result};
    use crate::call::{Feed, plain_notification};
    use crate::outbox::{Next, Outbox};

    /// A client with a session, and a level of log messages that it wants.
    fn with_session(name: &str, level: &str) -> (Arc<Client>, Arc<Outbox>) {
        let outbox = Arc::<Outbox>::default();
        let feed = Some(Feed { outbox: Arc::clone(&outbox), questions: Arc::default() });
        let log_level = Some(Bytes::from(format!("\"{level}\"")));
        let client = Client::clone(&client(Revision::V2025_11_25, name, "{}"));
        (Arc::new(Client { feed, log_level, ..client }), outbox)
    }

    /// An application that logs something when it is told to, and what it was told of levels.
    async fn serve(mut end: AppEnd, levels: Arc<Lock<Vec<String>>>) {
        while let Some((message, id)) = end.next().await {
            match message.method().as_ref() {
                "notifications/speak" => {
                    let log = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":\
                               {\"level\":\"error\",\"data\":\"x\"}}";
                    end.say(log).await;
                }
                method::SET_LEVEL => {
                    let level = message.string(Slot::Level).unwrap_or_default();
                    levels.lock().push(level.into_owned());
                    end.say(&result(&id, "{}")).await;
                }
                _ => {
                    let hello =
                        "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"logging\":{}}}";
                    end.say(&result(&id, hello)).await;
                }
            }
        }
    }

    /// How many log messages a session hears when the application logs something now.
    async fn heard(connection: &AppConnection, outbox: &Outbox) -> usize {
        connection.link.say(plain_notification("notifications/speak"));
        // Its answer comes behind what it logged.
        assert!(connection.is_responsive().await);
        let mut count = 0;
        while let Ok(Next::Message(_)) =
            tokio::time::timeout(Duration::from_millis(1), outbox.next()).await
        {
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_alone_again_hears_log_messages_at_its_own_level_again() {
        let levels = Arc::<Lock<Vec<String>>>::default();
        let told = Arc::clone(&levels);
        let test = TestApp::new(move |end| serve(end, Arc::clone(&told)), |_| {});
        let app = test.app();
        app.part(&test.client.person);
        let ((first, of_first), (second, of_second)) =
            (with_session("first", "warning"), with_session("second", "debug"));
        app.meet(&first);
        let connection = app.connect().await;
        assert_eq!(heard(&connection, &of_first).await, 1);
        app.meet(&second);
        connection.begin_for(&second);
        assert_eq!(heard(&connection, &of_first).await, 0, "it could be about a call of the other");
        assert_eq!(heard(&connection, &of_second).await, 0);
        app.part(&second.person);
        assert_eq!(heard(&connection, &of_first).await, 0, "a call of the other may go on");
        // One that comes meanwhile, and leaves, lets it begin anew.
        tokio::time::sleep(GHOST / 2).await;
        let (third, _) = with_session("third", "info");
        app.meet(&third);
        app.part(&third.person);
        tokio::time::sleep(GHOST / 2 + Duration::from_secs(1)).await;
        assert_eq!(heard(&connection, &of_first).await, 0);
        tokio::time::sleep(GHOST / 2).await;
        assert_eq!(heard(&connection, &of_first).await, 1);
        assert_eq!(*levels.lock(), ["warning", "debug", "warning"]);
        app.meet(&second);
        assert_eq!(heard(&connection, &of_first).await, 0, "and so on");
    }
}
