//! People behind API keys: a key is part of who asks, and one key is not one person.

use std::collections::HashSet;

use pontoon_tests::client::{Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server, bridge_command};
use serde_json::{Value, json};

use super::{CHAT, GOOD, Headers, OTHER_USER, SECRET, TOKEN, USER};
use crate::{binaries, fixture, plan};

const FRONT: (&str, &str) = ("Authorization", "Bearer the-key-of-the-front-end");
const BOB: (&str, &str) = ("Authorization", "Bearer the-key-of-bob");
const KEYS: &str = "owui=the-key-of-the-front-end,bob=the-key-of-bob";
/// What is not said about who asks.
const NOT_AT_ALL: Headers<'static> = &[];

fn named_keys(server: Server) -> Plan {
    plan([server]).variable("MCPO_API_KEYS", KEYS)
}

/// A bridge with the one key that has no name.
fn one_key(server: Server) -> Plan {
    plan([server]).variable("MCPO_API_KEY", "the-key-of-the-front-end")
}

fn with_files(mode: &str) -> Server {
    fixture(mode).with("workspace", "session")
}

fn call(rig: &Rig, headers: Headers<'_>, tool: &str, arguments: Value) -> Response {
    Modern::with(&rig.endpoint("fixture"), headers).call(1, tool, arguments)
}

fn told(rig: &Rig, headers: Headers<'_>, tool: &str, arguments: Value) -> String {
    let response = call(rig, headers, tool, arguments);
    response.tool_text().unwrap_or_else(|| panic!("{headers:?} {tool}: {}", response.text()))
}

