//! Limits: whether a call may run now. A permit rides in the call's reply.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::CallError;
use crate::config::Mode;

/// Calls on children that are kept for clients, in all.
const MAX_KEPT_CALLS: usize = 1024;

/// The limits on calls.
#[derive(Debug)]
pub struct Admission {
    /// Processes that start or work for one request.
    processes: Arc<Semaphore>,
    max_processes: usize,
    calls: Arc<Semaphore>,
}

impl Admission {
    /// Limits with so many processes for single requests at once.
    pub fn new(max_processes: usize) -> Self {
        Self {
            processes: Arc::new(Semaphore::new(max_processes)),
            max_processes,
            calls: Arc::new(Semaphore::new(MAX_KEPT_CALLS)),
        }
    }

    /// A permit for one call.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when the limit is reached; nobody waits here.
    pub fn admit(&self, mode: Mode) -> Result<OwnedSemaphorePermit, CallError> {
        let (semaphore, limit) = match mode {
            Mode::Stateless => (&self.processes, self.max_processes),
            Mode::Stateful { .. } => (&self.calls, MAX_KEPT_CALLS),
        };
        Arc::clone(semaphore).try_acquire_owned().map_err(|_| CallError::Busy {
            what: format!("busy: all {limit} calls that may run at once are running"),
            retry_after_seconds: 5,
        })
    }

    /// How many permits are in use.
    pub fn in_use(&self) -> usize {
        let free = self.processes.available_permits() + self.calls.available_permits();
        self.max_processes + MAX_KEPT_CALLS - free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_kept_and_a_permit_comes_back() {
        let admission = Admission::new(1);
        let permit = admission.admit(Mode::Stateless).unwrap();
        assert_eq!(admission.in_use(), 1);
        let busy = admission.admit(Mode::Stateless).unwrap_err();
        assert_eq!(busy.status(), 429);
        assert_eq!(
            busy.to_string(),
            "busy: all 1 calls that may run at once are running; try again in 5 s"
        );
        drop(permit);
        assert!(admission.admit(Mode::Stateless).is_ok());
    }
}
