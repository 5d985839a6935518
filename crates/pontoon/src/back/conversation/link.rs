//! A link drives one conversation with one server over its input and output.
//!
//! [`Link::ask`] sends a request and gives an [`Asked`], which hears everything that belongs to it;
//! dropped early, it cancels the request. Whoever asks writes at once if the pipe has room; the rest
//! is done by one task, in `reader`. What messages mean is decided by [`pontoon_wire::Peer`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use pontoon_supervise::{ChildInput, ChildOutput};
use pontoon_wire::heal::HealMode;
use pontoon_wire::peer::OurId;
use pontoon_wire::{Era, Message, Peer, Rewrite, Text};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::mailbox::{Heard, Mailbox};
use super::reader::Reader;
use crate::held_bytes::HeldBytes;
use crate::observe::heals::HealLog;

/// How much may wait to be written to a server that does not read: calls, and everything else.
const MAX_CALL_BYTES: usize = 32 * 1024 * 1024;
const MAX_OTHER_BYTES: usize = 1024 * 1024;

/// A call that was cancelled may still be at work in the server for a while. So long nothing that
/// the server says can be taken for another call's, on a child that several clients share.
pub(crate) const GHOST: Duration = Duration::from_secs(10);

/// How a link behaves.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Which violations are repaired.
    pub heal: HealMode,
    /// The longest message taken from the server.
    pub max_message: usize,
    /// Where long messages of the server are counted.
    pub held: Arc<HeldBytes>,
    /// Whether everything asked here comes from one client, so that a question of the server may go
    /// to any of its calls.
    pub one_client: bool,
    /// Where heals are counted.
    pub heals: Arc<HealLog>,
    /// What the log says of this conversation belongs here.
    pub span: Span,
}

/// One conversation with one server.
#[derive(Debug, Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Tells the task that there is something to write, an earlier deadline, or nothing more to say.
    pub(crate) wake: Notify,
    pub(crate) gone: CancellationToken,
    pub(crate) one_client: bool,
    pub(crate) heals: Arc<HealLog>,
}

pub(crate) struct Inner {
    pub(crate) peer: Peer<Waiting>,
    pub(crate) outgoing: VecDeque<Bytes>,
    outgoing_bytes: usize,
    /// How many bytes the pipe has taken.
    written: u64,
    /// Until when a cancelled call may still be at work.
    pub(crate) ghost_until: Option<Instant>,
    pub(crate) input: Option<Arc<ChildInput>>,
    pub(crate) listeners: Vec<(u64, Listener)>,
    next_listener: u64,
    pub(crate) asker: Option<Asker>,
    /// Who will be asked with the next call, if anybody: capabilities and era.
    pub(crate) audience: Option<(Bytes, Era)>,
    /// Questions for then.
    pub(crate) held: Vec<Message>,
    /// Whether a call was ever made.
    pub(crate) has_served: bool,
    /// When the task will look at the deadlines next.
    pub(crate) armed: Option<Instant>,
    pub(crate) lists_changed: bool,
    pub(crate) is_gone: bool,
}

/// Hears what belongs to no request.
pub type Listener = Box<dyn Fn(&Message) + Send>;

/// Takes a question that belongs to no call. False if nobody can be asked.
pub type Asker = Box<dyn Fn(&Message) -> bool + Send>;

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) mailbox: Arc<Mailbox>,
    purpose: Purpose,
    /// How many bytes go to the server before the request.
    begins_at: u64,
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

/// A server says by this notification that the client of its only call may hang up and come back:
/// over stdio the protocol has no word for it.
pub const RELEASE_STREAM: &str = "notifications/pontoon/release_stream";

impl Link {
    /// Begins a conversation. The returned link is the only thing that keeps the input open.
    pub fn start(input: ChildInput, output: ChildOutput, options: &LinkOptions) -> Self {
        let inner = Inner {
            peer: Peer::starting_at(options.heal, first_id()),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            written: 0,
            ghost_until: None,
            input: Some(Arc::new(input)),
            listeners: Vec::new(),
            next_listener: 0,
            asker: None,
            audience: None,
            held: Vec::new(),
            has_served: false,
            armed: None,
            lists_changed: false,
            is_gone: false,
        };
        let shared = Arc::new(Shared {
            inner: Mutex::new(inner),
            wake: Notify::new(),
            gone: CancellationToken::new(),
            one_client: options.one_client,
            heals: Arc::clone(&options.heals),
        });
        let reading = Reader::new(Arc::clone(&shared), output, options).run();
        tokio::spawn(reading.instrument(options.span.clone()));
        Self { shared }
    }

