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
use pontoon_wire::{Era, Message, Rewrite, Slot, Text, era, json};
use tokio_util::sync::CancellationToken;

use super::exchange::{Exchange, NextStep};
use super::record::{CallEnd, finish};
use super::waiting::{WaitingCall, unanswered};
use crate::back::conversation::abilities::can_answer;
use crate::back::conversation::link::{PendingRequest, Purpose};
use crate::back::conversation::mailbox::{Mailbox, ServerEvent};
use crate::back::keep::lease::Lease;
use crate::back::keep::suspended::PATIENCE;
use crate::call::{Call, CallError, Reply};
use crate::clock::{Stage, now};
use crate::observe::metrics::Limit;

/// How long further questions of a legacy child are waited for, to put them together.
const GATHER: Duration = Duration::from_millis(10);

/// How many questions are put together at the most.
const MAX_GATHERED: usize = 16;

pub(crate) const NOT_OFFERED: &str = "the client did not offer to answer this";

const SHARED: &str =
    "this process serves all clients (`mode` is `shared`), so none of them can be asked anything";

/// How often a modern server may ask again before it answers a legacy client.
const MAX_ROUNDS: usize = 32;

const TOO_MANY: &str = "too many questions wait for an answer";

impl Exchange<'_> {
    pub(crate) async fn handle_question(
        &self,
        question: Message,
        asked: &mut PendingRequest,
        waiting: &mut Option<WaitingCall>,
        cancel: CancellationToken,
        mut reply: Reply,
    ) -> NextStep {
        if self.lease.era == Era::Modern {
            self.refuse_question(&question, "servers of this revision ask no questions");
            return NextStep::GoOn(cancel, reply);
        }
        if self.is_shared() {
            self.refuse_question(&question, SHARED);
            return NextStep::GoOn(cancel, reply);
        }
        if !self.can_answer(&question) {
            self.refuse_question(&question, NOT_OFFERED);
            return NextStep::GoOn(cancel, reply);
        }
        if self.client.era() == Era::Modern {
            return self.ask_modern_client(question, asked, cancel, reply).await;
        }
        if waiting.is_none() {
            *waiting = WaitingCall::begin(self.back);
        }
        let (mailbox, link) = (asked.mailbox(), self.lease.link.weak());
        let id = question.copy(Slot::Id).unwrap_or_default();
        let answerer = move |answer: &Message| {
            let answer = Rewrite::new(answer.clone()).replace(Slot::Id, id).finish();
            // When the call is over, the child may wait for its answer still.
            if !mailbox.offer(ServerEvent::Resumed(answer.clone()))
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
            self.refuse_question(&question, TOO_MANY);
            return NextStep::GoOn(cancel, reply);
        };
        // While a person thinks, the call's clock stands still and its permit is free.
        waits.questions += 1;
        asked.set_deadline(Some(now() + PATIENCE));
        reply.release_permit();
        NextStep::GoOn(cancel, reply)
    }

    /// Goes on after a legacy client has answered a question: the child hears the answer once the
    /// call may work again.
    pub(crate) async fn resume(
        &mut self,
        answer: Text,
        asked: &mut PendingRequest,
        waiting: &mut Option<WaitingCall>,
        cancel: CancellationToken,
        reply: Reply,
    ) -> NextStep {
        self.clock.restart();
        let Some(reply) = self.retake_permit(&cancel, reply).await else { return NextStep::Over };
        self.lease.link.say(answer);
        let is_last = waiting.as_mut().is_none_or(|waits| {
            waits.questions -= 1;
            waits.questions == 0
        });
        if is_last {
            *waiting = None;
            asked.set_deadline(Some(self.clock.deadline()));
        }
        NextStep::GoOn(cancel, reply)
    }

    /// Whether the client offered to answer this.
    pub(crate) fn can_answer(&self, question: &Message) -> bool {
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
            () = self.back.closing.cancelled() => self.fail(reply, self.stopped()),
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
        asked: &mut PendingRequest,
        cancel: CancellationToken,
        reply: Reply,
    ) -> NextStep {
        let mut questions = vec![question];
        if self.gather(&mut questions, asked, &reply).await || cancel.is_cancelled() {
            self.lease.link.hold(&questions);
            return NextStep::GoOn(cancel, reply);
        }
        let _waits = self.lease.wait_for_person();
        asked.set_deadline(None);
        asked.set_purpose(Purpose::Parked);
        let Some((cancel, reply)) = self.ask_until_answered(questions, reply).await else {
            return NextStep::Over;
        };
        asked.set_purpose(Purpose::Call);
        asked.set_deadline(Some(self.clock.deadline()));
        NextStep::GoOn(cancel, reply)
    }

    /// Gives a modern client these questions as its answer, until it has sent its request again with
    /// all the responses. Gives the way home of that; `None` if it never came.
    pub(crate) async fn ask_until_answered(
        &self,
        questions: Vec<Message>,
        mut reply: Reply,
    ) -> Option<(CancellationToken, Reply)> {
        let keys = (1..).map(|number| format!("q{number}"));
        let mut questions: Vec<_> = keys.zip(questions).collect();
        loop {
            let Some((state, ticket, retry)) =
                self.back.keep.suspended.park(&self.client.key, &self.client.person.principal)
            else {
                self.back.around.machine.metrics.refused(Limit::Waiting);
                let what = "too many calls wait for an answer of a person".to_owned();
                reply.fail(CallError::Busy { what, retry_after_seconds: 30 });
                return None;
            };
            // What tells of the call does so at its end.
            let note = reply.take_note();
            let asking = questions.iter().map(|(key, question)| (key.as_str(), question));
            reply.result(&era::input_required(asking, &state));
            // While it waits for a person, the exchange is nobody's running call.
            self.back.running.fetch_sub(1, Ordering::Relaxed);
            // One whose application is lost hears that its outcome is unknown, when it comes back.
            let is_app = matches!(self.lease, Lease::App(_));
            let call = tokio::select! {
                call = tokio::time::timeout(PATIENCE, retry) => call.ok(),
                () = self.lease.link.gone(), if !is_app => None,
                () = self.back.stop.cancelled() => None,
            };
            self.back.running.fetch_add(1, Ordering::Relaxed);
            drop(ticket);
            let Some(Ok(Call { request, cancel, clock, reply: mut next, .. })) = call else {
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
            next.note_end_with(note);
            questions.retain(|(key, question)| !self.respond(&request, key, question));
            if questions.is_empty() {
                self.clock.follow(&clock);
                next.set_job(self.record.as_ref().and_then(|record| record.job_id()));
                return Some((cancel, next));
            }
            // A response is missing, so the question is put once more.
            reply = next;
        }
    }

    /// Waits a moment for further questions, so that the client hears them together. True if the
    /// server went on without an answer.
    async fn gather(
        &self,
        questions: &mut Vec<Message>,
        asked: &mut PendingRequest,
        reply: &Reply,
    ) -> bool {
        let until = tokio::time::Instant::now() + GATHER;
        while let Ok(heard) = tokio::time::timeout_at(until, asked.next_event()).await {
            match heard {
                ServerEvent::Question(question)
                    if self.can_answer(&question) && questions.len() < MAX_GATHERED =>
                {
                    questions.push(question);
                }
                ServerEvent::Question(question) => {
                    self.refuse_question(&question, NOT_OFFERED);
                }
                ServerEvent::Note(note) => reply.note(note),
                ServerEvent::Log(line) => self.log(reply, line),
                ServerEvent::Resumed(_) | ServerEvent::Release => {}
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

    pub(crate) fn must_ask_legacy_client(&self, answer: &Message) -> bool {
        self.client.era() == Era::Legacy
            && self.lease.era == Era::Modern
            && answer.raw(Slot::ResultType) == Some(b"\"input_required\"")
    }

    /// Puts a modern child's questions to a legacy client, and sends the request again with what it
    /// answers, until the child has a result.
    pub(crate) async fn ask_legacy_client(
        mut self,
        request: &Rewrite,
        answer: Message,
        cancel: CancellationToken,
        mut reply: Reply,
    ) {
        let mut answer = answer;
        for _ in 0..MAX_ROUNDS {
            let Some(waits) = WaitingCall::begin(self.back) else {
                let error = ErrorObject::new(code::BUSY, TOO_MANY);
                finish(self.record.take(), &CallEnd::Failed(&CallError::Told(error.clone(), 429)));
                return reply.error(&error);
            };
            reply.release_permit();
            let responses = tokio::select! {
                () = cancel.cancelled() => return reply.forget(),
                () = self.back.closing.cancelled() => return self.fail(reply, self.stopped()),
                responses = self.responses(&answer, &reply) => responses,
            };
            let responses = match responses {
                Ok(responses) => responses,
                Err(error) => {
                    let why = CallError::Told(error.clone(), 502);
                    finish(self.record.take(), &CallEnd::Failed(&why));
                    return reply.error(&error);
                }
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
                    heard = asked.next_event() => heard,
                };
                match heard {
                    ServerEvent::Note(note) => reply.note(note),
                    ServerEvent::Log(line) => self.log(&reply, line),
                    ServerEvent::Answer(answer) => break answer,
                    ServerEvent::TimedOut(note) => return self.time_out(reply, note).await,
                    ServerEvent::Lost(why) => return self.fail(reply, self.lost(&why)),
                    ServerEvent::Clogged => return self.fail(reply, self.clogged()),
                    ServerEvent::Gone
                    | ServerEvent::Unsent
                    | ServerEvent::Ended
                    | ServerEvent::TooLong => {
                        return self.mourn(reply).await;
                    }
                    ServerEvent::Question(question) => {
                        self.refuse_question(
                            &question,
                            "servers of this revision ask no questions",
                        );
                    }
                    ServerEvent::Resumed(_) | ServerEvent::Release => {}
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
            let answerer = move |answer: &Message| home.push(ServerEvent::Answer(answer.clone()));
            if !reply.question(&question, Box::new(answerer)) {
                return Err(ErrorObject::new(code::BUSY, TOO_MANY));
            }
            let heard = tokio::time::timeout(PATIENCE, mailbox.next()).await;
            let Ok(ServerEvent::Answer(response)) = heard else {
                return Err(unanswered());
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

#[cfg(test)]
mod tests {
    use pontoon_wire::{Revision, method};

    use super::*;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{MadeCall, Pair, client, result, serve_legacy};
    use crate::client::Client;

    /// Servers that ask for a name in each call, and answer it with what they hear.
    fn curious() -> InMemoryServers {
        InMemoryServers::new(|end| {
            let mut call = String::new();
            serve_legacy(end, move |message, id| match message.method().as_ref() {
                method::CALL_TOOL => {
                    call = id.to_owned();
                    vec![format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"{}\",\"params\":{{}}}}",
                        method::ELICIT
                    )]
                }
                _ if id == "\"q\"" => {
                    let heard = String::from_utf8_lossy(message.text()).into_owned();
                    vec![result(&call, &format!("{{\"heard\":{}}}", pontoon_wire::quoted(&heard)))]
                }
                _ => Vec::new(),
            })
        })
    }

    fn make(pair: &Pair, client: &Arc<Client>, more: &str) -> MadeCall {
        let params = format!("{{\"name\":\"x\"{more}}}");
        pair.call(client, Era::Legacy, method::CALL_TOOL, &params)
    }

    fn state_of(answer: &str) -> String {
        let answer = Message::parse(answer.as_bytes()).unwrap();
        answer.string(Slot::ResultState).unwrap().into_owned()
    }

    const ABLE: &str = "{\"elicitation\":{}}";

    #[tokio::test(start_paused = true)]
    async fn a_modern_client_is_asked_by_an_answer_and_its_retry_goes_on() {
        let pair = Pair::new(curious(), |_| {});
        let ada = client(Revision::NEWEST_MODERN, "ada", ABLE);
        let asked = make(&pair, &ada, "").answer().await;
        assert!(asked.contains("input_required"), "{asked}");
        let again = format!(
            ",\"requestState\":\"{}\",\"inputResponses\":{{\"q1\":{{\"action\":\"accept\"}}}}",
            state_of(&asked)
        );
        let bob = client(Revision::NEWEST_MODERN, "bob", ABLE);
        let told = make(&pair, &bob, &again).answer().await;
        assert!(told.contains("is unknown here"), "it is not his: {told}");
        let answer = make(&pair, &ada, &again).answer().await;
        assert!(answer.contains("accept"), "{answer}");
        assert_eq!(pair.servers.started(), 1, "the child waited");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_a_modern_client_never_answers_lets_go_of_its_child() {
        let pair = Pair::new(curious(), |_| {});
        let ada = client(Revision::NEWEST_MODERN, "ada", ABLE);
        let began = tokio::time::Instant::now();
        let asked = make(&pair, &ada, "").answer().await;
        pair.until_ended().await;
        let waited = began.elapsed();
        assert!(waited >= PATIENCE && waited < PATIENCE + Duration::from_secs(5), "{waited:?}");
        let again = format!(",\"requestState\":\"{}\"", state_of(&asked));
        let told = make(&pair, &ada, &again).answer().await;
        assert!(told.contains("is unknown here"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_legacy_client_is_asked_on_its_stream_and_has_all_its_time_again_after_that() {
        let pair = Pair::new(curious(), |server| server.timeout = Duration::from_secs(10));
        let made = make(&pair, &client(Revision::V2025_11_25, "ada", ABLE), "");
        let question = made.message().await;
        assert_eq!(question.method(), method::ELICIT);
        // A person thinks for longer than the call may take.
        tokio::time::advance(Duration::from_secs(60)).await;
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap()).into_owned();
        let answer = Message::own(result(&id, "{\"action\":\"decline\"}"));
        assert!(made.questions.answer(&answer));
        let answer = made.answer().await;
        assert!(answer.contains("decline"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_offered_nothing_is_not_asked() {
        let pair = Pair::new(curious(), |_| {});
        let made = make(&pair, &client(Revision::V2025_11_25, "ada", "{}"), "");
        let answer = made.answer().await;
        assert!(answer.contains(NOT_OFFERED), "the server hears the refusal: {answer}");
    }
}
