//! Questions of a server in the middle of a call, and how a client of either era is asked.
//!
//! A legacy client hears the question on its stream and posts its answer. A modern client gets the
//! question as its answer and sends its request again. Either way the call's clock stands still and
//! its permit is free while a person thinks, for a limited time and for a limited number of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Message, Rewrite, Slot, Text, era, json, method};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Back;
use super::children::now;
use super::exchange::{Exchange, Step};
use super::link::{Asked, Purpose};
use super::mailbox::{Heard, Mailbox};
use super::parking::PATIENCE;
use crate::call::{Call, CallError, Reply};
use crate::clock::Stage;
use crate::observe::metrics::Limit;

/// How long further questions of a legacy child are waited for, to put them together.
const GATHER: Duration = Duration::from_millis(10);

/// How many questions are put together at the most.
const MAX_GATHERED: usize = 16;

pub(super) const NOT_OFFERED: &str = "the client did not offer to answer this";

/// How often a modern server may ask again before it answers a legacy client.
const MAX_ROUNDS: usize = 32;

const TOO_MANY: &str = "too many questions wait for an answer";

/// A call that waits for a legacy client to answer. So many may wait and no more.
pub(super) struct Waiting {
    _place: OwnedSemaphorePermit,
    /// The questions that are open.
    questions: usize,
}

impl Waiting {
    /// A place among those who wait, if one is free.
    pub(super) fn begin(back: &Back) -> Option<Self> {
        match Arc::clone(&back.waiting).try_acquire_owned() {
            Ok(place) => Some(Self { _place: place, questions: 0 }),
            Err(_) => {
                back.around.metrics.refused(Limit::Waiting);
                None
            }
        }
    }
}

