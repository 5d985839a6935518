//! Errors that name no request: whether one can only be about the request that is open.
//!
//! A server that reads with a small buffer takes each piece of a long request for a message of its own, and says of
//! each that it cannot be read, without an id. The first such error answers the request; the others still come when
//! the next request is open, and must not answer that. A server works through its messages in their order, so an
//! answer to a later request shows that they have all come.

/// No receive buffer is smaller, so a shorter request is never read in pieces.
const SMALLEST_BUFFER: usize = 1024;

/// What a server may still say of requests that are over.
#[derive(Debug, Default)]
pub(crate) struct Nameless {
    /// How many errors may still come.
    owed: usize,
    /// An answer to this request, or to a later one, shows that they have come.
    settled_by: u64,
    /// The length of the shortest of those requests.
    unread: usize,
}

impl Nameless {
    /// A request of this length was given up, and may not have been read.
    pub(crate) fn given_up(&mut self, length: usize, next_id: u64) {
        self.owe(pieces(length), length, next_id);
    }

    /// A request of this length was answered with an error that named none.
    pub(crate) fn not_read(&mut self, length: usize, next_id: u64) {
        self.owe(pieces(length) - 1, length, next_id);
    }

    fn owe(&mut self, errors: usize, length: usize, next_id: u64) {
        if errors == 0 {
            return;
        }
        self.unread = if self.owed == 0 { length } else { self.unread.min(length) };
        self.owed = self.owed.saturating_add(errors);
        self.settled_by = next_id;
    }

    /// The request of this number was answered by its id.
    pub(crate) fn answered(&mut self, id: u64) {
        if id >= self.settled_by {
            self.owed = 0;
        }
    }

    /// Whether an error is about the only open request, of this length. One that is no shorter than a request that
    /// could not be read cannot be read either.
    pub(crate) fn is_about(&mut self, length: usize) -> bool {
        if self.owed == 0 {
            return true;
        }
        self.owed -= 1;
        length > SMALLEST_BUFFER && length >= self.unread
    }
}

/// Whether a request of this length may be read in pieces.
pub(crate) fn is_long(length: usize) -> bool {
    length > SMALLEST_BUFFER
}

/// In how many pieces a request may be read.
fn pieces(length: usize) -> usize {
    length.div_ceil(SMALLEST_BUFFER).max(1)
}

#[cfg(test)]
mod tests {
    use crate::heal::{Heal, HealMode};
    use crate::peer::PeerEvent;
    use crate::{Message, Peer, Rewrite};

    const UNREAD: &str =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;

    /// Asks for a tool with so many bytes of arguments.
    fn ask(peer: &mut Peer<&'static str>, who: &'static str, bytes: usize) -> crate::peer::OurId {
        let arguments = "y".repeat(bytes);
        let call = format!(r#"{{"id":1,"method":"tools/call","params":{{"x":"{arguments}"}}}}"#);
        peer.request(Rewrite::new(Message::parse(call.as_bytes()).unwrap()), None, who)
    }

    /// Who gets this for an answer, and its text.
    fn hear(peer: &mut Peer<&'static str>, line: &str) -> Option<(&'static str, String)> {
        match peer.handle(Message::parse(line.as_bytes()).unwrap())? {
            PeerEvent::Answer(who, answer) => {
                Some((who, String::from_utf8(answer.text().to_vec()).unwrap()))
            }
            event => panic!("{event:?}"),
        }
    }

    fn answer(id: u64) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
    }

    #[test]
    fn an_answer_with_nothing_in_it_is_one_to_a_notification() {
        let mut peer = Peer::new(HealMode::Repair);
        ask(&mut peer, "a", 1);
        assert_eq!(hear(&mut peer, r#"{"jsonrpc":"2.0","id":null}"#), None);
        assert_eq!((peer.heals().count(Heal::H08), peer.open_requests()), (1, 1));
    }

    #[test]
    fn of_a_request_that_was_read_in_pieces_one_error_is_the_answer() {
        let mut peer = Peer::new(HealMode::Repair);
        ask(&mut peer, "long", 10_000);
        let (who, said) = hear(&mut peer, UNREAD).unwrap();
        assert!(who == "long" && said.contains("the request of 10048 bytes"), "{said}");
        assert!(said.contains("Parse error") && said.contains("send less at once"), "{said}");
        // The rest of it, while the next call is at work.
        ask(&mut peer, "short", 1);
        assert_eq!((hear(&mut peer, UNREAD), hear(&mut peer, UNREAD)), (None, None));
        assert_eq!(hear(&mut peer, &answer(2)), Some(("short", answer(2))));
        // It has come by now, so this is about the next one.
        ask(&mut peer, "odd", 1);
        assert_eq!(hear(&mut peer, UNREAD), Some(("odd", UNREAD.to_owned())));
    }

    #[test]
    fn what_is_no_shorter_than_a_request_that_was_not_read_is_not_read_either() {
        let mut peer = Peer::new(HealMode::Repair);
        for who in ["one", "two", "three"] {
            ask(&mut peer, who, 5000);
            assert_eq!(hear(&mut peer, UNREAD).unwrap().0, who);
        }
        // All that may come for them, and one more, which is about the call that is open.
        ask(&mut peer, "short", 1);
        let heard = (0..20).position(|_| hear(&mut peer, UNREAD).is_some());
        assert!(heard.is_some_and(|dropped| dropped >= 4), "{heard:?}");
    }

    #[test]
    fn an_error_about_a_call_that_was_given_up_answers_no_other() {
        let mut peer = Peer::new(HealMode::Repair);
        let id = ask(&mut peer, "gone", 1);
        assert_eq!(peer.cancel(id, "enough"), Some("gone"));
        ask(&mut peer, "a", 1);
        assert_eq!(hear(&mut peer, UNREAD), None);
        assert_eq!(hear(&mut peer, &answer(2)), Some(("a", answer(2))));
    }

    #[test]
    fn a_bare_result_of_a_tool_gets_content_and_no_other_result_does() {
        let mut peer = Peer::new(HealMode::Repair);
        ask(&mut peer, "tool", 1);
        let list = Message::parse(&br#"{"id":1,"method":"tools/list"}"#[..]).unwrap();
        peer.request(Rewrite::new(list), None, "list");
        let healed =
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}"#;
        let bare = r#"{"jsonrpc":"2.0","id":1,"result":"x"}"#;
        assert_eq!(hear(&mut peer, bare), Some(("tool", healed.to_owned())));
        let list = r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#;
        assert_eq!(hear(&mut peer, list), Some(("list", list.to_owned())));
        assert_eq!(peer.heals().count(Heal::H17), 1);
    }
}
