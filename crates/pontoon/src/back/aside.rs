//! What a session wants of the conversation that is kept for its client, besides calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use pontoon_wire::{Era, Message};

use super::Back;
use super::conversation::Conversation;
use super::keep::kept_child::KeptChild;
use super::remote::connection::AppConnection;
use super::shown_tools::ShownTools;
use crate::client::Client;

/// A conversation that is kept for a client.
enum Kept {
    Child(Arc<KeptChild>),
    App(Arc<AppConnection>),
}

impl std::ops::Deref for Kept {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        match self {
            Self::Child(child) => child,
            Self::App(connection) => connection,
        }
    }
}

impl Back {
    /// The conversation that is kept for this client, if there is one. What is everybody's is not.
    fn kept_for(&self, client: &Client, child_era: Era) -> Option<Kept> {
        match self.app() {
            Some(_) if self.server.mode.is_shared() => None,
            Some(app) => app.connection().map(Kept::App),
            None => self.kept(client, child_era).map(Kept::Child),
        }
    }

    /// Whether a child is kept for this client, and runs.
    pub fn keeps_child(&self, client: &Client, child_era: Era) -> bool {
        self.kept_for(client, child_era).is_some()
    }

    /// Whether the child that is kept for this client has said that one of its lists changed. Those of an
    /// application are learnt anew then.
    pub fn lists_changed(&self, client: &Client, child_era: Era) -> bool {
        self.kept(client, child_era).is_some_and(|child| child.link.lists_changed())
    }

    /// Notes that a child that is kept for a client has listed its tools itself.
    pub(crate) fn note_own_tools(&self) {
        self.lists_own_tools.store(true, Ordering::Relaxed);
    }

    /// The tools that the child that is kept for this client listed itself, if it did.
    pub(crate) fn own_tools(&self, client: &Client, child_era: Era) -> Option<Arc<ShownTools>> {
        // Few children ever do, and this is asked for every call.
        if !self.lists_own_tools.load(Ordering::Relaxed) {
            return None;
        }
        self.kept(client, child_era).and_then(|child| child.link.own_tools())
    }

    /// Hands a legacy client's notification to the server that is kept for it, if that speaks the same era.
    pub fn pass_on(&self, client: &Client, child_era: Era, note: &Message) {
        let kept = self.kept_for(client, child_era).filter(|kept| kept.era == Era::Legacy);
        if let Some(kept) = kept {
            kept.link.say(note.clone());
        }
    }

    /// Tells the server that is kept for this client which log level the client wants.
    pub fn set_log_level(&self, client: &Client, child_era: Era, level: &Bytes) {
        if let Some(kept) = self.kept_for(client, child_era) {
            kept.set_log_level(level);
        }
    }

    /// Listens anew, with the client's subscriptions, to the modern server that is kept for it. False if none is.
    pub fn listen_anew(&self, client: &Client) -> bool {
        self.kept_for(client, Era::Modern).map(|kept| kept.feed(client)).is_some()
    }
}
