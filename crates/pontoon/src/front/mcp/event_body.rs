//! A stream of events as a response body: encoded, numbered, and kept alive while it is silent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::framing::events;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ids::EventIds;
use crate::session::stream::{Connection, Event};

/// A silent stream says this often that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client that hung up waits before it comes back.
const RETRY_MS: u64 = 500;

/// A stream of events.
pub struct EventBody {
    connection: Connection,
    /// Bytes that are encoded and not yet sent.
    ready: std::collections::VecDeque<Bytes>,
    /// The ids that events carry, so that the client can come back.
    ids: Option<EventIds>,
    alive: Pin<Box<Sleep>>,
    is_over: bool,
    /// Cancels the call when the client goes away, where the era says so.
    _cancel: Option<DropGuard>,
    /// Told when the stream ends, however it ends.
    _on_end: Option<OnEnd>,
}

/// Runs when it is dropped.
pub struct OnEnd(pub Box<dyn FnMut() + Send>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// How a stream of events behaves.
pub struct EventOptions {
    /// The ids that events carry, if any.
    pub ids: Option<EventIds>,
    /// Whether it begins with an empty event that carries an id, for clients that know what it means.
    pub is_primed: bool,
    /// Cancelled when the client goes away.
    pub cancel: Option<CancellationToken>,
    /// Runs when the stream ends.
    pub on_end: Option<OnEnd>,
}

impl EventBody {
    /// The events of a connection, beginning with one that was already taken.
    pub fn new(connection: Connection, first: Option<Event>, options: EventOptions) -> Self {
        let mut body = Self {
            connection,
            ready: Default::default(),
            ids: options.ids,
            alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            is_over: false,
            _cancel: options.cancel.map(CancellationToken::drop_guard),
            _on_end: options.on_end,
        };
        if let (true, Some(id)) = (options.is_primed, body.id_of(0)) {
            body.ready.push_back(events::priming(&id, Some(RETRY_MS)));
        }
        first.into_iter().for_each(|first| body.encode(first));
        body
    }

    /// The id of the event with this number.
    fn id_of(&self, number: u64) -> Option<String> {
        self.ids.as_ref().map(|ids| ids.of(self.connection.stream().number, number))
    }

    fn encode(&mut self, event: Event) {
        match event {
            Event::Message(number, text) => {
                let id = self.id_of(number);
                self.ready.extend(events::event(id.as_deref(), None, text.pieces()));
            }
            Event::End => self.is_over = true,
        }
    }

    /// Whether all was sent.
    pub fn is_over(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    /// The next bytes.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.connection.poll_event(context) {
                Poll::Ready(event) => {
                    self.encode(event);
                    self.alive.as_mut().reset(tokio::time::Instant::now() + KEEP_ALIVE);
                }
                Poll::Pending => {
                    if self.alive.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.alive.as_mut().reset(tokio::time::Instant::now() + KEEP_ALIVE);
                    self.ready.push_back(Bytes::from_static(events::KEEP_ALIVE));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use pontoon_wire::Text;
    use tokio::time::Instant;

    use super::*;
    use crate::call::Outcome;
    use crate::ids::Ids;
    use crate::outbox::Item;
    use crate::session::memory::Memory;
    use crate::session::stream::Stream;

    fn text(text: &'static str) -> Text {
        Bytes::from_static(text.as_bytes()).into()
    }

    fn body(stream: &Arc<Stream>, options: EventOptions) -> EventBody {
        EventBody::new(stream.connect(None).unwrap(), None, options)
    }

    fn plain() -> EventOptions {
        EventOptions { ids: None, is_primed: false, cancel: None, on_end: None }
    }

    fn stream() -> Arc<Stream> {
        Stream::new(3, Bytes::from_static(b"7"), vec![Memory::of_session()])
    }

    /// The next bytes, as far as they are there.
    async fn next(body: &mut EventBody) -> Option<String> {
        let bytes = poll_fn(|context| body.poll(context)).await?;
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_every_15_seconds_counted_from_what_was_said_last() {
        let stream = stream();
        let mut body = body(&stream, plain());
        let began = Instant::now();
        let comment = Some(": keep-alive\n\n".to_owned());
        assert_eq!(next(&mut body).await, comment);
        assert_eq!(began.elapsed().as_secs(), 15);
        tokio::time::advance(Duration::from_secs(10)).await;
        stream.outbox.push(Item::Note(text("{}")));
        let mut event = String::new();
        while !event.ends_with("\n\n") {
            event += &next(&mut body).await.unwrap();
        }
        assert_eq!((event.as_str(), began.elapsed().as_secs()), ("data: {}\n\n", 25));
        assert_eq!(next(&mut body).await, comment);
        assert_eq!(began.elapsed().as_secs(), 40);
        stream.outbox.finish(None);
        assert_eq!(next(&mut body).await, None);
        assert!(body.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn events_have_ids_of_their_session_and_the_first_may_be_empty() {
        let stream = stream();
        let ids = Arc::new(Ids::new(b"secret", "here", std::time::UNIX_EPOCH));
        let ids = EventIds { ids, session: "session".into() };
        let options = EventOptions { ids: Some(ids.clone()), is_primed: true, ..plain() };
        let mut body = body(&stream, options);
        stream.outbox.finish(Some(Outcome::Answer(text("{}"), None, None)));
        let mut all = String::new();
        while let Some(more) = next(&mut body).await {
            all += &more;
        }
        let [first, second] = [0, 1].map(|number| ids.of(3, number));
        assert_eq!(all, format!("id: {first}\nretry: 500\ndata: \n\nid: {second}\ndata: {{}}\n\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_dropped_cancels_its_call_and_tells_that_it_ended() {
        let (cancel, ended) = (CancellationToken::new(), CancellationToken::new());
        let told = ended.clone();
        let on_end = OnEnd(Box::new(move || told.cancel()));
        let options =
            EventOptions { cancel: Some(cancel.clone()), on_end: Some(on_end), ..plain() };
        let body = body(&stream(), options);
        assert!(!cancel.is_cancelled() && !ended.is_cancelled());
        drop(body);
        assert!(cancel.is_cancelled() && ended.is_cancelled());
    }
}
