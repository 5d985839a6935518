//! A stream toward a client: an outbox whose messages are numbered and can be heard again.
//!
//! A legacy client whose connection broke asks for what came after the last event it saw. So what
//! was sent stays here for a while, bounded, and the next connection goes on from there. An answer
//! that nobody is there to hear waits in the outbox, and counts as kept, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use pontoon_wire::Text;
use pontoon_wire::framing::events::Replay;

use super::memory::{Forget, Memory};
use crate::call::Outcome;
use crate::clock::now;
use crate::outbox::{Next, Outbox};

/// What a stream keeps for a connection that comes back.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Up to this size a message is copied to be kept: it may be a slice of something much larger.
const MAX_COPY: usize = 4096;

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// Its number in the session.
    pub number: u64,
    /// The id of the request it answers; empty for the session's own stream.
    pub request_id: Bytes,
    /// Where its messages come from.
    pub outbox: Arc<Outbox>,
    /// Where it counts what it keeps; without any it keeps nothing.
    memories: Vec<Arc<Memory>>,
    sent: Mutex<Sent>,
}

#[derive(Debug)]
struct Sent {
    replay: Replay,
    /// What waits in the outbox, in bytes, when it has ended and nobody hears it.
    waiting: usize,
    /// What was counted as kept.
    counted: usize,
    /// Each connection has a number; only the newest is served.
    connection: u64,
    /// Whether the newest is there.
    is_heard: bool,
    is_over: bool,
    /// Its answer was forgotten before anybody heard it.
    is_lost: bool,
}

/// Something to send.
#[derive(Debug)]
pub enum Event {
    /// A message under its number.
    Message(u64, Text),
    /// Nothing comes any more.
    End,
}

/// The messages after this number are not kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the events after this one are no longer kept")]
pub struct TooLate;

impl Stream {
    /// An empty stream, which keeps what it sends as long as these have room.
    pub fn new(number: u64, request_id: Bytes, memories: Vec<Arc<Memory>>) -> Arc<Self> {
        let replay = match memories.is_empty() {
            true => Replay::new(0, 0),
            false => Replay::new(MAX_EVENTS, MAX_BYTES),
        };
        Arc::new(Self {
            number,
            request_id,
            outbox: Arc::default(),
            memories,
            sent: Mutex::new(Sent {
                replay,
                waiting: 0,
                counted: 0,
                connection: 0,
                is_heard: false,
                is_over: false,
                is_lost: false,
            }),
        })
    }

    /// Serves a new connection, which ends any older one. `after` is the last event it saw.
    ///
    /// # Errors
    ///
    /// [`TooLate`] when events were lost since.
    pub fn connect(self: &Arc<Self>, after: Option<u64>) -> Result<Connection, TooLate> {
        let mut sent = self.lock();
        if sent.is_lost {
            return Err(TooLate);
        }
        let again = match after {
            None => Vec::new(),
            Some(after) => {
                let missed = sent.replay.after(after).map_err(|_| TooLate)?;
                missed.map(|(number, pieces)| (number, Text::Pieces(pieces.to_vec()))).collect()
            }
        };
        sent.connection += 1;
        sent.is_heard = true;
        sent.waiting = 0;
        self.count(&mut sent);
        let number = sent.connection;
        drop(sent);
        Ok(Connection { stream: Arc::clone(self), number, again: again.into(), is_done: false })
    }

    /// Forgets what was sent, and what waits, unless somebody is hearing it just now.
    pub fn forget(&self) {
        let mut sent = self.lock();
        if sent.is_heard && !sent.is_over {
            return;
        }
        if !sent.is_over {
            sent.is_lost = true;
            sent.waiting = 0;
            self.outbox.clear();
        }
        self.forget_sent(&mut sent);
    }

