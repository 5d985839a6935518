//! An exchange as events come: from the request to the server until the answer is on its way home.

use pontoon_wire::Revision;
use tokio_util::sync::CancellationToken;

use super::exchange::{Exchange, NextStep};
use super::keep_alive::KeepAlive;
use super::record::CallRecord;
use super::waiting::{WaitingCall, unanswered};
use crate::back::conversation::mailbox::ServerEvent;
use crate::back::keep::lease::Lease;
use crate::call::{CallError, Reply, traced};
use crate::clock::Clock;

/// What a call that its child never read goes on with.
pub(crate) type Unsent<'b> = (CancellationToken, Clock, Option<CallRecord<'b>>, Reply);

/// When a call may be given to another child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    /// If the child never read it.
    pub(crate) if_unsent: bool,
    /// If the connection to an application was lost, for it does no harm to make the call twice.
    pub(crate) if_lost: bool,
}

impl Retry {
    pub(crate) const NEVER: Self = Self { if_unsent: false, if_lost: false };
}

impl<'b> Exchange<'b> {
    /// Runs to the end; gives the way home back if another child may be tried.
    pub(crate) async fn run(
        mut self,
        cancel: CancellationToken,
        reply: Reply,
        retry: Retry,
    ) -> Option<Unsent<'b>> {
        let (mut cancel, mut reply) = (cancel, reply);
        // Rare roads are boxed, so that the usual call stays small: it is moved more than once.
        if self.lease.link.has_held() {
            (cancel, reply) = Box::pin(self.ask_held(cancel, reply)).await?;
        }
        if let Some(refusal) = self.foreseen_refusal() {
            self.fail(reply, refusal);
            return None;
        }
        tokio::select! {
            () = cancel.cancelled() => {
                reply.forget();
                return None;
            }
            is_heard = reply.say_passed_on() => if !is_heard {
                let why = "the bridge that asked takes nothing from this one, so this call was not made";
                self.fail(reply, CallError::AppAway(why.to_owned()));
                return None;
            }
        }
        self.step = traced::client_step(&reply, &self.request, self.transport());
        let request = self.translated_request();
        let mut asked = self.ask(request.clone());
        // Held while a legacy client is asked something: the number of such calls is limited.
        let mut waiting: Option<WaitingCall> = None;
        let mut alive = KeepAlive::of(&self);
        loop {
            let event = tokio::select! {
                () = self.back.closing.cancelled(), if waiting.is_some() => {
                    self.fail(reply, self.stopped());
                    return None;
                }
                () = cancel.cancelled() => {
                    reply.forget();
                    return None;
                }
                event = asked.next_event() => event,
                () = alive.due() => {
                    alive.tell(&asked, &reply);
                    continue;
                }
            };
            if let ServerEvent::Answer(answer) = &event {
                traced::end_with(self.step.take(), answer);
            }
            let step = match event {
                ServerEvent::Note(note) => {
                    reply.note(note);
                    alive.begin_anew();
                    if waiting.is_none() {
                        self.extend(&asked);
                    }
                    NextStep::GoOn(cancel, reply)
                }
                ServerEvent::Log(line) => {
                    self.log(&reply, line);
                    NextStep::GoOn(cancel, reply)
                }
                ServerEvent::Question(question) => {
                    Box::pin(self.handle_question(
                        question,
                        &mut asked,
                        &mut waiting,
                        cancel,
                        reply,
                    ))
                    .await
                }
                ServerEvent::Resumed(answer) => {
                    Box::pin(self.resume(answer, &mut asked, &mut waiting, cancel, reply)).await
                }
                ServerEvent::Release => {
                    // Older clients have no way to come back, and modern ones or those without a session neither.
                    if self.client.revision == Revision::V2025_11_25 && reply.is_in_session() {
                        reply.release();
                    }
                    NextStep::GoOn(cancel, reply)
                }
                ServerEvent::Answer(answer) if self.must_ask_legacy_client(&answer) => {
                    Box::pin(self.ask_legacy_client(&request, answer, cancel, reply)).await;
                    return None;
                }
                ServerEvent::Answer(answer) => {
                    self.lease.note_answer();
                    self.note_length_taken();
                    self.answer(reply, answer).await;
                    return None;
                }
                ServerEvent::TimedOut(_) if waiting.is_some() => {
                    reply.error(&unanswered());
                    NextStep::Over
                }
                ServerEvent::TimedOut(note) => {
                    Box::pin(self.time_out(reply, note)).await;
                    NextStep::Over
                }
                ServerEvent::Lost(why) => {
                    self.fail(reply, self.lost(&why));
                    NextStep::Over
                }
                ServerEvent::Clogged => {
                    self.fail(reply, self.clogged());
                    NextStep::Over
                }
                ServerEvent::TooLong => {
                    self.fail(reply, self.refused_for_length());
                    NextStep::Over
                }
                ServerEvent::Gone if retry.if_lost && matches!(self.lease, Lease::App(_)) => {
                    reply.note_sent();
                    self.step.iter_mut().for_each(|step| step.fail("connection_lost"));
                    return Some((cancel, self.clock, self.record, reply));
                }
                ServerEvent::Unsent if retry.if_unsent => {
                    self.record.iter_mut().for_each(|record| record.take_back());
                    self.step.iter_mut().for_each(|step| step.fail("unsent"));
                    return Some((cancel, self.clock, self.record, reply));
                }
                ServerEvent::Unsent if matches!(self.lease, Lease::App(_)) => {
                    let why = self.back.app().map_or(CallError::Internal, |app| app.not_there());
                    self.fail(reply, why);
                    NextStep::Over
                }
                ServerEvent::Unsent | ServerEvent::Ended | ServerEvent::Gone => {
                    Box::pin(self.mourn(reply)).await;
                    NextStep::Over
                }
            };
            match step {
                NextStep::GoOn(next_cancel, next_reply) => {
                    (cancel, reply) = (next_cancel, next_reply)
                }
                NextStep::Over => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use pontoon_wire::{Era, Revision, Slot, method};

    use super::*;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{Pair, STATEFUL, client, naming, result, serve_legacy};

    fn legacy(conversation: &str) -> Arc<crate::client::Client> {
        client(Revision::V2025_11_25, conversation, "{}")
    }

    /// What a server was told, one line each.
    type Told = Arc<Mutex<Vec<String>>>;

    /// Servers that answer no call, and what they were told.
    fn silent() -> (InMemoryServers, Told) {
        let told = Told::default();
        let written = Arc::clone(&told);
        let servers = InMemoryServers::new(move |end| {
            let written = Arc::clone(&written);
            serve_legacy(end, move |message, _| {
                written.lock().unwrap().push(message.method().into_owned());
                Vec::new()
            })
        });
        (servers, told)
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_of_a_stateless_server_has_its_own_process_and_its_own_answer() {
        let pair = Pair::new(naming(), |_| {});
        for number in 1..=3 {
            let answer = pair.call_tool(&legacy("a"), "x").await;
            let said = format!("{{\"content\":[],\"said\":\"x by {number}\"}}");
            assert_eq!(answer, result("7", &said));
        }
        assert_eq!(pair.servers.started(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_comes_before_the_answer_under_the_client_s_own_token() {
        let servers = InMemoryServers::new(|end| {
            serve_legacy(end, |message, id| {
                let Some(token) = message.raw(Slot::MetaProgressToken) else { return Vec::new() };
                let token = String::from_utf8_lossy(token);
                let note = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
                     \"params\":{{\"progressToken\":{token},\"progress\":1}}}}"
                );
                vec![note, result(id, "{\"content\":[]}")]
            })
        });
        let pair = Pair::new(servers, |_| {});
        let params = "{\"name\":\"x\",\"_meta\":{\"progressToken\":\"mine\"}}";
        let made = pair.call(&legacy("a"), Era::Legacy, method::CALL_TOOL, params);
        let note = made.message().await;
        assert_eq!(note.raw(Slot::ProgressToken), Some(&b"\"mine\""[..]));
        assert!(made.answer().await.contains("content"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_gets_no_answer_ends_at_its_deadline_and_the_server_hears_so() {
        let (servers, told) = silent();
        let pair = Pair::new(servers, |server| server.timeout = Duration::from_secs(300));
        let began = tokio::time::Instant::now();
        let made = pair.call(&legacy("a"), Era::Legacy, method::CALL_TOOL, "{\"name\":\"x\"}");
        assert!(matches!(made.failure().await, CallError::TimedOut { seconds: 300, .. }));
        let took = began.elapsed();
        assert!((300..301).contains(&took.as_secs()), "{took:?}");
        while told.lock().unwrap().last().is_none_or(|last| last != method::CANCELLED) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_has_no_answer_and_its_process_goes() {
        let (servers, _) = silent();
        let pair = Pair::new(servers, |_| {});
        let made = pair.call(&legacy("a"), Era::Legacy, method::CALL_TOOL, "{\"name\":\"x\"}");
        while pair.back.living() == 0 {
            tokio::task::yield_now().await;
        }
        made.cancel.cancel();
        assert_eq!(made.answer().await, "cancelled");
        pair.until_ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_in_a_call_fails_it_and_a_kept_one_is_told_as_lost_once() {
        let said = |number: u32| format!("{{\"content\":[],\"said\":{number}}}");
        let servers = InMemoryServers::new(move |end| {
            let number = end.number;
            let (over, is_over) = tokio::sync::oneshot::channel::<()>();
            let mut over = Some(over);
            let serving = serve_legacy(end, move |message, id| {
                if message.string(Slot::Name).as_deref() == Some("end") {
                    over.take();
                    return Vec::new();
                }
                vec![result(id, &said(number))]
            });
            async move {
                tokio::select! {
                    () = serving => {}
                    _ = is_over => {}
                }
            }
        });
        let pair = Pair::new(servers, |server| server.mode = STATEFUL);
        let (ada, bob) = (legacy("ada"), legacy("bob"));
        assert_eq!(pair.call_tool(&ada, "x").await, result("7", &said(1)));
        assert_eq!(pair.call_tool(&bob, "x").await, result("7", &said(2)));
        let told = pair.call_tool(&ada, "end").await;
        assert!(told.contains("before it answered; what it had in memory"), "{told}");
        assert_eq!(pair.call_tool(&ada, "x").await, result("7", &said(3)), "it was told");
        assert_eq!(pair.call_tool(&bob, "x").await, result("7", &said(2)), "nothing to him");
    }
}