    /// Sends a request. A server that is gone is heard of as [`Heard::Gone`].
    pub fn ask(&self, request: Rewrite, deadline: Option<Instant>, purpose: Purpose) -> Asked {
        let mailbox = Arc::new(Mailbox::default());
        let mut inner = self.shared.lock();
        if inner.is_gone {
            mailbox.push(Heard::Unsent);
            return Asked { link: self.clone(), id: None, mailbox };
        }
        if inner.outgoing_bytes > MAX_CALL_BYTES {
            mailbox.push(Heard::Clogged);
            return Asked { link: self.clone(), id: None, mailbox };
        }
        inner.has_served |= purpose == Purpose::Call;
        let begins_at = inner.written + inner.outgoing_bytes as u64;
        let waiting = Waiting { mailbox: Arc::clone(&mailbox), purpose, begins_at };
        let id = inner.peer.request(request, deadline, waiting);
        inner.write();
        if inner.input.is_none() {
            // The pipe broke, so at least the end of this request was never read.
            inner.peer.cancel(id, "never sent");
            mailbox.push(Heard::Unsent);
            return Asked { link: self.clone(), id: None, mailbox };
        }
        self.shared.flush(inner);
        Asked { link: self.clone(), id: Some(id), mailbox }
    }

    /// Sends a notification, or the answer to a question. Dropped if the server reads nothing.
    pub fn say(&self, message: impl Into<Text>) {
        let mut inner = self.shared.lock();
        inner.say(message.into());
        self.shared.flush(inner);
    }

    /// Whether everything asked here comes from one client.
    pub fn is_of_one_client(&self) -> bool {
        self.shared.one_client
    }

    /// Calls `listener` for what belongs to no request, until the guard is dropped.
    pub fn listen(&self, listener: Listener) -> Listening {
        let mut inner = self.shared.lock();
        inner.next_listener += 1;
        let id = inner.next_listener;
        inner.listeners.push((id, listener));
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
        let mut inner = self.shared.lock();
        questions.iter().for_each(|question| self.shared.hold_or_refuse(&mut inner, question));
        self.shared.flush(inner);
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
        self.shared.lock().input = None;
        self.shared.wake.notify_one();
    }

    /// Whether the server said that one of its lists changed.
    pub fn lists_changed(&self) -> bool {
        self.shared.lock().lists_changed
    }

    /// Whether the server has closed its output, or its input broke.
    pub fn is_gone(&self) -> bool {
        self.shared.gone.is_cancelled() || self.shared.lock().input.is_none()
    }

    /// Waits until the server has closed its output.
    pub async fn gone(&self) {
        self.shared.gone.cancelled().await;
    }
}

impl Link {
    /// Sees to what a call left unread: a client's answer goes to the server that waits for it, and a
    /// question waits for another call.
    fn pass_on(&self, unread: impl IntoIterator<Item = Heard>) {
        let mut inner = self.shared.lock();
        for heard in unread {
            match heard {
                Heard::Resumed(answer) => inner.say(answer),
                Heard::Question(question) => {
                    self.shared.handle_loose_question(&mut inner, &question)
                }
                _ => {}
            }
        }
        self.shared.flush(inner);
    }
}

/// A link that may be gone.
#[derive(Debug, Clone)]
pub struct WeakLink {
    shared: Weak<Shared>,
}

impl WeakLink {
    /// The link, if it still is there.
    pub fn upgrade(&self) -> Option<Link> {
        self.shared.upgrade().map(|shared| Link { shared })
    }
}

/// A request that was sent. Dropped before its end, it is cancelled at the server.
#[derive(Debug)]
pub struct Asked {
    link: Link,
    id: Option<OurId>,
    mailbox: Arc<Mailbox>,
}

impl Asked {
    /// The next thing the server says about this request. Cancel safe, like the mailbox.
    pub async fn heard(&mut self) -> Heard {
        let heard = self.mailbox.next().await;
        if heard.is_end() {
            self.id = None;
        }
        heard
    }

    /// Says what the request is for from now on.
    pub fn set_purpose(&self, purpose: Purpose) {
        let Some(id) = self.id else { return };
        if let Some(waiting) = self.link.shared.lock().peer.waiting(id) {
            waiting.purpose = purpose;
        }
    }

    /// Puts back what was heard, to hear it again next.
    pub fn put_back(&self, heard: Heard) {
        self.mailbox.put_back(heard);
    }

