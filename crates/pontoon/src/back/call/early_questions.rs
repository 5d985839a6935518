//! Questions that a legacy child asks while no call of its client is open: they wait for the next call.
//!
//! Many servers ask for the client's roots as soon as they hear that they are initialised, and then
//! work with what they were told. So the client is asked before its call goes to the child, and the
//! call goes there after the answers.

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::{Era, Message, Rewrite, Slot};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::exchange::Exchange;
use super::questions::NOT_OFFERED;
use super::waiting::WaitingCall;
use crate::call::{CallError, Reply};

/// How long a call of a legacy client waits for the client's own answer. One that comes later reaches
/// the child all the same.
const ANSWER: Duration = Duration::from_secs(5);

impl Exchange<'_> {
    /// Puts the questions that waited for this call to its client. `None` if the call ended with that.
    pub(crate) async fn ask_held(
        &self,
        cancel: CancellationToken,
        reply: Reply,
    ) -> Option<(CancellationToken, Reply)> {
        let held = self.lease.link.take_held();
        let (questions, others): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|question| self.can_answer(question));
        others.iter().for_each(|other| self.refuse_question(other, NOT_OFFERED));
        if questions.is_empty() {
            return Some((cancel, reply));
        }
        let (cancel, reply) = match self.client.era() {
            Era::Modern => {
                let _waits = self.lease.wait_for_person();
                self.ask_until_answered(questions, reply).await?
            }
            Era::Legacy => {
                let reply = self.ask_ahead(questions, &cancel, reply).await?;
                self.clock.restart();
                (cancel, reply)
            }
        };
        // The child may still have to look at what it was told.
        self.back.launcher.let_settle(&self.lease).await;
        Some((cancel, reply))
    }

    /// Puts questions to a legacy client, ahead of its call. What it answers goes to the child at
    /// once, now or later.
    async fn ask_ahead(
        &self,
        questions: Vec<Message>,
        cancel: &CancellationToken,
        reply: Reply,
    ) -> Option<Reply> {
        let answered = Arc::new(Semaphore::new(0));
        let mut open = 0;
        let _waits = WaitingCall::begin(self.back);
        for question in &questions {
            let (link, answered) = (self.lease.link.weak(), Arc::clone(&answered));
            let id = question.copy(Slot::Id).unwrap_or_default();
            let answerer = move |answer: &Message| {
                if let Some(link) = link.upgrade() {
                    link.say(Rewrite::new(answer.clone()).replace(Slot::Id, id).finish());
                }
                answered.add_permits(1);
            };
            match reply.question(question, Box::new(answerer)) {
                true => open += 1,
                false => self.refuse_question(question, NOT_OFFERED),
            }
        }
        tokio::select! {
            () = cancel.cancelled() => reply.forget(),
            () = self.back.closing.cancelled() => reply.fail(CallError::Stopping),
            // A client that cannot answer now has its call made all the same.
            _ = tokio::time::timeout(ANSWER, answered.acquire_many(open)) => return Some(reply),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Revision, method};

    use super::*;
    use crate::app::test_bridge::ToolServer;
    use crate::back::pair::{MadeCall, Pair, client, result};

    const ROOTS: &str = "{\"roots\":{}}";

    fn call(pair: &Pair, revision: Revision, capabilities: &str) -> MadeCall {
        let ada = client(revision, "ada", capabilities);
        pair.call(&ada, Era::Legacy, method::CALL_TOOL, "{\"name\":\"echo\"}")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_as_it_starts_is_told_before_the_call_is_made() {
        let server = ToolServer::new(Era::Legacy).curious();
        let pair = Pair::new(server.servers(), |_| {});
        let made = call(&pair, Revision::V2025_11_25, ROOTS);
        let question = made.message().await;
        assert_eq!(question.method(), "roots/list");
        assert_eq!(server.work_heard(), [], "the call waits");
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap()).into_owned();
        assert!(made.questions.answer(&Message::own(result(&id, "{\"roots\":[]}"))));
        assert!(made.answer().await.contains("\"by\":1"));
        server.until_heard("answer").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_answer_has_its_call_made_after_five_seconds_all_the_same() {
        let server = ToolServer::new(Era::Legacy).curious();
        let pair = Pair::new(server.servers(), |_| {});
        let made = call(&pair, Revision::V2025_11_25, ROOTS);
        let question = made.message().await;
        let asked = tokio::time::Instant::now();
        assert!(made.answer().await.contains("\"by\":1"));
        assert_eq!(asked.elapsed().as_secs(), ANSWER.as_secs());
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap()).into_owned();
        assert!(made.questions.answer(&Message::own(result(&id, "{}"))), "it may still answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_modern_client_is_asked_by_an_answer_before_its_call_is_made() {
        let server = ToolServer::new(Era::Legacy).curious();
        let pair = Pair::new(server.servers(), |_| {});
        let asked = call(&pair, Revision::NEWEST_MODERN, ROOTS).answer().await;
        assert!(asked.contains("input_required") && asked.contains("roots/list"), "{asked}");
        assert_eq!(server.work_heard(), []);
        let asked = Message::parse(asked.as_bytes()).unwrap();
        let state = asked.string(Slot::ResultState).unwrap();
        let params = format!(
            "{{\"name\":\"echo\",\"requestState\":\"{state}\",\"inputResponses\":{{\"q1\":{{\"roots\":[]}}}}}}"
        );
        let ada = client(Revision::NEWEST_MODERN, "ada", ROOTS);
        let made = pair.call(&ada, Era::Legacy, method::CALL_TOOL, &params);
        assert!(made.answer().await.contains("\"by\":1"), "the same process");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_offered_nothing_is_asked_nothing_and_not_kept_waiting() {
        for revision in [Revision::V2025_11_25, Revision::NEWEST_MODERN] {
            let server = ToolServer::new(Era::Legacy).curious();
            let pair = Pair::new(server.servers(), |_| {});
            let began = tokio::time::Instant::now();
            let answer = call(&pair, revision, "{}").answer().await;
            assert!(answer.contains("\"by\":1"), "{answer}");
            assert!(began.elapsed() < ANSWER, "{:?}", began.elapsed());
        }
    }
}
