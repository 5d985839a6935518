//! What a link and its task share: the peer, what waits to be written, and those who hear what belongs to no request.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use pontoon_wire::heal::{HealModes, Heals};
use pontoon_wire::{Era, Message, Peer, Text};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::carrier::FrameInput;
use super::mailbox::{Mailbox, ServerEvent};
use super::websocket::{RoundTrip, SocketEnd};
use crate::back::shown_tools::ShownTools;
use crate::clock::now;
use crate::observe::heals::HealLog;
use crate::observe::messages::MessageRing;

/// How much of what is no call may wait to be written to a server that does not read.
const MAX_OTHER_BYTES: usize = 1024 * 1024;

/// A call that was cancelled may still be at work in the server for a while. So long nothing that
/// the server says can be taken for another call's, on a child that several clients share.
pub(crate) const GHOST: Duration = Duration::from_secs(10);

/// The code of a WebSocket that was closed because a message was too long.
const TOO_LONG: u16 = 1009;

/// What a link and its task share.
#[derive(Debug)]
pub(crate) struct SharedLink {
    state: Mutex<LinkState>,
    /// Tells the task that there is something to write, an earlier deadline, or nothing more to say.
    pub(crate) wake: Notify,
    pub(crate) gone: CancellationToken,
    one_client: AtomicBool,
    pub(crate) heals: Arc<HealLog>,
    /// How long pings take, where there are any.
    pub(crate) round_trip: Option<Arc<RoundTrip>>,
}

pub(crate) struct LinkState {
    pub(crate) peer: Peer<AwaitedAnswer>,
    pub(crate) outgoing: VecDeque<Bytes>,
    /// Whole messages for the task to send, where it alone can.
    pub(crate) messages: VecDeque<Bytes>,
    pub(crate) outgoing_bytes: usize,
    /// How many bytes were taken from us.
    pub(crate) written: u64,
    /// Where the longest message begins that was sent as a whole, and its length.
    longest: (u64, usize),
    /// Until when a cancelled call may still be at work.
    ghost_until: Option<Instant>,
    /// Whether one ever was.
    has_ghosts: bool,
    /// Until when what the server logs may still be about a call that was answered.
    answered_until: Option<Instant>,
    pub(crate) input: Option<Arc<FrameInput>>,
    pub(crate) listeners: Vec<(u64, Listener)>,
    next_listener: u64,
    pub(crate) asker: Option<Asker>,
    /// The client that will be asked with the next call, if there is one: capabilities and era.
    pub(crate) audience: Option<(Bytes, Era)>,
    /// Questions for then.
    pub(crate) held: Vec<Message>,
    /// Whether a call was ever made.
    pub(crate) has_served: bool,
    /// When the task will look at the deadlines next.
    pub(crate) armed: Option<Instant>,
    pub(crate) lists_changed: bool,
    /// The tools that it listed itself.
    pub(crate) own_tools: Option<Arc<ShownTools>>,
    pub(crate) is_gone: bool,
    /// The other side is a bridge, which says when it passes a call on.
    pub(crate) tells_passing_on: bool,
    /// We have closed the input: the other side may still do what it was asked.
    pub(crate) is_closed_here: bool,
    /// The other side has ended by itself, and all it said was heard.
    pub(crate) is_ended_there: bool,
    /// How what it said first begins that was no message.
    pub(crate) noise: Option<String>,
    /// Whether the server is written to in `Content-Length` frames.
    pub(crate) writes_frames: bool,
    /// What was healed in this conversation.
    pub(crate) healed: Heals,
    /// How a WebSocket ended.
    pub(crate) end: Option<SocketEnd>,
    /// Whether the last answer is kept as the server wrote it.
    pub(crate) keeps_answers: bool,
    pub(crate) last_answer: Option<Message>,
    /// Where messages are noted, if they are.
    messages_noted: Option<Arc<MessageRing>>,
}

/// Hears what belongs to no request.
pub(crate) type Listener = Arc<dyn Fn(&Message) + Send + Sync>;

