//! One try to have a connection to an application, in the way that it can be had: dialled at one of the addresses where it may
//! be, through another bridge that has it, or when it comes by itself.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pontoon_wire::Era;
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use super::connection::{AppConnection, Terms};
use super::dial::{DialError, Dialer, START_IT};
use super::entrance::{EntranceError, OpenEntrance};
use super::http;
use super::sharing::{MeetingPoint, Owner};
use super::targets::{NoTarget, targets};
use super::token::TokenReader;
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::handshake::HandshakeError;
use crate::back::conversation::link::LinkOptions;
use crate::back::conversation::list_changes::ListChanges;
use crate::back::conversation::websocket::SocketEnd;
use crate::client::Client;
use crate::config::{AppEntrance, AppOptions, AppPlace, AppTarget};
use crate::errors::chain;
use crate::lock::Lock;

/// How long an application may take to open a conversation: it may be loading a document.
const OPENING: Duration = Duration::from_secs(30);

/// The same at first where there are more places to look at.
const OPENING_ONE_OF_MANY: Duration = Duration::from_secs(2);

/// The same of another bridge, which answers by itself.
const OWNER: Duration = Duration::from_secs(10);

/// Of as many addresses it is known how the application was there.
const MAX_KNOWN: usize = 256;

/// What to do about one that is something else, perhaps.
pub(crate) const LOOK: &str = "look whether the address is that of the application";

/// What to do while bridges hand the connection over.
pub(super) const WAIT: &str =
    "wait a moment, or, if that does not help, end that process or use --no-share,";

/// Why an application could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Place(#[from] NoTarget),
    #[error(transparent)]
    Entrance(#[from] EntranceError),
    #[error("{} has the connection, and cannot be reached", process(.pid))]
    Owner { pid: Option<u32>, source: io::Error },
    #[error("it speaks no MCP")]
    Handshake(#[from] HandshakeError),
    #[error("it speaks no MCP: {first}, and in the other era {second}")]
    NoEra { first: HandshakeError, second: HandshakeError },
    #[error("{0}")]
    Refused(HandshakeError),
    #[error("it speaks no MCP: it said {said:?}")]
    Gibberish { said: String },
    #[error("{} as soon as it was spoken to", .0.words)]
    Closed(SocketEnd),
}

impl ConnectError {
    /// What the user can do about it.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Dial(DialError::Denied { .. } | DialError::Token(_)) => "correct the token",
            Self::Dial(DialError::Headers(_)) => "correct the file of headers",
            Self::Dial(DialError::Proxy(error)) => error.advice().unwrap_or(START_IT),
            Self::Dial(DialError::Tls(error)) => error.advice(),
            Self::Dial(DialError::Foreign(_))
            | Self::Handshake(_)
            | Self::NoEra { .. }
            | Self::Refused(_)
            | Self::Gibberish { .. } => LOOK,
            Self::Dial(DialError::Unreachable(_) | DialError::Silent) | Self::Closed(_) => START_IT,
            Self::Place(why) => why.advice(),
            Self::Entrance(_) => "end the program that uses the port, or choose another port",
            Self::Owner { .. } => WAIT,
        }
    }

    /// Whether it wants no connection from us, or not now.
    pub(super) fn is_unwanted(&self) -> bool {
        match self {
            Self::Dial(
                DialError::Denied { .. }
                | DialError::Token(_)
                | DialError::Headers(_)
                | DialError::Tls(_),
            ) => true,
            Self::Dial(DialError::Proxy(error)) => !error.may_pass(),
            Self::Dial(_)
            | Self::Place(_)
            | Self::Entrance(_)
            | Self::Owner { .. }
            | Self::Handshake(_)
            | Self::NoEra { .. }
            | Self::Refused(_)
            | Self::Gibberish { .. }
            | Self::Closed(_) => false,
        }
    }

    /// How the connection ended, if there was one.
    pub(super) fn end(&self) -> Option<&SocketEnd> {
        match self {
            Self::Closed(end) => Some(end),
            _ => None,
        }
    }
}

/// Whether an application refused both eras with the same words.
fn says_the_same(first: &HandshakeError, second: &HandshakeError) -> bool {
    match (first, second) {
        (HandshakeError::Refused(first), HandshakeError::Refused(second)) => {
            second.contains(first.as_str())
        }
        _ => false,
    }
}

/// The status of a refusal over HTTP that is about who asks.
fn denial(said: &str) -> Option<u16> {
    let status = said.strip_prefix("HTTP ")?.split(':').next()?.parse().ok()?;
    matches!(status, 401 | 403).then_some(status)
}

