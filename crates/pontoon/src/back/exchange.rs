//! One exchange: a call given to a child, and everything said until its answer goes home.
//!
//! It runs as one task from the lease to the answer; dropping it is cancelling the call. Between a
//! client of one era and a child of the other it translates, a server's questions included: see
//! `Exchange::ask_modern_client` and `Exchange::ask_legacy_client`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, era, json, method};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Back;
use super::children::{Lease, now};
use super::link::{Asked, Purpose};
use super::mailbox::{Heard, Mailbox};
use super::parking::{Found, PATIENCE};
use crate::call::{Call, CallError, Client, Reply};

/// How long further questions of a legacy child are waited for, to put them together.
const GATHER: Duration = Duration::from_millis(10);

/// How many questions are put together at the most.
const MAX_GATHERED: usize = 16;

const NOT_OFFERED: &str = "the client did not offer to answer this";

/// How often a modern server may ask again before it answers a legacy client.
const MAX_ROUNDS: usize = 32;

impl Back {
    /// Takes a call to its end: answered, failed or forgotten.
    pub async fn take(&self, call: Call, child_era: Era) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(self);
        if call.request.method() == method::LISTEN {
            return self.take_listen(call, child_era).await;
        }
        let Call { request, client, cancel, reply } = call;
        let state = request.string(Slot::RequestState).map(|state| state.into_owned());
        let task = request.string(Slot::TaskId).map(|task| task.into_owned());
        let parked =
            state.iter().chain(&task).find_map(|name| self.parking.find(name, &client.key));
        let lease = match parked {
            Some(Found::Exchange(exchange)) => {
                let call = Call { request, client, cancel, reply };
                // If the exchange ended meanwhile, dropping the call would report a fault of ours.
                if let Err(call) = exchange.send(call) {
                    call.reply.error(&unknown_state());
                }
                return;
            }
            Some(Found::Child(lease)) => Ok(lease),
            // A legacy child never gave out a state, so this one is forged or out of date.
            None if state.is_some() && child_era == Era::Legacy => {
                return reply.error(&unknown_state());
            }
            None => {
                tokio::select! {
                    () = cancel.cancelled() => return reply.forget(),
                    lease = self.lease(&client, child_era) => lease,
                }
            }
        };
        let (lease, mut cancel, mut reply) = match lease {
            Ok(lease) => (lease, cancel, reply),
            Err(error) => return reply.fail(error),
        };
        let exchange = Exchange { back: self, lease, request, client };
        // A kept child may have died while nobody looked. If it never read the request, another may
        // try, once.
        let may_retry = matches!(exchange.lease, Lease::Kept(..));
        let (client, request) = (Arc::clone(&exchange.client), exchange.request.clone());
        let Some(unsent) = exchange.run(cancel, reply, may_retry).await else { return };
        (cancel, reply) = unsent;
        let lease = tokio::select! {
            () = cancel.cancelled() => return reply.forget(),
            lease = self.lease(&client, child_era) => lease,
        };
        match lease {
            Ok(lease) => {
                let exchange = Exchange { back: self, lease, request, client };
                exchange.run(cancel, reply, false).await;
            }
            Err(error) => reply.fail(error),
        }
    }

    /// Lets go of what waits for a person or for its time.
    pub fn sweep(&self) {
        self.stop_idle();
        self.parking.sweep();
    }

    /// Lets go of everything that is kept.
    pub fn drain(&self) {
        self.parking.clear();
        self.end_all();
    }
}

/// Counts a call while it runs.
struct Running<'b>(&'b Back);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

fn nobody_answered() -> ErrorObject {
    let text = format!("nobody answered the server's question within {} s", PATIENCE.as_secs());
    ErrorObject::new(code::TIMED_OUT, text)
}

fn unknown_state() -> ErrorObject {
    ErrorObject::new(
        code::INVALID_PARAMS,
        "`requestState` is unknown here, was used already or has expired: send the request again without it",
    )
}

struct Exchange<'b> {
    back: &'b Back,
    lease: Lease,
    request: Message,
    client: Arc<Client>,
}

/// Where an exchange stands after something was heard.
enum Step {
    /// Go on listening, with the same or a new way home.
    GoOn(CancellationToken, Reply),
    /// It is over.
    Over,
}

