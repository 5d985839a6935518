//! Under what a kept child is found again.

use pontoon_wire::Era;

use crate::back::conversation::abilities::Abilities;
use crate::client::Key;

/// A server among those whose children are kept. One that is configured anew is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ServerNumber(pub(crate) u64);

/// A child is opened in one era, so a conversation that changes its era needs another. What it was
/// started with for one person it keeps, so it is never another's, whatever they call themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeptKey {
    pub(crate) server: ServerNumber,
    pub(crate) key: Key,
    pub(crate) era: Era,
    /// A hash of what was filled in for the person, where anything is.
    pub(crate) person: Option<[u8; 32]>,
    /// What the child was told its client can answer, where clients that do not know of each other
    /// have one key: a legacy child hears it only once. A conversation keeps its child anyway.
    pub(crate) abilities: Option<Abilities>,
}

impl KeptKey {
    /// Whether it is one of the conversations whose number is limited for a client. Others of an address
    /// are one, with several children, and the child of all clients is no conversation.
    pub(crate) fn is_conversation(&self) -> bool {
        !matches!(self.key, Key::Address(_) | Key::Everyone) || self.person.is_some()
    }
}
