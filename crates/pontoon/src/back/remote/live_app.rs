//! An application that comes and goes: the one connection to it, made anew whenever it was lost.
//!
//! [`LiveApp::connect`] is called again and again by one task, which learns what the application offers; calls
//! lease what that task has connected, and wait a while for it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pontoon_wire::{Era, Message, Revision, method};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, chance};
use super::dial::{DialError, Dialer};
use super::sharing::{LEAVING, MeetingPoint, Owner};
use super::token::TokenReader;
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::feeding::Feeding;
use crate::back::conversation::handshake::{HandshakeError, Opening, shake_hands, speaks_newest};
use crate::back::conversation::link::{Link, LinkOptions, Listening};
use crate::back::conversation::list_changes::ListChanges;
use crate::back::conversation::websocket::SocketEnd;
use crate::back::conversation::{Conversation, NoResult};
use crate::call::CallError;
use crate::client::{Client, Person};
use crate::clock::{now, since};
use crate::config::AppOptions;
use crate::errors::chain;

/// How long an application may take to open a conversation: it may be loading a document.
const OPENING: Duration = Duration::from_secs(30);

/// A connection that lasted no longer was none: whatever ended it will do so again.
const SHORT: Duration = Duration::from_secs(1);

/// How long an application may take to hear that we leave.
const CLOSING: Duration = Duration::from_millis(300);

/// The least pause before an application is asked again that wants no connection from us now.
const UNWANTED: Duration = Duration::from_secs(5);

/// A connection to an application, ready for calls. Dropping the last of its users closes it.
#[derive(Debug)]
pub struct AppConnection {
    conversation: Conversation,
    opened: Instant,
    /// Hears from a modern application that its lists changed.
    lists: Option<Feeding>,
    /// Fires when the other side has said that it leaves: open calls go on, new ones are not made here.
    leaving: CancellationToken,
    /// Hears that.
    _hearing: Listening,
}

impl std::ops::Deref for AppConnection {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl Drop for AppConnection {
    fn drop(&mut self) {
        self.link.close_input();
    }
}

impl AppConnection {
    /// Whether calls can be made.
    fn is_usable(&self) -> bool {
        !self.link.is_gone() && !self.leaving.is_cancelled()
    }

    /// Waits until it is gone, or is about to be.
    pub async fn lost(&self) {
        tokio::select! {
            () = self.link.gone() => {}
            () = self.leaving.cancelled() => {}
        }
    }

    /// How it ended, in words.
    pub(crate) fn how_it_ended(&self) -> String {
        let end = self.link.end().map(|end| end.words);
        end.unwrap_or_else(|| match self.leaving.is_cancelled() {
            true => "the bridge that had the connection leaves".to_owned(),
            false => "the connection was closed".to_owned(),
        })
    }
}

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
    options: AppOptions,
    link: LinkOptions,
    changes: Arc<ListChanges>,
    state: watch::Sender<AppState>,
    /// The clients, in the order in which they came. A conversation is opened for the first.
    clients: watch::Sender<Vec<Arc<Client>>>,
    pace: Mutex<Pace>,
    dialer: tokio::sync::Mutex<Dialer>,
    /// Where the bridges of this user meet, if they share the connection.
    sharing: OnceLock<Arc<MeetingPoint>>,
}

/// How the application was found so far.
#[derive(Debug)]
struct Pace {
    backoff: Backoff,
    /// The era that it was last opened in.
    era: Era,
    /// What the log has said of it.
    said: Option<String>,
}

/// Why an application could not be used.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{} has the connection, and cannot be reached: {source}", process(.pid))]
    Owner { pid: Option<u32>, source: io::Error },
    #[error("it speaks no MCP")]
    Handshake(#[from] HandshakeError),
    #[error("it speaks no MCP: {first}, and in the other era {second}")]
    NoEra { first: HandshakeError, second: HandshakeError },
    #[error("{} as soon as it was spoken to", .0.words)]
    Closed(SocketEnd),
}

