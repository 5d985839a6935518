//! One conversation with one server: our ids, the open requests, deadlines, cancelling, progress.
//!
//! A [`Peer`] takes what the server says and tells what it means: whose answer it is, whose
//! progress, or what the server asks. Toward the server every id and progress token is ours, an
//! integer that is never used twice, so that clients which use the same ids cannot be mixed up.
//! Each request taken by [`Peer::request`] comes back exactly once: in an [`PeerEvent`], from
//! [`Peer::cancel`], or from [`Peer::close`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use crate::heal::nulls::{ObjectForm, result_of};
use crate::heal::{Heal, HealModes, Heals, envelope, messages, results};
use crate::message::{Kind, Message, quoted, string_value};
use crate::method;
use crate::nameless::{Nameless, is_long};
use crate::rewrite::{Rewrite, Text};
use crate::scan::Word;
use crate::slot::Slot;

/// The id of a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OurId(u64);

impl OurId {
    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What a message of the server means. `T` is whoever waits for an answer.
#[derive(Debug)]
pub enum PeerEvent<T> {
    /// The answer to a request; its id is still ours.
    Answer(T, Message),
    /// A note that belongs to an open request, with the client's token or id back in it.
    Note(OurId, Text),
    /// The server ended a subscription without answering it.
    Ended(T),
    /// A request of the server to the client. Answer it with [`Peer::say`].
    Ask(Message),
    /// A notification that belongs to no request.
    Loose(Message),
    /// A request was open past its deadline. The server has been told to stop.
    TimedOut(T, Option<String>),
}

#[derive(Debug)]
struct Open<T> {
    waiting: T,
    /// The client's id as it wrote it, for notes on a subscription.
    client_id: Bytes,
    /// The client's progress token as it wrote it.
    token: Option<Bytes>,
    deadline: Option<Instant>,
    /// The progress that the server told last.
    progress: f64,
    /// The progress that the client heard last.
    told: f64,
    /// How many notes of it there were.
    notes: u64,
    /// What is asked for.
    aim: Aim,
    /// What its result looks like.
    form: &'static ObjectForm,
    /// How many bytes the request has.
    length: usize,
}

/// What a request asks for, as far as its answer is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// A call of a tool, whose result has a form of its own.
    Tool,
    /// A subscription, which alone can be ended by the server's `notifications/cancelled`.
    Subscription,
    /// Anything else.
    Other,
}

/// One conversation with one server.
#[derive(Debug)]
pub struct Peer<T> {
    next_id: u64,
    open: BTreeMap<OurId, Open<T>>,
    deadlines: BTreeSet<(Instant, OurId)>,
    outgoing: VecDeque<Text>,
    heals: Heals,
    /// An error that named no request, to explain a time-out.
    stray_error: Option<String>,
    /// What may still be said of requests that are over.
    nameless: Nameless,
    /// Whether requests are of several clients: then what names no request is given to none of them.
    is_shared: bool,
    /// Whether nothing was answered since the server was told that it is initialised.
    is_initialized_last: bool,
}

impl<T> Peer<T> {
    /// A conversation in which nothing was said yet.
    pub fn new(modes: impl Into<HealModes>) -> Self {
        Self::starting_at(modes, 1)
    }

    /// The same with a first id of the caller's choice. One that cannot be guessed keeps a client
    /// from forging an answer to another through text that a server repeats on its output.
    pub fn starting_at(modes: impl Into<HealModes>, first_id: u64) -> Self {
        Self {
            next_id: first_id,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            outgoing: VecDeque::new(),
            heals: Heals::new(modes),
            stray_error: None,
            nameless: Nameless::default(),
            is_shared: false,
            is_initialized_last: false,
        }
    }

    /// Says that the requests are of several clients, so that an error which names none of them is no answer: it may
    /// be about a call that another client gave up.
    pub fn share(&mut self) {
        self.is_shared = true;
    }

    /// Says that the requests from now on are of one client, and nothing is heard of the others' any more.
    pub fn unshare(&mut self) {
        self.is_shared = false;
    }

