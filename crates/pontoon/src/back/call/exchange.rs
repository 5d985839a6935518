//! One exchange: a call given to a child, and everything said until its answer goes home.
//!
//! Between a client of one era and a child of the other it translates. What it does as events come is in `run`, a
//! server's questions in the middle of it are the business of `questions`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, Message, Rewrite, Slot, era, json, method};
use tokio_util::sync::CancellationToken;

use super::record::{CallEnd, CallRecord, finish};
use crate::back::Back;
use crate::back::conversation::incoming::refusal;
use crate::back::conversation::link::{PendingRequest, Purpose};
use crate::back::keep::lease::Lease;
use crate::back::outputs::Promise;
use crate::back::shown_tools;
use crate::beside::beside;
use crate::call::{CallError, Receipt, Reply, traced};
use crate::client::Client;
use crate::clock::{Clock, Stage};
use crate::config::{AppPlace, Endpoint};
use crate::observe::metrics::Limit;
use crate::observe::spans::Step;

/// What a model reads whose call an application may have carried out.
const LOOK_FIRST: &str = "Its outcome is unknown: it may have been carried out in whole, in part or not at all. Look at the state of the application before you call again";

/// A call, and the child it was given to.
pub(crate) struct Exchange<'b> {
    pub(crate) back: &'b Back,
    pub(crate) lease: Lease,
    pub(crate) request: Message,
    pub(crate) client: Arc<Client>,
    pub(crate) clock: Clock,
    /// The record of a tool call.
    pub(crate) record: Option<CallRecord<'b>>,
    /// What its tool promises to give back.
    pub(crate) promise: Option<Arc<Promise>>,
    /// The span of the request to the server, if the call is traced, until its answer.
    pub(crate) step: Option<Step>,
}

/// What is told of a call that fails: one that was sent before, and may have been made then, was not refused.
pub(crate) fn after_earlier_try(reply: &Reply, error: CallError) -> CallError {
    match reply.was_sent() && error.is_refusal() {
        true => CallError::OutcomeUnknown(format!(
            "the connection to the application was lost after this call was sent, and it could not be made again. {LOOK_FIRST}"
        )),
        false => error,
    }
}

/// Where an exchange stands after something was heard.
#[allow(clippy::large_enum_variant, reason = "made and taken apart at once, never kept")]
pub(crate) enum NextStep {
    /// Go on listening, with the same or a new way home.
    GoOn(CancellationToken, Reply),
    /// It is over.
    Over,
}

