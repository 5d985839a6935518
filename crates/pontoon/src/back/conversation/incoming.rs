//! What a server says, and to whom it goes: to the call it belongs to, to the client's session, to those
//! who listen; what cannot be attributed is refused or dropped, never guessed.
//!
//! What goes to others is only noted while the link is locked, and delivered after that.

use std::sync::Arc;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::Heal;
use pontoon_wire::peer::PeerEvent;
use pontoon_wire::{Message, Slot, Text, method};

use super::abilities::can_answer;
use super::mailbox::ServerEvent;
use super::state::{AwaitedAnswer, Handover, Handovers, LinkState, Purpose, SharedLink};
use crate::call::CallError;

/// At most this many questions wait for the next call.
const MAX_HELD: usize = 16;

/// A server says by this notification that the client of its only call may hang up and come back:
/// over stdio the protocol has no word for it.
pub(crate) const RELEASE_STREAM: &str = "notifications/pontoon/release_stream";

/// A bridge that owns the connection to an application says by this notification to the bridge that asked that it is
/// about to send a call on (`requestId`). Until then the call was certainly not made. It is for bridges alone.
pub(crate) const PASSED_ON: &str = "notifications/pontoon/passed_on";

impl SharedLink {
    /// Takes a message of the server.
    pub(crate) fn handle(
        &self,
        state: &mut LinkState,
        message: Message,
        deliveries: &mut Handovers,
    ) {
        state.note_heard(&message);
        if !state.held.is_empty() && message.method() == method::CANCELLED {
            // The server has stopped waiting.
            let id = message.raw(Slot::RequestId);
            state.held.retain(|question| question.raw(Slot::Id) != id);
        }
        let written = state.keeps_answers.then(|| message.clone());
        let Some(event) = state.peer.handle(message) else { return };
        match event {
            PeerEvent::Answer(awaited, answer) => {
                state.last_answer = written;
                if !self.is_of_one_client() && awaited.purpose == Purpose::Call {
                    state.note_answer();
                }
                let event = match state.tells_passing_on && was_sent_on(&awaited, &answer) {
                    true => ServerEvent::Unsent,
                    false => ServerEvent::Answer(answer),
                };
                deliveries.event(awaited.mailbox, event);
            }
            PeerEvent::Ended(awaited) => deliveries.event(awaited.mailbox, ServerEvent::Ended),
            PeerEvent::TimedOut(awaited, note) => {
                deliveries.event(awaited.mailbox, ServerEvent::TimedOut(note));
            }
            PeerEvent::Note(id, note) => {
                if let Some(awaited) = state.peer.waiting(id) {
                    deliveries.event(Arc::clone(&awaited.mailbox), ServerEvent::Note(note));
                }
            }
            PeerEvent::Ask(question) => self.handle_question(state, question, deliveries),
            PeerEvent::Loose(message) => {
                handle_loose(state, message, self.is_of_one_client(), deliveries);
            }
        }
    }

    /// Hands over what was noted. The link is not locked.
    pub(crate) fn deliver(&self, deliveries: &mut Handovers) {
        for delivery in deliveries.list.drain(..) {
            match delivery {
                Handover::Event(mailbox, event) => mailbox.push(event),
                Handover::Question(mailbox, question) => {
                    if !mailbox.offer(ServerEvent::Question(question.clone())) {
                        self.handle_loose_question(&question);
                    }
                }
                Handover::LooseQuestion(question) => self.handle_loose_question(&question),
                Handover::Loose(listeners, message) => {
                    listeners.iter().for_each(|listener| listener(&message));
                }
            }
        }
    }

    /// A question goes to the only call it can belong to; one client may hear it on any of its calls.
    fn handle_question(
        &self,
        state: &mut LinkState,
        question: Message,
        deliveries: &mut Handovers,
    ) {
        if question.method() == method::PING {
            return state.say(result(&question, "{}"));
        }
        let mailbox = state.only_call(self.is_of_one_client());
        match mailbox {
            Some(mailbox) => deliveries.list.push(Handover::Question(mailbox, question)),
            None if state.asker.is_some() => {
                deliveries.list.push(Handover::LooseQuestion(question))
            }
            None => self.hold_or_refuse(state, &question),
        }
    }

