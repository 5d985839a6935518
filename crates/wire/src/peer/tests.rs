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
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
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
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
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
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    play.hears(&note("1"), &format!("note 1: {}", note("\"sub\"")));
    play.hears(&note("2"), "");
    play.hears(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        "a ended",
    );
}

#[test]
fn a_server_that_withdraws_its_own_question_ends_no_call() {
    let mut play = Play::new();
    play.ask("a", CALL);
    play.hears(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        "",
    );
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

/// What a server says to a request of this method, and what the client hears.
#[track_caller]
fn check_answer(method: &str, result: &str, expected: &str, heals: &[(Heal, u64)]) {
    let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    let mut peer = Peer::new(HealMode::Repair);
    let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    peer.request(Rewrite::new(Message::parse(request.as_bytes()).unwrap()), None, "a");
    let event = peer.handle(Message::parse(answer(result).as_bytes()).unwrap());
    let heard = event.map(|event| told(&event)).unwrap_or_default();
    assert_eq!(heard, format!("a: {}", answer(expected)), "{method}");
    assert_eq!(peer.heals().take(), heals, "{method}");
}

/// What a server says by itself, with a request open, and what the client hears.
#[track_caller]
fn check_said(said: &str, expected: &str, heals: &[(Heal, u64)]) {
    let mut play = Play::new();
    play.ask("a", CALL);
    let event = play.peer.handle(Message::parse(said.as_bytes()).unwrap());
    let heard = event.map(|event| told(&event)).unwrap_or_default();
    let heard = heard.split_once(": ").map_or("", |(_, text)| text);
    assert_eq!(heard, expected);
    assert_eq!(play.peer.heals().take(), heals, "{said}");
}

#[test]
fn nulls_go_wherever_the_protocol_has_an_optional_member() {
    for (method, result, expected) in [
        (
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":null}},"serverInfo":{"name":"s","version":"1","title":null,"icons":[{"src":"a","sizes":null}],"websiteUrl":null},"instructions":null}"#,
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1","icons":[{"src":"a"}]}}"#,
        ),
        (
            "tools/list",
            r#"{"tools":[{"name":"t","title":null,"inputSchema":{"default":null,"title":null},"annotations":{"readOnlyHint":null,"title":"T"},"icons":null,"execution":{"taskSupport":null}}],"nextCursor":null}"#,
            r#"{"tools":[{"name":"t","inputSchema":{"default":null,"title":null},"annotations":{"title":"T"},"execution":{}}]}"#,
        ),
        (
            "prompts/list",
            r#"{"prompts":[{"name":"p","arguments":[{"name":"a","description":null,"required":null},{"name":"b","title":null}]},{"name":"q","arguments":null}]}"#,
            r#"{"prompts":[{"name":"p","arguments":[{"name":"a"},{"name":"b"}]},{"name":"q"}]}"#,
        ),
        (
            "prompts/get",
            r#"{"description":null,"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b","text":"x","mimeType":null},"annotations":null}}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b","text":"x"}}}]}"#,
        ),
        (
            "tools/call",
            r#"{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"eA==","text":null,"mimeType":null}},{"type":"resource_link","uri":"a:b","name":"n","description":null,"size":null},{"type":"text","text":"x","annotations":{"priority":null}}],"isError":null,"structuredContent":null}"#,
            r#"{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"eA=="}},{"type":"resource_link","uri":"a:b","name":"n"},{"type":"text","text":"x","annotations":{}}]}"#,
        ),
        (
            "resources/read",
            r#"{"contents":[{"uri":"a:b","text":"x","blob":null,"mimeType":null}]}"#,
            r#"{"contents":[{"uri":"a:b","text":"x"}]}"#,
        ),
        (
            "completion/complete",
            r#"{"completion":{"values":[],"total":null,"hasMore":null}}"#,
            r#"{"completion":{"values":[]}}"#,
        ),
    ] {
        check_answer(method, result, expected, &[(Heal::H16, 1)]);
    }
    let note = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#)
    };
    check_said(
        &note(r#"{"level":"info","logger":null,"data":null}"#),
        &note(r#"{"level":"info","data":null}"#),
        &[(Heal::H16, 1)],
    );
    let progress = |token: &str, rest: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1{rest}}}}}"#
        )
    };
    check_said(
        &progress("1", r#","total":null,"message":null"#),
        &progress("\"t\"", ""),
        &[(Heal::H16, 1)],
    );
    check_said(
        r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"x","annotations":null}}],"maxTokens":5,"systemPrompt":null,"metadata":{"a":null}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"x"}}],"maxTokens":5,"metadata":{"a":null}}}"#,
        &[(Heal::H16, 1)],
    );
    check_said(
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":null}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        &[(Heal::H16, 1)],
    );
}