impl Exchange<'_> {
    /// What carries the messages of the server, in a word of OpenTelemetry.
    pub(crate) fn transport(&self) -> &'static str {
        let place = self.back.server.app.as_ref().map(|app| &app.place);
        match (&self.lease, place) {
            (Lease::Own(_) | Lease::Kept(_) | Lease::Task(_), _) => "pipe",
            (Lease::App(_), Some(AppPlace::At(place))) if is_socket_file(place) => "unix",
            (Lease::App(_), _) => "tcp",
        }
    }

    /// What is told of a call under way when the bridge stops: what became of it only an application knows.
    pub(crate) fn stopped(&self) -> CallError {
        match self.lease {
            Lease::App(_) => CallError::OutcomeUnknown(format!(
                "the bridge stops, and this call is still at the application. {LOOK_FIRST}"
            )),
            Lease::Own(_) | Lease::Kept(_) | Lease::Task(_) => CallError::Stopping,
        }
    }

    /// Sends a request of this call to the server.
    pub(crate) fn ask(&self, request: Rewrite) -> PendingRequest {
        self.clock.enter(Stage::Answering);
        self.lease.link.ask(request, Some(self.clock.deadline()), Purpose::Call)
    }

    /// The call's time is over before the server could work on it.
    pub(crate) fn too_late(&self) -> CallError {
        self.clock.timed_out(self.back.server.name.as_str())
    }

    /// Refuses a question that this client cannot be asked (H22).
    pub(crate) fn refuse_question(&self, question: &Message, why: &str) {
        self.back.heals.note(Heal::H22);
        self.lease.link.say(refusal(question, why));
    }

    /// Fails the call, and says so in its record, whose job the client gets.
    pub(crate) fn fail(&mut self, reply: Reply, error: CallError) {
        let error = after_earlier_try(&reply, error);
        if let Some(mut step) = self.step.take() {
            step.fail(error.word());
        }
        let record = self.record.take();
        let receipt = record.as_ref().and_then(|record| record.receipt());
        finish(record, &CallEnd::Failed(&error));
        match error.for_model(&self.request, self.client.era()) {
            Some(result) => reply.fail_with_result(&error, &result),
            None => reply.fail_with(error, receipt),
        }
    }

    /// The request as the child's era has it.
    pub(crate) fn translated_request(&self) -> Rewrite {
        let request = traced::in_step(self.request.clone(), self.step.as_ref());
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
                if let Some(level) = self.client.log_level.as_ref().filter(|_| !self.is_shared()) {
                    self.lease.set_log_level(level);
                }
                era::to_legacy_request(request)
            }
            _ => Rewrite::new(request),
        }
    }

    /// The answer goes home, in the words of the client's era; what the call made is named in it.
    pub(crate) async fn answer(mut self, reply: Reply, answer: Message) {
        let answer = match self.request.method().as_ref() {
            method::LIST_TOOLS => {
                let answer = self.listed(answer);
                self.show_tools(answer).await
            }
            // An error has a status of its own where no model reads the answer.
            method::CALL_TOOL if reply.wants_status() && answer.has(Slot::Error) => answer,
            method::CALL_TOOL => self.healed(answer),
            _ => self.listed(answer),
        };
        match self.record.take() {
            None => drop(self.answer_with(reply, answer, None)),
            Some(record) => Box::pin(self.answer_recorded(record, reply, answer)).await,
        }
    }

    /// The tools of a server's own list, as clients see them.
    async fn show_tools(&self, answer: Message) -> Message {
        let bytes = answer.text().len();
        let (server, heals) = (Arc::clone(&self.back.server), Arc::clone(&self.back.heals));
        let outputs = Arc::clone(&self.back.outputs);
        let show = move || shown_tools::in_answer(answer, &server, &heals, &outputs);
        let (answer, shown) = beside(bytes, show).await;
        if let (Some(shown), Lease::Kept(_)) = (shown, &self.lease) {
            self.lease.link.note_own_tools(shown, self.request.raw(Slot::Cursor).is_none());
            self.back.note_own_tools();
        }
        answer
    }

    async fn answer_recorded(self, mut record: CallRecord<'_>, reply: Reply, answer: Message) {
        match record
            .complete(answer, self.lease.child().and_then(|it| it.before.as_ref()), &reply)
            .await
        {
            Ok((answer, receipt)) => {
                let own = self.answer_with(reply, answer.clone(), receipt);
                if own.is_some() {
                    // The end of a child would share the processors with the answer on its way out.
                    tokio::task::yield_now().await;
                }
                record.finish(&CallEnd::Answered(&answer));
                drop(own);
            }
            Err(error) => {
                let is_full = matches!(error, CallError::DiskFull(_));
                let receipt = record.receipt().filter(|_| !is_full);
                record.finish(&match is_full {
                    true => CallEnd::Abandoned(&error),
                    false => CallEnd::Failed(&error),
                });
                reply.fail_with(error, receipt);
            }
        }
    }

    /// Answers, and gives the child back unless something else keeps it.
    fn answer_with(self, reply: Reply, answer: Message, receipt: Option<Receipt>) -> Option<Lease> {
        let (lease, answer) = match (self.lease.era, self.client.era()) {
            (Era::Legacy, Era::Modern) => {
                let answer = era::to_modern_answer(answer, &self.request.method());
                (Some(self.lease), answer)
            }
            (Era::Modern, Era::Legacy) => (Some(self.lease), era::to_legacy_answer(answer)),
            _ => (self.keep_for_later(&answer), Rewrite::new(answer)),
        };
        // A kept child is free before its client hears, or its next call would find it busy.
        let lease = lease.filter(|lease| !matches!(lease, Lease::Kept(_)));
        reply.answer_with(answer, receipt);
        lease
    }

    /// A child of one call is kept if only it can go on: it asked something and will recognise its
    /// own state, or it works on a task.
    fn keep_for_later(self, answer: &Message) -> Option<Lease> {
        let suspended = &self.back.keep.suspended;
        let (key, who) = (&self.client.key, &self.client.person.principal);
        match (self.lease, answer.string(Slot::ResultType).as_deref()) {
            (Lease::Own(child), Some("task")) => {
                let task = json::find(answer.raw(Slot::Result).unwrap_or_default(), "taskId");
                if let Some(task) = task.and_then(pontoon_wire::string_value) {
                    suspended.keep_task(&task, key, who, Arc::from(child));
                }
                None
            }
            (lease @ Lease::Own(_), Some("input_required")) => {
                if let Some(state) = answer.string(Slot::ResultState) {
                    suspended.keep(&state, key, who, lease);
                }
                None
            }
            (lease, _) => Some(lease),
        }
    }

    /// Whether its child is everybody's, so that nothing may be changed there for this client.
    pub(crate) fn is_shared(&self) -> bool {
        self.back.server.mode.is_shared()
    }

    /// A modern client hears log lines only if it asked for them, and none below its level. A legacy server was told
    /// the level of a legacy client, unless it is everybody's.
    pub(crate) fn log(&self, reply: &Reply, line: Message) {
        let is_wanted = match (self.client.era(), &self.client.log_level) {
            (Era::Legacy, None) => true,
            (Era::Legacy, Some(_)) if !self.is_shared() => true,
            (Era::Modern, None) => false,
            (Era::Legacy | Era::Modern, Some(level)) => {
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
    pub(crate) fn lost(&self, why: &str) -> CallError {
        tracing::error!(server = %self.back.server.name, pid = self.lease.pid(), why, "an answer was lost");
        self.back.around.machine.metrics.refused(Limit::Message);
        let server = &self.back.server.name;
        if let Lease::App(_) = self.lease {
            let text =
                format!("an answer of the application was dropped because {why}. {LOOK_FIRST}");
            return CallError::OutcomeUnknown(text);
        }
        CallError::ServerFailed(format!(
            "an answer of the server `{server}` was dropped because {why}; it may have been this call's, so its outcome is unknown",
        ))
    }

    pub(crate) fn clogged(&self) -> CallError {
        self.back.around.machine.metrics.refused(Limit::Unread);
        tracing::warn!(server = %self.back.server.name, pid = self.lease.pid(), "a child does not read");
        let what = format!("the server `{}` does not read its input", self.back.server.name);
        CallError::Busy { what, retry_after_seconds: 5 }
    }

    pub(crate) async fn time_out(&mut self, reply: Reply, said: Option<String>) {
        let mut error = self.too_late();
        if let (CallError::TimedOut { note, .. }, Some(said)) = (&mut error, said) {
            *note += &format!("; it had said: {said}");
        }
        if let CallError::TimedOut { note, .. } = &mut error {
            *note += &self.lease.link.explanation();
        }
        let server = &self.back.server.name;
        tracing::error!(%server, pid = self.lease.pid(), %error, "a call timed out");
        if let Lease::App(_) = self.lease {
            return self.fail(reply, CallError::OutcomeUnknown(format!("{error}. {LOOK_FIRST}")));
        }
        self.fail(reply, error);
        // A kept child may be well although one tool hung. One that answers nothing is ended.
        match &self.lease {
            Lease::Kept(kept) => kept.end_if_it_hangs().await,
            Lease::Own(child) => child.has_hung.store(true, Ordering::Release),
            // Whether an application is still there is seen by its signs of life.
            Lease::Task(_) | Lease::App(_) => {}
        }
    }

    /// The connection to an application was lost with the call under way: what became of it only the application
    /// knows.
    fn outcome_unknown(&mut self, reply: Reply, how: &str) {
        let server = &self.back.server.name;
        tracing::error!(%server, how, "the outcome of a call is unknown");
        let text = format!(
            "the connection to the application was lost after this call was sent ({}){}. {LOOK_FIRST}",
            self.back.launcher.told(how),
            self.lease.link.explanation()
        );
        self.fail(reply, CallError::OutcomeUnknown(text));
    }

    pub(crate) async fn mourn(&mut self, reply: Reply) {
        if let Lease::App(connection) = &self.lease {
            let how = connection.how_it_ended();
            return self.outcome_unknown(reply, &how);
        }
        // With this the client knows, and its next call may begin anew. Nothing else need tell it meanwhile.
        let lost = match self.lease.note_loss_told() {
            true => {
                "; what it had in memory of this conversation is lost, so open or make again what you need"
            }
            false => "",
        };
        let Some(child) = self.lease.child() else { return reply.fail(CallError::Internal) };
        let how = child.obituary().await;
        tracing::error!(server = %self.back.server.name, pid = child.id(), how, "a child ended early");
        // What everybody's process complained of may be about another's call.
        let how = match self.is_shared() {
            true => child.how_it_ended().await,
            false => how,
        };
        let how = self.back.launcher.told(&how);
        let healed = self.lease.link.explanation();
        let text = format!(
            "the server `{}` {how}, before it answered{healed}{lost}",
            self.back.server.name
        );
        self.back.launcher.doubted.notify_one();
        self.fail(reply, CallError::ServerFailed(text));
    }
}

fn is_socket_file(place: &Endpoint) -> bool {
    matches!(place, Endpoint::Unix(_) | Endpoint::WebSocketUnix(_))
}

fn severity(level: &str) -> usize {
    let levels = method::LOG_LEVELS;
    levels.iter().position(|known| *known == level).unwrap_or(levels.len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pontoon_wire::Revision;

    use super::*;
    use crate::app::test_bridge::ToolServer;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{Pair, client, result};
    use crate::outbox::Next;

    /// How many log lines a client hears of a server that writes one of each level.
    async fn lines_heard(revision: Revision, level: Option<&'static str>) -> usize {
        let pair = Pair::new(ToolServer::new(Era::Legacy).servers(), |_| {});
        let mut ada = Client::clone(&client(revision, "ada", "{}"));
        ada.log_level = level.map(|level| Bytes::from(pontoon_wire::quoted(level)));
        let made = pair.call(&Arc::new(ada), Era::Legacy, method::CALL_TOOL, "{\"name\":\"log\"}");
        let mut heard = 0;
        while let Next::Message(_) = made.outbox.next().await {
            heard += 1;
        }
        heard
    }

    #[tokio::test(start_paused = true)]
    async fn a_modern_client_hears_the_log_from_its_level_on_and_none_unless_it_asked() {
        let all = method::LOG_LEVELS.len();
        assert_eq!(lines_heard(Revision::NEWEST_MODERN, None).await, 0);
        for (place, level) in method::LOG_LEVELS.into_iter().enumerate() {
            assert_eq!(
                lines_heard(Revision::NEWEST_MODERN, Some(level)).await,
                all - place,
                "{level}"
            );
        }
        assert_eq!(lines_heard(Revision::V2025_11_25, None).await, all, "it said so to the server");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_put_in_the_terms_of_its_client_whatever_the_server_speaks() {
        for child in [Era::Legacy, Era::Modern] {
            for (revision, is_modern) in
                [(Revision::V2025_11_25, false), (Revision::NEWEST_MODERN, true)]
            {
                let pair = Pair::new(ToolServer::of_both_eras().servers(), |_| {});
                let ada = client(revision, "ada", "{}");
                let meta = match is_modern {
                    true => format!("{{\"{}\":\"2026-07-28\"}}", Slot::MetaVersion.name()),
                    false => "{}".to_owned(),
                };
                let params = format!("{{\"name\":\"echo\",\"_meta\":{meta}}}");
                let made = pair.call(&ada, child, method::CALL_TOOL, &params);
                let answer = made.answer().await;
                assert!(answer.contains("\"id\":7") && answer.contains("\"by\":1"), "{answer}");
                assert_eq!(
                    answer.contains("\"resultType\":\"complete\""),
                    is_modern,
                    "{child:?}: {answer}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_asked_by_its_answer_is_kept_for_the_next_call_of_its_client() {
        // A modern server that knows only in its own memory what it asked.
        let servers = InMemoryServers::new(|mut end| async move {
            while let Some(line) = end.next_line().await {
                let message = Message::parse(line.as_bytes()).unwrap();
                let id =
                    String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned();
                let said = match message.string(Slot::RequestState) {
                    Some(state) => format!(
                        "{{\"resultType\":\"complete\",\"said\":\"{state} at {}\"}}",
                        end.number
                    ),
                    None => format!(
                        "{{\"resultType\":\"input_required\",\"requestState\":\"s{}\",\"inputRequests\":{{}}}}",
                        end.number
                    ),
                };
                end.say(&result(&id, &said)).await;
            }
        });
        let pair = Pair::new(servers, |_| {});
        let [ada, ben] = ["ada", "ben"].map(|who| client(Revision::NEWEST_MODERN, who, "{}"));
        let call = async |who, more: &str| {
            let params = format!("{{\"name\":\"x\"{more}}}");
            pair.call(who, Era::Modern, method::CALL_TOOL, &params).answer().await
        };
        assert!(call(&ada, "").await.contains("\"requestState\":\"s1\""));
        assert!(call(&ben, "").await.contains("\"requestState\":\"s2\""));
        let answer = call(&ada, ",\"requestState\":\"s1\"").await;
        assert!(answer.contains("s1 at 1"), "{answer}");
        let foreign = call(&ada, ",\"requestState\":\"s2\"").await;
        assert!(foreign.contains("s2 at 3"), "not on the process of another: {foreign}");
    }
}
