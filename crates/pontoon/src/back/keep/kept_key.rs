//! Under what a kept child is found again.

use pontoon_wire::{Era, json};

use crate::client::Key;

/// A child is opened in one era, so a conversation that changes its era needs another. What it was
/// started with for one person it keeps, so it is never another's, whatever they call themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) key: Key,
    pub(crate) era: Era,
    /// A hash of what was filled in for the person, where anything is.
    pub(crate) person: Option<[u8; 32]>,
    /// What the child was told its client can answer, where clients that do not know of each other
    /// have one key: a legacy child hears it only once. A conversation keeps its child anyway.
    pub(crate) answers: Option<Answers>,
}

/// Which questions of a server a client can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Answers {
    elicitation: bool,
    elicitation_by_url: bool,
    sampling: bool,
    sampling_with_tools: bool,
    roots: bool,
}

impl Answers {
    pub(crate) fn of(capabilities: &[u8]) -> Self {
        let elicitation = json::find(capabilities, "elicitation");
        let sampling = json::find(capabilities, "sampling");
        let has = |capability: Option<&[u8]>, member| {
            capability.is_some_and(|found| json::find(found, member).is_some())
        };
        Self {
            elicitation: elicitation.is_some(),
            elicitation_by_url: has(elicitation, "url"),
            sampling: sampling.is_some(),
            sampling_with_tools: has(sampling, "tools"),
            roots: json::find(capabilities, "roots").is_some(),
        }
    }
}

impl PoolKey {
    /// Whether it is one of the conversations a client may have so many of. Others of an address
    /// are one, with several children.
    pub(crate) fn is_conversation(&self) -> bool {
        !matches!(self.key, Key::Address(_)) || self.person.is_some()
    }
}