    /// A message as it is kept.
    fn kept(&self, text: &Text) -> Vec<Bytes> {
        match text.len() {
            _ if self.memories.is_empty() => Vec::new(),
            0..=MAX_COPY => vec![Bytes::from(text.pieces().concat())],
            _ => text.pieces().to_vec(),
        }
    }

    /// What lets this stream forget, if it is still there.
    fn forgetting(self: &Arc<Self>) -> Forget {
        let stream = Arc::downgrade(self);
        Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                stream.forget();
            }
        })
    }

    fn forget_sent(&self, sent: &mut Sent) {
        sent.replay.forget();
        self.count(sent);
    }

    fn count(&self, sent: &mut Sent) {
        let kept = sent.replay.len_bytes() + sent.waiting;
        if kept != sent.counted {
            self.memories.iter().for_each(|memory| memory.count(sent.counted, kept));
            sent.counted = kept;
        }
    }

    /// Sees that what was just kept has room. Nothing may be locked: others may have to forget.
    fn settle(self: &Arc<Self>, is_over: bool) {
        if !self.memories.iter().all(|memory| memory.make_room()) {
            self.forget_sent(&mut self.lock());
        }
        if is_over {
            self.memories.iter().for_each(|memory| memory.end(self.forgetting(), Some(now())));
        }
    }

    /// Looks whether the answer has come while nobody hears it; else this is woken when it does.
    fn watch(self: &Arc<Self>) {
        let mut sent = self.lock();
        if self.memories.is_empty() || sent.is_heard || sent.is_over || sent.is_lost {
            return;
        }
        let waker = Waker::from(Arc::new(FinishWaker(Arc::downgrade(self))));
        let Poll::Ready(waiting) = self.outbox.poll_finished(&mut Context::from_waker(&waker))
        else {
            return;
        };
        sent.waiting = waiting;
        self.count(&mut sent);
        drop(sent);
        // It makes room for itself, and is the next to go when another one needs it.
        for memory in &self.memories {
            let _ = memory.make_room();
            memory.end(self.forgetting(), None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let counted = self.lock().counted;
        self.memories.iter().for_each(|memory| memory.count(counted, 0));
    }
}

/// Tells a stream that nobody hears that its outbox has something.
struct FinishWaker(Weak<Stream>);

impl Wake for FinishWaker {
    fn wake(self: Arc<Self>) {
        if let Some(stream) = self.0.upgrade() {
            stream.watch();
        }
    }
}

/// A connection that hears a stream.
#[derive(Debug)]
pub struct Connection {
    stream: Arc<Stream>,
    number: u64,
    again: std::collections::VecDeque<(u64, Text)>,
    is_done: bool,
}

impl Connection {
    /// The stream it hears.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The next event.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some((number, text)) = self.again.pop_front() {
            return Poll::Ready(Event::Message(number, text));
        }
        let stream = Arc::clone(&self.stream);
        // What is taken is also kept before a newer connection can ask what it missed.
        let sent = stream.lock();
        if self.is_done || sent.is_over || sent.connection != self.number {
            return Poll::Ready(Event::End);
        }
        match stream.outbox.poll_next(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(next) => Poll::Ready(self.keep(sent, next)),
        }
    }

    /// Sends something that was taken from the outbox before there was a connection.
    pub fn take(&mut self, next: Next) -> Event {
        let stream = Arc::clone(&self.stream);
        self.keep(stream.lock(), next)
    }

    fn keep(&mut self, mut sent: MutexGuard<'_, Sent>, next: Next) -> Event {
        let text = match next {
            Next::Message(text) => Some(text),
            // This connection ends; what follows waits for the next one.
            Next::Release => {
                self.is_done = true;
                return Event::End;
            }
            Next::End(outcome) => {
                sent.is_over = true;
                self.is_done = true;
                outcome.map(|outcome| outcome_text(outcome, &self.stream.request_id))
            }
        };
        let event = match text {
            Some(text) => Event::Message(sent.replay.push(self.stream.kept(&text)), text),
            None => Event::End,
        };
        self.stream.count(&mut sent);
        let is_over = sent.is_over;
        drop(sent);
        self.stream.settle(is_over);
        event
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut sent = self.stream.lock();
        if sent.connection != self.number {
            return;
        }
        sent.is_heard = false;
        drop(sent);
        self.stream.watch();
    }
}

