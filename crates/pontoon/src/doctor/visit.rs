//! One visit: a connection to the server, opened for the examination alone.
//!
//! Every question has a deadline, whatever the server does. What it asks is answered or refused here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, Text, envelope, json, method};
use serde_json::Value;

use super::words::short;
use crate::back::child::ready::ReadyChild;
use crate::back::conversation::Conversation;
use crate::back::conversation::handshake::{HandshakeError, shake_hands};
use crate::back::conversation::incoming::refusal;
use crate::back::conversation::link::{Link, Purpose};
use crate::back::conversation::mailbox::ServerEvent;
use crate::back::conversation::requests::{modern_request, own_info, own_request_with};
use crate::clock::{now, since};
use crate::observe::heals::HealLog;

/// What the doctor can answer: a server may offer more to a client that can be asked.
const CAPABILITIES: &[u8] = b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}";

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) body: VisitBody,
    pub(super) heals: Arc<HealLog>,
    /// When it was started or dialled.
    pub(super) began: Instant,
    /// What the server said of itself as it was opened.
    pub(super) greeting: Option<Message>,
}

/// What is at the other end.
#[derive(Debug)]
pub(super) enum VisitBody {
    /// A process of ours.
    Child(Box<ReadyChild>),
    /// Something that runs by itself.
    Remote(Box<Conversation>),
}

/// What the server said to a request.
#[derive(Debug)]
pub(super) enum Said {
    /// A result.
    Result(Message),
    /// An error.
    Error {
        /// Its code.
        code: Option<i64>,
        /// Its message.
        message: String,
    },
    /// Nothing in time.
    Silence,
    /// What it was sent.
    Echo,
    /// It is gone, for this reason if one is known.
    Gone(Option<String>),
}

impl Said {
    /// The result as a value.
    pub(super) fn value(&self) -> Option<Value> {
        match self {
            Self::Result(answer) => serde_json::from_slice(answer.raw(Slot::Result)?).ok(),
            _ => None,
        }
    }

    /// In words, for a report.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Result(answer) => {
                let text = String::from_utf8_lossy(answer.raw(Slot::Result).unwrap_or_default());
                format!("it answered {}", short(&text))
            }
            Self::Error { code: Some(code), message } => {
                format!("it answered with the error {code}: {}", short(message))
            }
            Self::Error { code: None, message } => {
                format!("it answered with an error: {}", short(message))
            }
            Self::Silence => "it did not answer".to_owned(),
            Self::Echo => "it sends back what it is sent".to_owned(),
            Self::Gone(Some(why)) => short(why),
            Self::Gone(None) => "it was gone".to_owned(),
        }
    }

    /// Whether nothing more can be asked.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Gone(_))
    }
}

impl std::ops::Deref for Visit {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        match &self.body {
            VisitBody::Child(child) => child,
            VisitBody::Remote(conversation) => conversation,
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // A process ends with its input; a session and a connection are closed.
        self.link.close_input();
    }
}

impl Visit {
    pub(super) fn new(body: VisitBody, heals: Arc<HealLog>, began: Instant) -> Self {
        let visit = Self { body, heals, began, greeting: None };
        visit.link.keep_answers();
        answer_roots(&visit.link);
        visit
    }

    pub(super) fn set_era(&mut self, era: Era) {
        match &mut self.body {
            VisitBody::Child(child) => child.conversation.era = era,
            VisitBody::Remote(conversation) => conversation.era = era,
        }
    }

    /// The process, if it is one of ours.
    pub(super) fn child(&self) -> Option<&ReadyChild> {
        match &self.body {
            VisitBody::Child(child) => Some(child),
            VisitBody::Remote(_) => None,
        }
    }

    /// How long ago it was begun.
    pub(super) fn age(&self) -> Duration {
        since(self.began)
    }

