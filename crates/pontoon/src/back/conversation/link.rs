//! A link drives one conversation with one server over its input and output.
//!
//! [`Link::ask`] sends a request and gives a [`PendingRequest`], which hears everything that belongs to it;
//! dropped early, it cancels the request. The caller of `ask` writes at once if the pipe has room; the rest
//! is done by one task, in `reader`. What messages mean is decided by [`pontoon_wire::Peer`].

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::heal::{Heal, HealModes};
use pontoon_wire::peer::OurId;
use pontoon_wire::{Era, Message, Rewrite, Slot, Text, method};
use tracing::{Instrument, Span};

use super::carrier::Carrier;
use super::mailbox::{Mailbox, ServerEvent};
use super::reader::LinkReader;
use super::requests::own_request_with;
use super::state::{Asker, AwaitedAnswer, Listener, SharedLink};
use super::websocket::SocketEnd;
use crate::back::shown_tools::ShownTools;
use crate::held_bytes::HeldBytes;
use crate::observe::heals::HealLog;
use crate::observe::messages::MessageRing;

pub(crate) use super::state::GHOST;
pub use super::state::Purpose;

/// How much may wait to be written to a server that does not read, until no more calls are taken.
const MAX_CALL_BYTES: usize = 32 * 1024 * 1024;

/// How a link behaves.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Which violations are repaired.
    pub heal: HealModes,
    /// Whether the server is written to in `Content-Length` frames from the start.
    pub writes_frames: bool,
    /// The longest message taken from the server.
    pub max_message: usize,
    /// Where long messages of the server are counted.
    pub held: Arc<HeldBytes>,
    /// Whether everything asked here comes from one client, so that a question of the server may go
    /// to any of its calls.
    pub one_client: bool,
    /// Where heals are counted.
    pub heals: Arc<HealLog>,
    /// Where its messages are noted, if they are.
    pub messages: Option<Arc<MessageRing>>,
    /// What the log says of this conversation belongs here.
    pub span: Span,
}

/// One conversation with one server.
#[derive(Debug, Clone)]
pub struct Link {
    shared: Arc<SharedLink>,
}

impl Link {
    /// Begins a conversation. The returned link is the only thing that keeps the input open.
    pub(crate) fn start(carrier: Carrier, options: &LinkOptions) -> Self {
        let round_trip = carrier.round_trip();
        let (input, output) = carrier.split();
        let (heal, one_client) = (options.heal, options.one_client);
        let mut shared = SharedLink::new(input, heal, one_client, Arc::clone(&options.heals));
        shared.record(options.messages.clone());
        shared.lock().writes_frames = options.writes_frames;
        shared.round_trip = round_trip;
        let shared = Arc::new(shared);
        let hold = options.held.hold(None);
        let reader = LinkReader::new(Arc::clone(&shared), output, options.max_message, hold);
        tokio::spawn(reader.run().instrument(options.span.clone()));
        Self { shared }
    }

    /// Sends a request. A server that is gone is heard of as [`ServerEvent::Gone`].
    pub fn ask(
        &self,
        request: Rewrite,
        deadline: Option<Instant>,
        purpose: Purpose,
    ) -> PendingRequest {
        let mailbox = Arc::new(Mailbox::default());
        let mut state = self.shared.lock();
        if state.is_gone {
            mailbox.push(ServerEvent::Unsent);
            return PendingRequest::over(self, mailbox);
        }
        if state.outgoing_bytes > MAX_CALL_BYTES {
            mailbox.push(ServerEvent::Clogged);
            return PendingRequest::over(self, mailbox);
        }
        state.has_served |= purpose == Purpose::Call;
        let begins_at = state.written + state.outgoing_bytes as u64;
        let awaited = AwaitedAnswer {
            mailbox: Arc::clone(&mailbox),
            purpose,
            begins_at,
            is_passed_on: false,
        };
        let id = state.peer.request(request, deadline, awaited);
        state.write();
        if state.input.is_none() {
            // The pipe broke, so at least the end of this request was never read.
            state.peer.cancel(id, "never sent");
            mailbox.push(ServerEvent::Unsent);
            return PendingRequest::over(self, mailbox);
        }
        self.shared.flush(state);
        PendingRequest { link: self.clone(), id: Some(id), mailbox, notes: 0 }
    }

