//! One ordered, bounded queue toward a client: notes, questions, and last the outcome.
//!
//! A client that reads slowly costs bounded memory: progress is replaced by newer progress, log
//! lines are dropped and counted; questions and the outcome never are. One consumer at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pontoon_wire::Text;
use uuid::Uuid;

use crate::call::Outcome;

/// Up to this many notes wait for a client.
const MAX_NOTES: usize = 256;

/// Up to this many bytes of notes wait for a client. Small ones are in no budget.
const MAX_NOTE_BYTES: usize = 1024 * 1024;

/// Something for the client.
#[derive(Debug)]
pub enum Item {
    /// Progress and the like: the oldest give way to newer ones.
    Note(Text),
    /// A log line: dropped when there is no room.
    Log(Text),
    /// A question of the server's, or an acknowledgement: never dropped.
    Question(Text),
    /// The client may hang up and come back.
    Release,
}

/// What comes out.
#[derive(Debug)]
pub enum Next {
    /// A message before the end.
    Message(Text),
    /// The client may hang up and come back.
    Release,
    /// The end; nothing comes after it. `None` when the call was cancelled.
    End(Option<Outcome>),
}

/// How the outcome reaches the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutcomeForm {
    /// That is not decided: what comes first decides.
    #[default]
    Open,
    /// As an event of a stream that has begun for this call, whose head is gone.
    Event,
    /// As an event of the one stream that a client of the older transport has for everything.
    Shared,
    /// By itself, with a head of its own.
    Whole,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<OutboxState>,
}

#[derive(Debug, Default)]
struct OutboxState {
    items: VecDeque<Item>,
    note_bytes: usize,
    outcome: Option<Option<Outcome>>,
    is_finished: bool,
    form: OutcomeForm,
    job: Option<Uuid>,
    waker: Option<Waker>,
}

impl Outbox {
    /// Says that the outcome is taken by itself, whatever comes before it.
    pub fn take_whole(&self) {
        self.lock().form = OutcomeForm::Whole;
    }

    /// Says that the outcome goes to a stream that its client has for everything.
    pub fn share_stream(&self) {
        self.lock().form = OutcomeForm::Shared;
    }

    /// Begins a stream of events. False if the outcome goes out by itself: then nothing else does.
    pub fn begin_events(&self) -> bool {
        let mut state = self.lock();
        if state.form == OutcomeForm::Open {
            state.form = OutcomeForm::Event;
        }
        state.form == OutcomeForm::Event
    }

    /// Settles how the outcome will go out, now that it is known. If by itself, no stream begins any more.
    pub fn settle(&self) -> OutcomeForm {
        let mut state = self.lock();
        if state.form == OutcomeForm::Open {
            state.form = match state.items.is_empty() {
                true => OutcomeForm::Whole,
                false => OutcomeForm::Event,
            };
        }
        state.form
    }

    /// Says which job records the call.
    pub fn set_job(&self, job: Option<Uuid>) {
        self.lock().job = job;
    }

    /// The job that records the call, if one does and that is known.
    pub fn job(&self) -> Option<Uuid> {
        self.lock().job
    }

    /// Adds an item, if the end has not come yet.
    pub fn push(&self, item: Item) {
        let mut state = self.lock();
        if state.is_finished {
            return;
        }
        if let Item::Note(text) | Item::Log(text) = &item {
            state.note_bytes += text.len();
            while (state.items.len() >= MAX_NOTES || state.note_bytes > MAX_NOTE_BYTES)
                && state.make_room()
            {}
        }
        if matches!((&item, state.items.back()), (Item::Release, Some(Item::Release))) {
            return;
        }
        state.items.push_back(item);
        wake(state);
    }

    /// Ends the queue. Only the first end counts.
    pub fn finish(&self, outcome: Option<Outcome>) {
        let mut state = self.lock();
        if state.is_finished {
            return;
        }
        state.is_finished = true;
        state.outcome = Some(outcome);
        wake(state);
    }

