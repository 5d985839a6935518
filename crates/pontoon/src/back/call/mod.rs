//! One call to its answer: the exchange with a conversation, the questions in its middle, its record and its files.
//!
//! A call comes in with its [`Reply`], and the answer goes home through that. Children are leased from `keep`; no
//! child is started and no frame is read here. [`Back::take`] runs as one task from the lease to the answer;
//! dropping it is cancelling the call.

pub mod answer;
pub(crate) mod early_questions;
pub(crate) mod exchange;
mod healed;
mod keep_alive;
pub mod listen;
pub(crate) mod mentions;
pub(crate) mod questions;
pub(crate) mod record;
pub(crate) mod run;
mod spill;
mod too_long;
pub(crate) mod waiting;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Message, Slot, method};
use tokio_util::sync::CancellationToken;

use self::exchange::{Exchange, after_earlier_try};
use self::record::{CallEnd, CallRecord, finish};
use self::run::{Retry, Unsent};
use super::Back;
use super::keep::demand::{Demand, Use};
use super::keep::lease::Lease;
use super::keep::suspended::Suspended;
use super::outputs::Promise;
use crate::call::{Call, CallError, Reply};
use crate::client::Client;
use crate::clock::{Clock, Stage, now};
use crate::observe::spans::Step;

impl Back {
    /// Takes a call to its end: answered, failed or forgotten.
    pub async fn take(&self, call: Call, child_era: Era) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(self);
        if call.request.method() == method::LISTEN {
            return Box::pin(self.take_listen(call, child_era)).await;
        }
        if child_era == Era::Modern && method::is_subscription(&call.request.method()) {
            return Box::pin(self.take_subscription(call)).await;
        }
        let Some((call, suspended)) = self.find_suspended(call, child_era) else { return };
        let Call { request, client, cancel, clock, may_repeat, promise, mut reply } = call;
        let mut record = None;
        if request.method() == method::CALL_TOOL && self.has_records() {
            match self.open_record(&request, &client, &mut reply) {
                Ok(opened) => record = Some(opened),
                Err(error) => return reply.fail(error),
            }
        }
        let lease = match suspended {
            Some(lease) => lease,
            None => match self
                .lease_unless(&reply, &cancel, &clock, Use::Call, &client, child_era)
                .await
            {
                Some(Ok(lease)) => lease,
                Some(Err(error)) => return refuse(reply, error, record, &request, &client),
                None => return reply.forget(),
            },
        };
        let begun = self.exchange(lease, request, client, clock, record, reply).await;
        let Some((mut exchange, reply)) = begun else { return };
        exchange.promise.clone_from(&promise);
        // A kept child or a spare may have died while it waited. If it never read the request,
        // another may try, once: a new one.
        let may_retry = exchange.lease.may_be_stale();
        let (client, request) = (Arc::clone(&exchange.client), exchange.request.clone());
        let retry = Retry { if_unsent: may_retry, if_lost: may_repeat };
        if let Some(unsent) = exchange.run(cancel, reply, retry).await {
            Box::pin(self.take_again(unsent, request, client, promise, child_era)).await;
        }
    }

    /// Whether its calls are in the journal. What the one client of an application does is its own record.
    fn has_records(&self) -> bool {
        self.server.app.is_none() || self.server.mode.is_shared()
    }

    /// Takes a call to its end that a child never read: it is given to a new one.
    async fn take_again(
        &self,
        unsent: Unsent<'_>,
        request: Message,
        client: Arc<Client>,
        promise: Option<Arc<Promise>>,
        child_era: Era,
    ) {
        let (cancel, clock, record, reply) = unsent;
        match self.lease_unless(&reply, &cancel, &clock, Use::Again, &client, child_era).await {
            Some(Ok(lease)) => {
                let begun = self.exchange(lease, request, client, clock, record, reply).await;
                if let Some((mut exchange, reply)) = begun {
                    exchange.promise = promise;
                    exchange.run(cancel, reply, Retry::NEVER).await;
                }
            }
            Some(Err(error)) => refuse(reply, error, record, &request, &client),
            None => reply.forget(),
        }
    }

    /// Takes a legacy client's subscription at a modern server: a child is started, and listened to with the
    /// subscriptions that the client has by now.
    async fn take_subscription(&self, call: Call) {
        let Call { client, cancel, clock, reply, .. } = call;
        match self.lease_unless(&reply, &cancel, &clock, Use::Listen, &client, Era::Modern).await {
            Some(Ok(_)) => reply.result("{}"),
            Some(Err(error)) => reply.fail(error),
            None => reply.forget(),
        }
    }

    /// The call and its child, with the workspace of a tool call known to its record; else it is refused.
    async fn exchange<'b>(
        &'b self,
        lease: Lease,
        request: Message,
        client: Arc<Client>,
        clock: Clock,
        mut record: Option<CallRecord<'b>>,
        mut reply: Reply,
    ) -> Option<(Exchange<'b>, Reply)> {
        let begun = match &mut record {
            Some(record) => clock.bound(record.begin_at(&lease)).await,
            None => Some(Ok(())),
        };
        match begun.unwrap_or_else(|| Err(clock.timed_out(self.server.name.as_str()))) {
            Ok(()) => {
                reply.set_job(record.as_ref().and_then(|record| record.job_id()));
                Some((
                    Exchange {
                        back: self,
                        lease,
                        request,
                        client,
                        clock,
                        record,
                        promise: None,
                        step: None,
                    },
                    reply,
                ))
            }
            Err(error) => {
                finish(record, &CallEnd::Failed(&error));
                reply.fail(error);
                None
            }
        }
    }

    /// A child for the call, or nothing if it is cancelled first. That takes no longer than the call may.
    pub async fn lease_unless(
        &self,
        reply: &Reply,
        cancel: &CancellationToken,
        clock: &Clock,
        wanted_for: Use,
        client: &Client,
        child_era: Era,
    ) -> Option<Result<Lease, CallError>> {
        clock.enter(Stage::Starting);
        let demand = Demand { wanted_for, client, child_era, clock };
        let mut step = reply.step("start");
        let lease = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                step.iter_mut().for_each(|step| step.fail("cancelled"));
                return None;
            }
            lease = clock.bound(self.keep.lease(&demand)) => lease,
        };
        step.iter_mut().for_each(|step| tell_lease(step, lease.as_ref()));
        Some(lease.unwrap_or_else(|| {
            if let Some(app) = self.app() {
                return Err(app.not_there());
            }
            let error = clock.timed_out(self.server.name.as_str());
            if clock.stage() == Stage::Starting {
                self.metrics.child_failed();
                tracing::error!(server = %self.server.name, error = &error as &dyn std::error::Error, "no child");
                self.launcher.doubted.notify_one();
            }
            Err(error)
        }))
    }

    /// The clock of a request that was accepted just now.
    pub fn clock(&self, request: &Message) -> Clock {
        Clock::new(self.time_of(request), now())
    }

    /// How long a request may take.
    pub fn time_of(&self, request: &Message) -> Duration {
        let tool = request.string(Slot::Name);
        let is_tool = request.method() == method::CALL_TOOL;
        self.server.timeout_of(tool.as_deref().filter(|_| is_tool))
    }

    /// What the call goes on with, by the state or task it names: `None` if that has taken it over.
    fn find_suspended(&self, call: Call, child_era: Era) -> Option<(Call, Option<Lease>)> {
        let name = |slot| call.request.string(slot).map(|name| name.into_owned());
        let (state, task) = (name(Slot::RequestState), name(Slot::TaskId));
        let key = &call.client.key;
        match state.iter().chain(&task).find_map(|name| self.keep.suspended.find(name, key)) {
            Some(Suspended::Child(lease)) => Some((call, Some(lease))),
            Some(Suspended::Exchange(exchange)) => {
                // If the exchange ended meanwhile, dropping the call would report a fault of ours.
                if let Err(call) = exchange.send(call) {
                    call.reply.error(&unknown_state());
                }
                None
            }
            Some(Suspended::Ambiguous) => {
                call.reply.error(&unknown_state());
                None
            }
            Some(Suspended::Elsewhere) => {
                call.reply.error(&lost_state());
                None
            }
            // A legacy child never gave out a state, so this one is forged or out of date.
            None if state.is_some() && child_era == Era::Legacy => {
                call.reply.error(&unknown_state());
                None
            }
            None => Some((call, None)),
        }
    }
}

