//! What the bridge asks servers for itself.

use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::{Era, Message, Rewrite, Slot, era, quoted};

use super::Conversation;
use super::incoming::refusal;
use super::link::Purpose;
use super::mailbox::ServerEvent;
use crate::clock::now;

/// Why a request of the bridge's own has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// The server answered with an error.
    Refused(String),
    /// It did not answer in time.
    Slow,
    /// It is gone.
    Gone,
}

impl Conversation {
    /// The answer to a request of the bridge's own, as this conversation's era has it. What the server asks
    /// meanwhile is refused.
    pub(crate) async fn result_of(
        &self,
        method: &str,
        params: &str,
        patience: Duration,
    ) -> Result<Message, NoResult> {
        let request = own_request_with(method, params);
        let request = match self.era {
            Era::Legacy => Rewrite::new(request),
            Era::Modern => modern_request(request),
        };
        let mut asked = self.link.ask(request, Some(now() + patience), Purpose::Own);
        loop {
            match asked.next_event().await {
                ServerEvent::Answer(answer) if answer.has(Slot::Error) => {
                    let text = answer.string(Slot::ErrorMessage).unwrap_or_default();
                    let text = format!("it answered `{method}` with an error: {text}");
                    return Err(NoResult::Refused(text));
                }
                ServerEvent::Answer(answer) => return Ok(answer),
                ServerEvent::TimedOut(_) => return Err(NoResult::Slow),
                ServerEvent::Gone
                | ServerEvent::Unsent
                | ServerEvent::Clogged
                | ServerEvent::Ended
                | ServerEvent::Lost(_) => return Err(NoResult::Gone),
                ServerEvent::Question(question) => {
                    self.link.say(refusal(&question, "nobody is there to be asked"));
                }
                ServerEvent::Note(_)
                | ServerEvent::Log(_)
                | ServerEvent::Resumed(_)
                | ServerEvent::Release => {}
            }
        }
    }
}

/// A request of the bridge's own, without parameters.
pub fn own_request(method: &str) -> Message {
    own_request_with(method, "{}")
}

/// A request of the bridge's own; `params` is a JSON object.
pub fn own_request_with(method: &str, params: &str) -> Message {
    let method = quoted(method);
    Message::own(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":{method},\"params\":{params}}}"
    ))
}

/// The same request, described as the modern era wants it.
pub fn modern_request(request: Message) -> Rewrite {
    let client = era::ClientFacts {
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
        log_level: None,
    };
    era::to_modern_request(request, &client)
}

/// How the bridge names itself to servers.
pub fn own_info() -> Bytes {
    Bytes::from_static(
        concat!("{\"name\":\"pontoon\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}")
            .as_bytes(),
    )
}