impl Exchange<'_> {
    /// Runs to the end; gives the way home back if the child never read the request and another
    /// may be tried.
    async fn run(
        self,
        cancel: CancellationToken,
        reply: Reply,
        may_retry: bool,
    ) -> Option<(CancellationToken, Reply)> {
        let request = self.translated_request();
        let mut asked = self.ask(request.clone());
        let (mut cancel, mut reply) = (cancel, reply);
        // Held while a legacy client is asked something: so many may wait and no more.
        let mut waiting = None;
        loop {
            let heard = tokio::select! {
                () = self.back.stop.cancelled(), if waiting.is_some() => {
                    reply.fail(CallError::Stopping);
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
                    self.handle_question(question, &mut asked, &mut waiting, cancel, reply).await
                }
                Heard::Resumed => {
                    waiting = None;
                    reply.retake_permit().await;
                    asked.set_deadline(Some(now() + self.back.server.timeout));
                    Step::GoOn(cancel, reply)
                }
                Heard::Release => {
                    // Older clients have no way to come back, and modern ones neither.
                    if self.client.revision == Revision::V2025_11_25 {
                        reply.release();
                    }
                    Step::GoOn(cancel, reply)
                }
                Heard::Answer(answer) if self.must_ask_legacy_client(&answer) => {
                    self.ask_legacy_client(&request, answer, cancel, reply).await;
                    Step::Over
                }
                Heard::Answer(answer) => {
                    self.answer(reply, &answer);
                    return None;
                }
                Heard::TimedOut(_) if waiting.is_some() => {
                    reply.error(&nobody_answered());
                    Step::Over
                }
                Heard::TimedOut(note) => {
                    self.time_out(reply, note).await;
                    Step::Over
                }
                Heard::Lost(why) => {
                    reply.fail(self.lost(&why));
                    Step::Over
                }
                Heard::Clogged => {
                    reply.fail(self.clogged());
                    Step::Over
                }
                Heard::Unsent if may_retry => return Some((cancel, reply)),
                Heard::Unsent | Heard::Ended | Heard::Gone => {
                    self.mourn(reply).await;
                    Step::Over
                }
            };
            match step {
                Step::GoOn(next_cancel, next_reply) => (cancel, reply) = (next_cancel, next_reply),
                Step::Over => return None,
            }
        }
    }

    fn ask(&self, request: Rewrite) -> Asked {
        self.lease.link.ask(request, Some(now() + self.back.server.timeout), Purpose::Call)
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

    /// The answer goes home, in the words of the client's era.
    fn answer(self, reply: Reply, answer: &Message) {
        let method = self.request.method();
        match (self.lease.era, self.client.era()) {
            (Era::Legacy, Era::Modern) => reply.answer(&era::to_modern_answer(answer, &method)),
            (Era::Modern, Era::Legacy) => reply.answer(&era::to_legacy_answer(answer)),
            _ => {
                self.keep_for_later(answer);
                reply.answer(answer);
            }
        }
    }

    /// A child of one call is kept if only it can go on: it asked something and will recognise its
    /// own state, or it works on a task.
    fn keep_for_later(self, answer: &Message) {
        let parking = &self.back.parking;
        let key = &self.client.key;
        match (self.lease, answer.string(Slot::ResultType).as_deref()) {
            (Lease::Own(live), Some("task")) => {
                let task = json::find(answer.raw(Slot::Result).unwrap_or_default(), "taskId");
                if let Some(task) = task.and_then(pontoon_wire::string_value) {
                    parking.keep_task(&task, key, Arc::from(live));
                }
            }
            (lease @ Lease::Own(_), Some("input_required")) => {
                if let Some(state) = answer.string(Slot::ResultState) {
                    parking.keep(&state, key, lease);
                }
            }
            _ => {}
        }
    }

    /// A modern client hears log lines only if it asked for them, and none below its level.
    fn log(&self, reply: &Reply, line: Message) {
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

    async fn handle_question(
        &self,
        question: Message,
        asked: &mut Asked,
        waiting: &mut Option<OwnedSemaphorePermit>,
        cancel: CancellationToken,
        mut reply: Reply,
    ) -> Step {
        if self.lease.era == Era::Modern {
            self.back.refuse(
                &self.lease.link,
                &question,
                "servers of this revision ask no questions",
            );
            return Step::GoOn(cancel, reply);
        }
        if !can_answer(&self.client, &question.method()) {
            self.back.refuse(&self.lease.link, &question, NOT_OFFERED);
            return Step::GoOn(cancel, reply);
        }
        if self.client.era() == Era::Modern {
            return self.ask_modern_client(question, asked, cancel, reply).await;
        }
        if waiting.is_none() {
            *waiting = Arc::clone(&self.back.waiting).try_acquire_owned().ok();
        }
        let (link, mailbox, id) =
            (self.lease.link.clone(), asked.mailbox(), question.slice(Slot::Id));
        let answerer = move |answer: &Message| {
            link.say(
                Rewrite::new(answer.clone()).replace(Slot::Id, id.unwrap_or_default()).finish(),
            );
            mailbox.push(Heard::Resumed);
        };
        if waiting.is_none() || !reply.question(&question, Box::new(answerer)) {
            self.back.refuse(&self.lease.link, &question, "too many questions wait for an answer");
            return Step::GoOn(cancel, reply);
        }
        // While a person thinks, the call's clock stands still and its permit is free.
        asked.set_deadline(Some(now() + PATIENCE));
        reply.release_permit();
        Step::GoOn(cancel, reply)
    }

    /// Puts a legacy child's questions to a modern client: the client gets `input_required` as its
    /// answer, and the child waits until the client sends its request again with the responses.
    async fn ask_modern_client(
        &self,
        question: Message,
        asked: &mut Asked,
        cancel: CancellationToken,
        mut reply: Reply,
    ) -> Step {
        let mut questions = vec![("q1".to_owned(), question)];
        if self.gather(&mut questions, asked, &reply).await || cancel.is_cancelled() {
            return Step::GoOn(cancel, reply);
        }
        let _waits = self.lease.park();
        asked.set_deadline(None);
        asked.set_purpose(Purpose::Parked);
        loop {
            let Some((state, ticket, retry)) = self.back.parking.park(&self.client.key) else {
                let what = "too many calls wait for an answer of a person".to_owned();
                reply.fail(CallError::Busy { what, retry_after_seconds: 30 });
                return Step::Over;
            };
            let asking = questions.iter().map(|(key, question)| (key.as_str(), question));
            reply.result(&era::input_required(asking, &state));
            // While it waits for a person, the exchange is nobody's running call.
            self.back.running.fetch_sub(1, Ordering::Relaxed);
            let call = tokio::select! {
                call = tokio::time::timeout(PATIENCE, retry) => call.ok(),
                () = self.lease.link.gone() => None,
                () = self.back.stop.cancelled() => None,
            };
            self.back.running.fetch_add(1, Ordering::Relaxed);
            drop(ticket);
            let Some(Ok(Call { request, cancel, reply: next, .. })) = call else {
                tracing::info!(server = %self.back.server.name, "nobody answered a question");
                return Step::Over;
            };
            if request.method() != self.request.method()
                || request.raw(Slot::Name) != self.request.raw(Slot::Name)
            {
                let text = "`requestState` belongs to another request";
                next.error(&ErrorObject::new(code::INVALID_PARAMS, text));
                return Step::Over;
            }
            questions.retain(|(key, question)| !self.respond(&request, key, question));
            if questions.is_empty() {
                asked.set_purpose(Purpose::Call);
                asked.set_deadline(Some(now() + self.back.server.timeout));
                return Step::GoOn(cancel, next);
            }
            // A response is missing, so the question is put once more.
            reply = next;
        }
    }

    /// Waits a moment for further questions, so that the client hears them together. True if the
    /// server went on without an answer.
    async fn gather(
        &self,
        questions: &mut Vec<(String, Message)>,
        asked: &mut Asked,
        reply: &Reply,
    ) -> bool {
        let until = tokio::time::Instant::now() + GATHER;
        while let Ok(heard) = tokio::time::timeout_at(until, asked.heard()).await {
            match heard {
                Heard::Question(question)
                    if can_answer(&self.client, &question.method())
                        && questions.len() < MAX_GATHERED =>
                {
                    questions.push((format!("q{}", questions.len() + 1), question));
                }
                Heard::Question(question) => {
                    self.back.refuse(&self.lease.link, &question, NOT_OFFERED);
                }
                Heard::Note(note) => reply.note(note),
                Heard::Log(line) => self.log(reply, line),
                Heard::Resumed | Heard::Release => {}
                end => {
                    asked.put_back(end);
                    return true;
                }
            }
        }
        false
    }

    /// Passes the client's response to a question on to the child. False if there is none.
    fn respond(&self, request: &Message, key: &str, question: &Message) -> bool {
        let responses = request.raw(Slot::InputResponses).unwrap_or(b"{}");
        let Some(response) = json::find(responses, key) else { return false };
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null"));
        let response = String::from_utf8_lossy(response);
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{response}}}");
        self.lease.link.say(Bytes::from(answer));
        true
    }

    fn must_ask_legacy_client(&self, answer: &Message) -> bool {
        self.client.era() == Era::Legacy
            && self.lease.era == Era::Modern
            && answer.raw(Slot::ResultType) == Some(b"\"input_required\"")
    }

    /// Puts a modern child's questions to a legacy client, and sends the request again with what it
    /// answers, until the child has a result.
    async fn ask_legacy_client(
        &self,
        request: &Rewrite,
        answer: Message,
        cancel: CancellationToken,
        mut reply: Reply,
    ) {
        let mut answer = answer;
        for _ in 0..MAX_ROUNDS {
            reply.release_permit();
            let responses = tokio::select! {
                () = cancel.cancelled() => return reply.forget(),
                () = self.back.stop.cancelled() => return reply.fail(CallError::Stopping),
                responses = self.responses(&answer, &reply) => responses,
            };
            let responses = match responses {
                Ok(responses) => responses,
                Err(error) => return reply.error(&error),
            };
            reply.retake_permit().await;
            let again = era::with_responses(request, &responses, answer.raw(Slot::ResultState));
            let mut asked = self.ask(again);
            answer = loop {
                let heard = tokio::select! {
                    () = cancel.cancelled() => return reply.forget(),
                    heard = asked.heard() => heard,
                };
                match heard {
                    Heard::Note(note) => reply.note(note),
                    Heard::Log(line) => self.log(&reply, line),
                    Heard::Answer(answer) => break answer,
                    Heard::TimedOut(note) => return self.time_out(reply, note).await,
                    Heard::Lost(why) => return reply.fail(self.lost(&why)),
                    Heard::Clogged => return reply.fail(self.clogged()),
                    Heard::Gone | Heard::Unsent | Heard::Ended => return self.mourn(reply).await,
                    Heard::Question(question) => {
                        self.back.refuse(
                            &self.lease.link,
                            &question,
                            "servers of this revision ask no questions",
                        );
                    }
                    Heard::Resumed | Heard::Release => {}
                }
            };
            if !self.must_ask_legacy_client(&answer) {
                return reply.answer(&era::to_legacy_answer(&answer));
            }
        }
        let error =
            ErrorObject::new(code::INTERNAL, format!("the server asked {MAX_ROUNDS} times over"));
        reply.error(&error);
    }

    /// What the client answers to the questions in `answer`, each under its key.
    async fn responses(
        &self,
        answer: &Message,
        reply: &Reply,
    ) -> Result<Vec<(String, String)>, ErrorObject> {
        let mut responses = Vec::new();
        for (key, question) in era::questions_in(answer) {
            if !can_answer(&self.client, &question.method()) {
                let text = format!(
                    "the server needs `{}`, which the client did not offer",
                    question.method()
                );
                return Err(ErrorObject::new(code::INVALID_REQUEST, text));
            }
            let mailbox = Arc::new(Mailbox::default());
            let home = Arc::clone(&mailbox);
            let answerer = move |answer: &Message| home.push(Heard::Answer(answer.clone()));
            if !reply.question(&question, Box::new(answerer)) {
                return Err(ErrorObject::new(
                    code::INTERNAL,
                    "too many questions wait for this client",
                ));
            }
            let heard = tokio::time::timeout(PATIENCE, mailbox.next()).await;
            let Ok(Heard::Answer(response)) = heard else {
                return Err(nobody_answered());
            };
            match response.raw(Slot::Result) {
                Some(result) => responses.push((key, String::from_utf8_lossy(result).into_owned())),
                None => {
                    let text = response.string(Slot::ErrorMessage).unwrap_or_default();
                    let text = format!("the client refused the server's question: {text}");
                    return Err(ErrorObject::new(code::INVALID_REQUEST, text));
                }
            }
        }
        if responses.is_empty() {
            // Only a state: the server asks for patience, not for input.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(responses)
    }

    /// The server said something that could not be read, and it may have been this call's answer.
    fn lost(&self, why: &str) -> CallError {
        CallError::ServerFailed(format!(
            "an answer of the server `{}` was dropped because {why} (MCPO_MAX_MESSAGE); it may have been this call's, so its outcome is unknown",
            self.back.server.name,
        ))
    }

    fn clogged(&self) -> CallError {
        let what = format!("the server `{}` does not read its input", self.back.server.name);
        CallError::Busy { what, retry_after_seconds: 5 }
    }

    async fn time_out(&self, reply: Reply, note: Option<String>) {
        let note = note.map(|note| format!("; it had said: {note}")).unwrap_or_default();
        let server = self.back.server.name.to_string();
        let seconds = self.back.server.timeout.as_secs();
        tracing::warn!(%server, seconds, pid = self.lease.id(), "a call timed out");
        reply.fail(CallError::TimedOut { server, seconds, note });
        // A kept child may be well although one tool hung. One that answers nothing is ended.
        if let Lease::Kept(live, _) = &self.lease
            && !live.is_responsive().await
        {
            live.kill();
        }
    }

    async fn mourn(&self, reply: Reply) {
        let how = self.lease.obituary().await;
        let text = format!("the server `{}` {how}, before it answered", self.back.server.name);
        tracing::warn!(server = %self.back.server.name, pid = self.lease.id(), how, "a child ended early");
        reply.fail(CallError::ServerFailed(text));
    }
}

/// Whether the client offered to answer questions of this kind.
fn can_answer(client: &Client, method: &str) -> bool {
    let capability = match method {
        method::ELICIT => "elicitation",
        method::SAMPLE => "sampling",
        method::LIST_ROOTS => "roots",
        // An unknown question may be one the client understands.
        _ => return client.era() == Era::Legacy,
    };
    json::find(&client.capabilities, capability).is_some()
}

fn severity(level: &str) -> usize {
    const LEVELS: [&str; 8] =
        ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len())
}
