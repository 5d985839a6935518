//! One stream to a client, on which all its answers go out: of the older HTTP transport, or standard output.
//!
//! Each call keeps its own bounded outbox, and the stream takes from them in turn. So a client that
//! reads slowly costs no more than its calls, whose number is limited.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pontoon_wire::Text;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::call::CallError;
use crate::outbox::{Next, Outbox};
use crate::session::legacy::Session;
use crate::session::stream::outcome_text;

/// Answers that a client has not taken yet.
const MAX_CALLS: usize = 256;

/// Refusals beside them. They are ready at once, so they pile up only before a client that does not read.
const MAX_REFUSALS: usize = 64;

/// All answers of a client on one stream.
#[derive(Debug, Default)]
pub struct AnswerStream {
    state: Mutex<AnswerState>,
}

#[derive(Debug, Default)]
struct AnswerState {
    session: Option<Arc<Session>>,
    calls: VecDeque<OwedAnswer>,
    /// What goes out before everything else, and what is told when it is written.
    urgent: VecDeque<(Text, oneshot::Sender<()>)>,
    /// What is told once that which was taken last is written.
    on_the_way: Vec<oneshot::Sender<()>>,
    /// Nothing new is put on it; it ends with the last answer.
    is_ending: bool,
    /// What went out last belonged to no call, so a call is next.
    was_fed: bool,
    /// The client has hung up.
    is_closed: bool,
    waker: Option<Waker>,
}

/// A call whose answer is still to be sent.
#[derive(Debug)]
struct OwedAnswer {
    request_id: Bytes,
    outbox: Arc<Outbox>,
    /// Cancels it, where the stream is all that knows of it.
    cancel: Option<CancellationToken>,
}

