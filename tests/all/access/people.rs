//! People behind API keys: a key is part of who asks.

use std::collections::HashSet;

use pontoon_tests::client::{Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server};
use serde_json::{Value, json};

use super::{CHAT, Headers, USER};
use crate::{fixture, plan};

const FRONT: (&str, &str) = ("Authorization", "Bearer the-key-of-the-front-end");
const BOB: (&str, &str) = ("Authorization", "Bearer the-key-of-bob");
const KEYS: &str = "owui=the-key-of-the-front-end,bob=the-key-of-bob";

fn named_keys(server: Server) -> Plan {
    plan([server]).variable("MCPO_API_KEYS", KEYS)
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
