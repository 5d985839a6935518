//! The legacy handshake with a child: `initialize`, the version agreed, `initialized`.
//!
//! A server that refuses our version is asked again with one it names (H19). One that says it is initialised already is used
//! all the same (H21).

use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, json, method};

use super::incoming::refusal;
use super::link::{Link, Purpose};
use super::mailbox::ServerEvent;
use super::requests::own_info;
use crate::client::Client;
use crate::clock::now;
use crate::observe::heals::HealLog;

/// How a child is opened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Opening {
    /// With `initialize`, for a client of this revision with these capabilities.
    Legacy {
        /// The revision to ask for.
        revision: Revision,
        /// The client's capabilities, a JSON object.
        capabilities: Bytes,
        /// The client's name and version, a JSON object.
        info: Bytes,
    },
    /// Not at all: every request describes itself.
    Modern,
}

impl Opening {
    /// How a server of this era is opened for this client.
    pub(crate) fn for_client(client: &Client, era: Era) -> Self {
        match era {
            Era::Modern => Self::Modern,
            Era::Legacy => Self::Legacy {
                revision: match client.era() {
                    Era::Legacy => client.revision,
                    Era::Modern => Revision::NEWEST_LEGACY,
                },
                capabilities: client.capabilities.clone(),
                // Modern clients of one conversation share a child, whatever they call themselves.
                info: match client.era() {
                    Era::Legacy => client.info.clone(),
                    Era::Modern => own_info(),
                },
            },
        }
    }

    /// The era it opens.
    pub fn era(&self) -> Era {
        match self {
            Self::Legacy { .. } => Era::Legacy,
            Self::Modern => Era::Modern,
        }
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The server refused.
    #[error("it refused `initialize`: {0}")]
    Refused(String),
    /// It ended.
    #[error("it ended during the handshake")]
    Gone,
    /// It is an echo.
    #[error("it sends back what it is sent, as `cat` does: it is no MCP server")]
    Echo,
    /// It said nothing for this long.
    #[error("it did not answer `initialize` within {}", in_words(*.0))]
    Silent(Duration),
}

/// Shakes hands, and gives the result of `initialize`.
pub async fn shake_hands(
    link: &Link,
    revision: Revision,
    capabilities: &Bytes,
    info: &Bytes,
    deadline: Instant,
    heals: &HealLog,
) -> Result<Message, HandshakeError> {
    let mut tries = vec![revision];
    let mut refusal = HandshakeError::Silent(Duration::ZERO);
    let mut tried = Vec::new();
    while let Some(revision) = tries.pop() {
        tried.push(revision);
        match initialize(link, revision, capabilities, info, deadline).await? {
            Ok(answer) => {
                check_version(&answer, revision, heals);
                link.say_initialized();
                return Ok(answer);
            }
            Err(error) if is_initialized(&error) && heals.found(Heal::H21) => {
                link.say_initialized();
                return Ok(unsaid(revision));
            }
            Err(error) => {
                let named = versions_in(&error).into_iter().filter(|named| !tried.contains(named));
                tries = named.collect();
                if !tries.is_empty() && !heals.found(Heal::H19) {
                    tries.clear();
                }
                let text = error.string(Slot::ErrorMessage).map(|text| text.into_owned());
                refusal = HandshakeError::Refused(text.unwrap_or_default());
            }
        }
    }
    Err(refusal)
}

/// Whether a modern server speaks our revision, by its answer to `server/discover`.
pub(crate) fn speaks_newest(discovered: &Message) -> bool {
    let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
    let versions = json::find(result, "supportedVersions").unwrap_or(b"[]");
    let newest = format!("\"{}\"", Revision::NEWEST_MODERN);
    let mut versions = json::elements(versions, 0..versions.len()).map(|at| &versions[at]);
    versions.any(|version| version == newest.as_bytes())
}

async fn initialize(
    link: &Link,
    revision: Revision,
    capabilities: &Bytes,
    info: &Bytes,
    deadline: Instant,
) -> Result<Result<Message, Message>, HandshakeError> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let request = Message::own(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"{}\",\"params\":{{\"protocolVersion\":\"{revision}\",\
         \"capabilities\":{},\"clientInfo\":{}}}}}",
        method::INITIALIZE,
        text(capabilities),
        text(info),
    ));
    let patience = deadline.saturating_duration_since(now());
    let mut asked = link.ask(Rewrite::new(request), Some(deadline), Purpose::Own);
    loop {
        match asked.next_event().await {
            ServerEvent::Answer(answer) if answer.has(Slot::Error) => return Ok(Err(answer)),
            ServerEvent::Answer(answer) => return Ok(Ok(answer)),
            ServerEvent::Question(question) if question.method() == method::INITIALIZE => {
                return Err(HandshakeError::Echo);
            }
            ServerEvent::Question(question) => {
                link.say(refusal(&question, "the handshake is not over"))
            }
            ServerEvent::TimedOut(_) => return Err(HandshakeError::Silent(patience)),
            ServerEvent::Gone
            | ServerEvent::Unsent
            | ServerEvent::Clogged
            | ServerEvent::Ended
            | ServerEvent::TooLong
            | ServerEvent::Lost(_) => {
                return Err(HandshakeError::Gone);
            }
            ServerEvent::Note(_)
            | ServerEvent::Log(_)
            | ServerEvent::Resumed(_)
            | ServerEvent::Release => {}
        }
    }
}

/// A time as people say it: what is left of a minute when the first moment is over is a minute.
fn in_words(time: Duration) -> String {
    match time < Duration::from_secs(1) {
        true => format!("{} ms", time.as_millis()),
        false => format!("{:.0} s", time.as_secs_f64()),
    }
}

/// Whether a server refuses because it was initialised before, as one does that keeps this for its process.
fn is_initialized(error: &Message) -> bool {
    let said = error.string(Slot::ErrorMessage).unwrap_or_default().to_lowercase();
    said.contains("already initiali") || said.contains("already been initiali")
}

/// What such a server may have said then: what it offers has to be asked for (H23).
fn unsaid(revision: Revision) -> Message {
    Message::own(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{{\"protocolVersion\":\"{revision}\",\"capabilities\":{{}},\
         \"serverInfo\":{{\"name\":\"unknown\",\"version\":\"0\"}}}}}}"
    ))
}

/// A server may answer with an older revision; an unknown one is noted and taken as ours.
fn check_version(answer: &Message, asked: Revision, heals: &HealLog) {
    let result = answer.raw(Slot::Result).unwrap_or_default();
    let version = json::find(result, "protocolVersion").and_then(pontoon_wire::string_value);
    let known = version.as_deref().and_then(Revision::parse);
    if !known.is_some_and(|known| known.era() == Era::Legacy && known <= asked) {
        heals.note(Heal::H19);
    }
}

/// The legacy revisions that an error names, oldest first, so that the newest is tried first.
fn versions_in(error: &Message) -> Vec<Revision> {
    let text = String::from_utf8_lossy(error.text());
    let legacy = Revision::ALL.into_iter().filter(|revision| revision.era() == Era::Legacy);
    legacy.filter(|revision| text.contains(revision.as_str())).collect()
}
