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