    /// Sends a request whose answer changes nothing.
    pub(crate) fn ask_and_forget(&self, asked_for: &str, params: &str) {
        let request = Rewrite::new(own_request_with(asked_for, params));
        let mut asked = self.ask(request, None, Purpose::Listen);
        let (weak, is_level) = (self.weak(), asked_for == method::SET_LEVEL);
        tokio::spawn(async move {
            loop {
                match asked.next_event().await {
                    ServerEvent::Answer(answer) if is_level => {
                        let link = weak.upgrade();
                        return link.iter().for_each(|it| it.note_unknown(&answer));
                    }
                    event if event.is_end() => return,
                    _ => {}
                }
            }
        });
    }

    /// Notes that the server does not know what clients ask for as a matter of course, if this answer says so (H24).
    pub(crate) fn note_unknown(&self, answer: &Message) {
        if answer.raw(Slot::ErrorCode) == Some(b"-32601") {
            self.shared.heals.note(Heal::H24);
        }
    }

    /// Sends a notification, or the answer to a question. Dropped if the server reads nothing.
    pub fn say(&self, message: impl Into<Text>) {
        let mut state = self.shared.lock();
        state.say(message.into());
        self.shared.flush(state);
    }

    /// Whether everything asked here comes from one client.
    pub fn is_of_one_client(&self) -> bool {
        self.shared.is_of_one_client()
    }

    /// Says that another client asks here, too, from now on.
    pub(crate) fn share(&self) {
        self.shared.share();
    }

    /// Says that one client is left of those that asked here, and has been alone for [`GHOST`].
    pub(crate) fn unshare(&self) {
        self.shared.unshare();
    }

    /// Says that the other side is a bridge that says when it passes a call on.
    pub(crate) fn expect_passing_on(&self) {
        self.shared.lock().tells_passing_on = true;
    }

    /// Calls `listener` for what belongs to no request, until the guard is dropped.
    pub fn listen(&self, listener: Listener) -> Listening {
        let mut state = self.shared.lock();
        let id = state.add_listener(listener);
        drop(state);
        Listening { link: self.clone(), id }
    }

    /// Calls `asker` for questions that belong to no call.
    pub fn ask_through(&self, asker: Asker) {
        self.shared.lock().asker = Some(asker);
    }

    /// Lets questions that belong to no call wait for the next one, if a client with these
    /// capabilities can answer them.
    pub fn hold_for(&self, capabilities: Bytes, era: Era) {
        self.shared.lock().audience = Some((capabilities, era));
    }

    /// Lets these questions wait for the next call.
    pub fn hold(&self, questions: &[Message]) {
        let mut state = self.shared.lock();
        questions.iter().for_each(|question| self.shared.hold_or_refuse(&mut state, question));
        self.shared.flush(state);
    }

    /// Whether questions wait for the next call.
    pub fn has_held(&self) -> bool {
        !self.shared.lock().held.is_empty()
    }

    /// The questions that waited for the next call.
    pub fn take_held(&self) -> Vec<Message> {
        std::mem::take(&mut self.shared.lock().held)
    }

    /// This link, without keeping it.
    pub fn weak(&self) -> WeakLink {
        WeakLink { shared: Arc::downgrade(&self.shared) }
    }

    /// Closes the server's input, which asks it to exit.
    pub fn close_input(&self) {
        let mut state = self.shared.lock();
        (state.input, state.is_closed_here) = (None, true);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Whether the server said that one of its lists changed.
    pub fn lists_changed(&self) -> bool {
        self.shared.lock().lists_changed
    }

    /// The tools that the server listed itself, if it did.
    pub(crate) fn own_tools(&self) -> Option<Arc<ShownTools>> {
        self.shared.lock().own_tools.clone()
    }

    /// Notes a page of the tools that the server listed itself; the first one begins anew.
    pub(crate) fn note_own_tools(&self, shown: ShownTools, is_first: bool) {
        let mut state = self.shared.lock();
        let own = state.own_tools.get_or_insert_default();
        match is_first {
            true => *own = Arc::new(shown),
            false => Arc::make_mut(own).extend(shown),
        }
    }

    /// Whether the server has closed its output, or its input broke.
    pub fn is_gone(&self) -> bool {
        self.shared.gone.is_cancelled() || self.shared.lock().input.is_none()
    }

    /// How the connection ended that carried it, if it was a WebSocket and has ended.
    pub(crate) fn end(&self) -> Option<SocketEnd> {
        self.shared.lock().end.clone()
    }

    /// How long the other side took to answer a ping, if it carries any and did.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.shared.round_trip.as_ref().and_then(|time| time.last())
    }

    /// How the first thing begins that it said and that was no message, if there was one.
    pub(crate) fn noise(&self) -> Option<String> {
        self.shared.lock().noise.clone()
    }

