//! A conversation: whatever the server says, every request is answered once and nobody is mixed up.
//!
//! The input is a script, one step a line, told by its first letter: `r` and a request of a client,
//! `c` and which request to cancel, `d` and which deadline to move, `t` time passes; every other
//! line comes from the server.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_wire::heal::lines::{Found, LineDoctor};
use pontoon_wire::heal::{HealMode, Heals};
use pontoon_wire::peer::{PeerEvent, OurId};
use pontoon_wire::{Kind, Message, Peer, Rewrite, Slot};

pub(crate) const SEEDS: &[&str] = &[
    "aar{\"id\":1,\"method\":\"m\",\"params\":{\"_meta\":{\"progressToken\":\"t\"}}}\nr{\"id\":1,\"method\":\"m\"}\n{\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":5}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
    "bbr{\"id\":\"a\",\"method\":\"m\"}\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"x\"}}\nt\nt\nt\n{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}",
    "ccr{\"id\":\"sub\",\"method\":\"subscriptions/listen\",\"params\":{}}\n{\"method\":\"x\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":1}}}\n{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\nc0",
    "abr{\"id\":1,\"method\":\"m\"}\nr{\"id\":2,\"method\":\"m\"}\nc0\nd1\nt\n{\"id\":1.0}\n{\"jsonrpc\":\"2.0\",\"id\":2.0,\"result\":1,\"error\":{}}\n{\"id\":9,\"method\":\"sampling/createMessage\"}",
];

struct Script {
    peer: Peer<usize>,
    ids: Vec<OurId>,
    /// How often each request came back.
    returned: Vec<u32>,
    now: Instant,
    doctor: LineDoctor,
    heals: Heals,
    last_written: u64,
}

/// Every request comes back exactly once, under ids of our own that only grow.
pub fn peer(data: &[u8]) {
    let (mode, pace, data) = crate::split_head(data);
    let mode = [HealMode::Off, HealMode::Warn, HealMode::Repair][usize::from(mode % 3)];
    let mut script = Script {
        peer: Peer::new(mode),
        ids: Vec::new(),
        returned: Vec::new(),
        now: Instant::now(),
        doctor: LineDoctor::new(4096),
        heals: Heals::new(mode),
        last_written: 0,
    };
    for line in data.split(|byte| *byte == b'\n') {
        script.step(line, Duration::from_millis(u64::from(pace)));
        script.check();
    }
    let left = script.peer.close();
    left.into_iter().for_each(|who| script.returned[who] += 1);
    assert!(script.returned.iter().all(|times| *times == 1), "{:?}", script.returned);
    assert!(script.peer.close().is_empty() && script.peer.poll_timeout().is_none());
}

impl Script {
    fn step(&mut self, line: &[u8], pace: Duration) {
        let which = |rest: &[u8]| rest.first().map_or(0, |byte| usize::from(byte % 8));
        match line.split_first() {
            Some((b'r', request)) => {
                let Ok(request) = Message::parse(BytesMut::from(request)) else { return };
                if request.kind() == Kind::Request {
                    let who = self.returned.len();
                    let deadline = who.is_multiple_of(2).then(|| self.now + pace * 3);
                    self.returned.push(0);
                    self.ids.push(self.peer.request(Rewrite::new(request), deadline, who));
                }
            }
            Some((b'c', rest)) => {
                let Some(id) = self.ids.get(which(rest)) else { return };
                if let Some(who) = self.peer.cancel(*id, "\"because\"\n") {
                    self.returned[who] += 1;
                }
            }
            Some((b'd', rest)) => {
                let Some(id) = self.ids.get(which(rest)) else { return };
                let deadline = (rest.len() > 1).then(|| self.now + pace);
                self.peer.set_deadline(*id, deadline);
            }
            Some((b't', _)) => {
                self.now += pace;
                for event in self.peer.handle_timeout(self.now) {
                    self.hear(event);
                }
                assert!(self.peer.poll_timeout().is_none_or(|next| next > self.now));
            }
            _ => {
                self.doctor.take(BytesMut::from(line), &mut self.heals);
                while let Some(found) = self.doctor.next_found() {
                    let Found::Message(message) = found else { continue };
                    if let Some(event) = self.peer.handle(message) {
                        self.hear(event);
                    }
                }
            }
        }
    }

    fn hear(&mut self, event: PeerEvent<usize>) {
        match event {
            PeerEvent::Answer(who, message) => {
                crate::message::is_one_line(message.text());
                self.returned[who] += 1;
            }
            PeerEvent::Ended(who) | PeerEvent::TimedOut(who, _) => self.returned[who] += 1,
            PeerEvent::Note(id, note) => {
                let who = self.ids.iter().position(|known| *known == id).expect("an id of ours");
                assert_eq!(self.returned[who], 0, "a note after the answer");
                proper(&note.to_bytes());
            }
            PeerEvent::Ask(message) | PeerEvent::Loose(message) => {
                crate::message::is_one_line(message.text());
            }
        }
    }

    /// What was written is proper, and what is open and what came back add up.
    fn check(&mut self) {
        while let Some(text) = self.peer.poll_write() {
            let message = proper(&text.to_bytes());
            if message.kind() == Kind::Request {
                let id = message.raw(Slot::Id).and_then(|id| std::str::from_utf8(id).ok());
                let id: u64 = id.and_then(|id| id.parse().ok()).expect("our ids are integers");
                assert!(id > self.last_written, "our ids only grow");
                self.last_written = id;
            }
        }
        let open = self.returned.iter().filter(|times| **times == 0).count();
        assert_eq!(self.peer.open_requests(), open);
        assert!(self.returned.iter().all(|times| *times <= 1), "answered twice");
    }
}

fn proper(text: &[u8]) -> Message {
    crate::message::is_one_line(text);
    Message::parse(BytesMut::from(text)).expect("what we write is a message")
}
