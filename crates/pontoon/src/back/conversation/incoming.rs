//! What a server says, and to whom it goes: to the call it belongs to, to the client's session, to those
//! who listen; what cannot be attributed is refused or dropped, never guessed.

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::Heal;
use pontoon_wire::peer::Event;
use pontoon_wire::{Message, Slot, method};

use super::link::{Inner, RELEASE_STREAM, Shared};
use super::mailbox::Heard;
use crate::back::call::questions::can_answer;

/// At most this many questions wait for the next call.
const MAX_HELD: usize = 16;

impl Shared {
    pub(crate) fn handle(&self, inner: &mut Inner, message: Message) {
        if !inner.held.is_empty() && message.method() == method::CANCELLED {
            // The server has stopped waiting.
            let id = message.raw(Slot::RequestId);
            inner.held.retain(|question| question.raw(Slot::Id) != id);
        }
        let Some(event) = inner.peer.handle(message) else { return };
        match event {
            Event::Answer(waiting, answer) => waiting.mailbox.push(Heard::Answer(answer)),
            Event::Ended(waiting) => waiting.mailbox.push(Heard::Ended),
            Event::TimedOut(waiting, note) => waiting.mailbox.push(Heard::TimedOut(note)),
            Event::Note(id, note) => {
                if let Some(waiting) = inner.peer.waiting(id) {
                    waiting.mailbox.push(Heard::Note(note));
                }
            }
            Event::Ask(question) => self.handle_question(inner, &question),
            Event::Loose(message) => self.handle_loose(inner, &message),
        }
    }

    /// A question goes to the only call it can belong to; one client may hear it on any of its calls.
    fn handle_question(&self, inner: &mut Inner, question: &Message) {
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or_default()).into_owned();
        if question.method() == method::PING {
            let pong = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
            return inner.say(Bytes::from(pong).into());
        }
        if let Some(mailbox) = inner.only_call(self.one_client)
            && mailbox.offer(Heard::Question(question.clone()))
        {
            return;
        }
        self.handle_loose_question(inner, question);
    }

    /// A question that belongs to no call goes to the client's session, if it has one.
    pub(crate) fn handle_loose_question(&self, inner: &mut Inner, question: &Message) {
        match &inner.asker {
            Some(asker) if asker(question) => {}
            Some(_) => self.refuse(inner, question),
            None => self.hold_or_refuse(inner, question),
        }
    }

    /// A question waits for the next call, if it can only be for the client that makes it.
    pub(crate) fn hold_or_refuse(&self, inner: &mut Inner, question: &Message) {
        let is_theirs = self.one_client || !inner.has_served;
        let can_answer = inner
            .audience
            .as_ref()
            .is_some_and(|(able, era)| can_answer(able, *era, &question.method()));
        if is_theirs && can_answer && inner.held.len() < MAX_HELD {
            return inner.held.push(question.clone());
        }
        self.refuse(inner, question);
    }

    fn refuse(&self, inner: &mut Inner, question: &Message) {
        let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or_default()).into_owned();
        if question.method() == method::LIST_ROOTS {
            // Servers ask this right after the handshake, also clients that have no roots.
            let none = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"roots\":[]}}}}");
            return inner.say(Bytes::from(none).into());
        }
        let why = "no call of a client is open that this question can belong to";
        let refusal = ErrorObject::new(code::METHOD_NOT_FOUND, why).answer(&id);
        inner.say(Bytes::from(refusal).into());
        inner.peer.heals().note(Heal::H22);
    }

    fn handle_loose(&self, inner: &mut Inner, message: &Message) {
        let method = message.method();
        if method == method::LOG
            && let Some(mailbox) = inner.only_call(false)
        {
            mailbox.push(Heard::Log(message.clone()));
            return;
        }
        if method == RELEASE_STREAM {
            if let Some(mailbox) = inner.only_call(false) {
                mailbox.push(Heard::Release);
            }
            return;
        }
        inner.lists_changed |= method.ends_with("/list_changed");
        inner.listeners.iter().for_each(|(_, listener)| listener(message));
    }
}

impl Inner {
    /// Something of the server could not be read. If only one request is open and it names its id, it was
    /// the answer: the one who waits need not wait for the deadline. No other text can name the id: the
    /// first one is a random number.
    pub(crate) fn lose_answer_in(&mut self, noise: &[u8]) {
        let mut waiting = self.peer.all_waiting().map(|(id, _)| id);
        let (Some(id), None) = (waiting.next(), waiting.next()) else { return };
        drop(waiting);
        let digits = id.number().to_string();
        let is_named = noise.windows(digits.len()).any(|part| part == digits.as_bytes());
        if is_named && let Some(waiting) = self.peer.cancel(id, "the answer could not be read") {
            waiting.mailbox.push(Heard::Lost("it is not valid JSON-RPC".to_owned()));
        }
    }
}
