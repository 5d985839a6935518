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

use crate::heal::messages::mend;
use crate::heal::{Heal, HealMode, Heals, results};
use crate::message::{Kind, Message, quoted, string_value};
use crate::method;
use crate::nameless::{Nameless, is_long};
use crate::rewrite::{Rewrite, Text};
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
    mode: HealMode,
    heals: Heals,
    /// An error that named no request, to explain a time-out.
    stray_error: Option<String>,
    /// What may still be said of requests that are over.
    nameless: Nameless,
    /// Whether requests are of several clients: then what names no request is given to none of them.
    is_shared: bool,
}

impl<T> Peer<T> {
    /// A conversation in which nothing was said yet.
    pub fn new(mode: HealMode) -> Self {
        Self::starting_at(mode, 1)
    }

    /// The same with a first id of the caller's choice. One that cannot be guessed keeps a client
    /// from forging an answer to another through text that a server repeats on its output.
    pub fn starting_at(mode: HealMode, first_id: u64) -> Self {
        Self {
            next_id: first_id,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            outgoing: VecDeque::new(),
            mode,
            heals: Heals::default(),
            stray_error: None,
            nameless: Nameless::default(),
            is_shared: false,
        }
    }

    /// Says that the requests are of several clients, so that an error which names none of them is no answer: it may
    /// be about a call that another client gave up.
    pub fn share(&mut self) {
        self.is_shared = true;
    }