    /// Shakes hands in the newest version that has a handshake.
    pub(super) async fn greet(&mut self, patience: Duration) -> Result<Message, HandshakeError> {
        self.set_era(Era::Legacy);
        let (revision, deadline) = (Revision::NEWEST_LEGACY, now() + patience);
        let capabilities = Bytes::from_static(CAPABILITIES);
        let hello =
            shake_hands(&self.link, revision, &capabilities, &own_info(), deadline, &self.heals)
                .await?;
        self.greeting = Some(hello.clone());
        Ok(hello)
    }

    /// Asks for a version, and gives what it answers. Nothing is asked before.
    pub(super) async fn ask_version(&self, version: &str, patience: Duration) -> Said {
        let (capabilities, info) = (
            String::from_utf8_lossy(CAPABILITIES),
            String::from_utf8_lossy(&own_info()).into_owned(),
        );
        let version = pontoon_wire::quoted(version);
        let params = format!(
            "{{\"protocolVersion\":{version},\"capabilities\":{capabilities},\"clientInfo\":{info}}}"
        );
        self.ask(method::INITIALIZE, &params, patience).await
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, method: &str, params: &str, patience: Duration) -> Said {
        let request = own_request_with(method, params);
        let request = match self.era {
            Era::Modern if method != method::INITIALIZE => modern_request(request),
            _ => Rewrite::new(request),
        };
        let mut asked = self.link.ask(request, Some(now() + patience), Purpose::Own);
        loop {
            match asked.next_event().await {
                ServerEvent::Answer(answer) if answer.has(Slot::Error) => {
                    let text = answer.string(Slot::ErrorMessage).unwrap_or_default().into_owned();
                    let code = answer.raw(Slot::ErrorCode);
                    let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
                    return Said::Error { code, message: text };
                }
                ServerEvent::Answer(answer) => return Said::Result(answer),
                ServerEvent::TimedOut(_) => return Said::Silence,
                ServerEvent::Lost(why) => return Said::Gone(Some(why)),
                ServerEvent::TooLong => {
                    return Said::Gone(Some("it found the message too long".to_owned()));
                }
                ServerEvent::Gone
                | ServerEvent::Unsent
                | ServerEvent::Clogged
                | ServerEvent::Ended => {
                    return Said::Gone(self.end_words().await);
                }
                ServerEvent::Question(question) if question.method() == method => {
                    return Said::Echo;
                }
                ServerEvent::Question(question) => self.link.say(reply(&question)),
                ServerEvent::Note(_)
                | ServerEvent::Log(_)
                | ServerEvent::Resumed(_)
                | ServerEvent::Release => {}
            }
        }
    }

    /// How it ended, if it has.
    pub(super) async fn end_words(&self) -> Option<String> {
        match &self.body {
            VisitBody::Child(child) => Some(format!("it {}", child.obituary().await)),
            VisitBody::Remote(conversation) => conversation.link.end().map(|end| end.words),
        }
    }

    /// Whether its capabilities name this one.
    pub(super) fn has_capability(&self, name: &str) -> bool {
        let hello = self.greeting.as_ref().and_then(|hello| hello.raw(Slot::Result));
        let capabilities = hello.and_then(|hello| json::find(hello, "capabilities"));
        capabilities.and_then(|it| json::find(it, name)).is_some_and(|it| it != b"null")
    }

    /// How often each heal was needed so far, in all visits.
    pub(super) fn heals(&self, code: &str) -> u64 {
        let counts = self.heals.counts();
        counts.iter().find(|(known, _)| *known == code).map_or(0, |(_, count)| *count)
    }
}

/// Answers questions for roots that belong to no request: there are none.
fn answer_roots(link: &Link) {
    let weak = link.weak();
    link.ask_through(Arc::new(move |question| {
        weak.upgrade().inspect(|link| link.say(reply(question))).is_some()
    }));
}

/// What is said to a question of the server.
fn reply(question: &Message) -> Text {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null"));
    let result = match &*question.method() {
        method::LIST_ROOTS => "{\"roots\":[]}",
        method::PING => "{}",
        _ => return refusal(question, "nobody is there to be asked"),
    };
    Bytes::from(envelope::result_answer(&id, result)).into()
}
