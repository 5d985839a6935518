//! An application that comes and goes: the one connection to it, made anew whenever it was lost.
//!
//! [`LiveApp::connect`] is called again and again by one task, which learns what the application offers; calls
//! lease what that task has connected, and wait a while for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pontoon_wire::{Era, Message, Revision, Slot, method};
use tokio::sync::watch;

use super::backoff::chance;
use super::dial::{DialError, Dialer};
use super::pauses::Pauses;
use super::size_limit::SizeLimit;
use super::token::TokenReader;
use crate::back::conversation::handshake::{HandshakeError, Opening, shake_hands, speaks_newest};
use crate::back::conversation::link::{Link, LinkOptions};
use crate::back::conversation::list_changes::ListChanges;
use crate::back::conversation::websocket::SocketEnd;
use crate::back::conversation::{Conversation, Feeding, NoResult};
use crate::call::CallError;
use crate::client::Client;
use crate::clock::{now, since};
use crate::config::AppOptions;
use crate::errors::chain;

/// How long an application may take to open a conversation: it may be loading a document.
const OPENING: Duration = Duration::from_secs(30);

/// From when on it is said that it takes long.
const SLOW: Duration = Duration::from_secs(3);

/// How long an application may take to hear that we leave.
const CLOSING: Duration = Duration::from_millis(300);

/// A connection to an application, ready for calls. Dropping the last of its users closes it.
#[derive(Debug)]
pub struct AppConnection {
    conversation: Conversation,
    opened: Instant,
    /// Hears from a modern application that its lists changed.
    lists: Option<Feeding>,
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
    /// How it ended, in words.
    pub(crate) fn how_it_ended(&self) -> String {
        let end = self.link.end().map(|end| end.words);
        end.unwrap_or_else(|| "the connection was closed".to_owned())
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
    /// The client for whom the conversation is opened, once there is one.
    client: watch::Sender<Option<Arc<Client>>>,
    pace: Mutex<Pace>,
    dialer: tokio::sync::Mutex<Dialer>,
    size_limit: SizeLimit,
}

/// How the application was found so far.
#[derive(Debug)]
struct Pace {
    pauses: Pauses,
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
    #[error("it speaks no MCP")]
    Handshake(#[from] HandshakeError),
    #[error("it speaks no MCP: {first}, and in the other era {second}")]
    NoEra { first: HandshakeError, second: HandshakeError },
    #[error("it speaks no MCP: it said {said:?}")]
    Gibberish { said: String },
    #[error("{} as soon as it was spoken to", .0.words)]
    Closed(SocketEnd),
}

impl ConnectError {
    /// What the user can do about it.
    fn advice(&self) -> &'static str {
        match self {
            Self::Dial(DialError::Denied { .. } | DialError::Token(_)) => "correct the token",
            Self::Dial(DialError::Tls(error)) => error.advice(),
            Self::Dial(DialError::Foreign(_))
            | Self::Handshake(_)
            | Self::NoEra { .. }
            | Self::Gibberish { .. } => LOOK,
            Self::Dial(DialError::Unreachable(_) | DialError::Silent) | Self::Closed(_) => START_IT,
        }
    }

    /// Whether it wants no connection from us, or not now.
    fn is_unwanted(&self) -> bool {
        match self {
            Self::Dial(DialError::Denied { .. } | DialError::Token(_) | DialError::Tls(_)) => true,
            Self::Dial(_)
            | Self::Handshake(_)
            | Self::NoEra { .. }
            | Self::Gibberish { .. }
            | Self::Closed(_) => false,
        }
    }

