//! An application that comes and goes: the one connection to it, made anew whenever it was lost.
//!
//! [`LiveApp::connect`] is called again and again by one task, which learns what the application offers; calls
//! lease what that task has connected, and wait a while for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_wire::Slot;
use tokio::sync::watch;

use super::backoff::chance;
use super::connection::AppConnection;
use super::connector::{ConnectError, Connector, LOOK, WAIT};
use super::dial::START_IT;
use super::pauses::Pauses;
use super::sharing::MeetingPoint;
use super::size_limit::SizeLimit;
use super::token::TokenReader;
use crate::back::conversation::link::LinkOptions;
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
    state: watch::Sender<AppState>,
    /// How it stood so far.
    stood: Lock<Stood>,
    /// The clients, in the order in which they came. A conversation is opened for the first.
    clients: watch::Sender<Vec<Arc<Client>>>,
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
    /// The application that these options describe, not yet looked for.
    pub(crate) fn new(
        options: AppOptions,
        link: LinkOptions,
        changes: Arc<ListChanges>,
        tokens: TokenReader,
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
            connector: Connector::new(options, link, changes, tokens),
            state: watch::Sender::new(AppState::Away(away)),
            stood: Lock::new(Stood { since: now(), connections: 0 }),
            clients: watch::Sender::default(),
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
        self.clients.send_if_modified(|clients| {
            let known = clients.iter_mut().find(|it| Arc::ptr_eq(&it.person, &client.person));
            let is_new = known.is_none();
            match known {
                Some(known) => *known = Arc::clone(client),
                None => clients.push(Arc::clone(client)),
            }
            is_new
        });
        if let Some(connection) = self.connection() {
            self.introduce(&connection);
        }
    }

    /// A client has left.
    pub(crate) fn part(&self, person: &Arc<Person>) {
        let mut left = None;
        self.clients.send_if_modified(|clients| {
            let at = clients.iter().position(|it| Arc::ptr_eq(&it.person, person));
            left = at.map(|at| clients.remove(at));
            false
        });
        if let (Some(client), Some(connection)) = (left, self.connection()) {
            connection.unfeed(&client);
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
        let app = &self.connector.options.place;
        CallError::AppAway(format!(
            "the application at {app} cannot be reached ({why}), so this call was not made: {advice} and call again"
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
                    self.pace.lock().said = None;
                    tracing::info!(app = %self.connector.options.place, era = ?connection.era, "application connected");
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
        let (pause, is_contested) = {
            let pauses = &mut self.pace.lock().pauses;
            let lasted = since(connection.opened);
            let pause = pauses.after_loss(end.as_ref(), lasted, why.is_some(), chance());
            (pause, pauses.is_contested())
        };
        let (app, mut advice) = (&self.connector.options.place, START_IT);
        if is_contested {
            words += "; it does so soon after each connection, as if another client took our place";
            advice = "close the other client of the application";
        }
        if connection.is_handed_over() {
            advice = WAIT;
            tracing::info!(%app, why = words, "the connection is handed over");
        } else {
            tracing::warn!(%app, why = words, "application gone");
        }
        self.set_state(AppState::Away(Some(Absence { why: words, advice })));
        tokio::time::sleep(pause).await;
    }
}
