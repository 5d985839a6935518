//! What travels: a [`Call`] to the right, and in it the [`Reply`] that jumps home once.

mod error;
mod note;
mod outcome;
mod passing_on;
mod questions;
mod reply;
pub mod traced;

use std::sync::Arc;

use bytes::Bytes;
use pontoon_wire::{Message, envelope, method};
use tokio_util::sync::CancellationToken;

use crate::back::outputs::Promise;
use crate::client::Client;
use crate::clock::Clock;

pub use error::CallError;
pub use note::{CallBook, CallNote, NotedEnd};
pub use outcome::{MAX_EVENT, Outcome, Receipt};
pub use passing_on::PassingOn;
pub use questions::{Answerer, Feed, Questions};
pub use reply::Reply;

/// One request of a client, on its way to a server.
#[derive(Debug)]
pub struct Call {
    /// The request as the client wrote it.
    pub request: Message,
    /// Who asks.
    pub client: Arc<Client>,
    /// Fires when the client wants no answer any more.
    pub cancel: CancellationToken,
    /// Until when it has to be answered.
    pub clock: Clock,
    /// Whether it does no harm to make it twice, so that it is, if a connection was lost.
    pub may_repeat: bool,
    /// What its tool promises to give back.
    pub(crate) promise: Option<Arc<Promise>>,
    /// The way home.
    pub reply: Reply,
}

/// A `notifications/...` message without parameters.
pub fn plain_notification(method: &str) -> Bytes {
    Bytes::from(envelope::plain_notification(method))
}

/// Whether a method is one of the lists, and the member its result carries.
pub fn list_member(method: &str) -> Option<&'static str> {
    match method {
        method::LIST_TOOLS => Some("tools"),
        method::LIST_PROMPTS => Some("prompts"),
        method::LIST_RESOURCES => Some("resources"),
        method::LIST_TEMPLATES => Some("resourceTemplates"),
        _ => None,
    }
}
