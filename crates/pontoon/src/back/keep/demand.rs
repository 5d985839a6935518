//! What a call wants of a child.

use pontoon_wire::Era;

use crate::client::{Client, Key};
use crate::clock::Clock;

/// What a child is wanted for, by whom, and until when.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'c> {
    /// What for.
    pub wanted_for: Use,
    /// Whose call waits.
    pub client: &'c Client,
    /// The era to open a child in.
    pub child_era: Era,
    /// The time that the call has.
    pub clock: &'c Clock,
}

/// What a child is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A call.
    Call,
    /// A call that a dead child never read. Where one died unseen, others may have: no spare gets it.
    Again,
    /// A subscription: it gives the child nothing to do, so it waits for no call and no call for it.
    Listen,
}

impl Demand<'_> {
    /// Whether its client hears that the state of its conversation was lost. Client libraries open subscriptions
    /// by themselves, and the word would be lost with them; those who all share a process have no conversation.
    pub(crate) fn hears_of_loss(&self) -> bool {
        self.wanted_for != Use::Listen && self.client.key != Key::Everyone
    }
}