impl ConnectError {
    /// What the user can do about it.
    fn advice(&self) -> &'static str {
        match self {
            Self::Dial(DialError::Denied { .. } | DialError::Token(_)) => "correct the token",
            Self::Dial(DialError::Tls(error)) => error.advice(),
            Self::Dial(DialError::Foreign(_)) | Self::Handshake(_) | Self::NoEra { .. } => {
                "look whether the address is that of the application"
            }
            Self::Dial(DialError::Unreachable(_) | DialError::Silent) | Self::Closed(_) => START_IT,
            Self::Owner { .. } => "wait a moment",
        }
    }

    /// Whether it wants no connection from us, or not now.
    fn is_unwanted(&self) -> bool {
        match self {
            Self::Dial(DialError::Denied { .. } | DialError::Token(_) | DialError::Tls(_)) => true,
            Self::Closed(end) => is_unwanted(end),
            Self::Dial(_) | Self::Owner { .. } | Self::Handshake(_) | Self::NoEra { .. } => false,
        }
    }
}

/// The bridge that has the connection, in words.
fn process(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("another `pontoon connect` (process {pid})"),
        None => "another `pontoon connect`".to_owned(),
    }
}

/// Whether an application closed a connection because it wants none from us, or not now.
fn is_unwanted(end: &SocketEnd) -> bool {
    matches!(end.code, Some(1008 | 1013 | 4401 | 4403))
}

/// What to do about an application that does not run.
const START_IT: &str = "start the application, or ask the user to,";

impl LiveApp {
    /// The application that these options describe, not yet looked for.
    pub(crate) fn new(
        options: AppOptions,
        link: LinkOptions,
        changes: Arc<ListChanges>,
        tokens: TokenReader,
    ) -> Self {
        let pace = Pace {
            backoff: Backoff::new(options.endpoint.is_local()),
            era: Era::Legacy,
            said: None,
        };
        Self {
            options,
            link,
            changes,
            state: watch::Sender::new(AppState::Away(None)),
            clients: watch::Sender::default(),
            pace: Mutex::new(pace),
            dialer: tokio::sync::Mutex::new(Dialer::new(tokens)),
            sharing: OnceLock::new(),
        }
    }

