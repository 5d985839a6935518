//! Calls that wait for a legacy client's answer to a question. Their number is limited.

use std::sync::Arc;

use pontoon_wire::error::{ErrorObject, code};
use tokio::sync::OwnedSemaphorePermit;

use crate::back::Back;
use crate::back::keep::suspended::PATIENCE;
use crate::observe::metrics::Limit;

/// A call that waits for a legacy client to answer.
pub(crate) struct WaitingCall {
    _place: OwnedSemaphorePermit,
    /// The questions that are open.
    pub(crate) questions: usize,
}

impl WaitingCall {
    /// A place among those who wait, if one is free.
    pub(crate) fn begin(back: &Back) -> Option<Self> {
        match Arc::clone(&back.waiting).try_acquire_owned() {
            Ok(place) => Some(Self { _place: place, questions: 0 }),
            Err(_) => {
                back.around.machine.metrics.refused(Limit::Waiting);
                None
            }
        }
    }
}

/// What a call ends with whose question was not answered in time.
pub(crate) fn unanswered() -> ErrorObject {
    let text = format!("nobody answered the server's question within {} s", PATIENCE.as_secs());
    ErrorObject::new(code::TIMED_OUT, text)
}