/// The bridge that has the connection, in words.
fn process(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("another `pontoon connect` (process {pid})"),
        None => "another `pontoon connect`".to_owned(),
    }
}

/// Makes connections to one application.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) options: AppOptions,
    link: LinkOptions,
    changes: Arc<ListChanges>,
    reach: tokio::sync::Mutex<Reach>,
    /// What reads its token.
    tokens: TokenReader,
    /// Where the ends of sessions over HTTP are waited for.
    endings: TaskTracker,
    /// How it was found to be at each address.
    known: Lock<HashMap<String, TargetManner>>,
    /// Where the bridges of this user meet, if they share the connection.
    pub(super) sharing: OnceLock<Arc<MeetingPoint>>,
    /// The log has told that they cannot.
    is_unshared: AtomicBool,
}

/// What connections are made with.
#[derive(Debug)]
struct Reach {
    dialer: Dialer,
    entrance: Option<OpenEntrance>,
}

/// How an application was found to be at an address.
#[derive(Debug, Clone, Copy)]
struct TargetManner {
    /// The era to speak to it.
    era: Era,
    /// How often in a row it took a connection and said nothing.
    silences: u32,
}

impl Default for TargetManner {
    fn default() -> Self {
        Self { era: Era::Legacy, silences: 0 }
    }
}

impl TargetManner {
    /// How long it may take where there are more places to look at: longer each time that both eras were tried.
    fn patience(self) -> Duration {
        OPENING_ONE_OF_MANY.saturating_mul(1 << (self.silences / 2).min(8)).min(OPENING)
    }
}

/// A way to an application.
#[derive(Debug)]
enum Way {
    /// It is dialled.
    Dial(Box<AppTarget>),
    /// It comes by itself.
    Wait(AppEntrance),
    /// Another bridge has it.
    Bridge { socket: std::path::PathBuf, pid: Option<u32> },
}

impl Connector {
    pub(super) fn new(
        options: AppOptions,
        link: LinkOptions,
        changes: Arc<ListChanges>,
        (tokens, endings): (TokenReader, TaskTracker),
    ) -> Self {
        let dialer = Dialer::new(tokens.clone());
        let reach = Reach { dialer, entrance: None };
        Self {
            options,
            link,
            changes,
            reach: tokio::sync::Mutex::new(reach),
            tokens,
            endings,
            known: Lock::default(),
            sharing: OnceLock::new(),
            is_unshared: AtomicBool::new(false),
        }
    }