    /// How the connection ended, if there was one.
    fn end(&self) -> Option<&SocketEnd> {
        match self {
            Self::Closed(end) => Some(end),
            Self::Dial(_) | Self::Handshake(_) | Self::NoEra { .. } | Self::Gibberish { .. } => {
                None
            }
        }
    }
}

/// What to do about one that is something else, perhaps.
const LOOK: &str = "look whether the address is that of the application";

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
            pauses: Pauses::new(options.endpoint.is_local(), options.close_codes.clone()),
            era: Era::Legacy,
            said: None,
        };
        Self {
            options,
            link,
            changes,
            state: watch::Sender::new(AppState::Away(None)),
            client: watch::Sender::new(None),
            pace: Mutex::new(pace),
            dialer: tokio::sync::Mutex::new(Dialer::new(tokens)),
            size_limit: SizeLimit::default(),
        }
    }

    /// Says for whom conversations are opened from now on. That client hears what belongs to no call.
    pub(crate) fn meet(&self, client: &Arc<Client>) {
        self.client.send_replace(Some(Arc::clone(client)));
        if let Some(connection) = self.connection() {
            connection.refeed(client);
        }
    }

    /// Where it stands, and told whenever that changes.
    pub fn state(&self) -> watch::Receiver<AppState> {
        self.state.subscribe()
    }

    /// The connection, if there is one now.
    pub(crate) fn connection(&self) -> Option<Arc<AppConnection>> {
        match &*self.state.borrow() {
            AppState::Up(connection) if !connection.link.is_gone() => Some(Arc::clone(connection)),
            AppState::Up(_) | AppState::Away(_) => None,
        }
    }

    /// How long a message it takes.
    pub(crate) fn size_limit(&self) -> &SizeLimit {
        &self.size_limit
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
        let is_up = |state: &AppState| matches!(state, AppState::Up(it) if !it.link.is_gone());
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
        let mut clients = self.client.subscribe();
        loop {
            let client = clients.wait_for(Option::is_some).await.map(|client| client.clone());
            let Ok(Some(client)) = client else { return std::future::pending().await };
            let pause = match self.try_connect(&client).await {
                Ok(connection) => {
                    self.lock().said = None;
                    tracing::info!(app = %self.options.endpoint, era = ?connection.era, "application connected");
                    connection.begin_for(&client);
                    self.state.send_replace(AppState::Up(Arc::clone(&connection)));
                    // It may have got its session while this went on.
                    let client = self.client.borrow().clone().unwrap_or(client);
                    connection.refeed(&client);
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
        let pause = pace.pauses.after_failure(error.end(), error.is_unwanted(), chance());
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
        let mut words = why.map_or_else(|| connection.how_it_ended(), str::to_owned);
        let (pause, is_contested) = {
            let pauses = &mut self.lock().pauses;
            let lasted = since(connection.opened);
            let pause = pauses.after_loss(end.as_ref(), lasted, why.is_some(), chance());
            (pause, pauses.is_contested())
        };
        let mut advice = START_IT;
        if is_contested {
            words += "; it does so soon after each connection, as if another client took our place";
            advice = "close the other client of the application";
        }
        tracing::warn!(app = %self.options.endpoint, why = words, "application gone");
        self.state.send_replace(AppState::Away(Some(Absence { why: words, advice })));
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
            Err(error) => {
                // One that knows the other era alone may say nothing at all to this one.
                if let ConnectError::Handshake(HandshakeError::Silent) = error {
                    self.lock().era = first.other();
                }
                return Err(error);
            }
        };
        self.lock().era = connection.era;
        let hello = connection.hello.as_ref().and_then(|hello| hello.raw(Slot::Result));
        self.size_limit.meet(hello.unwrap_or_default());
        Ok(Arc::new(connection))
    }

    async fn open(&self, client: &Client, era: Era) -> Result<AppConnection, ConnectError> {
        let max_message = self.link.max_message;
        let carrier = self.dialer.lock().await.dial(&self.options, max_message).await?;
        let conversation = Conversation::new(Link::start(carrier, &self.link), &self.changes);
        let conversation = conversation.without_list_changes();
        // From here on it is closed if it comes to nothing.
        let mut connection = AppConnection { conversation, opened: now(), lists: None };
        connection.conversation.era = era;
        let opening = Opening::for_client(client, era);
        let opened = tokio::select! {
            opened = self.greet(&connection, opening, client.era()) => opened,
            never = self.tell_delay(&connection) => match never {},
        };
        connection.conversation.hello = Some(opened.map_err(|error| {
            let (said, end) = (connection.link.noise(), connection.link.end());
            match (error, said, end) {
                (HandshakeError::Gone | HandshakeError::Silent, Some(said), _) => {
                    ConnectError::Gibberish { said }
                }
                (HandshakeError::Gone, None, Some(end)) => ConnectError::Closed(end),
                (error, ..) => ConnectError::Handshake(error),
            }
        })?);
        if era == Era::Modern {
            connection.lists = Some(connection.hear_of_lists(&self.changes));
        }
        Ok(connection)
    }

    /// Says why calls have to wait, if the application is slow to open a conversation: it may be something else.
    async fn tell_delay(&self, connection: &AppConnection) -> std::convert::Infallible {
        tokio::time::sleep(SLOW).await;
        let why = match connection.link.noise() {
            Some(said) => format!("it said {said:?}, which is no MCP"),
            None => format!("it has not answered for {} s", SLOW.as_secs()),
        };
        tracing::warn!(app = %self.options.endpoint, why, "connected, but not ready");
        self.state.send_replace(AppState::Away(Some(Absence { why, advice: LOOK })));
        std::future::pending().await
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
