//! Limits: each is reached, told as its era wants, and given back however the call ends.

use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::{fixture, plan};

const SOON: Duration = Duration::from_secs(5);

fn with_limit(limit: u32) -> Rig {
    let server = fixture("stateless").with("timeout", 2);
    plan([server]).variable("MCPO_MAX_CONCURRENT", &limit.to_string()).start()
}

#[test]
fn a_modern_call_too_many_is_told_to_come_again() {
    let rig = with_limit(2);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let open: Vec<_> = (0..2).map(|_| client.send_call(1, "wait", json!({"ms": 60_000}))).collect();
    rig.wait_for_gauge("permits_in_use", 2);
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(
        (response.status(), response.error_code()),
        (429, Some(-31429)),
        "{}",
        response.text()
    );
    let wait: u64 = response.head.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1, "Retry-After: {wait}");
    assert_eq!(response.answer()["id"], 1);
    assert!(response.error_text().contains("try again"), "{}", response.text());
    assert_eq!(rig.gauge("permits_in_use"), 2);
    drop((open, client));
    rig.stop();
}

#[test]
fn a_legacy_call_too_many_keeps_its_session() {
    let rig = with_limit(1);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let open = session.send_call(7, "wait", json!({"ms": 1000}));
    rig.wait_for_gauge("permits_in_use", 1);
    let response = session.call(8, "echo", json!({"text": "x"}));
    assert_eq!((response.status(), response.error_code()), (200, Some(-31429)));
    assert_eq!(response.answer().pointer("/error/data/httpStatus"), Some(&json!(429)));
    assert_eq!(response.answer()["id"], 8);
    let first = open.begin().unwrap().finish().unwrap().0;
    assert_eq!(first.tool_text().as_deref(), Some("waited 1000 ms"));
    rig.wait_for_gauge("permits_in_use", 0);
    let response = session.call(9, "echo", json!({"text": "again"}));
    assert_eq!(response.tool_text().as_deref(), Some("again"));
    session.end();
    rig.stop();
}

#[test]
fn lists_and_pings_take_no_permit() {
    let rig = with_limit(1);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let open = session.send_call(7, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("permits_in_use", 1);
    for method in ["ping", "tools/list"] {
        let response = session.ask(8, method, json!({}));
        assert!(response.answer().get("result").is_some(), "{method}: {}", response.text());
    }
    drop(open);
    // The call itself goes on until its deadline.
    rig.wait_for_gauge("permits_in_use", 0);
    session.end();
    rig.stop();
}

/// With one permit in all, `use_it` has to give it back.
fn check_comes_back(how: &str, use_it: impl FnOnce(&Rig, &mut Modern)) {
    let rig = with_limit(1);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    use_it(&rig, &mut client);
    wait_until(&format!("the permit after {how}"), SOON, || rig.gauge("permits_in_use") == 0);
    for id in 0..3 {
        let response = client.call(id, "echo", json!({"text": how}));
        assert_eq!(response.tool_text().as_deref(), Some(how), "{}", response.text());
        rig.wait_for_gauge("permits_in_use", 0);
    }
    drop(client);
    rig.stop();
}

#[test]
fn a_permit_comes_back_after_success() {
    check_comes_back("success", |_, client| {
        assert_eq!(client.call(1, "echo", json!({"text": "x"})).status(), 200);
    });
}

#[test]
fn a_permit_comes_back_after_an_error() {
    check_comes_back("an error", |_, client| {
        let response = client.call(1, "no_such_tool", json!({}));
        assert!(response.answer().get("error").is_some(), "{}", response.text());
    });
}

#[test]
fn a_permit_comes_back_after_the_deadline() {
    check_comes_back("the deadline", |_, client| {
        assert_eq!(client.call(1, "wait", json!({"ms": 60_000})).status(), 504);
    });
}

#[test]
fn a_permit_comes_back_after_the_client_left() {
    check_comes_back("leaving", |rig, client| {
        let connection = client.send_call(1, "wait", json!({"ms": 60_000}));
        rig.wait_for_gauge("permits_in_use", 1);
        drop(connection);
    });
}

#[test]
fn a_permit_comes_back_after_a_crash() {
    check_comes_back("a crash", |_, client| {
        assert_eq!(client.call(1, "crash", json!({})).status(), 502);
    });
}

#[test]
fn a_permit_comes_back_after_a_killed_child() {
    check_comes_back("a kill", |rig, client| {
        let connection = client.send_call(1, "wait", json!({"ms": 60_000}));
        wait_until("the child works", SOON, || !rig.children().is_empty());
        rig.wait_for_gauge("running", 1);
        for child in rig.children() {
            send_signal(child.pid, Signal::KILL).unwrap();
        }
        let response = connection.begin().unwrap().finish().unwrap().0;
        assert_eq!(response.status(), 502, "{}", response.text());
    });
}

#[test]
fn a_body_may_be_as_long_as_said_and_no_longer() {
    let rig = plan([fixture("stateful")]).variable("MCPO_MAX_BODY", "2000").start();
    let endpoint = rig.endpoint("fixture");
    let client = Modern::new(&endpoint);
    let message =
        client.message(&json!(1), "tools/call", json!({"name": "echo", "arguments": {"text": ""}}));
    let exact = |length: usize| {
        let text = "x".repeat(length - message.to_string().len());
        let params = json!({"name": "echo", "arguments": {"text": text}});
        client.request(&client.message(&json!(1), "tools/call", params))
    };
    let fits = exact(2000).send(endpoint.address).unwrap();
    assert_eq!(fits.status(), 200, "{}", fits.text());
    let over: Request = exact(2001);
    let refused = over.send(endpoint.address).unwrap();
    assert_eq!(refused.status(), 413, "{}", refused.text());
    assert!(refused.error_text().contains("2000"), "{}", refused.text());
    rig.stop();
}