    /// The next item. Cancel safe: an item leaves the queue only as it is returned.
    pub async fn next(&self) -> Next {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same as a poll function, for a body that is a stream.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.lock();
        if let Some(item) = state.items.pop_front() {
            if state.form == OutcomeForm::Open {
                state.form = OutcomeForm::Event;
            }
            let text = match item {
                Item::Note(text) | Item::Log(text) => {
                    state.note_bytes -= text.len();
                    text
                }
                Item::Question(text) => text,
                Item::Release => return Poll::Ready(Next::Release),
            };
            return Poll::Ready(Next::Message(text));
        }
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(Next::End(outcome));
        }
        if state.is_finished {
            return Poll::Ready(Next::End(None));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// How many bytes wait, once the end has come; takes nothing out.
    pub fn poll_finished(&self, context: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.lock();
        if !state.is_finished {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let outcome = state.outcome.iter().flatten().map(Outcome::answer_bytes).sum::<usize>();
        Poll::Ready(state.items.iter().map(Item::len).sum::<usize>() + outcome)
    }

    /// Drops all that waits.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.items = VecDeque::new();
        state.note_bytes = 0;
        // Kept as an end without an answer.
        state.outcome = state.outcome.take().map(|_| None);
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Item {
    fn len(&self) -> usize {
        match self {
            Self::Note(text) | Self::Log(text) | Self::Question(text) => text.len(),
            Self::Release => 0,
        }
    }
}

impl OutboxState {
    /// Drops the oldest log line, or the oldest note when there is none. False if neither is there.
    fn make_room(&mut self) -> bool {
        let log = self.items.iter().position(|item| matches!(item, Item::Log(_)));
        let note = || self.items.iter().position(|item| matches!(item, Item::Note(_)));
        let Some(place) = log.or_else(note) else { return false };
        if let Some(Item::Note(text) | Item::Log(text)) = self.items.remove(place) {
            self.note_bytes -= text.len();
        }
        true
    }
}

fn wake(mut state: MutexGuard<'_, OutboxState>) {
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn text(text: &'static str) -> Text {
        Bytes::from_static(text.as_bytes()).into()
    }

    async fn all(outbox: &Outbox) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match outbox.next().await {
                Next::Message(text) => {
                    all.push(String::from_utf8(text.to_bytes().to_vec()).unwrap());
                }
                Next::Release => all.push("release".to_owned()),
                Next::End(outcome) => {
                    all.push(format!("end {}", outcome.is_some()));
                    return all;
                }
            }
        }
    }

    #[tokio::test]
    async fn the_outcome_is_last_and_nothing_follows_it() {
        let outbox = Outbox::default();
        outbox.push(Item::Note(text("a")));
        outbox.push(Item::Question(text("b")));
        outbox.finish(Some(Outcome::Answer(text("c"), None, None)));
        outbox.push(Item::Note(text("late")));
        outbox.finish(None);
        assert_eq!(all(&outbox).await, ["a", "b", "end true"]);
    }

    #[tokio::test]
    async fn what_comes_first_decides_how_the_outcome_goes_out() {
        // Before the outcome is known, and once it is.
        let check = |prepare: &dyn Fn(&Outbox), is_event: bool| {
            let outbox = Outbox::default();
            prepare(&outbox);
            assert_eq!(outbox.settle() == OutcomeForm::Event, is_event);
            assert_eq!(outbox.begin_events(), is_event, "it is settled");
        };
        let note = |outbox: &Outbox| outbox.push(Item::Note(text("a")));
        check(&|_| {}, false);
        check(&note, true);
        check(&|outbox| assert!(outbox.begin_events()), true);
        check(&|outbox| (outbox.take_whole(), note(outbox)).1, false);
        let outbox = Outbox::default();
        note(&outbox);
        outbox.next().await;
        assert_eq!(outbox.settle(), OutcomeForm::Event, "the note was taken");
        outbox.share_stream();
        assert_eq!(outbox.settle(), OutcomeForm::Shared);
    }

    #[tokio::test]
    async fn a_slow_client_loses_logs_first_then_old_notes_and_never_a_question() {
        let outbox = Outbox::default();
        outbox.push(Item::Note(text("old")));
        outbox.push(Item::Question(text("question")));
        outbox.push(Item::Log(text("log")));
        for _ in 0..MAX_NOTES {
            outbox.push(Item::Note(text("note")));
        }
        outbox.finish(None);
        let all = all(&outbox).await;
        assert_eq!(all.len(), MAX_NOTES + 1);
        assert_eq!(&all[..2], ["question", "note"]);
        assert_eq!(outbox.lock().note_bytes, 0);
    }
}