    /// Keeps the last answer as the server wrote it, for one who wants to know what was healed.
    pub(crate) fn keep_answers(&self) {
        self.shared.lock().keeps_answers = true;
    }

    /// The last answer as the server wrote it, if that is kept.
    pub(crate) fn last_answer(&self) -> Option<Message> {
        self.shared.lock().last_answer.clone()
    }

    /// What may have cost answers in this conversation, as the end of a sentence; empty if nothing may have.
    pub(crate) fn explanation(&self) -> String {
        let explanation = self.shared.lock().healed.explanation();
        if explanation.is_empty() { explanation } else { format!(" ({explanation})") }
    }

    /// Says by what the server tells messages apart from now on: a server that left a line unanswered may take frames.
    pub(crate) fn write_frames(&self) {
        self.shared.lock().writes_frames = true;
    }

    /// Whether the server writes `Content-Length` frames.
    pub(crate) fn has_framed(&self) -> bool {
        self.shared.lock().healed.count(Heal::H05) > 0
    }

    /// Tells the server that it is initialised.
    pub(crate) fn say_initialized(&self) {
        let mut state = self.shared.lock();
        state.peer.say_initialized();
        self.shared.flush(state);
    }

    /// Waits until the server has closed its output.
    pub async fn gone(&self) {
        self.shared.gone.cancelled().await;
    }
}

impl Link {
    /// Sees to what a call left unread: a client's answer goes to the server that waits for it, and a
    /// question waits for another call.
    fn pass_on(&self, unread: impl IntoIterator<Item = ServerEvent>) {
        for event in unread {
            match event {
                ServerEvent::Resumed(answer) => self.say(answer),
                ServerEvent::Question(question) => self.shared.handle_loose_question(&question),
                _ => {}
            }
        }
    }
}

/// A link that may be gone.
#[derive(Debug, Clone)]
pub struct WeakLink {
    shared: Weak<SharedLink>,
}

impl WeakLink {
    /// The link, if it still is there.
    pub fn upgrade(&self) -> Option<Link> {
        self.shared.upgrade().map(|shared| Link { shared })
    }
}

/// A request that was sent. Dropped before its end, it is cancelled at the server.
#[derive(Debug)]
pub struct PendingRequest {
    link: Link,
    id: Option<OurId>,
    mailbox: Arc<Mailbox>,
    /// How many notes of it were heard.
    notes: u64,
}

impl PendingRequest {
    /// One that came to nothing, as its mailbox says.
    fn over(link: &Link, mailbox: Arc<Mailbox>) -> Self {
        Self { link: link.clone(), id: None, mailbox, notes: 0 }
    }

    /// The next thing the server says about this request. Cancel safe, like the mailbox.
    pub async fn next_event(&mut self) -> ServerEvent {
        let event = self.mailbox.next().await;
        match &event {
            ServerEvent::Note(_) => self.notes += 1,
            event if event.is_end() => self.id = None,
            _ => {}
        }
        event
    }

    /// A note of progress for the client of a request of which the server says nothing. None while a note of the
    /// server is still on its way here, or if the client wants none.
    pub fn keep_alive(&self) -> Option<Text> {
        self.link.shared.lock().peer.keep_alive(self.id?, self.notes)
    }

    /// Says what the request is for from now on.
    pub fn set_purpose(&self, purpose: Purpose) {
        let Some(id) = self.id else { return };
        if let Some(awaited) = self.link.shared.lock().peer.waiting(id) {
            awaited.purpose = purpose;
        }
    }

    /// Puts an event back, to hear it again next.
    pub fn put_back(&self, event: ServerEvent) {
        self.mailbox.put_back(event);
    }

    /// Where the server's messages arrive, for a question that is answered later.
    pub fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.mailbox)
    }

    /// Moves the deadline; `None` stops the clock.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        let Some(id) = self.id else { return };
        let mut state = self.link.shared.lock();
        state.peer.set_deadline(id, deadline);
        self.link.shared.flush(state);
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let unread = self.mailbox.close();
        if !unread.is_empty() {
            self.link.pass_on(unread);
        }
        if let Some(id) = self.id {
            let mut state = self.link.shared.lock();
            // A subscription that is given up leaves nothing at work.
            let haunts = state.peer.waiting(id).is_some_and(|it| it.purpose != Purpose::Listen);
            state.peer.cancel(id, "the client no longer wants the answer");
            if haunts {
                state.haunt();
            }
            self.link.shared.flush(state);
        }
    }
}

/// A listener that is registered until this is dropped.
#[derive(Debug)]
pub struct Listening {
    link: Link,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.link.shared.lock().listeners.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests;