impl Exchange<'_> {
    pub(super) async fn handle_question(
        &self,
        question: Message,
        asked: &mut Asked,
        waiting: &mut Option<Waiting>,
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
        if !self.can_answer(&question) {
            self.back.refuse(&self.lease.link, &question, NOT_OFFERED);
            return Step::GoOn(cancel, reply);
        }
        if self.client.era() == Era::Modern {
            return self.ask_modern_client(question, asked, cancel, reply).await;
        }
        if waiting.is_none() {
            *waiting = Waiting::begin(self.back);
        }
        let (mailbox, link) = (asked.mailbox(), self.lease.link.weak());
        let id = question.copy(Slot::Id).unwrap_or_default();
        let answerer = move |answer: &Message| {
            let answer = Rewrite::new(answer.clone()).replace(Slot::Id, id).finish();
            // When the call is over, the child may wait for its answer still.
            if !mailbox.offer(Heard::Resumed(answer.clone()))
                && let Some(link) = link.upgrade()
            {
                link.say(answer);
            }
        };
        let Some(waits) =
            waiting.as_mut().filter(|_| reply.question(&question, Box::new(answerer)))
        else {
            // Without a question nobody waits.
            waiting.take_if(|waits| waits.questions == 0);
            self.back.refuse(&self.lease.link, &question, TOO_MANY);
            return Step::GoOn(cancel, reply);
        };
        // While a person thinks, the call's clock stands still and its permit is free.
        waits.questions += 1;
        asked.set_deadline(Some(now() + PATIENCE));
        reply.release_permit();
        Step::GoOn(cancel, reply)
    }

    /// Goes on after a legacy client has answered a question: the child hears the answer once the
    /// call may work again.
    pub(super) async fn resume(
        &mut self,
        answer: Text,
        asked: &mut Asked,
        waiting: &mut Option<Waiting>,
        cancel: CancellationToken,
        reply: Reply,
    ) -> Step {
        self.clock.restart();
        let Some(reply) = self.retake_permit(&cancel, reply).await else { return Step::Over };
        self.lease.link.say(answer);
        let is_last = waiting.as_mut().is_none_or(|waits| {
            waits.questions -= 1;
            waits.questions == 0
        });
        if is_last {
            *waiting = None;
            asked.set_deadline(Some(self.clock.deadline()));
        }
        Step::GoOn(cancel, reply)
    }

    /// Whether the client offered to answer this.
    pub(super) fn can_answer(&self, question: &Message) -> bool {
        can_answer(&self.client.capabilities, self.client.era(), &question.method())
    }

    /// Takes a permit again, and gives the way home back unless the call ended meanwhile.
    async fn retake_permit(
        &mut self,
        cancel: &CancellationToken,
        mut reply: Reply,
    ) -> Option<Reply> {
        self.clock.enter(Stage::Turn);
        tokio::select! {
            () = cancel.cancelled() => reply.forget(),
            () = self.back.closing.cancelled() => reply.fail(CallError::Stopping),
            retaken = self.clock.bound(reply.retake_permit()) => {
                if retaken.is_some() {
                    self.clock.enter(Stage::Answering);
                    return Some(reply);
                }
                self.fail(reply, self.too_late());
            }
        }
        None
    }

    /// Puts a legacy child's questions to a modern client: the client gets `input_required` as its
    /// answer, and the child waits until the client sends its request again with the responses.
    async fn ask_modern_client(
        &self,
        question: Message,
        asked: &mut Asked,
        cancel: CancellationToken,
        reply: Reply,
    ) -> Step {
        let mut questions = vec![question];
        if self.gather(&mut questions, asked, &reply).await || cancel.is_cancelled() {
            self.lease.link.hold(&questions);
            return Step::GoOn(cancel, reply);
        }
        let _waits = self.lease.park();
        asked.set_deadline(None);
        asked.set_purpose(Purpose::Parked);
        let Some((cancel, reply)) = self.ask_until_answered(questions, reply).await else {
            return Step::Over;
        };
        asked.set_purpose(Purpose::Call);
        asked.set_deadline(Some(self.clock.deadline()));
        Step::GoOn(cancel, reply)
    }

    /// Gives a modern client these questions as its answer, until it has sent its request again with
    /// all the responses. Gives the way home of that; `None` if it never came.
    pub(super) async fn ask_until_answered(
        &self,
        questions: Vec<Message>,
        mut reply: Reply,
    ) -> Option<(CancellationToken, Reply)> {
        let keys = (1..).map(|number| format!("q{number}"));
        let mut questions: Vec<_> = keys.zip(questions).collect();
        loop {
            let Some((state, ticket, retry)) =
                self.back.parking.park(&self.client.key, &self.client.person.principal)
            else {
                self.back.around.metrics.refused(Limit::Waiting);
                let what = "too many calls wait for an answer of a person".to_owned();
                reply.fail(CallError::Busy { what, retry_after_seconds: 30 });
                return None;
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
            let Some(Ok(Call { request, cancel, clock, reply: next, .. })) = call else {
                tracing::info!(server = %self.back.server.name, "nobody answered a question");
                return None;
            };
            if request.method() != self.request.method()
                || request.raw(Slot::Name) != self.request.raw(Slot::Name)
            {
                let text = "`requestState` belongs to another request";
                next.error(&ErrorObject::new(code::INVALID_PARAMS, text));
                return None;
            }
            questions.retain(|(key, question)| !self.respond(&request, key, question));
            if questions.is_empty() {
                self.clock.follow(&clock);
                return Some((cancel, next));
            }
            // A response is missing, so the question is put once more.
            reply = next;
        }
    }

    /// Waits a moment for further questions, so that the client hears them together. True if the
    /// server went on without an answer.
    async fn gather(&self, questions: &mut Vec<Message>, asked: &mut Asked, reply: &Reply) -> bool {
        let until = tokio::time::Instant::now() + GATHER;
        while let Ok(heard) = tokio::time::timeout_at(until, asked.heard()).await {
            match heard {
                Heard::Question(question)
                    if self.can_answer(&question) && questions.len() < MAX_GATHERED =>
                {
                    questions.push(question);
                }
                Heard::Question(question) => {
                    self.back.refuse(&self.lease.link, &question, NOT_OFFERED);
                }
                Heard::Note(note) => reply.note(note),
                Heard::Log(line) => self.log(reply, line),
                Heard::Resumed(_) | Heard::Release => {}
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

    pub(super) fn must_ask_legacy_client(&self, answer: &Message) -> bool {
        self.client.era() == Era::Legacy
            && self.lease.era == Era::Modern
            && answer.raw(Slot::ResultType) == Some(b"\"input_required\"")
    }

    /// Puts a modern child's questions to a legacy client, and sends the request again with what it
    /// answers, until the child has a result.
    pub(super) async fn ask_legacy_client(
        mut self,
        request: &Rewrite,
        answer: Message,
        cancel: CancellationToken,
        mut reply: Reply,
    ) {
        let mut answer = answer;
        for _ in 0..MAX_ROUNDS {
            let Some(waits) = Waiting::begin(self.back) else {
                return reply.error(&ErrorObject::new(code::BUSY, TOO_MANY));
            };
            reply.release_permit();
            let responses = tokio::select! {
                () = cancel.cancelled() => return reply.forget(),
                () = self.back.closing.cancelled() => return reply.fail(CallError::Stopping),
                responses = self.responses(&answer, &reply) => responses,
            };
            let responses = match responses {
                Ok(responses) => responses,
                Err(error) => return reply.error(&error),
            };
            drop(waits);
            if !responses.is_empty() {
                self.clock.restart();
            }
            let Some(retaken) = self.retake_permit(&cancel, reply).await else { return };
            reply = retaken;
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
                    Heard::Lost(why) => return self.fail(reply, self.lost(&why)),
                    Heard::Clogged => return self.fail(reply, self.clogged()),
                    Heard::Gone | Heard::Unsent | Heard::Ended => return self.mourn(reply).await,
                    Heard::Question(question) => {
                        self.back.refuse(
                            &self.lease.link,
                            &question,
                            "servers of this revision ask no questions",
                        );
                    }
                    Heard::Resumed(_) | Heard::Release => {}
                }
            };
            if !self.must_ask_legacy_client(&answer) {
                return self.answer(reply, answer).await;
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
            if !self.can_answer(&question) {
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
                return Err(ErrorObject::new(code::BUSY, TOO_MANY));
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
}

/// Nobody answered a question in time.
pub(super) fn nobody_answered() -> ErrorObject {
    let text = format!("nobody answered the server's question within {} s", PATIENCE.as_secs());
    ErrorObject::new(code::TIMED_OUT, text)
}

/// Whether a client with these capabilities offered to answer questions of this kind.
pub(super) fn can_answer(capabilities: &[u8], era: Era, method: &str) -> bool {
    let capability = match method {
        method::ELICIT => "elicitation",
        method::SAMPLE => "sampling",
        method::LIST_ROOTS => "roots",
        // An unknown question may be one the client understands.
        _ => return era == Era::Legacy,
    };
    json::find(capabilities, capability).is_some()
}