    /// Sends a request under an id of ours. `waiting` comes back with its answer.
    pub fn request(&mut self, request: Rewrite, deadline: Option<Instant>, waiting: T) -> OurId {
        let id = OurId(self.next_id);
        self.next_id += 1;
        let ours = Bytes::from(id.0.to_string());
        let client = request.message();
        let client_id = client.copy(Slot::Id).unwrap_or_default();
        let token = client.copy(Slot::MetaProgressToken);
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
                length,
            },
        );
        id
    }

    /// Sends a notification, or an answer to a request of the server's.
    pub fn say(&mut self, message: impl Into<Text>) {
        self.outgoing.push_back(message.into());
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
        match message.kind() {
            Kind::Request => Some(PeerEvent::Ask(message)),
            Kind::Notification => self.handle_note(message),
            Kind::Answer => self.handle_answer(message),
            Kind::Unclear => {
                // An id and nothing else still tells that the request is over (H14).
                match message.raw(Slot::Id) {
                    Some(b"null") => self.drop_it(Heal::H08),
                    Some(id) if self.find(id).is_some() => self.handle_answer(message),
                    _ => self.drop_it(Heal::H10),
                }
            }
        }
    }

    fn handle_answer(&mut self, message: Message) -> Option<PeerEvent<T>> {
        let message = mend(message, self.mode, &mut self.heals);
        let raw = message.raw(Slot::Id).unwrap_or(b"null");
        if raw == b"null" {
            return self.handle_stray_error(message);
        }
        let Some((id, is_exact)) = self.find(raw) else { return self.drop_it(Heal::H10) };
        if !is_exact {
            self.heals.note(Heal::H09);
        }
        let open = self.forget(id)?;
        self.nameless.answered(id.number());
        let message = match open.aim {
            Aim::Tool => results::mend(message, self.mode, &mut self.heals),
            Aim::Subscription | Aim::Other => message,
        };
        Some(PeerEvent::Answer(open.waiting, message))
    }

    /// An error without an id answers the only open request if it says that it could not be read, and can mean no
    /// other; otherwise it answers a notification, which nobody wants to hear.
    fn handle_stray_error(&mut self, message: Message) -> Option<PeerEvent<T>> {
        if self.is_shared {
            return self.drop_it(Heal::H08);
        }
        let is_unread = matches!(message.raw(Slot::ErrorCode), Some(b"-32700" | b"-32600"));
        let mut open = self.open.iter();
        let only = match (open.next(), open.next()) {
            (Some((id, open)), None) => Some((*id, open.length)),
            _ => None,
        };
        let meant = only.filter(|(_, length)| is_unread && self.nameless.is_about(*length));
        if let Some((id, length)) = meant {
            self.heals.note(Heal::H11);
            let open = self.forget(id)?;
            self.nameless.not_read(length, self.next_id);
            let answer = if is_long(length) { tell_length(&message, length) } else { message };
            return Some(PeerEvent::Answer(open.waiting, answer));
        }
        self.stray_error = message.string(Slot::ErrorMessage).map(|text| text.into_owned());
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
        let open = self.open.get_mut(&id)?;
        let Some(token) = open.token.clone() else { return self.drop_it(Heal::H12) };
        let progress = message.raw(Slot::Progress).and_then(number).unwrap_or(f64::NAN);
        if progress < open.progress {
            return self.drop_it(Heal::H12);
        }
        let has_heard_more = open.told > open.progress && progress <= open.told;
        open.progress = progress;
        open.notes += 1;
        let mut note = Rewrite::new(message).replace(Slot::ProgressToken, token);
        if has_heard_more {
            // From us, and it may not become less.
            open.told = a_little_more(open.told);
            note = note.replace(Slot::Progress, format!("{:?}", open.told));
        } else {
            open.told = progress;
        }
        if !is_exact {
            self.heals.note(Heal::H12);
        }
        Some(PeerEvent::Note(id, note.finish()))
    }

    /// A note of progress of our own, for a client that wants to hear of an open request of which the server says
    /// nothing: a little more than was told last. None if there were other than `heard` notes: one is on its way to
    /// the client then.
    pub fn keep_alive(&mut self, id: OurId, heard: u64) -> Option<Text> {
        let open = self.open.get_mut(&id).filter(|open| open.notes <= heard)?;
        let token = open.token.as_ref()?;
        // What was no number cannot be added to.
        let told = if open.told.is_nan() { f64::NEG_INFINITY } else { open.told };
        open.told = a_little_more(told);
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
        if self.mode != HealMode::Repair {
            return None;
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
        if self.mode != HealMode::Off {
            self.heals.note(heal);
        }
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
mod tests {
    use super::*;
    use std::time::Duration;

    /// Plays requests to and lines from a server, and compares what was written and what came back.
    struct Play {
        peer: Peer<&'static str>,
    }

    impl Play {
        fn new() -> Self {
            Self { peer: Peer::new(HealMode::Repair) }
        }

        fn ask(&mut self, who: &'static str, request: &str) -> OurId {
            let message = Message::parse(request.as_bytes()).unwrap();
            self.peer.request(Rewrite::new(message), None, who)
        }

        #[track_caller]
        fn wrote(&mut self, expected: &str) {
            let text = self.peer.poll_write().map(|text| text.to_bytes()).unwrap_or_default();
            assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
        }

        #[track_caller]
        fn hears(&mut self, line: &str, expected: &str) {
            let event = self.peer.handle(Message::parse(line.as_bytes()).unwrap());
            assert_eq!(event.map(|event| told(&event)).unwrap_or_default(), expected);
        }
    }

    fn told(event: &PeerEvent<&'static str>) -> String {
        let text = |message: &Message| String::from_utf8(message.text().to_vec()).unwrap();
        match event {
            PeerEvent::Answer(who, message) => format!("{who}: {}", text(message)),
            PeerEvent::Note(id, note) => {
                format!("note {}: {}", id.0, String::from_utf8_lossy(&note.to_bytes()))
            }
            PeerEvent::Ended(who) => format!("{who} ended"),
            PeerEvent::Ask(message) => format!("ask: {}", text(message)),
            PeerEvent::Loose(message) => format!("loose: {}", text(message)),
            PeerEvent::TimedOut(who, why) => format!("{who} timed out {why:?}"),
        }
    }

    const CALL: &str = r#"{"id":1,"method":"m","params":{"_meta":{"progressToken":"t"}}}"#;

    #[test]
    fn equal_ids_of_two_clients_are_kept_apart() {
        let mut play = Play::new();
        play.ask("a", CALL);
        play.ask("b", CALL);
        play.wrote(r#"{"id":1,"method":"m","params":{"_meta":{"progressToken":1}}}"#);
        play.wrote(r#"{"id":2,"method":"m","params":{"_meta":{"progressToken":2}}}"#);
        let b = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
        play.hears(b, &format!("b: {b}"));
        let a = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        play.hears(a, &format!("a: {a}"));
    }

    #[test]
    fn unknown_repeated_and_late_answers_are_dropped() {
        let mut play = Play::new();
        let id = play.ask("a", CALL);
        play.hears(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, "");
        assert_eq!(play.peer.cancel(id, "gone"), Some("a"));
        play.hears(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "");
        play.hears(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "");
        assert_eq!(play.peer.heals().count(Heal::H10), 3);
        play.peer.poll_write();
        play.wrote(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"gone"}}"#,
        );
    }

    #[test]
    fn an_id_that_changed_its_type_is_recognised() {
        let mut play = Play::new();
        play.ask("a", CALL);
        play.ask("b", CALL);
        play.hears(
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            r#"a: {"jsonrpc":"2.0","id":"1","result":{}}"#,
        );
        play.hears(
            r#"{"jsonrpc":"2.0","id":2.0,"result":{}}"#,
            r#"b: {"jsonrpc":"2.0","id":2.0,"result":{}}"#,
        );
        assert_eq!(play.peer.heals().count(Heal::H09), 2);
    }

    #[test]
    fn progress_gets_the_clients_token_and_never_goes_back() {
        let mut play = Play::new();
        play.ask("a", CALL);
        let note = |token: &str, progress: u32| {
            format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
            )
        };
        play.hears(&note("1", 5), &format!("note 1: {}", note("\"t\"", 5)));
        play.hears(&note("1", 3), "");
        play.hears(&note("\"1\"", 6), &format!("note 1: {}", note("\"t\"", 6)));
        play.hears(&note("77", 1), "");
        play.hears(
            r#"{"id":1,"jsonrpc":"2.0","result":{}}"#,
            r#"a: {"id":1,"jsonrpc":"2.0","result":{}}"#,
        );
        play.hears(&note("1", 9), "");
        assert_eq!(play.peer.heals().count(Heal::H12), 4);
    }

    #[test]
    fn a_sign_of_life_is_a_little_more_progress_and_what_follows_is_never_less() {
        let mut play = Play::new();
        let id = play.ask("a", CALL);
        let note = |token: &str, progress: &str| {
            format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
            )
        };
        let alive = |play: &mut Play, heard| {
            let text = play.peer.keep_alive(id, heard)?;
            let text = String::from_utf8(text.to_bytes().to_vec()).unwrap();
            let note = Message::own(text);
            assert_eq!(note.raw(Slot::ProgressToken), Some(&b"\"t\""[..]));
            note.raw(Slot::Progress).and_then(number)
        };
        assert_eq!(alive(&mut play, 0), Some(0.0));
        // It begins with nothing, which was told already.
        play.hears(&note("1", "0"), &format!("note 1: {}", note("\"t\"", "1e-9")));
        assert_eq!(alive(&mut play, 0), None, "that is not told yet");
        play.hears(&note("1", "5"), &format!("note 1: {}", note("\"t\"", "5")));
        assert_eq!(alive(&mut play, 2), Some(5.000000005));
        play.hears(&note("1", "6"), &format!("note 1: {}", note("\"t\"", "6")));
        play.hears(&note("1", "4"), "");
        let answer = r#"{"id":1,"jsonrpc":"2.0","result":{}}"#;
        play.hears(answer, &format!("a: {answer}"));
        assert_eq!(alive(&mut play, 9), None, "it is over");
        let id = play.ask("b", r#"{"id":1,"method":"m","params":{}}"#);
        assert!(play.peer.keep_alive(id, 0).is_none(), "none is wanted");
    }

    #[test]
    fn an_error_without_id_answers_the_only_request_it_can_mean() {
        let mut play = Play::new();
        let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}"#;
        play.hears(error, "");
        play.ask("a", CALL);
        play.hears(error, &format!("a: {error}"));
        play.hears(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}"#, "");
    }

    #[test]
    fn of_several_clients_none_is_given_an_error_that_names_no_request() {
        let mut play = Play::new();
        play.peer.share();
        let later = Instant::now_for_test();
        let message = Message::parse(CALL.as_bytes()).unwrap();
        play.peer.request(Rewrite::new(message), Some(later), "a");
        play.hears(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"of b"}}"#, "");
        play.hears(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"of b"}}"#, "");
        let events = play.peer.handle_timeout(later);
        assert_eq!(events.iter().map(told).collect::<Vec<_>>(), ["a timed out None"]);
    }

    #[test]
    fn a_deadline_cancels_and_tells_why() {
        let mut play = Play::new();
        let start = Instant::now_for_test();
        let later = start + Duration::from_secs(5);
        let message = Message::parse(CALL.as_bytes()).unwrap();
        play.peer.request(Rewrite::new(message), Some(later), "a");
        play.hears(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"oh"}}"#, "");
        assert_eq!(play.peer.poll_timeout(), Some(later));
        assert!(play.peer.handle_timeout(start).is_empty());
        let events = play.peer.handle_timeout(later);
        assert_eq!(events.iter().map(told).collect::<Vec<_>>(), [r#"a timed out Some("oh")"#]);
        assert_eq!(play.peer.poll_timeout(), None);
    }

    #[test]
    fn subscriptions_are_told_apart_by_our_id() {
        let mut play = Play::new();
        play.ask("a", r#"{"id":"sub","method":"subscriptions/listen","params":{}}"#);
        let note = |id: &str| {
            format!(
                r#"{{"method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
            )
        };
        play.hears(&note("1"), &format!("note 1: {}", note("\"sub\"")));
        play.hears(&note("2"), "");
        play.hears(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#, "a ended");
    }

    #[test]
    fn a_server_that_withdraws_its_own_question_ends_no_call() {
        let mut play = Play::new();
        play.ask("a", CALL);
        play.hears(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#, "");
        assert_eq!(play.peer.open_requests(), 1);
    }

    #[test]
    fn closing_gives_back_everyone_who_waits() {
        let mut play = Play::new();
        play.ask("a", CALL);
        play.ask("b", CALL);
        assert_eq!(play.peer.close(), ["a", "b"]);
        assert_eq!(play.peer.close(), Vec::<&str>::new());
    }

    trait ForTest {
        fn now_for_test() -> Self;
    }

    impl ForTest for Instant {
        #[expect(clippy::disallowed_methods, reason = "any instant will do as a start")]
        fn now_for_test() -> Self {
            Instant::now()
        }
    }
}