/// Takes a question that belongs to no call. False if no client can be asked.
pub(crate) type Asker = Arc<dyn Fn(&Message) -> bool + Send + Sync>;

/// A request whose answer is awaited.
#[derive(Debug)]
pub(crate) struct AwaitedAnswer {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) purpose: Purpose,
    /// How many bytes go to the server before the request.
    pub(crate) begins_at: u64,
    /// A bridge has said that it passes the request on.
    pub(crate) is_passed_on: bool,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A client's call.
    Call,
    /// A subscription, which stays open and asks nothing.
    Listen,
    /// Something the bridge wants to know.
    Own,
    /// A call that waits for a person, and asks nothing meanwhile.
    Parked,
}

/// What is handed over once the lock is free: those who get it may take locks themselves.
#[derive(Default)]
pub(crate) struct Handovers {
    pub(crate) list: Vec<Handover>,
}

pub(crate) enum Handover {
    /// An event of a request.
    Event(Arc<Mailbox>, ServerEvent),
    /// A question for the one call it can belong to.
    Question(Arc<Mailbox>, Message),
    /// A question for the client's session.
    LooseQuestion(Message),
    /// What belongs to no request.
    Loose(Vec<Listener>, Message),
}

impl Handovers {
    pub(crate) fn event(&mut self, mailbox: Arc<Mailbox>, event: ServerEvent) {
        self.list.push(Handover::Event(mailbox, event));
    }
}

impl SharedLink {
    /// A conversation in which nothing was said yet.
    pub(crate) fn new(
        input: FrameInput,
        heal: HealModes,
        one_client: bool,
        heals: Arc<HealLog>,
    ) -> Self {
        let mut peer = Peer::starting_at(heal, first_id());
        if !one_client {
            peer.share();
        }
        let state = LinkState {
            peer,
            outgoing: VecDeque::new(),
            messages: VecDeque::new(),
            outgoing_bytes: 0,
            written: 0,
            longest: (0, 0),
            ghost_until: None,
            has_ghosts: false,
            answered_until: None,
            input: Some(Arc::new(input)),
            listeners: Vec::new(),
            next_listener: 0,
            asker: None,
            audience: None,
            held: Vec::new(),
            has_served: false,
            armed: None,
            lists_changed: false,
            own_tools: None,
            is_gone: false,
            tells_passing_on: false,
            is_closed_here: false,
            is_ended_there: false,
            noise: None,
            writes_frames: false,
            healed: Heals::default(),
            end: None,
            keeps_answers: false,
            last_answer: None,
            messages_noted: None,
        };
        let (wake, gone) = (Notify::new(), CancellationToken::new());
        let one_client = AtomicBool::new(one_client);
        Self { state: Mutex::new(state), wake, gone, one_client, heals, round_trip: None }
    }