/// Says in the span of a start what came of it.
fn tell_lease(step: &mut Step, lease: Option<&Result<Lease, CallError>>) {
    match lease {
        None => step.fail("timeout"),
        Some(Err(error)) => step.fail(error.word()),
        Some(Ok(lease)) => {
            let span = step.span();
            span.rename(match lease {
                Lease::Own(child) if child.has_waited => "spare",
                Lease::Own(_) => "start",
                Lease::Kept(_) | Lease::Task(_) => "kept process",
                Lease::App(_) => "connection",
            });
            if let Some(pid) = lease.pid() {
                span.count("process.pid", pid.into());
            }
        }
    }
}

/// Counts a call while it runs.
struct Running<'b>(&'b Back);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.call_ended.notify_waiters();
    }
}

/// Refuses a call. What is for the model to know is the result of its tool.
fn refuse(
    reply: Reply,
    error: CallError,
    record: Option<CallRecord<'_>>,
    request: &Message,
    client: &Client,
) {
    let error = after_earlier_try(&reply, error);
    finish(record, &CallEnd::Failed(&error));
    match error.for_model(request, client.era()) {
        Some(result) => reply.fail_with_result(&error, &result),
        None => reply.fail(error),
    }
}

fn lost_state() -> ErrorObject {
    ErrorObject::new(
        code::INVALID_PARAMS,
        "the call that asked this was given up when its bridge was restarted, or it waits at another replica: begin \
         anew without `requestState`",
    )
}

fn unknown_state() -> ErrorObject {
    ErrorObject::new(
        code::INVALID_PARAMS,
        "this `requestState` or `taskId` is unknown here, was used already, has expired, or was given \
         out twice: begin anew without it",
    )
}
