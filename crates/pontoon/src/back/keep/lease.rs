//! A child for one call. Dropping the lease stops the child, or leaves it to its conversation.

use std::sync::Arc;

use super::kept::KeptLease;
use crate::back::child::ready::ReadyChild;
use crate::back::conversation::{Conversation, WaitsForPerson};
use crate::back::remote::connection::AppConnection;

/// A child for one call.
#[derive(Debug)]
pub enum Lease {
    /// Started for this call alone, and stopped after it.
    Own(Box<ReadyChild>),
    /// Kept for the conversation.
    Kept(KeptLease),
    /// Started for one call, and kept because it works on a task the client will ask about.
    Task(Arc<ReadyChild>),
    /// No process of ours: the connection to an application.
    App(Arc<AppConnection>),
}

impl std::ops::Deref for Lease {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        match self {
            Self::Own(child) => child,
            Self::Kept(lease) => &lease.child,
            Self::Task(child) => child,
            Self::App(connection) => connection,
        }
    }
}

impl Lease {
    /// The child, if it is one.
    pub(crate) fn child(&self) -> Option<&ReadyChild> {
        match self {
            Self::Own(child) => Some(child),
            Self::Kept(lease) => Some(&lease.child),
            Self::Task(child) => Some(child),
            Self::App(_) => None,
        }
    }

    /// The process id of the child, if it is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().map(ReadyChild::id)
    }

    /// Whether the child may have died before the call came, with none looking.
    pub(crate) fn may_be_stale(&self) -> bool {
        matches!(self, Self::Kept(_) | Self::App(_))
            || self.child().is_some_and(|child| child.has_waited)
    }

    /// Says that its call waits for a person until the guard is dropped. Meanwhile the child gets no
    /// other client's calls: what it says could not be told apart.
    pub(crate) fn wait_for_person(&self) -> WaitsForPerson<'_> {
        match self {
            Self::Kept(lease) => lease.wait_for_person(),
            Self::Own(_) | Self::Task(_) | Self::App(_) => Conversation::wait_for_person(self),
        }
    }

    /// Says that the child has answered, and may have state from now on that its client relies on.
    pub(crate) fn note_answer(&self) {
        if let Self::Kept(lease) = self {
            lease.child.note_answer();
        }
    }

    /// Says that the client hears of the child's end now. Whether state was lost with it.
    pub(crate) fn note_loss_told(&self) -> bool {
        match self {
            Self::Kept(lease) => {
                lease.child.note_loss_told();
                lease.child.may_have_state()
            }
            Self::Own(_) | Self::Task(_) | Self::App(_) => false,
        }
    }
}