    /// Notes all messages there, if there is such a place.
    pub(crate) fn record(&mut self, messages: Option<Arc<MessageRing>>) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.messages_noted = messages;
    }

    /// Adds up what was healed since this was last done.
    pub(crate) fn count_heals(&self, state: &mut LinkState) {
        if state.peer.heals().is_empty() {
            return;
        }
        let counts = state.peer.heals().take();
        counts.iter().for_each(|(heal, times)| state.healed.add(*heal, *times));
        self.heals.add(&counts);
    }

    /// Whether everything asked here comes from one client.
    pub(crate) fn is_of_one_client(&self) -> bool {
        self.one_client.load(Ordering::Acquire)
    }

    /// Says that another client asks here, too, from now on: what the server says of no call could be about either.
    pub(crate) fn share(&self) {
        let mut state = self.lock();
        self.one_client.store(false, Ordering::Release);
        state.peer.share();
        (state.asker, state.audience) = (None, None);
        for question in std::mem::take(&mut state.held) {
            self.hold_or_refuse(&mut state, &question);
        }
        self.flush(state);
    }

    /// Says that one client is left of those that asked here, and that nothing is heard any more of what the others asked:
    /// unless they left a call behind that was given up, and may still be at work.
    pub(crate) fn unshare(&self) {
        let mut state = self.lock();
        if state.has_ghosts {
            return;
        }
        state.peer.unshare();
        self.one_client.store(true, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what fits into the pipe, and wakes the task for what does not.
    pub(crate) fn flush(&self, mut state: MutexGuard<'_, LinkState>) {
        state.write();
        let deadline = state.peer.poll_timeout();
        let is_earlier = deadline.is_some() && (state.armed.is_none() || state.armed > deadline);
        if !state.outgoing.is_empty() || !state.messages.is_empty() || is_earlier {
            drop(state);
            self.wake.notify_one();
        }
    }
}

impl LinkState {
    /// Adds a listener, and gives the number to remove it by.
    pub(crate) fn add_listener(&mut self, listener: Listener) -> u64 {
        self.next_listener += 1;
        self.listeners.push((self.next_listener, listener));
        self.next_listener
    }

    /// Takes note of a message of the server.
    pub(crate) fn note_heard(&self, message: &Message) {
        if let Some(messages) = &self.messages_noted {
            messages.heard(message);
        }
    }

    /// Takes note that a call was given up which may still be at work in the server.
    pub(crate) fn haunt(&mut self) {
        self.ghost_until = Some(now() + GHOST);
        self.has_ghosts = true;
    }

    /// Takes note that a call was answered: what is logged soon after may still be about it.
    pub(crate) fn note_answer(&mut self) {
        self.answered_until = Some(now() + GHOST);
    }

    /// The mailbox of the call that a log line is about, if that can only be one.
    pub(crate) fn logging_call(&mut self, one_client: bool) -> Option<Arc<Mailbox>> {
        let may_be_late = self.answered_until.is_some_and(|until| until > now());
        self.only_call(false).filter(|_| one_client || !may_be_late)
    }

    /// The mailbox of the only open call, or of the newest when they are all one client's. What
    /// could also be about a call that waits or was cancelled belongs to none.
    pub(crate) fn only_call(&mut self, one_client: bool) -> Option<Arc<Mailbox>> {
        let is_haunted = self.ghost_until.is_some_and(|until| until > now());
        let mut only: Option<Arc<Mailbox>> = None;
        for (_, awaited) in self.peer.all_waiting() {
            match awaited.purpose {
                Purpose::Listen => {}
                Purpose::Parked if one_client => {}
                Purpose::Parked => return None,
                Purpose::Call | Purpose::Own if only.is_some() && !one_client => return None,
                Purpose::Call | Purpose::Own => only = Some(Arc::clone(&awaited.mailbox)),
            }
        }
        only.filter(|_| one_client || !is_haunted)
    }

    /// Whether the server has something to do: subscriptions only wait.
    pub(crate) fn is_at_work(&mut self) -> bool {
        self.peer.all_waiting().any(|(_, awaited)| awaited.purpose != Purpose::Listen)
    }

    /// Tells all requests that the server is gone, or that it was before it could read them.
    pub(crate) fn abandon(&mut self, deliveries: &mut Handovers) {
        // Whatever is shorter than another that the server has taken was not too long.
        let is_too_long = self.end.as_ref().is_some_and(|end| end.code == Some(TOO_LONG));
        let too_long = is_too_long.then_some(self.longest.0);
        let was_passing_on = self.tells_passing_on && self.is_ended_there;
        for awaited in self.peer.close() {
            let event = match awaited.begins_at {
                begins_at if begins_at >= self.written => ServerEvent::Unsent,
                _ if was_passing_on && !awaited.is_passed_on => ServerEvent::Unsent,
                begins_at if Some(begins_at) == too_long => ServerEvent::TooLong,
                _ => ServerEvent::Gone,
            };
            deliveries.event(awaited.mailbox, event);
        }
    }

    /// A message of the server cannot be taken, which began like this. If that names a request, only this one hears
    /// so. Else whose answer it was cannot be known: all requests hear that it may be lost, and the child is replaced.
    pub(crate) fn lose(&mut self, beginning: &[u8], why: &str, deliveries: &mut Handovers) {
        let named = {
            let mut ids = self.peer.all_waiting().map(|(id, _)| id);
            ids.find(|id| names(beginning, &id.number().to_string()))
        };
        if let Some(awaited) = named.and_then(|id| self.peer.cancel(id, why)) {
            return deliveries.event(awaited.mailbox, ServerEvent::Lost(why.to_owned()));
        }
        for awaited in self.peer.close() {
            deliveries.event(awaited.mailbox, ServerEvent::Lost(why.to_owned()));
        }
        self.input = None;
    }

    /// Queues something that is no call, unless the server reads nothing.
    pub(crate) fn say(&mut self, message: Text) {
        if self.outgoing_bytes <= MAX_OTHER_BYTES {
            self.peer.say(message);
        }
    }

    /// Writes until everything is written or the pipe is full.
    pub(crate) fn write(&mut self) {
        let is_queue = self.input.as_ref().is_some_and(|input| input.is_queue());
        while let Some(text) = self.peer.poll_write() {
            if let Some(messages) = &self.messages_noted {
                messages.sent(&text);
            }
            if is_queue {
                self.outgoing_bytes += text.len() + 1;
                self.messages.push_back(text.to_bytes());
                continue;
            }
            let (before, after) = match self.writes_frames {
                true => {
                    (Bytes::from(format!("Content-Length: {}\r\n\r\n", text.len())), Bytes::new())
                }
                false => (Bytes::new(), Bytes::from_static(b"\n")),
            };
            self.outgoing_bytes += before.len() + text.len() + after.len();
            self.outgoing.extend(Some(before).filter(|before| !before.is_empty()));
            self.outgoing.extend(text.pieces().iter().cloned());
            self.outgoing.extend(Some(after).filter(|after| !after.is_empty()));
        }
        let Some(input) = &self.input else { return self.drop_outgoing() };
        while !self.outgoing.is_empty() {
            const NOTHING: &[u8] = &[];
            let mut slices = [IoSlice::new(NOTHING); 16];
            for (slice, piece) in slices.iter_mut().zip(&self.outgoing) {
                *slice = IoSlice::new(piece);
            }
            let used = self.outgoing.len().min(slices.len());
            match input.try_write(&slices[..used]) {
                Ok(written) => {
                    self.outgoing_bytes -= written;
                    self.written += written as u64;
                    advance(&mut self.outgoing, written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The server closed its input. Its output tells how it ends.
                Err(_) => {
                    self.input = None;
                    return self.drop_outgoing();
                }
            }
        }
    }

    /// The next whole message for the task to send. From now on it may have been read.
    pub(crate) fn next_message(&mut self) -> Option<Bytes> {
        let message = self.messages.pop_front()?;
        self.outgoing_bytes -= message.len() + 1;
        if message.len() > self.longest.1 {
            self.longest = (self.written, message.len());
        }
        self.written += message.len() as u64 + 1;
        Some(message)
    }

    fn drop_outgoing(&mut self) {
        self.outgoing.clear();
        self.messages.clear();
        self.outgoing_bytes = 0;
    }
}

/// Whether a text has this number in it, and not as a part of another.
fn names(text: &[u8], digits: &str) -> bool {
    let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    memchr::memmem::find_iter(text, digits)
        .any(|at| !is_digit(at + digits.len()) && (at == 0 || !is_digit(at - 1)))
}

/// An id to begin with that no client can guess, and that leaves room for every call to come.
fn first_id() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 >> 16
}

fn advance(outgoing: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = outgoing.front_mut() {
        if written < first.len() {
            return first.advance(written);
        }
        written -= first.len();
        outgoing.pop_front();
    }
}

impl std::fmt::Debug for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkState")
            .field("open", &self.peer.open_requests())
            .finish_non_exhaustive()
    }
}