#[test]
fn a_null_that_is_data_of_the_user_stays() {
    for (method, result) in [
        ("tools/call", r#"{"content":[],"structuredContent":{"title":null,"_meta":null}}"#),
        (
            "tools/call",
            r#"{"content":[],"_meta":{"title":null},"title":null,"capabilities":{"prompts":null}}"#,
        ),
        (
            "tools/call",
            r#"{"content":[{"type":"tool_use","id":"1","name":"n","input":{"title":null}}]}"#,
        ),
        (
            "tools/list",
            r#"{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"enum":[null],"const":null,"default":null,"description":null}}},"_meta":{"a":null}}]}"#,
        ),
        ("x/own", r#"{"title":null,"nextCursor":null,"tools":[{"title":null}]}"#),
    ] {
        check_answer(method, result, result, &[]);
    }
    for said in [
        r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":null,"default":null}}}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"logger":null,"total":null}}}"#,
        r#"{"jsonrpc":"2.0","method":"x/own","params":{"total":null,"title":null}}"#,
    ] {
        check_said(said, said, &[]);
    }
}

#[test]
fn whatever_a_server_says_gets_its_version() {
    let progress =
        r#""method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let theirs = progress.replace("Token\":1", "Token\":\"t\"");
    for (said, heard) in [
        (progress, theirs.as_str()),
        (
            r#""method":"notifications/message","params":{"level":"info","data":1}}"#,
            r#""method":"notifications/message","params":{"level":"info","data":1}}"#,
        ),
        (r#""id":"x","method":"roots/list"}"#, r#""id":"x","method":"roots/list"}"#),
        (r#""id":1,"result":{}}"#, r#""id":1,"result":{"content":[]}}"#),
    ] {
        let expected = format!(r#"{{"jsonrpc":"2.0",{heard}"#);
        check_said(
            &format!("{{{said}"),
            &expected.replace(r#"{"content":[]}"#, "{}"),
            &[(Heal::H13, 1)],
        );
        check_said(
            &format!(r#"{{"jsonrpc":"1.0",{said}"#),
            &expected.replace(r#"{"content":[]}"#, "{}"),
            &[(Heal::H13, 1)],
        );
    }
}

#[test]
fn progress_that_is_the_text_of_a_number_is_the_number() {
    let note = |token: &str, progress: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
        )
    };
    let mut play = Play::new();
    play.ask("a", CALL);
    let theirs = |progress: &str| format!("note 1: {}", note("\"t\"", progress));
    play.hears(&note("1", "\"1\""), &theirs("1"));
    play.hears(&note("1", "\" 2.50 \""), &theirs("2.50"));
    play.hears(&note("\"1\"", "\"3\""), &theirs("3"));
    assert_eq!(play.peer.heals().take(), [(Heal::H12, 3)]);
    play.hears(&note("1", "\"2\""), "");
    // What is no number says nothing of how far it is, and what was told before still counts.
    play.hears(&note("1", "\"half\""), &theirs("\"half\""));
    play.hears(&note("1", "1"), "");
    assert_eq!(play.peer.heals().take(), [(Heal::H12, 2)]);
    for (mode, count) in [(HealMode::Warn, 1), (HealMode::Off, 0)] {
        let mut play = Play { peer: Peer::new(HealModes::default().with(Heal::H12, mode)) };
        play.ask("a", CALL);
        play.hears(&note("1", "\"1\""), &theirs("\"1\""));
        assert_eq!(play.peer.heals().count(Heal::H12), count);
    }
}

#[test]
fn what_is_well_passes_byte_for_byte_and_nothing_is_counted() {
    let mut play = Play::new();
    for (request, result) in [
        (
            "initialize",
            r#"{"protocolVersion": "2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#,
        ),
        (
            "tools/list",
            r#"{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"default":null}}}}],"nextCursor":"x"}"#,
        ),
        (
            "tools/call",
            r#"{"content":[ {"type":"text","text":"null"} , {"text":"x","type":"text"},{"type":"image","data":"eA==","mimeType":"image/png"},{"type":"own"}],"structuredContent":{"n":1.50,"a":null},"isError":false,"_meta":{"a":null}}"#,
        ),
        ("tools/call", r#"{"content":[]}"#),
        (
            "tools/call",
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}"#,
        ),
        ("prompts/get", r#"{"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}"#),
        ("resources/read", r#"{"contents":[{"uri":"a:b","blob":"eA=="}]}"#),
        ("completion/complete", r#"{"completion":{"values":[],"total":0}}"#),
        ("x/own", r#"{"title":null,"n":123456789012345678901234567890}"#),
        ("ping", "{}"),
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":"c","method":"{request}","params":{{}}}}"#);
        let id = play.ask("a", &request).number();
        let answer = format!(r#"{{"jsonrpc":"2.0", "id":{id},"result":{result} }}"#);
        play.hears(&answer, &format!("a: {answer}"));
    }
    let id = play.ask("a", CALL).number();
    for (progress, rest) in [("0", ""), ("1.50", r#","total":3,"message":"x""#), ("2e0", "")] {
        let note = |token: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}{rest}}}}}"#
            )
        };
        play.hears(&note(&id.to_string()), &format!("note {id}: {}", note("\"t\"")));
    }
    for said in [
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":null}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#,
    ] {
        play.hears(said, &format!("loose: {said}"));
    }
    for asked in [
        r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"default":null}}}}}"#,
        r#"{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#,
    ] {
        play.hears(asked, &format!("ask: {asked}"));
    }
    let error = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"no","data":null}}}}"#
    );
    play.hears(&error, &format!("a: {error}"));
    assert_eq!(play.peer.heals().take(), []);
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
            let request = CALL.replace(r#""m""#, r#""tools/list""#);
            let request = Message::parse(request.as_bytes()).unwrap();
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