    /// Sends a request under an id of ours. `waiting` comes back with its answer.
    pub fn request(&mut self, request: Rewrite, deadline: Option<Instant>, waiting: T) -> OurId {
        let id = OurId(self.next_id);
        self.next_id += 1;
        let ours = Bytes::from(id.0.to_string());
        let client = request.message();
        let client_id = client.copy(Slot::Id).unwrap_or_default();
        let token = client.copy(Slot::MetaProgressToken);
        let form = result_of(&client.method());
        let aim = match client.method().as_ref() {
            method::CALL_TOOL => Aim::Tool,
            method::LISTEN => Aim::Subscription,
            _ => Aim::Other,
        };
        let request =
            request.replace(Slot::Id, ours.clone()).replace(Slot::MetaProgressToken, ours);
        let request = request.finish();
        let length = request.len();
        self.outgoing.push_back(request);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        self.open.insert(
            id,
            Open {
                waiting,
                client_id,
                token,
                deadline,
                progress: f64::NEG_INFINITY,
                told: f64::NEG_INFINITY,
                notes: 0,
                aim,
                form,
                length,
            },
        );
        id
    }

    /// Sends a notification, or an answer to a request of the server's.
    pub fn say(&mut self, message: impl Into<Text>) {
        self.outgoing.push_back(message.into());
    }

    /// Tells the server that it is initialised.
    pub fn say_initialized(&mut self) {
        self.say(Bytes::from(crate::envelope::plain_notification(method::INITIALIZED)));
        self.is_initialized_last = true;
    }

    /// Stops waiting for a request and tells the server so. Gives back who waited, if it was open.
    pub fn cancel(&mut self, id: OurId, reason: &str) -> Option<T> {
        let open = self.give_up(id, reason)?;
        Some(open.waiting)
    }

    fn give_up(&mut self, id: OurId, reason: &str) -> Option<Open<T>> {
        let open = self.forget(id)?;
        self.nameless.given_up(open.length, self.next_id);
        self.say_cancelled(id, reason);
        Some(open)
    }

