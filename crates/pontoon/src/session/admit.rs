//! Limits: whether a call may run now. A permit rides in the call's reply.

use std::sync::Arc;
use std::time::Duration;

use crate::back::Back;
use crate::call::CallError;
use crate::client::{Client, Principal};
use crate::clock::now;
use crate::config::Mode;
use crate::observe::metrics::{Limit, Metrics};
use crate::observe::status::LimitUse;
use crate::permits::{Permit, Permits};

/// Calls on children that are kept for clients, in all.
const MAX_KEPT_CALLS: usize = 1024;

/// Subscriptions at once, in all and of one client. Each holds a connection.
const MAX_LISTENS: usize = 4096;
const MAX_OWN_LISTENS: usize = 64;

/// The limits on calls.
#[derive(Debug)]
pub struct Admission {
    /// Processes that start or work for one request.
    processes: Arc<Permits>,
    /// Calls on kept children.
    calls: Arc<Permits>,
    /// Subscriptions, which go on for as long as their clients like.
    listens: Arc<Permits>,
    /// How long a call waits for its turn.
    queue_wait: Duration,
    /// Where refusals are counted.
    pub metrics: Arc<Metrics>,
}

impl Admission {
    /// Limits with so many processes for single requests at once.
    pub fn new(max_processes: usize, queue_wait: Duration, metrics: Arc<Metrics>) -> Self {
        Self {
            processes: Permits::new(max_processes),
            calls: Permits::new(MAX_KEPT_CALLS),
            listens: Permits::with_share(MAX_LISTENS, MAX_OWN_LISTENS),
            queue_wait,
            metrics,
        }
    }

    /// A permit for one call of this client, if it may run at once.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when the limit is reached and nobody is to wait.
    pub fn admit(&self, back: &Back, client: &Client) -> Result<Option<Permit>, CallError> {
        let permits = self.permits(back, client);
        let who = &client.person.principal;
        match permits.try_take(who, now()) {
            Some(permit) => {
                back.metrics.waited(Duration::ZERO);
                Ok(Some(permit))
            }
            None if self.queue_wait(back).is_zero() => Err(self.busy(permits)),
            None => Ok(None),
        }
    }

    /// A permit for a subscription of this client.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when it has as many as it may.
    pub fn admit_listen(&self, client: &Client) -> Result<Permit, CallError> {
        let permit = self.listens.try_take(&client.person.principal, now());
        permit.ok_or_else(|| {
            self.metrics.refused(Limit::Streams);
            let what = format!(
                "busy: {MAX_OWN_LISTENS} subscriptions of one client, and {MAX_LISTENS} in all, may be open"
            );
            CallError::Busy { what, retry_after_seconds: 10 }
        })
    }

    /// A permit for a call that has to wait for its turn.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when it did not come.
    pub async fn wait(&self, back: &Back, client: &Client) -> Result<Permit, CallError> {
        let permits = self.permits(back, client);
        let who = &client.person.principal;
        let permit = tokio::time::timeout(self.queue_wait(back), permits.take(who)).await;
        permit.ok().flatten().ok_or_else(|| self.busy(permits))
    }

    /// How long a call waits for its turn. An application may do one thing at a time: its calls wait as long as
    /// their own time lasts.
    fn queue_wait(&self, back: &Back) -> Duration {
        match back.app() {
            Some(_) => Duration::MAX,
            None => self.queue_wait,
        }
    }

    /// A permit to start processes that learn what a server offers one person.
    ///
    /// # Errors
    ///
    /// [`CallError::Busy`] when its turn did not come.
    pub async fn wait_to_learn(&self, who: &Principal) -> Result<Permit, CallError> {
        if let Some(permit) = self.try_to_learn(who) {
            return Ok(permit);
        }
        let permit = tokio::time::timeout(self.queue_wait, self.processes.take(who)).await;
        permit.ok().flatten().ok_or_else(|| self.busy(&self.processes))
    }

    /// The same if there is one now. What it is for can wait, and is not counted as refused.
    pub fn try_to_learn(&self, who: &Principal) -> Option<Permit> {
        self.processes.try_take(who, now())
    }

    /// Processes for single requests, and calls on kept children.
    pub fn usage(&self) -> (LimitUse, LimitUse) {
        let usage = |permits: &Permits| LimitUse { used: permits.in_use(), limit: permits.limit() };
        (usage(&self.processes), usage(&self.calls))
    }

    /// Calls that wait for their turn, but for those at a process that is everybody's.
    pub fn waiting(&self) -> usize {
        self.processes.waiting() + self.calls.waiting()
    }

    fn permits<'p>(&'p self, back: &'p Back, client: &Client) -> &'p Arc<Permits> {
        match back.server.mode {
            _ if back.app().is_some() => &back.shared_calls,
            Mode::Shared { .. } => &back.shared_calls,
            Mode::Stateful { .. } if client.key.can_return() => &self.calls,
            Mode::Stateless | Mode::Stateful { .. } => &self.processes,
        }
    }

    fn busy(&self, permits: &Arc<Permits>) -> CallError {
        let limit = permits.limit();
        let (reached, which) = if Arc::ptr_eq(permits, &self.processes) {
            (Limit::Concurrent, "")
        } else if Arc::ptr_eq(permits, &self.calls) {
            (Limit::KeptCalls, "")
        } else {
            (Limit::InFlight, " (max_in_flight of a server whose one process all clients share)")
        };
        let (counted, what) = match permits.in_use() < limit {
            true => (
                Limit::Share,
                format!("this client has as many calls under way as one may, of {limit} in all"),
            ),
            false => (reached, format!("all {limit} calls that may run at once are running")),
        };
        let what = format!("busy: {what}{which}");
        self.metrics.refused(counted);
        CallError::Busy { what, retry_after_seconds: 5 }
    }
}