    /// A connection for this client, by the first way on which there is one.
    /// `delayed` hears why that takes long, if it does.
    pub(super) async fn connect(
        &self,
        client: &Client,
        delayed: &(dyn Fn(String) + Sync),
    ) -> Result<AppConnection, ConnectError> {
        let ways = self.ways()?;
        let mut failure = None;
        for way in &ways {
            match self.try_way(client, way, ways.len() > 1, delayed).await {
                Ok(connection) => return Ok(connection),
                // What answers says more than what does not.
                Err(ConnectError::Dial(DialError::Unreachable(_))) if failure.is_some() => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(ConnectError::Dial(DialError::Silent)))
    }

    fn ways(&self) -> Result<Vec<Way>, ConnectError> {
        if let Owner::Other { socket, pid } = self.owner() {
            return Ok(vec![Way::Bridge { socket, pid }]);
        }
        Ok(match &self.options.place {
            AppPlace::Comes(entrance) => vec![Way::Wait(entrance.clone())],
            _ => {
                let targets = targets(&self.options)?.into_iter();
                targets.map(|target| Way::Dial(Box::new(target))).collect()
            }
        })
    }

    /// Who has the connection to the application.
    fn owner(&self) -> Owner {
        let Some(point) = self.sharing.get() else { return Owner::Us };
        point.owner().unwrap_or_else(|error| {
            // It is tried again with each look at the application, and told once.
            if !self.is_unshared.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, "the connection cannot be shared with other bridges");
            }
            Owner::Us
        })
    }

    async fn try_way(
        &self,
        client: &Client,
        way: &Way,
        is_one_of_many: bool,
        delayed: &(dyn Fn(String) + Sync),
    ) -> Result<AppConnection, ConnectError> {
        let (era, patience) = (Era::Legacy, OPENING);
        let may_change_era = matches!(way, Way::Wait(_));
        let terms = Terms { client, era, may_change_era, is_bridge: false, patience, delayed };
        match way {
            Way::Wait(_) => self.open(way, &terms).await,
            Way::Bridge { pid, .. } => {
                let delayed = &|_| {};
                let terms = Terms { is_bridge: true, patience: OWNER, delayed, ..terms };
                self.open(way, &terms).await.map_err(|error| match error {
                    ConnectError::Owner { .. } => error,
                    error => {
                        let source = io::Error::other(chain(&error));
                        ConnectError::Owner { pid: *pid, source }
                    }
                })
            }
            Way::Dial(target) => self.dial(way, target, terms, is_one_of_many).await,
        }
    }

    /// Dials an application in the era that it was last known to speak, and then in the other.
    async fn dial(
        &self,
        way: &Way,
        target: &AppTarget,
        terms: Terms<'_>,
        is_one_of_many: bool,
    ) -> Result<AppConnection, ConnectError> {
        let place = target.endpoint.to_string();
        let known = self.known.lock().get(&place).copied().unwrap_or_default();
        let patience = if is_one_of_many { known.patience() } else { OPENING };
        let terms = Terms { era: known.era, patience, ..terms };
        let opened = match self.open(way, &terms).await {
            // It may speak the other era; a connection may be held to the first it heard of.
            Err(ConnectError::Handshake(refused @ HandshakeError::Refused(_))) => {
                let other = Terms { era: known.era.other(), ..terms };
                match self.open(way, &other).await {
                    // What is told of both eras is about something else.
                    Err(ConnectError::Handshake(second)) if says_the_same(&refused, &second) => {
                        Err(ConnectError::Refused(refused))
                    }
                    Err(ConnectError::Handshake(second)) => {
                        Err(ConnectError::NoEra { first: refused, second })
                    }
                    opened => opened,
                }
            }
            opened => opened,
        };
        let manner = match &opened {
            Ok(connection) => Some(TargetManner { era: connection.era, silences: 0 }),
            // One that knows the other era alone may say nothing at all to this one.
            Err(ConnectError::Handshake(HandshakeError::Silent(_))) => {
                let silences = known.silences.saturating_add(1);
                Some(TargetManner { era: known.era.other(), silences })
            }
            Err(_) => None,
        };
        if let Some(manner) = manner {
            let mut known = self.known.lock();
            // An application that is found by its file may have another port each time.
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(place, manner);
        }
        opened
    }

    async fn open(&self, way: &Way, terms: &Terms<'_>) -> Result<AppConnection, ConnectError> {
        let carrier = self.reach(way).await?;
        let (connection, opened) =
            AppConnection::open(carrier, &self.link, &self.changes, terms).await;
        let Err(error) = opened else { return Ok(connection) };
        Err(match (error, connection.link.noise(), connection.link.end()) {
            (HandshakeError::Gone | HandshakeError::Silent(_), Some(said), _) => {
                ConnectError::Gibberish { said }
            }
            (HandshakeError::Gone, None, Some(end)) => ConnectError::Closed(end),
            (HandshakeError::Refused(said), ..)
                if self.options.over_http && denial(&said).is_some() =>
            {
                let status = denial(&said).unwrap_or_default();
                let had_token = self.options.token.is_some() || !self.options.headers.is_empty();
                ConnectError::Dial(DialError::Denied { status, had_token })
            }
            (error, ..) => ConnectError::Handshake(error),
        })
    }

    async fn reach(&self, way: &Way) -> Result<Carrier, ConnectError> {
        let max_message = self.link.max_message;
        match way {
            Way::Dial(target) if self.options.over_http => {
                // Whether anything answers there at all is known before anything is said.
                drop(self.reach.lock().await.dialer.reach(target).await?);
                let (target, dialer) = (AppTarget::clone(target), Dialer::new(self.tokens.clone()));
                let (manners, heals) = (Arc::default(), Arc::clone(&self.link.heals));
                Ok(http::open(target, dialer, max_message, manners, heals, &self.endings))
            }
            Way::Dial(target) => {
                Ok(self.reach.lock().await.dialer.dial(target, max_message).await?)
            }
            Way::Bridge { socket, pid } => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.map_err(|source| ConnectError::Owner { pid: *pid, source })?;
                Ok(Carrier::Unix(stream))
            }
            Way::Wait(entrance) => {
                let mut reach = self.reach.lock().await;
                if reach.entrance.is_none() {
                    let token = self.options.token.clone();
                    let opened = OpenEntrance::open(entrance, token, max_message).await?;
                    reach.entrance = Some(opened);
                }
                let open = reach.entrance.as_mut().expect("opened just above");
                Ok(Carrier::WebSocket(Box::new(open.next(self.options.silence).await)))
            }
        }
    }
}
