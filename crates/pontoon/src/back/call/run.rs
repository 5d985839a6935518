//! An exchange as events come: from the request to the server until the answer is on its way home.

use pontoon_wire::Revision;
use tokio_util::sync::CancellationToken;

use super::exchange::{Exchange, NextStep};
use super::waiting::{WaitingCall, unanswered};
use crate::back::conversation::mailbox::ServerEvent;
use crate::call::{CallError, Reply};
use crate::clock::Clock;

impl Exchange<'_> {
    /// Runs to the end; gives the way home back if the child never read the request and another
    /// may be tried.
    pub(crate) async fn run(
        self,
        cancel: CancellationToken,
        reply: Reply,
        may_retry: bool,
    ) -> Option<(CancellationToken, Clock, Reply)> {
        let (mut cancel, mut reply) = (cancel, reply);
        // Rare roads are boxed, so that the usual call stays small: it is moved more than once.
        if self.lease.link.has_held() {
            (cancel, reply) = Box::pin(self.ask_held(cancel, reply)).await?;
        }
        let request = self.translated_request();
        let mut asked = self.ask(request.clone());
        // Held while a legacy client is asked something: so many may wait and no more.
        let mut waiting: Option<WaitingCall> = None;
        loop {
            let event = tokio::select! {
                () = self.back.closing.cancelled(), if waiting.is_some() => {
                    self.fail(reply, CallError::Stopping);
                    return None;
                }
                () = cancel.cancelled() => {
                    reply.forget();
                    return None;
                }
                event = asked.next_event() => event,
            };
            let step = match event {
                ServerEvent::Note(note) => {
                    reply.note(note);
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
                    self.resume(answer, &mut asked, &mut waiting, cancel, reply).await
                }
                ServerEvent::Release => {
                    // Older clients have no way to come back, and modern ones neither.
                    if self.client.revision == Revision::V2025_11_25 {
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
                ServerEvent::Unsent if may_retry => {
                    self.record.iter().for_each(|record| record.forget());
                    return Some((cancel, self.clock, reply));
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
