//! Calls that wait for a legacy client's answer to a question. Their number is limited.

use std::sync::Arc;

use pontoon_wire::error::{ErrorObject, code};
use tokio::sync::OwnedSemaphorePermit;

use crate::back::Back;
use crate::back::keep::suspended::PATIENCE;
use crate::observe::metrics::Limit;

/// A call that waits for a legacy client to answer.
pub(crate) struct WaitingCall {
    _place: OwnedSemaphorePermit,
    /// The questions that are open.
    pub(crate) questions: usize,
}

impl WaitingCall {
    /// A place among those who wait, if one is free.
    pub(crate) fn begin(back: &Back) -> Option<Self> {
        match Arc::clone(&back.waiting).try_acquire_owned() {
            Ok(place) => Some(Self { _place: place, questions: 0 }),
            Err(_) => {
                back.around.machine.metrics.refused(Limit::Waiting);
                None
            }
        }
    }
}

/// What a call ends with whose question was not answered in time.
pub(crate) fn unanswered() -> ErrorObject {
    let text = format!("nobody answered the server's question within {} s", PATIENCE.as_secs());
    ErrorObject::new(code::TIMED_OUT, text)
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Era, Message, Revision, Slot, method};

    use super::*;
    use crate::app::test_bridge::ToolServer;
    use crate::back::keep::suspended::MAX_SUSPENDED;
    use crate::back::pair::{MadeCall, Pair, client, result};

    fn ask(pair: &Pair) -> MadeCall {
        let ada = client(Revision::V2025_11_25, "ada", "{\"elicitation\":{}}");
        pair.call(&ada, Era::Legacy, method::CALL_TOOL, "{\"name\":\"ask\"}")
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_not_answered_ends_its_call_after_ten_minutes() {
        let pair = Pair::new(ToolServer::new(Era::Legacy).servers(), |_| {});
        let made = ask(&pair);
        assert_eq!(made.message().await.method(), method::ELICIT);
        let asked = tokio::time::Instant::now();
        let answer = made.answer().await;
        assert!(answer.contains("nobody answered the server's question within 600 s"), "{answer}");
        assert_eq!(asked.elapsed().as_secs(), PATIENCE.as_secs());
        pair.until_ended().await;
        assert_eq!(pair.back.waiting.available_permits(), MAX_SUSPENDED);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_calls_wait_for_a_person_and_the_next_is_not_asked() {
        let pair = Pair::new(ToolServer::new(Era::Legacy).servers(), |_| {});
        let taken: Vec<_> =
            (0..MAX_SUSPENDED - 1).filter_map(|_| WaitingCall::begin(&pair.back)).collect();
        assert_eq!(taken.len(), MAX_SUSPENDED - 1);
        let last = ask(&pair);
        let question = last.message().await;
        assert!(WaitingCall::begin(&pair.back).is_none(), "it has the last place");
        let one_too_many = ask(&pair);
        assert!(one_too_many.answer().await.contains("\"by\":2"), "its server heard a refusal");
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap()).into_owned();
        assert!(last.questions.answer(&Message::own(result(&id, "{\"action\":\"cancel\"}"))));
        assert!(last.answer().await.contains("\"by\":1"));
        assert!(WaitingCall::begin(&pair.back).is_some(), "its place is free again");
    }
}
