//! Conversations with servers, well and badly behaved.

use super::*;
use crate::heal::HealMode;
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

#[test]
fn an_error_to_the_first_notification_is_told_from_those_to_others() {
    let stray = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such method"}}"#;
    let mut play = Play::new();
    play.peer.say_initialized();
    play.wrote(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    play.hears(stray, "");
    play.hears(stray, "");
    assert_eq!(play.peer.heals().take(), [(Heal::H08, 2), (Heal::H20, 1)]);
    play.peer.say_initialized();
    play.ask("a", CALL);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    play.hears(answer, &format!("a: {answer}"));
    play.hears(stray, "");
    assert_eq!(play.peer.heals().take(), [(Heal::H08, 1)], "it was initialised well");
}

#[test]
fn each_violation_is_repaired_counted_or_neither_as_its_mode_says() {
    let result =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"nextCursor":"x"}}}}"#);
    let unread = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}"#;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1}}"#;
    let outcome = r#"{"jsonrpc":"2.0","id":1,"error":"bad"}"#;
    let null = r#"{"jsonrpc":"2.0","id":1,"result":{"nextCursor":null}}"#;
    let other = r#"{"jsonrpc":"2.0","id":1,"result":{},"x":1}"#;
    let unversioned = r#"{"id":1,"result":{}}"#;
    for (heal, line, repaired, left) in [
        (Heal::H09, result("\"1\"").as_str(), result("\"1\"").as_str(), ""),
        (Heal::H11, unread, unread, ""),
        (Heal::H12, progress, "\"t\"", ""),
        (Heal::H13, unversioned, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, unversioned),
        (Heal::H14, outcome, "{\"code\":-32000,\"message\":\"bad\"}", outcome),
        (Heal::H16, null, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, null),
        (Heal::H30, other, r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"x":1}}}"#, other),
    ] {
        for mode in [HealMode::Repair, HealMode::Warn, HealMode::Off] {
            let mut peer = Peer::new(HealModes::default().with(heal, mode));
            let request = Message::parse(CALL.as_bytes()).unwrap();
            peer.request(Rewrite::new(request), None, "a");
            let event = peer.handle(Message::parse(line.as_bytes()).unwrap());
            let heard = event.map(|event| told(&event)).unwrap_or_default();
            let expected = if mode == HealMode::Repair { repaired } else { left };
            assert!(heard.contains(expected), "{heal:?} {mode:?}: {heard}");
            assert_eq!(heard.is_empty(), expected.is_empty(), "{heal:?} {mode:?}: {heard}");
            assert_eq!(peer.heals().count(heal), u64::from(mode != HealMode::Off), "{heal:?}");
        }
    }
}