    /// Shares the connection with the other bridges of this user.
    pub fn share(&self, point: &Arc<MeetingPoint>) {
        // It is said once, before the application is looked for.
        drop(self.sharing.set(Arc::clone(point)));
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

    /// The connection, if there is one now.
    pub(crate) fn connection(&self) -> Option<Arc<AppConnection>> {
        match &*self.state.borrow() {
            AppState::Up(connection) if connection.is_usable() => Some(Arc::clone(connection)),
            AppState::Up(_) | AppState::Away(_) => None,
        }
    }

    /// How long a call waits for the application.
    pub fn connect_wait(&self) -> Duration {
        self.options.connect_wait
    }

    /// The connection, as soon as there is one. A call waits for it for a while.
    ///
    /// # Errors
    ///
    /// What to tell the model when there is none.
    pub(crate) async fn lease(&self) -> Result<Arc<AppConnection>, CallError> {
        let mut state = self.state.subscribe();
        let is_up = |state: &AppState| matches!(state, AppState::Up(it) if it.is_usable());
        let up = tokio::time::timeout(self.options.connect_wait, state.wait_for(is_up)).await;
        match up.ok().and_then(Result::ok).as_deref() {
            Some(AppState::Up(connection)) => Ok(Arc::clone(connection)),
            _ => Err(self.not_there()),
        }
    }

    /// What a model hears whose call could not be made.
    pub fn not_there(&self) -> CallError {
        let (why, advice) = match &*self.state.borrow() {
            AppState::Away(Some(Absence { why, advice })) => (why.clone(), *advice),
            AppState::Away(None) | AppState::Up(_) => ("it is not ready".to_owned(), START_IT),
        };
        let app = &self.options.endpoint;
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
            let pause = match self.try_connect(&client).await {
                Ok(connection) => {
                    self.lock().said = None;
                    tracing::info!(app = %self.options.endpoint, era = ?connection.era, "application connected");
                    connection.begin_for(&client);
                    self.state.send_replace(AppState::Up(Arc::clone(&connection)));
                    // They may have got their sessions while this went on.
                    self.introduce(&connection);
                    return connection;
                }
                Err(error) => self.note_failure(&error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes note that there is no connection, for this reason, and says when to look again.
    fn note_failure(&self, error: &ConnectError) -> Duration {
        let why = chain(error);
        let mut pace = self.lock();
        if pace.said.as_ref() != Some(&why) {
            tracing::warn!(app = %self.options.endpoint, why, "no connection; it is tried again and again");
            pace.said = Some(why.clone());
        }
        let at_least = if error.is_unwanted() { UNWANTED } else { Duration::ZERO };
        let pause = pace.backoff.next(chance()).max(at_least);
        drop(pace);
        self.state.send_replace(AppState::Away(Some(Absence { why, advice: error.advice() })));
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
        let words = why.map_or_else(|| connection.how_it_ended(), str::to_owned);
        tracing::warn!(app = %self.options.endpoint, why = words, "application gone");
        self.state.send_replace(AppState::Away(Some(Absence { why: words, advice: START_IT })));
        let was_short = since(connection.opened) < SHORT || why.is_some();
        let pause = {
            let mut pace = self.lock();
            if !was_short {
                pace.backoff.reset();
            }
            match end {
                Some(end) if is_unwanted(&end) => UNWANTED,
                _ if was_short => pace.backoff.next(chance()),
                _ => Duration::ZERO,
            }
        };
        tokio::time::sleep(pause).await;
    }

    async fn try_connect(&self, client: &Arc<Client>) -> Result<Arc<AppConnection>, ConnectError> {
        let first = self.lock().era;
        let connection = match self.open(client, first).await {
            Ok(connection) => connection,
            // It may speak the other era; a connection may be held to the first it heard of.
            Err(ConnectError::Handshake(refused @ HandshakeError::Refused(_))) => {
                match self.open(client, first.other()).await {
                    Ok(connection) => connection,
                    Err(ConnectError::Handshake(second)) => {
                        return Err(ConnectError::NoEra { first: refused, second });
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        self.lock().era = connection.era;
        Ok(Arc::new(connection))
    }

    async fn open(&self, client: &Client, era: Era) -> Result<AppConnection, ConnectError> {
        let max_message = self.link.max_message;
        let carrier = match self.owner() {
            Owner::Us => self.dialer.lock().await.dial(&self.options, max_message).await?,
            Owner::Other { socket, pid } => {
                let stream = UnixStream::connect(socket).await;
                Carrier::Unix(stream.map_err(|source| ConnectError::Owner { pid, source })?)
            }
        };
        let conversation = Conversation::new(Link::start(carrier, &self.link), &self.changes);
        let conversation = conversation.with_app();
        let leaving = CancellationToken::new();
        let heard = leaving.clone();
        let hearing = conversation.link.listen(Arc::new(move |note| {
            if note.method() == LEAVING {
                heard.cancel();
            }
        }));
        // From here on it is closed if it comes to nothing.
        let mut connection =
            AppConnection { conversation, opened: now(), lists: None, leaving, _hearing: hearing };
        connection.conversation.era = era;
        let opened = self.greet(&connection, Opening::for_client(client, era), client.era()).await;
        connection.conversation.hello = Some(match (opened, connection.link.end()) {
            (Err(HandshakeError::Gone), Some(end)) => return Err(ConnectError::Closed(end)),
            (opened, _) => opened?,
        });
        if era == Era::Modern {
            connection.lists = Some(connection.hear_of_lists(&self.changes));
        }
        Ok(connection)
    }

    /// Who has the connection to the application.
    fn owner(&self) -> Owner {
        let Some(point) = self.sharing.get() else { return Owner::Us };
        point.owner().unwrap_or_else(|error| {
            tracing::warn!(%error, "the connection cannot be shared with other bridges");
            Owner::Us
        })
    }

    /// Opens the conversation, and gives what the application says of itself.
    async fn greet(
        &self,
        connection: &AppConnection,
        opening: Opening,
        client: Era,
    ) -> Result<Message, HandshakeError> {
        match opening {
            Opening::Legacy { revision, capabilities, info } => {
                connection.link.hold_for(capabilities.clone(), client);
                let (link, deadline) = (&connection.link, now() + OPENING);
                shake_hands(link, revision, &capabilities, &info, deadline, &self.link.heals).await
            }
            Opening::Modern => {
                let discovered = connection.result_of(method::DISCOVER, "{}", OPENING).await;
                let discovered = discovered.map_err(|why| match why {
                    NoResult::Refused(text) => HandshakeError::Refused(text),
                    NoResult::Slow => HandshakeError::Silent,
                    NoResult::Gone => HandshakeError::Gone,
                })?;
                if !speaks_newest(&discovered) {
                    let text = format!("it does not speak {}", Revision::NEWEST_MODERN);
                    return Err(HandshakeError::Refused(text));
                }
                Ok(discovered)
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