/// The JSON-RPC answer that an outcome is.
pub fn outcome_text(outcome: Outcome, id: &Bytes) -> Text {
    match outcome {
        Outcome::Answer(text, _, _) => text,
        Outcome::Failed(error, _) => {
            Bytes::from(error.to_error().answer(&String::from_utf8_lossy(id))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::LIFE;
    use super::*;
    use crate::outbox::Item;

    async fn events(connection: &mut Connection, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        for _ in 0..count {
            match std::future::poll_fn(|context| connection.poll_event(context)).await {
                Event::Message(number, text) => {
                    found.push(format!("{number} {}", String::from_utf8_lossy(&text.to_bytes())));
                }
                Event::End => found.push("end".to_owned()),
            }
        }
        found
    }

    fn note(stream: &Stream, text: &'static str) {
        stream.outbox.push(Item::Note(Bytes::from_static(text.as_bytes()).into()));
    }

    fn finish(stream: &Stream, size: usize) {
        let answer = Outcome::Answer(Bytes::from(vec![b'x'; size]).into(), None, None);
        stream.outbox.finish(Some(answer));
    }

    fn stream(number: u64, memories: &[&Arc<Memory>]) -> Arc<Stream> {
        let memories = memories.iter().map(|memory| Arc::clone(memory)).collect();
        Stream::new(number, Bytes::from_static(b"7"), memories)
    }

    /// A stream with an answer of so many bytes, heard to its end.
    async fn heard(memories: &[&Arc<Memory>], size: usize) -> Arc<Stream> {
        let stream = stream(1, memories);
        let mut connection = stream.connect(None).unwrap();
        finish(&stream, size);
        assert_eq!(events(&mut connection, 2).await[1], "end");
        stream
    }

    /// A stream whose client was gone before its answer of so many bytes came.
    fn unheard(memories: &[&Arc<Memory>], size: usize) -> Arc<Stream> {
        let stream = stream(1, memories);
        drop(stream.connect(None).unwrap());
        finish(&stream, size);
        stream
    }

    fn is_kept(stream: &Arc<Stream>) -> bool {
        stream.connect(Some(0)).is_ok()
    }

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn a_connection_that_comes_back_goes_on_where_it_was() {
        let stream = stream(1, &[&Memory::of_session()]);
        let mut first = stream.connect(None).unwrap();
        note(&stream, "a");
        note(&stream, "b");
        assert_eq!(events(&mut first, 2).await, ["1 a", "2 b"]);
        let mut second = stream.connect(Some(1)).unwrap();
        stream.outbox.finish(Some(Outcome::Answer(Bytes::from_static(b"c").into(), None, None)));
        assert_eq!(events(&mut first, 1).await, ["end"], "the older connection ends");
        assert_eq!(events(&mut second, 3).await, ["2 b", "3 c", "end"]);
        let mut third = stream.connect(Some(2)).unwrap();
        assert_eq!(events(&mut third, 2).await, ["3 c", "end"]);
    }

    #[tokio::test]
    async fn a_session_forgets_its_oldest_ended_streams_first() {
        let (session, all) = (Memory::of_session(), Memory::of_all(usize::MAX));
        let mut streams = Vec::new();
        for _ in 0..12 {
            streams.push(heard(&[&session, &all], MIB).await);
        }
        let kept: Vec<bool> = streams.iter().map(is_kept).collect();
        assert_eq!(kept, [[false; 4], [true; 4], [true; 4]].concat());
        assert_eq!((session.used(), all.used()), (8 * MIB, 8 * MIB));
        drop(streams);
        assert_eq!((session.used(), all.used()), (0, 0));
    }

    #[tokio::test]
    async fn all_sessions_together_forget_their_oldest_ended_streams_first() {
        let all = Memory::of_all(usize::MAX);
        let mut streams = Vec::new();
        for _ in 0..40 {
            streams.push(heard(&[&Memory::of_session(), &all], 2 * MIB).await);
        }
        let kept: Vec<bool> = streams.iter().map(is_kept).collect();
        assert_eq!(kept, [vec![false; 8], vec![true; 32]].concat());
        assert_eq!(all.used(), 64 * MIB);
    }

    #[tokio::test]
    async fn where_nothing_has_ended_what_is_written_is_not_kept() {
        let session = Memory::of_session();
        let open: Vec<_> = (0..3).map(|number| stream(number, &[&session])).collect();
        for (index, stream) in open.iter().enumerate() {
            let mut connection = stream.connect(None).unwrap();
            stream.outbox.push(Item::Note(Bytes::from(vec![b'x'; 3 * MIB]).into()));
            assert_eq!(events(&mut connection, 1).await.len(), 1, "it is heard all the same");
            note(stream, "small");
            assert_eq!(events(&mut connection, 1).await, ["2 small"]);
            assert_eq!(stream.connect(Some(0)).is_ok(), index < 2);
            assert!(stream.connect(Some(1)).is_ok(), "there is room again");
        }
        assert!(session.used() < 7 * MIB);
    }

    #[tokio::test]
    async fn what_was_heard_to_its_end_is_forgotten_after_a_while() {
        let all = Memory::of_all(usize::MAX);
        let (heard, unheard) = (heard(&[&all], 10).await, unheard(&[&all], 10));
        all.sweep(now());
        assert!(is_kept(&heard));
        all.sweep(now() + LIFE);
        assert!(!is_kept(&heard));
        assert!(is_kept(&unheard), "an answer waits for its client");
    }

    #[tokio::test]
    async fn an_answer_that_nobody_hears_counts_and_waits_until_another_needs_its_room() {
        let (session, all) = (Memory::of_session(), Memory::of_all(usize::MAX));
        let first = unheard(&[&session, &all], 10 * MIB);
        assert_eq!(session.used(), 10 * MIB);
        let mut back = first.connect(Some(0)).unwrap();
        assert_eq!(session.used(), 0, "what is being heard is not kept");
        let second = unheard(&[&session, &all], 10 * MIB);
        let third = unheard(&[&session, &all], 10 * MIB);
        assert_eq!((session.used(), all.used()), (10 * MIB, 10 * MIB));
        assert_eq!(second.connect(Some(0)).err(), Some(TooLate));
        assert!(is_kept(&third));
        assert_eq!(events(&mut back, 2).await[1], "end", "nobody takes away what is being heard");
    }

    #[tokio::test]
    async fn a_client_that_leaves_again_finds_its_answer_once_more() {
        let all = Memory::of_all(usize::MAX);
        let stream = unheard(&[&all], 5);
        drop(stream.connect(Some(0)).unwrap());
        assert_eq!(all.used(), 5);
        let mut back = stream.connect(Some(0)).unwrap();
        assert_eq!(events(&mut back, 2).await, ["1 xxxxx", "end"]);
    }

    #[tokio::test]
    async fn a_stream_that_cannot_be_taken_up_keeps_nothing() {
        let stream = heard(&[], 10).await;
        assert_eq!(stream.lock().replay.len_bytes(), 0);
    }

    #[tokio::test]
    async fn a_small_message_does_not_keep_a_large_buffer() {
        let stream = stream(1, &[&Memory::of_all(usize::MAX)]);
        let mut connection = stream.connect(None).unwrap();
        let large = Bytes::from(vec![b'x'; MIB]);
        stream.outbox.push(Item::Note(large.slice(..5).into()));
        events(&mut connection, 1).await;
        assert!(large.is_unique());
    }
}