impl AnswerStream {
    /// The session that was opened on it.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.lock().session.clone()
    }

    /// Makes `session` the stream's own. False if it has one, or the client has hung up.
    pub fn welcome(&self, session: &Arc<Session>) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.session.is_some() {
            return false;
        }
        // While the stream is open the session cannot go stale.
        session.is_fed.store(true, Ordering::Release);
        state.session = Some(Arc::clone(session));
        wake(state);
        true
    }

    /// Where the answer to a request goes. With `cancel` it can be cancelled by its id, and is with the stream.
    ///
    /// # Errors
    ///
    /// [`CallError`] when too many answers wait for the client, or the stream is about to end.
    pub fn begin(
        &self,
        request_id: Bytes,
        cancel: Option<&CancellationToken>,
    ) -> Result<Arc<Outbox>, CallError> {
        let state = self.lock();
        if state.is_closed || state.is_ending {
            return Err(CallError::Stopping);
        }
        if state.calls.len() >= MAX_CALLS {
            let what = format!("{MAX_CALLS} answers wait on this stream: read them");
            return Err(CallError::Busy { what, retry_after_seconds: 1 });
        }
        Ok(owe(state, request_id, cancel))
    }

    /// Where an answer goes that is known at once, whatever else is owed.
    pub fn begin_known(&self, request_id: Bytes) -> Arc<Outbox> {
        owe(self.lock(), request_id, None)
    }

    /// Sends this before everything else. What comes back fires when it is written, and fails if it cannot be.
    pub fn send_first(&self, text: Text) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if !state.is_closed {
            state.urgent.push_back((text, sender));
            wake(state);
        }
        receiver
    }

    /// Says that all that was taken is written.
    pub fn note_written(&self) {
        let on_the_way = std::mem::take(&mut self.lock().on_the_way);
        for sender in on_the_way {
            // One that was given up meanwhile wants to hear nothing.
            let _ = sender.send(());
        }
    }

    /// Cancels the call that the client gave this id, the newest if it gave it to several.
    pub fn cancel(&self, id: &[u8]) {
        let state = self.lock();
        let call = state.calls.iter().rev().find(|call| call.request_id == id);
        call.and_then(|call| call.cancel.as_ref()).into_iter().for_each(CancellationToken::cancel);
    }

    /// Lets it end with the answers that are under way.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_ending = true;
        wake(state);
    }

    /// Closes it, and gives the session that ends with it.
    pub fn close(&self) -> Option<Arc<Session>> {
        let mut state = self.lock();
        state.is_closed = true;
        state.urgent.clear();
        state.on_the_way.clear();
        let calls = std::mem::take(&mut state.calls);
        calls.iter().filter_map(|call| call.cancel.as_ref()).for_each(CancellationToken::cancel);
        state.session.take()
    }

    /// The next message, `None` at the end.
    pub fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Text>> {
        let mut state = self.lock();
        if let Some((text, sender)) = state.urgent.pop_front() {
            state.on_the_way.push(sender);
            return Poll::Ready(Some(text));
        }
        // In turns, so that neither keeps the other waiting.
        let next = match state.was_fed {
            true => state.poll_calls(context).or_else(|| state.poll_feed(context)),
            false => state.poll_feed(context).or_else(|| state.poll_calls(context)),
        };
        if next.is_some() {
            return Poll::Ready(next);
        }
        if state.is_ending && state.calls.is_empty() {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Says that the task which takes the messages is awake, and will look here before it sleeps: until then it need not be
    /// woken.
    pub fn stay_awake(&self) {
        self.lock().waker = None;
    }

    /// Whether another answer may be owed, were it a refusal.
    pub fn has_room(&self) -> bool {
        self.lock().calls.len() < MAX_CALLS + MAX_REFUSALS
    }

    /// Whether nothing was ever put on it.
    pub fn is_unused(&self) -> bool {
        let state = self.lock();
        state.session.is_none() && state.calls.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerState {
    /// What belongs to no call.
    fn poll_feed(&mut self, context: &mut Context<'_>) -> Option<Text> {
        let session = self.session.clone()?;
        match poll_outbox(&session.feed.outbox, context) {
            Poll::Ready(Next::Message(text)) => {
                self.was_fed = true;
                return Some(text);
            }
            // The session has ended, so the stream does, too.
            Poll::Ready(_) => self.is_ending = true,
            Poll::Pending => {}
        }
        None
    }

    /// What belongs to a call, each in its turn.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Option<Text> {
        for _ in 0..self.calls.len() {
            let call = self.calls.pop_front()?;
            let text = match poll_outbox(&call.outbox, context) {
                Poll::Ready(Next::End(Some(outcome))) => outcome_text(outcome, &call.request_id),
                // It was cancelled, and gets no answer.
                Poll::Ready(Next::End(None) | Next::Release) => continue,
                Poll::Ready(Next::Message(text)) => {
                    self.calls.push_back(call);
                    text
                }
                Poll::Pending => {
                    self.calls.push_back(call);
                    continue;
                }
            };
            self.was_fed = false;
            return Some(text);
        }
        None
    }
}

/// The next thing in an outbox. This client cannot hang up and come back, so it is never let go.
fn poll_outbox(outbox: &Outbox, context: &mut Context<'_>) -> Poll<Next> {
    loop {
        match outbox.poll_next(context) {
            Poll::Ready(Next::Release) => {}
            polled => return polled,
        }
    }
}

/// One more answer is owed.
fn owe(
    mut state: MutexGuard<'_, AnswerState>,
    request_id: Bytes,
    cancel: Option<&CancellationToken>,
) -> Arc<Outbox> {
    let outbox = Arc::<Outbox>::default();
    outbox.share_stream();
    let cancel = cancel.cloned();
    state.calls.push_back(OwedAnswer { request_id, outbox: Arc::clone(&outbox), cancel });
    wake(state);
    outbox
}

fn wake(mut state: MutexGuard<'_, AnswerState>) {
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Item;

    fn taken(answers: &AnswerStream) -> String {
        let mut context = Context::from_waker(Waker::noop());
        match answers.poll_message(&mut context) {
            Poll::Ready(Some(text)) => String::from_utf8_lossy(&text.to_bytes()).into_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_is_sent_first_is_told_when_it_is_written_and_not_before() {
        let answers = AnswerStream::default();
        let outbox = answers.begin(Bytes::from_static(b"1"), None).unwrap();
        outbox.push(Item::Note(Bytes::from_static(b"note").into()));
        let mut written = answers.send_first(Bytes::from_static(b"first").into());
        answers.note_written();
        assert!(written.try_recv().is_err(), "it was not taken yet");
        assert_eq!(taken(&answers), "first");
        assert!(written.try_recv().is_err(), "it was not written yet");
        answers.note_written();
        assert!(written.try_recv().is_ok());
        assert_eq!(taken(&answers), "note");
        let mut lost = answers.send_first(Bytes::from_static(b"lost").into());
        assert_eq!(taken(&answers), "lost");
        answers.close();
        answers.note_written();
        assert!(lost.try_recv().is_err(), "the client hung up");
        assert!(answers.send_first(Bytes::new().into()).try_recv().is_err());
    }
}