    /// A question that belongs to no call goes to the client's session, if it has one. The link is not locked.
    pub(crate) fn handle_loose_question(&self, question: &Message) {
        let mut state = self.lock();
        match state.asker.clone() {
            Some(asker) => {
                drop(state);
                if asker(question) {
                    return;
                }
                state = self.lock();
                refuse(&mut state, question);
            }
            None => self.hold_or_refuse(&mut state, question),
        }
        self.flush(state);
    }

    /// A question waits for the next call, if it can only be for the client that makes it.
    pub(crate) fn hold_or_refuse(&self, state: &mut LinkState, question: &Message) {
        let is_theirs = self.is_of_one_client() || !state.has_served;
        let can_answer = state
            .audience
            .as_ref()
            .is_some_and(|(able, era)| can_answer(able, *era, &question.method()));
        if is_theirs && can_answer && state.held.len() < MAX_HELD {
            return state.held.push(question.clone());
        }
        refuse(state, question);
    }
}

/// Whether another bridge, which has the connection to the application, did not make a call, for it leaves. What was passed on
/// may have been made, whatever is said of it.
fn was_sent_on(awaited: &AwaitedAnswer, answer: &Message) -> bool {
    let is_call = awaited.purpose == Purpose::Call && !awaited.is_passed_on;
    let why = || answer.string(Slot::ErrorMessage);
    is_call && why().is_some_and(|why| why == CallError::Stopping.to_string())
}

fn refuse(state: &mut LinkState, question: &Message) {
    if question.method() == method::LIST_ROOTS {
        // Servers ask this right after the handshake, also clients that have no roots.
        return state.say(result(question, "{\"roots\":[]}"));
    }
    let why = "no call of a client is open that this question can belong to";
    state.say(refusal(question, why));
    state.peer.heals().note(Heal::H22);
}

fn handle_loose(
    state: &mut LinkState,
    message: Message,
    one_client: bool,
    deliveries: &mut Handovers,
) {
    let method = message.method();
    if method == RELEASE_STREAM {
        if let Some(mailbox) = state.only_call(false) {
            deliveries.event(mailbox, ServerEvent::Release);
        }
        return;
    }
    if method == PASSED_ON && state.tells_passing_on {
        let id = message.raw(Slot::RequestId).and_then(|id| std::str::from_utf8(id).ok());
        let id = id.and_then(|id| id.parse().ok());
        let mut waiting = state.peer.all_waiting();
        if let Some((_, awaited)) = waiting.find(|(it, _)| Some(it.number()) == id) {
            awaited.is_passed_on = true;
        }
        return;
    }
    if method == method::LOG
        && let Some(mailbox) = state.logging_call(one_client)
    {
        drop(method);
        return deliveries.event(mailbox, ServerEvent::Log(message));
    }
    state.lists_changed |= method.ends_with("/list_changed");
    drop(method);
    let listeners = state.listeners.iter().map(|(_, listener)| Arc::clone(listener)).collect();
    deliveries.list.push(Handover::Loose(listeners, message));
}

/// The answer to a question of the server's; `result` is a JSON text.
fn result(question: &Message, result: &str) -> Text {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null"));
    Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")).into()
}

/// An error as the answer to a question of the server's.
pub(crate) fn refusal(question: &Message, why: &str) -> Text {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null"));
    Bytes::from(ErrorObject::new(code::METHOD_NOT_FOUND, why).answer(&id)).into()
}

impl LinkState {
    /// Something of the server could not be read. If only one request is open and it names its id, it was
    /// the answer: its caller need not wait for the deadline. No other text can name the id: the
    /// first one is a random number.
    pub(crate) fn lose_answer_in(&mut self, noise: &[u8], why: &str, deliveries: &mut Handovers) {
        let mut waiting = self.peer.all_waiting().map(|(id, _)| id);
        let (Some(id), None) = (waiting.next(), waiting.next()) else { return };
        drop(waiting);
        let digits = id.number().to_string();
        let is_named = noise.windows(digits.len()).any(|part| part == digits.as_bytes());
        if is_named && let Some(awaited) = self.peer.cancel(id, "the answer could not be read") {
            deliveries.event(awaited.mailbox, ServerEvent::Lost(why.to_owned()));
        }
    }
}