/// Each of these has a process and a folder of its own, and finds them again.
fn check_apart(rig: &Rig, people: &[Headers<'_>]) {
    let pids = || people.iter().map(|person| told(rig, person, "pid", json!({})));
    let first: Vec<_> = pids().collect();
    assert_eq!(first, pids().collect::<Vec<_>>(), "each finds its own again");
    let different: HashSet<_> = first.iter().collect();
    assert_eq!(different.len(), people.len(), "{people:?}: {first:?}");
    check_folders(rig, people);
}

/// Each of these finds its own file in its folder, and no other.
fn check_folders(rig: &Rig, people: &[Headers<'_>]) {
    for (number, person) in people.iter().enumerate() {
        told(rig, person, "write_file", json!({"name": format!("{number}.txt"), "text": "x"}));
    }
    for (number, person) in people.iter().enumerate() {
        let folder: Value = serde_json::from_str(&told(rig, person, "folder", json!({}))).unwrap();
        let names = folder["names"].as_array().unwrap().iter().filter_map(Value::as_str);
        let visible: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        assert_eq!(visible, [format!("{number}.txt")], "{person:?}");
    }
}

const UNDER_TWO_KEYS: [Headers<'static>; 8] = [
    &[FRONT, (USER, "alice"), (CHAT, "c1")],
    &[BOB, (USER, "alice"), (CHAT, "c1")],
    &[FRONT, (CHAT, "c1")],
    &[BOB, (CHAT, "c1")],
    &[FRONT, (USER, "alice")],
    &[BOB, (USER, "alice")],
    &[FRONT, (USER, "alice"), ("X-Session-Id", "s1")],
    &[BOB, (USER, "alice"), ("X-Session-Id", "s1")],
];

#[test]
fn a_user_named_under_one_key_is_not_the_user_of_that_name_under_another() {
    let rig = named_keys(fixture("stateful")).start();
    check_apart(&rig, &UNDER_TWO_KEYS);
    rig.stop();
    let rig = named_keys(with_files("stateless")).start();
    check_folders(&rig, &UNDER_TWO_KEYS);
    rig.stop();
}

#[test]
fn a_session_is_not_found_under_another_key() {
    let rig = named_keys(fixture("stateful")).start();
    let endpoint = rig.endpoint("fixture");
    let mut alice = Legacy::open_with(&endpoint, &[FRONT, (USER, "alice"), (CHAT, "c1")]);
    let pid = alice.call(1, "pid", json!({})).tool_text();
    for thief in [&[BOB, (USER, "alice"), (CHAT, "c1")][..], &[BOB, (USER, "alice")], &[BOB]] {
        let stolen = Legacy::resume(&endpoint, &alice.session, &alice.version);
        let message = stolen.message(&json!(2), "tools/call", json!({"name": "pid"}));
        let mut request = stolen.request(&message);
        for (name, value) in thief {
            request = request.header(name, value);
        }
        let refused = request.send(rig.address()).unwrap();
        assert_eq!(refused.status(), 404, "{thief:?}: {}", refused.text());
    }
    assert_eq!(alice.call(3, "pid", json!({})).tool_text(), pid);
    alice.end();
    rig.stop();
}

#[test]
fn what_a_user_may_have_is_counted_for_each_key() {
    let server = fixture("stateful").with("max_processes_per_client", 1);
    let rig = named_keys(server).start();
    let alice = [FRONT, (USER, "alice"), (CHAT, "c1")];
    let working = Modern::with(&rig.endpoint("fixture"), &alice);
    let working = working.send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    let another = call(&rig, &[FRONT, (USER, "alice"), (CHAT, "c2")], "pid", json!({}));
    assert_eq!(another.status(), 429, "{}", another.text());
    told(&rig, &[BOB, (USER, "alice"), (CHAT, "c2")], "pid", json!({}));
    drop(working);
    rig.wait_for_gauge("running", 0);
    rig.stop();
}

/// Two people with two chats each, by what the front end says of them.
const BY_HEADERS: [Headers<'static>; 4] = [
    &[FRONT, (USER, "u1"), (CHAT, "c1")],
    &[FRONT, (USER, "u1"), (CHAT, "c2")],
    &[FRONT, (USER, "u2"), (CHAT, "c3")],
    &[FRONT, (USER, "u2"), (CHAT, "c4")],
];
const BY_TOKEN: [Headers<'static>; 4] = [
    &[FRONT, (TOKEN, GOOD), (CHAT, "c1")],
    &[FRONT, (TOKEN, GOOD), (CHAT, "c2")],
    &[FRONT, (TOKEN, OTHER_USER), (CHAT, "c1")],
    &[FRONT, (TOKEN, OTHER_USER), (CHAT, "c2")],
];

#[test]
fn two_people_with_two_chats_each_share_nothing_through_one_key() {
    for mode in ["stateful", "stateless"] {
        let by_headers = one_key(with_files(mode)).start();
        let signed = one_key(with_files(mode)).variable("MCPO_OWUI_JWT_SECRET", SECRET);
        let by_token = signed.start();
        let check = if mode == "stateful" { check_apart } else { check_folders };
        check(&by_headers, &BY_HEADERS);
        check(&by_token, &BY_TOKEN);
        // Not at all, and with what is not signed where only what is signed counts.
        for (rig, headers, way) in [
            (&by_headers, NOT_AT_ALL, "{{CHAT_ID}}"),
            (&by_token, NOT_AT_ALL, "MCPO_OWUI_JWT_SECRET"),
            (&by_token, &BY_HEADERS[0][1..], "MCPO_OWUI_JWT_SECRET"),
        ] {
            let headers = [&[FRONT][..], headers].concat();
            for tool in ["pid", "folder"] {
                let refused = call(rig, &headers, tool, json!({}));
                assert_eq!(refused.status(), 403, "{headers:?}: {}", refused.text());
                let text = refused.error_text();
                let ways = ["ENABLE_FORWARD_USER_INFO_HEADERS", "JWT_SECRET", "MCPO_API_KEYS=me="];
                let missing = ways.iter().chain([&way]).find(|way| !text.contains(**way));
                assert_eq!(missing, None, "{text}");
            }
        }
        let pool = by_headers.health()["stateful_processes"]["used"].clone();
        assert_eq!(pool, if mode == "stateful" { 4 } else { 0 }, "none for the refused");
        by_headers.stop();
        by_token.stop();
    }
}

#[test]
fn what_needs_nobody_is_open_to_the_key_without_a_name() {
    // What a server offers belongs to nobody, and a session, a name or an address tells people apart.
    let rig = one_key(fixture("stateful")).start();
    let mut client = Modern::with(&rig.endpoint("fixture"), &[FRONT]);
    for method in ["server/discover", "tools/list", "prompts/list", "resources/list"] {
        let response = client.ask(1, method, json!({}));
        assert_eq!(response.status(), 200, "{method}: {}", response.text());
    }
    let refused = client.ask(2, "resources/read", json!({"uri": "test://static-text"}));
    assert_eq!(refused.status(), 403, "{}", refused.text());
    let mut session = Legacy::open_with(&rig.endpoint("fixture"), &[FRONT]);
    assert!(session.call(1, "pid", json!({})).tool_text().is_some());
    session.end();
    told(&rig, &[FRONT, ("X-Session-Id", "s1")], "pid", json!({}));
    drop(client);
    rig.stop();
    let rig = one_key(fixture("stateless")).start();
    told(&rig, &[FRONT], "pid", json!({}));
    rig.stop();
}

#[test]
fn a_server_may_be_shared_by_all_who_show_a_key_or_come_from_an_address() {
    for rule in ["credential", "ip"] {
        let server = fixture("stateful").with("session_key", rule);
        let keys = one_key(server).variable("MCPO_API_KEYS", "bob=the-key-of-bob");
        let rig = keys.start();
        let plain = told(&rig, &[FRONT], "pid", json!({}));
        for same in [&[FRONT][..], BY_HEADERS[0], &[FRONT, ("X-Session-Id", "s1")]] {
            assert_eq!(told(&rig, same, "pid", json!({})), plain, "{rule} {same:?}");
        }
        let bobs = told(&rig, &[BOB], "pid", json!({}));
        assert_eq!(bobs == plain, rule == "ip", "{rule}");
        rig.stop();
    }
}

#[test]
fn a_key_with_a_name_is_a_person() {
    let rig = one_key(fixture("stateful")).variable("MCPO_API_KEYS", "bob=the-key-of-bob").start();
    let bob = told(&rig, &[BOB], "pid", json!({}));
    assert_eq!(told(&rig, &[BOB], "pid", json!({})), bob);
    assert_eq!(call(&rig, &[FRONT], "pid", json!({})).status(), 403);
    rig.stop();
}

#[test]
fn that_people_have_to_be_named_is_told_before_the_first_call() {
    let told = "`fixture` keeps a process or a folder for each person, and the key of MCPO_API_KEY \
                is not one person";
    let rig = one_key(fixture("stateful")).start();
    let health = rig.health();
    let note = health["note"].as_str().unwrap();
    assert!(note.starts_with(told), "{note}");
    for way in ["ENABLE_FORWARD_USER_INFO_HEADERS", "{{USER_ID}}", "MCPO_API_KEYS=me=KEY"] {
        assert!(note.contains(way), "{note}");
    }
    assert_eq!(health["status"], "ok", "it is no fault");
    let said = rig.stderr();
    assert!(said.contains(&format!("note: {told}")), "{said}");
    assert!(said.contains("--header \"Authorization: Bearer KEY\""), "{said}");
    assert!(rig.log().contains(told), "{}", rig.log());
    let checked = bridge_command(&binaries().pontoon, rig.directory())
        .args(["check", "--config", "mcp-servers.json"])
        .env("MCPO_API_KEY", "the-key-of-the-front-end")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains(&format!("note: {told}")), "{said}");
    rig.stop();
    // Where nothing is kept, or each key is a person's, there is nothing to tell.
    for plan in [one_key(fixture("stateless")), named_keys(fixture("stateful"))] {
        let rig = plan.start();
        assert_eq!(rig.health()["note"], Value::Null);
        assert!(!rig.stderr().contains("note:"), "{}", rig.stderr());
        rig.stop();
    }
}

#[test]
fn a_users_own_token_reaches_the_server_beside_our_key() {
    const OWN: (&str, &str) = ("Authorization", "Bearer the.users.own");
    const KEY: (&str, &str) = ("X-API-Key", "the-key-of-the-front-end");
    let env = json!({"TOKEN": "${header:Authorization}", "OTHER": "${header:X-API-Key}"});
    let rig = one_key(fixture("stateful").with("env", env)).start();
    let seen = |headers: Headers<'_>| {
        let headers = [headers, &[(USER, "u1"), (CHAT, "c1")]].concat();
        let environment = told(&rig, &headers, "environment", json!({}));
        let environment: Value = serde_json::from_str(&environment).unwrap();
        let text = |name: &str| environment[name].as_str().unwrap_or_default().to_owned();
        (text("TOKEN"), text("OTHER"))
    };
    let pair = |token: &str, other: &str| (token.to_owned(), other.to_owned());
    assert_eq!(seen(&[OWN, KEY]), pair("Bearer the.users.own", ""));
    assert_eq!(seen(&[FRONT]), pair("", ""), "a key of ours is no server's");
    assert_eq!(seen(&[FRONT, KEY]), pair("", ""));
    assert_eq!(seen(&[FRONT, ("X-API-Key", "the servers own")]), pair("", "the servers own"));
    // Without our key it is judged as one, and a token is no person where nothing else is known.
    let refused = call(&rig, &[OWN], "pid", json!({}));
    assert_eq!(refused.status(), 403, "{}", refused.text());
    assert!(refused.error_text().contains("X-API-Key"), "{}", refused.text());
    let refused = call(&rig, &[OWN, KEY], "pid", json!({}));
    assert!(refused.error_text().contains("not known who asks"), "{}", refused.text());
    rig.stop();
}