    fn say_cancelled(&mut self, id: OurId, reason: &str) {
        let reason = quoted(reason);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"{}","params":{{"requestId":{},"reason":{reason}}}}}"#,
            method::CANCELLED,
            id.0,
        );
        self.say(Bytes::from(text));
    }

    /// Moves the deadline of an open request; `None` stops its clock.
    pub fn set_deadline(&mut self, id: OurId, deadline: Option<Instant>) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let before = std::mem::replace(&mut open.deadline, deadline);
        if let Some(before) = before {
            self.deadlines.remove(&(before, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }

    /// Who waits for this request.
    pub fn waiting(&mut self, id: OurId) -> Option<&mut T> {
        self.open.get_mut(&id).map(|open| &mut open.waiting)
    }

    /// Everyone who waits, oldest request first.
    pub fn all_waiting(&mut self) -> impl Iterator<Item = (OurId, &mut T)> {
        self.open.iter_mut().map(|(id, open)| (*id, &mut open.waiting))
    }

    /// How many requests are open.
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// What the message of the server means; `None` when it means nothing to anyone.
    pub fn handle(&mut self, message: Message) -> Option<PeerEvent<T>> {
        let message = match message.says(Word::OtherMember) && self.heals.found(Heal::H30) {
            true => envelope::tidy(&message),
            false => message,
        };
        let message = messages::mend_version(message, &mut self.heals);
        match message.kind() {
            Kind::Request => Some(PeerEvent::Ask(messages::mend_params(message, &mut self.heals))),
            Kind::Notification => {
                let message = messages::mend_params(message, &mut self.heals);
                self.handle_note(message)
            }
            Kind::Answer => self.handle_answer(message),
            Kind::Unclear => {
                // An id and nothing else still tells that the request is over (H14).
                match message.raw(Slot::Id) {
                    Some(b"null") => self.drop_nameless(false),
                    Some(id) if self.find(id).is_some() => self.handle_answer(message),
                    _ => self.drop_it(Heal::H10),
                }
            }
        }
    }

    fn handle_answer(&mut self, message: Message) -> Option<PeerEvent<T>> {
        let message = messages::mend_answer(message, &mut self.heals);
        let raw = message.raw(Slot::Id).unwrap_or(b"null");
        if raw == b"null" {
            return self.handle_stray_error(message);
        }
        let Some((id, is_exact)) = self.find(raw) else { return self.drop_it(Heal::H10) };
        if !is_exact && !self.heals.found(Heal::H09) {
            return None;
        }
        let open = self.forget(id)?;
        self.nameless.answered(id.number());
        self.is_initialized_last = false;
        let message = messages::mend_result(message, open.form, &mut self.heals);
        let message = match open.aim {
            Aim::Tool => results::mend(message, &mut self.heals),
            Aim::Subscription | Aim::Other => message,
        };
        Some(PeerEvent::Answer(open.waiting, message))
    }

    /// An error without an id answers the only open request if it says that it could not be read, and can mean no
    /// other; otherwise it answers a notification, which nobody wants to hear.
    fn handle_stray_error(&mut self, message: Message) -> Option<PeerEvent<T>> {
        if self.is_shared {
            return self.drop_nameless(message.has(Slot::Error));
        }
        let is_unread = matches!(message.raw(Slot::ErrorCode), Some(b"-32700" | b"-32600"));
        let mut open = self.open.iter();
        let only = match (open.next(), open.next()) {
            (Some((id, open)), None) => Some((*id, open.length)),
            _ => None,
        };
        let meant = only.filter(|(_, length)| is_unread && self.nameless.is_about(*length));
        if let Some((id, length)) = meant
            && self.heals.found(Heal::H11)
        {
            let open = self.forget(id)?;
            self.nameless.not_read(length, self.next_id);
            let answer = if is_long(length) { tell_length(&message, length) } else { message };
            return Some(PeerEvent::Answer(open.waiting, answer));
        }
        self.stray_error = message.string(Slot::ErrorMessage).map(|text| text.into_owned());
        match meant {
            Some(_) => None,
            None => self.drop_nameless(message.has(Slot::Error)),
        }
    }

    /// What names no request answers a notification. An error to the one that clients mind most is noted besides.
    fn drop_nameless(&mut self, is_error: bool) -> Option<PeerEvent<T>> {
        if std::mem::take(&mut self.is_initialized_last) && is_error {
            self.heals.note(Heal::H20);
        }
        self.drop_it(Heal::H08)
    }

    fn handle_note(&mut self, message: Message) -> Option<PeerEvent<T>> {
        if let Some(subscription) = message.raw(Slot::MetaSubscriptionId) {
            let Some((id, _)) = self.find(subscription) else { return self.drop_it(Heal::H10) };
            let client_id = self.open.get(&id)?.client_id.clone();
            let note = Rewrite::new(message).replace(Slot::MetaSubscriptionId, client_id);
            return Some(PeerEvent::Note(id, note.finish()));
        }
        match message.method().as_ref() {
            method::PROGRESS => self.handle_progress(message),
            // Any other id that it names is one of the server's own questions.
            method::CANCELLED => {
                let found = message.raw(Slot::RequestId).and_then(|id| self.find(id));
                let ended = found.filter(|(id, _)| {
                    self.open.get(id).is_some_and(|open| open.aim == Aim::Subscription)
                });
                ended.and_then(|(id, _)| self.forget(id)).map(|open| PeerEvent::Ended(open.waiting))
            }
            _ => Some(PeerEvent::Loose(message)),
        }
    }

    fn handle_progress(&mut self, message: Message) -> Option<PeerEvent<T>> {
        let found = message.raw(Slot::ProgressToken).and_then(|token| self.find(token));
        let Some((id, is_exact)) = found else { return self.drop_it(Heal::H12) };
        let said = message.raw(Slot::Progress).unwrap_or_default();
        let text = string_value(said).and_then(|text| json_number(&text));
        // What is no number says nothing of how far it is.
        let progress = text.as_deref().map_or(said, str::as_bytes);
        let progress = number(progress).filter(|progress| progress.is_finite());
        let open = self.open.get_mut(&id)?;
        let token = open.token.clone();
        let goes_back = progress.is_some_and(|progress| progress < open.progress);
        let Some(token) = token.filter(|_| !goes_back) else { return self.drop_it(Heal::H12) };
        let is_odd = !is_exact || text.is_some();
        let is_repaired = is_odd && self.heals.found(Heal::H12);
        if !is_exact && !is_repaired {
            return None;
        }
        open.notes += 1;
        let mut note = Rewrite::new(message).replace(Slot::ProgressToken, token);
        if let Some(text) = text.filter(|_| is_repaired) {
            note = note.replace(Slot::Progress, text);
        }
        let Some(progress) = progress else { return Some(PeerEvent::Note(id, note.finish())) };
        let has_heard_more = open.told > open.progress && progress <= open.told;
        open.progress = progress;
        if has_heard_more {
            // From us, and it may not become less.
            open.told = a_little_more(open.told);
            note = note.replace(Slot::Progress, format!("{:?}", open.told));
        } else {
            open.told = progress;
        }
        Some(PeerEvent::Note(id, note.finish()))
    }

    /// A note of progress of our own, for a client that wants to hear of an open request of which the server says
    /// nothing: a little more than was told last. None if there were other than `heard` notes: one is on its way to
    /// the client then.
    pub fn keep_alive(&mut self, id: OurId, heard: u64) -> Option<Text> {
        let open = self.open.get_mut(&id).filter(|open| open.notes <= heard)?;
        let token = open.token.as_ref()?;
        open.told = a_little_more(open.told);
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"{}","params":{{"progressToken":{},"progress":{:?},"message":"no news yet"}}}}"#,
            method::PROGRESS,
            String::from_utf8_lossy(token),
            open.told,
        );
        Some(Bytes::from(note).into())
    }

    /// The open request that an id or token of the server's names, and whether it is as we wrote it.
    fn find(&self, raw: &[u8]) -> Option<(OurId, bool)> {
        let exact = std::str::from_utf8(raw).ok().and_then(|text| text.parse().ok());
        if let Some(id) = exact.map(OurId).filter(|id| self.open.contains_key(id)) {
            return Some((id, true));
        }
        let near = number(raw).or_else(|| number(string_value(raw)?.trim().as_bytes()))?;
        let id = OurId(near as u64);
        (near == id.0 as f64 && self.open.contains_key(&id)).then_some((id, false))
    }

    /// The requests whose time is up, each cancelled at the server.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<PeerEvent<T>> {
        let mut events = Vec::new();
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            let Some(open) = self.give_up(id, "timed out") else { break };
            events.push(PeerEvent::TimedOut(open.waiting, self.stray_error.take()));
        }
        events
    }

    /// When [`Peer::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The next text for the server, without its newline.
    pub fn poll_write(&mut self) -> Option<Text> {
        self.outgoing.pop_front()
    }

    /// Ends the conversation: everyone who still waits.
    pub fn close(&mut self) -> Vec<T> {
        self.deadlines.clear();
        self.outgoing.clear();
        std::mem::take(&mut self.open).into_values().map(|open| open.waiting).collect()
    }

    /// What was healed in this conversation.
    pub fn heals(&mut self) -> &mut Heals {
        &mut self.heals
    }

    fn forget(&mut self, id: OurId) -> Option<Open<T>> {
        let open = self.open.remove(&id)?;
        if let Some(deadline) = open.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(open)
    }

    fn drop_it(&mut self, heal: Heal) -> Option<PeerEvent<T>> {
        self.heals.note(heal);
        None
    }
}

/// The error with words about the length of the request, which may be the reason for it.
fn tell_length(error: &Message, length: usize) -> Message {
    let said = error.string(Slot::ErrorMessage).unwrap_or_default();
    let text = format!(
        "the request of {length} bytes was not read, and so not carried out: the other side said {said:?}. \
         It may take no messages of this length: send less at once"
    );
    Rewrite::new(error.clone()).replace(Slot::ErrorMessage, quoted(&text)).into_message()
}

/// The number that a text is, as JSON has it.
fn json_number(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = serde_json::from_str::<serde_json::Number>(text).is_ok();
    is_number.then(|| text.to_owned())
}

fn number(raw: &[u8]) -> Option<f64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The next larger number for a client: so little more that it means nothing.
fn a_little_more(told: f64) -> f64 {
    match told == f64::NEG_INFINITY {
        true => 0.0,
        false => (told + told.abs().max(1.0) * 1e-9).min(f64::MAX),
    }
}

#[cfg(test)]
mod tests;
