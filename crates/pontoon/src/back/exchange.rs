//! One exchange: a call given to a child, and everything said until its answer goes home.
//!
//! It runs as one task from the lease to the answer; dropping it is cancelling the call. Between a
//! client of one era and a child of the other it translates. A server's questions in the middle of a
//! call are the business of `questions`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, era, json, method};
use tokio_util::sync::CancellationToken;

use super::Back;
use super::children::{Lease, Use, now};
use super::hidden;
use super::link::{Asked, Purpose};
use super::mailbox::Heard;
use super::parking::Found;
use super::questions::{Waiting, nobody_answered};
use super::record::{CallEnd, CallRecord};
use crate::call::{Call, CallError, Receipt, Reply};
use crate::client::Client;
use crate::clock::{Clock, Stage};
use crate::observe::metrics::Limit;

impl Back {
    /// Takes a call to its end: answered, failed or forgotten.
    pub async fn take(&self, call: Call, child_era: Era) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(self);
        if call.request.method() == method::LISTEN {
            return Box::pin(self.take_listen(call, child_era)).await;
        }
        let Some((call, parked)) = self.find_parked(call, child_era) else { return };
        let Call { request, client, mut cancel, clock, reply } = call;
        let mut record = None;
        if request.method() == method::CALL_TOOL {
            match self.open_record(&request, &client, reply.id()) {
                Ok(opened) => record = Some(opened),
                Err(error) => return reply.fail(error),
            }
        }
        let lease = match parked {
            Some(lease) => lease,
            None => match self.lease_unless(&cancel, &clock, Use::Call, &client, child_era).await {
                Some(Ok(lease)) => lease,
                Some(Err(error)) => return refuse(reply, error, record, client.era()),
                None => return reply.forget(),
            },
        };
        let begun = self.exchange(lease, request, client, clock, record, reply).await;
        let Some((exchange, mut reply)) = begun else { return };
        // A kept child or a spare may have died while nobody looked. If it never read the request,
        // another may try, once: a new one.
        let may_retry = matches!(exchange.lease, Lease::Kept(_)) || exchange.lease.has_waited;
        let (client, request) = (Arc::clone(&exchange.client), exchange.request.clone());
        let Some(unsent) = exchange.run(cancel, reply, may_retry).await else { return };
        let (clock, record);
        (cancel, clock, record, reply) = unsent;
        match self.lease_unless(&cancel, &clock, Use::Again, &client, child_era).await {
            Some(Ok(lease)) => {
                let begun = self.exchange(lease, request, client, clock, record, reply).await;
                if let Some((exchange, reply)) = begun {
                    exchange.run(cancel, reply, false).await;
                }
            }
            Some(Err(error)) => refuse(reply, error, record, client.era()),
            None => reply.forget(),
        }
    }

    /// The call and its child, with the place of a tool call known to its record; else it is refused.
    async fn exchange<'b>(
        &'b self,
        lease: Lease,
        request: Message,
        client: Arc<Client>,
        clock: Clock,
        mut record: Option<Box<CallRecord<'b>>>,
        reply: Reply,
    ) -> Option<(Exchange<'b>, Reply)> {
        let begun = match &mut record {
            Some(record) => clock.bound(record.begin_at(&lease)).await,
            None => Some(Ok(())),
        };
        match begun.unwrap_or_else(|| Err(clock.timed_out(self.server.name.as_str()))) {
            Ok(()) => Some((Exchange { back: self, lease, request, client, clock, record }, reply)),
            Err(error) => {
                finish(record, &CallEnd::Failed(&error.to_string()));
                reply.fail(error);
                None
            }
        }
    }

    /// A child for the call, or nothing if it is cancelled first. That takes no longer than the call may.
    pub async fn lease_unless(
        &self,
        cancel: &CancellationToken,
        clock: &Clock,
        wanted_for: Use,
        client: &Client,
        child_era: Era,
    ) -> Option<Result<Lease, CallError>> {
        clock.enter(Stage::Starting);
        let lease = tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            lease = clock.bound(self.lease(wanted_for, client, child_era, clock)) => lease,
        };
        Some(lease.unwrap_or_else(|| {
            let error = clock.timed_out(self.server.name.as_str());
            if clock.stage() == Stage::Starting {
                self.metrics.child_failed();
                tracing::warn!(server = %self.server.name, error = &error as &dyn std::error::Error, "no child");
                self.doubted.notify_one();
            }
            Err(error)
        }))
    }

    /// The clock of a request that was accepted just now.
    pub fn clock(&self, request: &Message) -> Clock {
        let tool = request.string(Slot::Name);
        let is_tool = request.method() == method::CALL_TOOL;
        Clock::new(self.server.timeout_of(tool.as_deref().filter(|_| is_tool)), now())
    }

    /// What the call goes on with, by the state or task it names: `None` if that has taken it over.
    fn find_parked(&self, call: Call, child_era: Era) -> Option<(Call, Option<Lease>)> {
        let name = |slot| call.request.string(slot).map(|name| name.into_owned());
        let (state, task) = (name(Slot::RequestState), name(Slot::TaskId));
        let key = &call.client.key;
        match state.iter().chain(&task).find_map(|name| self.parking.find(name, key)) {
            Some(Found::Child(lease)) => Some((call, Some(lease))),
            Some(Found::Exchange(exchange)) => {
                // If the exchange ended meanwhile, dropping the call would report a fault of ours.
                if let Err(call) = exchange.send(call) {
                    call.reply.error(&unknown_state());
                }
                None
            }
            Some(Found::Ambiguous) => {
                call.reply.error(&unknown_state());
                None
            }
            Some(Found::Elsewhere) => {
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

    /// Lets go of what waited too long for a person, and of the places of what has ended.
    pub fn sweep(&self) {
        self.parking.sweep();
        self.pool.reclaim();
        self.sweep_ahead();
    }

    /// Lets go of everything that is kept.
    pub fn drain(&self) {
        self.spares.end();
        self.end_ahead();
        self.parking.clear();
        self.end_all();
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

/// Writes how a call ended, if it has a record.
fn finish(record: Option<Box<CallRecord<'_>>>, end: &CallEnd<'_>) {
    if let Some(record) = record {
        record.finish(end);
    }
}

/// Refuses a call. That state was lost is for the model to know, so a tool answers with it.
fn refuse(reply: Reply, error: CallError, record: Option<Box<CallRecord<'_>>>, client: Era) {
    let is_tool = record.is_some();
    finish(record, &CallEnd::Failed(&error.to_string()));
    match error {
        CallError::StateLost(text) if is_tool => {
            let kind = match client {
                Era::Modern => "\"resultType\":\"complete\",",
                Era::Legacy => "",
            };
            let text = pontoon_wire::quoted(&text);
            reply.result(&format!(
                "{{{kind}\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"isError\":true}}"
            ));
        }
        error => reply.fail(error),
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

/// A call, and the child it was given to.
pub(super) struct Exchange<'b> {
    pub(super) back: &'b Back,
    pub(super) lease: Lease,
    pub(super) request: Message,
    pub(super) client: Arc<Client>,
    pub(super) clock: Clock,
    /// The record of a tool call.
    pub(super) record: Option<Box<CallRecord<'b>>>,
}

/// Where an exchange stands after something was heard.
#[allow(clippy::large_enum_variant, reason = "made and taken apart at once, never kept")]
pub(super) enum Step {
    /// Go on listening, with the same or a new way home.
    GoOn(CancellationToken, Reply),
    /// It is over.
    Over,
}

/// What a call that its child never read goes on with.
type Unsent<'b> = (CancellationToken, Clock, Option<Box<CallRecord<'b>>>, Reply);

impl<'b> Exchange<'b> {
    /// Runs to the end; gives the way home back if the child never read the request and another
    /// may be tried.
    async fn run(
        mut self,
        cancel: CancellationToken,
        reply: Reply,
        may_retry: bool,
    ) -> Option<Unsent<'b>> {
        let (mut cancel, mut reply) = (cancel, reply);
        // Rare roads are boxed, so that the usual call stays small: it is moved more than once.
        if self.lease.link.has_held() {
            (cancel, reply) = Box::pin(self.ask_held(cancel, reply)).await?;
        }
        let request = self.translated_request();
        let mut asked = self.ask(request.clone());
        // Held while a legacy client is asked something: so many may wait and no more.
        let mut waiting: Option<Waiting> = None;
        loop {
            let heard = tokio::select! {
                () = self.back.closing.cancelled(), if waiting.is_some() => {
                    self.fail(reply, CallError::Stopping);
                    return None;
                }
                () = cancel.cancelled() => {
                    reply.forget();
                    return None;
                }
                heard = asked.heard() => heard,
            };
            let step = match heard {
                Heard::Note(note) => {
                    reply.note(note);
                    Step::GoOn(cancel, reply)
                }
                Heard::Log(line) => {
                    self.log(&reply, line);
                    Step::GoOn(cancel, reply)
                }
                Heard::Question(question) => {
                    Box::pin(self.handle_question(
                        question,
                        &mut asked,
                        &mut waiting,
                        cancel,
                        reply,
                    ))
                    .await
                }
                Heard::Resumed(answer) => {
                    self.resume(answer, &mut asked, &mut waiting, cancel, reply).await
                }
                Heard::Release => {
                    // Older clients have no way to come back, and modern ones neither.
                    if self.client.revision == Revision::V2025_11_25 {
                        reply.release();
                    }
                    Step::GoOn(cancel, reply)
                }
                Heard::Answer(answer) if self.must_ask_legacy_client(&answer) => {
                    Box::pin(self.ask_legacy_client(&request, answer, cancel, reply)).await;
                    return None;
                }
                Heard::Answer(answer) => {
                    self.lease.usage.note_answer();
                    self.answer(reply, answer).await;
                    return None;
                }
                Heard::TimedOut(_) if waiting.is_some() => {
                    reply.error(&nobody_answered());
                    Step::Over
                }
                Heard::TimedOut(note) => {
                    Box::pin(self.time_out(reply, note)).await;
                    Step::Over
                }
                Heard::Lost(why) => {
                    self.fail(reply, self.lost(&why));
                    Step::Over
                }
                Heard::Clogged => {
                    self.fail(reply, self.clogged());
                    Step::Over
                }
                Heard::Unsent if may_retry => {
                    self.record.iter_mut().for_each(|record| record.take_back());
                    return Some((cancel, self.clock, self.record, reply));
                }
                Heard::Unsent | Heard::Ended | Heard::Gone => {
                    Box::pin(self.mourn(reply)).await;
                    Step::Over
                }
            };
            match step {
                Step::GoOn(next_cancel, next_reply) => (cancel, reply) = (next_cancel, next_reply),
                Step::Over => return None,
            }
        }
    }

    pub(super) fn ask(&self, request: Rewrite) -> Asked {
        self.clock.enter(Stage::Answering);
        self.lease.link.ask(request, Some(self.clock.deadline()), Purpose::Call)
    }

    /// The call's time is over before the server could work on it.
    pub(super) fn too_late(&self) -> CallError {
        self.clock.timed_out(self.back.server.name.as_str())
    }

    /// Fails the call, and says so in its record, which its client is told of.
    pub(super) fn fail(&mut self, reply: Reply, error: CallError) {
        let record = self.record.take();
        let receipt = record.as_ref().and_then(|record| record.receipt());
        finish(record, &CallEnd::Failed(&error.to_string()));
        reply.fail_with(error, receipt);
    }

    /// The request as the child's era has it.
    fn translated_request(&self) -> Rewrite {
        let request = self.request.clone();
        match (self.client.era(), self.lease.era) {
            (Era::Legacy, Era::Modern) => {
                let client = era::ClientFacts {
                    capabilities: self.client.capabilities.clone(),
                    info: self.client.info.clone(),
                    log_level: self.client.log_level.clone(),
                };
                era::to_modern_request(request, &client)
            }
            (Era::Modern, Era::Legacy) => {
                if let Some(level) = &self.client.log_level {
                    self.lease.set_log_level(level);
                }
                era::to_legacy_request(request)
            }
            _ => Rewrite::new(request),
        }
    }

    /// The answer goes home, in the words of the client's era; what the call made is named in it.
    pub(super) async fn answer(mut self, reply: Reply, answer: Message) {
        let disabled = &self.back.server.disabled_tools;
        let answer = match self.request.method() == method::LIST_TOOLS && !disabled.is_empty() {
            true => hidden::without(answer, disabled),
            false => answer,
        };
        match self.record.take() {
            None => drop(self.answer_with(reply, &answer, None)),
            Some(record) => Box::pin(self.answer_recorded(record, reply, answer)).await,
        }
    }

    async fn answer_recorded(self, mut record: Box<CallRecord<'_>>, reply: Reply, answer: Message) {
        match record.complete(answer, self.lease.before.as_ref()).await {
            Ok((answer, receipt)) => {
                let own = self.answer_with(reply, &answer, receipt);
                if own.is_some() {
                    // The end of a child would share the processors with the answer on its way out.
                    tokio::task::yield_now().await;
                }
                record.finish(&CallEnd::Answered(&answer));
                drop(own);
            }
            Err(error) => {
                let (why, is_full) = (error.to_string(), matches!(error, CallError::DiskFull(_)));
                let receipt = record.receipt().filter(|_| !is_full);
                record.finish(&match is_full {
                    true => CallEnd::Abandoned(&why),
                    false => CallEnd::Failed(&why),
                });
                reply.fail_with(error, receipt);
            }
        }
    }

    /// Answers, and gives the child back unless something else keeps it.
    fn answer_with(
        self,
        reply: Reply,
        answer: &Message,
        receipt: Option<Receipt>,
    ) -> Option<Lease> {
        let method = self.request.method();
        let translated = match (self.lease.era, self.client.era()) {
            (Era::Legacy, Era::Modern) => Some(era::to_modern_answer(answer, &method)),
            (Era::Modern, Era::Legacy) => Some(era::to_legacy_answer(answer)),
            _ => None,
        };
        let lease = match translated {
            Some(_) => Some(self.lease),
            None => self.keep_for_later(answer),
        };
        // A kept child is free before its client hears, or its next call would find it busy.
        let lease = lease.filter(|lease| !matches!(lease, Lease::Kept(_)));
        reply.answer_with(translated.as_ref().unwrap_or(answer), receipt);
        lease
    }

    /// A child of one call is kept if only it can go on: it asked something and will recognise its
    /// own state, or it works on a task.
    fn keep_for_later(self, answer: &Message) -> Option<Lease> {
        let parking = &self.back.parking;
        let (key, who) = (&self.client.key, &self.client.person.principal);
        match (self.lease, answer.string(Slot::ResultType).as_deref()) {
            (Lease::Own(live), Some("task")) => {
                let task = json::find(answer.raw(Slot::Result).unwrap_or_default(), "taskId");
                if let Some(task) = task.and_then(pontoon_wire::string_value) {
                    parking.keep_task(&task, key, who, Arc::from(live));
                }
                None
            }
            (lease @ Lease::Own(_), Some("input_required")) => {
                if let Some(state) = answer.string(Slot::ResultState) {
                    parking.keep(&state, key, who, lease);
                }
                None
            }
            (lease, _) => Some(lease),
        }
    }

    /// A modern client hears log lines only if it asked for them, and none below its level.
    pub(super) fn log(&self, reply: &Reply, line: Message) {
        let is_wanted = match (self.client.era(), &self.client.log_level) {
            (Era::Legacy, _) => true,
            (Era::Modern, None) => false,
            (Era::Modern, Some(level)) => {
                let of_line = line.string(Slot::Level).unwrap_or_default();
                let wanted = pontoon_wire::string_value(level).unwrap_or_default();
                severity(&of_line) >= severity(&wanted)
            }
        };
        if is_wanted {
            reply.log(line.into());
        }
    }

    /// The server said something that could not be read, and it may have been this call's answer.
    pub(super) fn lost(&self, why: &str) -> CallError {
        tracing::warn!(server = %self.back.server.name, pid = self.lease.id(), why, "an answer was lost");
        self.back.around.metrics.refused(Limit::Message);
        CallError::ServerFailed(format!(
            "an answer of the server `{}` was dropped because {why}; it may have been this call's, so its outcome is unknown",
            self.back.server.name,
        ))
    }

    pub(super) fn clogged(&self) -> CallError {
        self.back.around.metrics.refused(Limit::Unread);
        tracing::warn!(server = %self.back.server.name, pid = self.lease.id(), "a child does not read");
        let what = format!("the server `{}` does not read its input", self.back.server.name);
        CallError::Busy { what, retry_after_seconds: 5 }
    }

    pub(super) async fn time_out(&mut self, reply: Reply, said: Option<String>) {
        let mut error = self.too_late();
        if let (CallError::TimedOut { note, .. }, Some(said)) = (&mut error, said) {
            *note += &format!("; it had said: {said}");
        }
        let server = &self.back.server.name;
        tracing::warn!(%server, pid = self.lease.id(), %error, "a call timed out");
        self.fail(reply, error);
        // A kept child may be well although one tool hung. One that answers nothing is ended.
        match &self.lease {
            Lease::Kept(using) => using.end_if_it_hangs().await,
            Lease::Own(live) => live.has_hung.store(true, Ordering::Release),
            Lease::Task(_) => {}
        }
    }

    pub(super) async fn mourn(&mut self, reply: Reply) {
        // With this the client knows, and its next call may begin anew. Nothing else need tell it meanwhile.
        self.lease.is_told.store(true, Ordering::Release);
        let how = self.lease.obituary().await;
        let lost = match &self.lease {
            Lease::Kept(using) if using.live.usage.has_answered() => {
                "; what it had in memory of this conversation is lost, so open or make again what you need"
            }
            _ => "",
        };
        tracing::warn!(server = %self.back.server.name, pid = self.lease.id(), how, "a child ended early");
        let how = self.back.told(&how);
        let text =
            format!("the server `{}` {how}, before it answered{lost}", self.back.server.name);
        self.back.doubted.notify_one();
        self.fail(reply, CallError::ServerFailed(text));
    }
}

fn severity(level: &str) -> usize {
    let levels = method::LOG_LEVELS;
    levels.iter().position(|known| *known == level).unwrap_or(levels.len())
}
