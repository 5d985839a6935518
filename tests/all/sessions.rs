//! Legacy sessions: their streams, their end, and what belongs to whom.

use std::time::Duration;

use pontoon_tests::client::{Exchange, Legacy, Speaker};
use pontoon_tests::rig::{holds_within, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::shutdown::helper;
use crate::{fixture, fixture_of, rig};

fn counting(token: &str, steps: u32, delay_ms: u32) -> Value {
    json!({
        "name": "count",
        "arguments": {"steps": steps, "delay_ms": delay_ms},
        "_meta": {"progressToken": token},
    })
}

#[test]
fn a_notification_is_accepted_without_a_word() {
    let rig = rig([fixture("stateful")]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    for method in ["notifications/initialized", "notifications/roots/list_changed", "no/such"] {
        let response = session.notify(method, &json!({}));
        assert_eq!((response.status(), response.body.len()), (202, 0), "{method}");
    }
    let stray = json!({"jsonrpc": "2.0", "id": "nobody asked", "result": {}});
    let response = session.post(&stray).unwrap();
    assert_eq!((response.status(), response.body.len()), (202, 0));
    session.end();
    rig.stop();
}

#[test]
fn a_broken_stream_is_taken_up_where_it_broke() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let mut call = session.send(9, "tools/call", counting("t", 8, 150)).begin().unwrap();
    let mut seen = Vec::new();
    let mut last = None;
    while seen.len() < 2 {
        let event = call.next_event().unwrap().expect("the stream goes on");
        last = event.id.or(last);
        if !event.data.is_empty() {
            seen.push(serde_json::from_str::<Value>(&event.data).unwrap());
        }
    }
    drop(call);
    let last = last.expect("events have ids");
    let mut resumed = session.listen(Some(&last));
    assert_eq!(resumed.head.status, 200);
    let mut ids = std::collections::HashSet::from([last]);
    while let Some(event) = resumed.next_event().unwrap() {
        if let Some(id) = event.id {
            assert!(ids.insert(id), "an event came twice");
        }
        if !event.data.is_empty() {
            let message: Value = serde_json::from_str(&event.data).unwrap();
            let is_answer = message["id"] == 9;
            seen.push(message);
            if is_answer {
                break;
            }
        }
    }
    let (answer, notes) = seen.split_last().unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "counted to 8");
    let steps: Vec<_> =
        notes.iter().map(|note| note["params"]["progress"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
    assert_eq!(steps.last(), Some(&8));
    drop(resumed);
    session.end();
    rig.stop();
}

#[test]
fn an_answer_waits_for_a_client_that_lost_its_stream() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let mut call = session.send(9, "tools/call", counting("t", 3, 100)).begin().unwrap();
    let first = call.next_event().unwrap().unwrap().id.expect("events have ids");
    drop(call);
    rig.wait_for_gauge("running", 0);
    let mut resumed = session.listen(Some(&first));
    let messages = until_answer(&mut resumed, 9);
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "counted to 3");
    drop(resumed);
    session.end();
    rig.stop();
}

fn until_answer(stream: &mut Exchange, id: i64) -> Vec<Value> {
    let mut messages = Vec::new();
    while let Some(message) = stream.next_message().unwrap() {
        let is_answer = message["id"] == id;
        messages.push(message);
        if is_answer {
            return messages;
        }
    }
    panic!("the stream ended without the answer: {messages:?}");
}

#[test]
fn a_stream_is_not_taken_up_in_another_session() {
    let rig = rig([fixture("stateful")]);
    let mine = Legacy::open(&rig.endpoint("fixture"));
    let other = Legacy::open(&rig.endpoint("fixture"));
    let mut call = mine.send(9, "tools/call", counting("secret", 2, 50)).begin().unwrap();
    let id = call.next_event().unwrap().unwrap().id.unwrap();
    until_answer(&mut call, 9);
    let stolen = other.listen(Some(&id));
    assert!((400..500).contains(&stolen.head.status), "status {}", stolen.head.status);
    drop((call, stolen));
    mine.end();
    other.end();
    rig.stop();
}

#[test]
fn a_session_has_one_stream_of_its_own() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let first = session.listen(None);
    assert_eq!(first.head.status, 200);
    assert!(first.head.is_stream());
    assert_eq!(session.listen(None).head.status, 409);
    drop(first);
    let mut again = None;
    let opened = holds_within(Duration::from_secs(5), || {
        let stream = session.listen(None);
        let ok = stream.head.status == 200;
        again = Some(stream);
        ok
    });
    assert!(opened, "a closed stream still blocks the next one");
    drop(again);
    session.end();
    rig.stop();
}

