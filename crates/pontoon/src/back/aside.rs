//! What a session wants of the child that is kept for its client, besides calls.

use bytes::Bytes;
use pontoon_wire::{Era, Message};

use super::Back;
use crate::client::Client;

impl Back {
    /// Whether a child is kept for this client, and runs.
    pub fn keeps_child(&self, client: &Client, child_era: Era) -> bool {
        self.kept(client, child_era).is_some()
    }

    /// Whether the child that is kept for this client has said that one of its lists changed.
    pub fn lists_changed(&self, client: &Client, child_era: Era) -> bool {
        self.kept(client, child_era).is_some_and(|child| child.link.lists_changed())
    }

    /// Hands a legacy client's notification to the child that is kept for it, if that speaks the same era.
    pub fn pass_on(&self, client: &Client, child_era: Era, note: &Message) {
        let child = self.kept(client, child_era).filter(|child| child.era == Era::Legacy);
        if let Some(child) = child {
            child.link.say(note.clone());
        }
    }

    /// Tells the child that is kept for this client which log level the client wants.
    pub fn set_log_level(&self, client: &Client, child_era: Era, level: &Bytes) {
        if let Some(child) = self.kept(client, child_era) {
            child.set_log_level(level);
        }
    }

    /// Listens anew, with the client's subscriptions, to the modern child that is kept for it. False if none is.
    pub fn listen_anew(&self, client: &Client) -> bool {
        let child = self.kept(client, Era::Modern);
        child.map(|child| child.feed(client)).is_some()
    }
}