    /// Where the server's messages arrive, for a question that is answered later.
    pub fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.mailbox)
    }

    /// Moves the deadline; `None` stops the clock.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        let Some(id) = self.id else { return };
        let mut inner = self.link.shared.lock();
        inner.peer.set_deadline(id, deadline);
        self.link.shared.flush(inner);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let unread = self.mailbox.close();
        if !unread.is_empty() {
            self.link.pass_on(unread);
        }
        if let Some(id) = self.id {
            let mut inner = self.link.shared.lock();
            // A subscription that is given up leaves nothing at work.
            let haunts = inner.peer.waiting(id).is_some_and(|it| it.purpose != Purpose::Listen);
            inner.peer.cancel(id, "the client no longer wants the answer");
            if haunts {
                inner.ghost_until = Some(Instant::now() + GHOST);
            }
            self.link.shared.flush(inner);
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

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what fits into the pipe, and wakes the task for what does not.
    fn flush(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.write();
        let deadline = inner.peer.poll_timeout();
        let is_earlier = deadline.is_some() && (inner.armed.is_none() || inner.armed > deadline);
        if !inner.outgoing.is_empty() || is_earlier {
            drop(inner);
            self.wake.notify_one();
        }
    }
}

impl Inner {
    /// The mailbox of the only open call, or of the newest when they are all one client's. What
    /// could also be about a call that waits or was cancelled belongs to nobody.
    pub(crate) fn only_call(&mut self, one_client: bool) -> Option<Arc<Mailbox>> {
        let is_haunted = self.ghost_until.is_some_and(|until| until > Instant::now());
        let mut only: Option<Arc<Mailbox>> = None;
        for (_, waiting) in self.peer.all_waiting() {
            match waiting.purpose {
                Purpose::Listen => {}
                Purpose::Parked if one_client => {}
                Purpose::Parked => return None,
                Purpose::Call | Purpose::Own if only.is_some() && !one_client => return None,
                Purpose::Call | Purpose::Own => only = Some(Arc::clone(&waiting.mailbox)),
            }
        }
        only.filter(|_| one_client || !is_haunted)
    }

    /// Tells everyone who waits that the server is gone, or that it was before it could read them.
    pub(crate) fn abandon(&mut self) {
        for waiting in self.peer.close() {
            let is_unsent = waiting.begins_at >= self.written;
            waiting.mailbox.push(if is_unsent { Heard::Unsent } else { Heard::Gone });
        }
    }

    /// A message of the server cannot be taken. Whose answer it was cannot be known: all who wait hear
    /// that it may be lost, and the child is replaced.
    pub(crate) fn lose(&mut self, why: &str) {
        for waiting in self.peer.close() {
            waiting.mailbox.push(Heard::Lost(why.to_owned()));
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
        while let Some(text) = self.peer.poll_write() {
            self.outgoing_bytes += text.len() + 1;
            self.outgoing.extend(text.pieces().iter().cloned());
            self.outgoing.push_back(Bytes::from_static(b"\n"));
        }
        let Some(input) = &self.input else { return self.drop_outgoing() };
        while !self.outgoing.is_empty() {
            const NOTHING: &[u8] = &[];
            let mut slices = [IoSlice::new(NOTHING); 16];
            for (slice, piece) in slices.iter_mut().zip(&self.outgoing) {
                *slice = IoSlice::new(piece);
            }
            let used = self.outgoing.len().min(slices.len());
            match input.try_write_vectored(&slices[..used]) {
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

    fn drop_outgoing(&mut self) {
        self.outgoing.clear();
        self.outgoing_bytes = 0;
    }
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

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("open", &self.peer.open_requests()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::unix::pipe::pipe;

    use super::*;

    #[tokio::test]
    async fn what_a_dead_server_never_began_to_read_may_be_asked_elsewhere() {
        let ((input, unread), (silent, output)) = (pipe().unwrap(), pipe().unwrap());
        let options = LinkOptions {
            heal: HealMode::Repair,
            max_message: 1024,
            held: HeldBytes::new(1 << 20),
            one_client: true,
            heals: Arc::new(HealLog::new("demo")),
            span: Span::none(),
        };
        let link = Link::start(input, output, &options);
        let ask = |text: &str| {
            let request =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":\"{text}\"}}");
            link.ask(Rewrite::new(Message::own(request)), None, Purpose::Call)
        };
        // More than the pipe holds, so that the next has to wait.
        let mut begun = ask(&"x".repeat(1 << 20));
        unread.readable().await.unwrap();
        let mut waiting = ask("y");
        drop((silent, unread));
        assert!(matches!(begun.heard().await, Heard::Gone));
        assert!(matches!(waiting.heard().await, Heard::Unsent));
        assert!(matches!(ask("z").heard().await, Heard::Unsent));
    }
}