#[test]
fn what_belongs_to_no_call_comes_on_the_stream_of_the_session() {
    let rig = rig([fixture("stateful")]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let mut other = Legacy::open(&rig.endpoint("fixture"));
    let mut stream = session.listen(None);
    let uri = "test://watched-resource";
    let response = session.ask(1, "resources/subscribe", json!({"uri": uri}));
    assert!(response.answer().get("result").is_some(), "{}", response.text());
    // Another session's change is another session's affair.
    assert_eq!(other.call(1, "touch", json!({"uri": "test://other"})).status(), 200);
    assert_eq!(session.call(2, "touch", json!({"uri": uri})).status(), 200);
    let message = stream.next_message().unwrap().unwrap();
    assert_eq!(message["method"], "notifications/resources/updated", "{message}");
    assert_eq!(message["params"]["uri"], uri);
    drop(stream);
    session.end();
    other.end();
    rig.stop();
}

#[test]
fn an_ended_session_is_unknown_and_its_child_gone() {
    let rig = rig([fixture("stateful")]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    assert_eq!(session.call(1, "echo", json!({"text": "x"})).status(), 200);
    rig.wait_for_children(1);
    let stream = session.listen(None);
    let request = session.bare("DELETE");
    assert_eq!(request.send(rig.address()).unwrap().status(), 200);
    rig.wait_for_children(0);
    rig.wait_for_gauge("sessions", 0);
    assert!(stream.finish().is_ok(), "the stream of the session ends with it");
    let response = session.call(2, "echo", json!({"text": "x"}));
    assert_eq!(
        (response.status(), response.error_code()),
        (404, Some(-32001)),
        "{}",
        response.text()
    );
    assert_eq!(request.send(rig.address()).unwrap().status(), 404);
    assert_eq!(session.listen(None).head.status, 404);
    drop(session);
    rig.stop();
}

#[test]
fn ending_a_session_ends_its_open_calls() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let session = Legacy::open(&rig.endpoint("fixture"));
        // One id twice: these are two calls all the same.
        let open = [1, 1].map(|id| session.send_call(id, "wait", json!({"ms": 60_000})));
        rig.wait_for_gauge("running", 2);
        session.end();
        rig.wait_for_gauge("running", 0);
        rig.wait_for_children(0);
        drop(open);
        rig.stop();
    }
}

#[test]
fn a_cancelled_call_gets_no_answer() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let mut session = Legacy::open(&rig.endpoint("fixture"));
        let open = session.send_call("c", "wait", json!({"ms": 60_000}));
        rig.wait_for_gauge("running", 1);
        wait_until("a child works", Duration::from_secs(5), || !rig.children().is_empty());
        let response = session.notify("notifications/cancelled", &json!({"requestId": "c"}));
        assert_eq!(response.status(), 202);
        rig.wait_for_gauge("running", 0);
        let response = open.begin().unwrap().finish().unwrap().0;
        assert!(response.messages().unwrap().is_empty(), "{mode}: {}", response.text());
        session.end();
        rig.stop();
    }
}

/// Of a legacy client at a modern server, whose process has to start first.
#[test]
fn a_subscription_that_waits_for_its_process_can_be_cancelled() {
    let rig = rig([fixture_of("modern", "stateful")]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    rig.wait_for_state("fixture", "ready");
    rig.wait_for_gauge("children", 0);
    // Nothing starts meanwhile.
    let helper = helper(&rig);
    send_signal(helper, Signal::STOP).unwrap();
    let open = session.send("s", "resources/subscribe", json!({"uri": "test://watched-resource"}));
    rig.wait_for_gauge("running", 1);
    let response = session.notify("notifications/cancelled", &json!({"requestId": "s"}));
    assert_eq!(response.status(), 202);
    let ended = holds_within(Duration::from_secs(5), || rig.gauge("running") == 0);
    send_signal(helper, Signal::CONT).unwrap();
    assert!(ended, "it waits on");
    let response = open.begin().unwrap().finish().unwrap().0;
    assert!(response.messages().unwrap().is_empty(), "{}", response.text());
    session.end();
    rig.stop();
}

#[test]
fn nobody_cancels_the_call_of_another() {
    let rig = rig([fixture("stateful")]);
    let mine = Legacy::open(&rig.endpoint("fixture"));
    let mut other = Legacy::open(&rig.endpoint("fixture"));
    let open = mine.send_call(1, "wait", json!({"ms": 1500}));
    rig.wait_for_gauge("running", 1);
    for id in [json!(1), json!("1"), json!(2), json!(0)] {
        assert_eq!(
            other.notify("notifications/cancelled", &json!({"requestId": id})).status(),
            202
        );
    }
    let response = open.begin().unwrap().finish().unwrap().0;
    assert_eq!(response.tool_text().as_deref(), Some("waited 1500 ms"), "{}", response.text());
    mine.end();
    other.end();
    rig.stop();
}

#[test]
fn equal_ids_of_one_client_at_once_are_not_mixed_up() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let slow = session.send_call(1, "wait", json!({"ms": 1000}));
    rig.wait_for_gauge("running", 1);
    let quick = session.send_call("1", "echo", json!({"text": "quick"}));
    let quick = quick.begin().unwrap().finish().unwrap().0;
    assert_eq!(quick.answer()["id"], "1");
    assert_eq!(quick.tool_text().as_deref(), Some("quick"));
    let slow = slow.begin().unwrap().finish().unwrap().0;
    assert_eq!(slow.answer()["id"], 1);
    assert_eq!(slow.tool_text().as_deref(), Some("waited 1000 ms"));
    session.end();
    rig.stop();
}
