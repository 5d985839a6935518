//! Memory: what a hostile client or server sends is bounded in what it makes the bridge keep.

use pontoon_tests::client::{Connection, Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use super::{SOON, assert_failed, ticks, whole};
use crate::{fixture, fixture_of, rig, rude};

const MIB: u64 = 1 << 20;
/// Almost as much as a body may have.
const LARGE: usize = 9 << 20;

/// Fails when the bridge ever had so much more memory than now while `burden` was put on it.
fn assert_grows_less(rig: &Rig, limit: u64, burden: impl FnOnce()) {
    let before = rig.resident_bytes();
    burden();
    let grown = rig.resident_bytes().saturating_sub(before) / MIB;
    let peak = rig.peak_resident_bytes().saturating_sub(before) / MIB;
    assert!(grown < limit, "{grown} MiB more, {peak} MiB at the most, where {limit} are fine");
}

#[test]
fn a_child_that_reads_nothing_does_not_fill_the_memory() {
    let rig = rig([rude("freeze", "stateful").with("timeout", 600)]);
    let session = Legacy::open(&rig.endpoint("rude"));
    let modern = Modern::new(&rig.endpoint("rude"));
    let text = json!({"text": "x".repeat(LARGE)});
    let large_note = json!({"jsonrpc": "2.0", "method": "notifications/large", "params": text});
    let large_note = session.request(&large_note).header("Connection", "close");
    let large_call = json!({"name": "echo", "arguments": text});
    let large_call = modern.request(&modern.message(&json!(1), "tools/call", large_call)).bytes();
    let begin_large = || {
        let mut connection = Connection::open(rig.address()).unwrap();
        connection.send(&large_call).unwrap();
        connection
    };
    let stuck = session.send_call(1, "echo", json!({"text": "x"}));
    rig.wait_for_gauge("running", 1);
    rig.wait_for_children(1);
    assert_grows_less(&rig, 120, || {
        for _ in 0..45 {
            assert_eq!(large_note.send(rig.address()).unwrap().status(), 202);
        }
        let mut open: Vec<Connection> = Vec::new();
        let mut busy = None;
        for _ in 0..12 {
            let running = rig.gauge("running");
            let mut call = begin_large();
            // It waits for its answer like the others, or is refused.
            wait_until("the call is taken", SOON, || {
                !call.is_quiet() || rig.gauge("running") > running
            });
            if open.is_empty() {
                // The first of them starts the child that will not read.
                rig.wait_for_children(2);
            }
            match call.is_quiet() {
                true => open.push(call),
                false => busy = Some(whole(call)),
            }
        }
        let busy = busy.expect("twelve calls of 9 MiB are more than may wait");
        assert_failed(&busy, 429, "does not read its input");
        // One that was seen running just before it was refused may not have heard of it yet.
        wait_until("fewer than six calls wait", SOON, || {
            open.retain_mut(Connection::is_quiet);
            open.len() < 6
        });
        // What was taken stays to be written although nobody waits for it any more.
        drop(open);
        rig.wait_for_gauge("running", 1);
        let busy = whole(begin_large());
        assert_failed(&busy, 429, "does not read its input");
        assert!(crate::limits::refused(&rig, "unread") >= 2);
    });
    drop(stuck);
    session.end();
    rig.stop();
}

#[test]
fn a_large_initialize_is_not_kept_with_its_session() {
    let rig = rig([fixture("stateful")]);
    let endpoint = rig.endpoint("fixture");
    let large = json!({"text": "x".repeat(LARGE)});
    let mut sessions = Vec::new();
    for (place, times) in [("other", 40), ("capabilities", 10), ("clientInfo", 10)] {
        let mut params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "kit", "version": "1"},
        });
        params[place] = large.clone();
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let request = Request::post(&endpoint.path, message.to_string());
        assert_grows_less(&rig, 60, || {
            for _ in 0..times {
                let response = request.send(endpoint.address).unwrap();
                let id = response.head.header("mcp-session-id").expect("a session");
                sessions.push(Legacy::resume(&endpoint, id, "2025-11-25"));
            }
        });
    }
    sessions.into_iter().for_each(Legacy::end);
    rig.stop();
}

#[test]
fn a_large_request_is_not_kept_with_its_id() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let params = json!({"text": "x".repeat(LARGE)});
    assert_grows_less(&rig, 60, || {
        for id in 0..12 {
            let message = session.message(&json!(id), "ping", params.clone());
            let request = session.request(&message).header("Connection", "close");
            // Its stream is kept for a client that may come back.
            let request = request.with("Accept", "text/event-stream, application/json");
            assert!(request.send(rig.address()).unwrap().head.is_stream());
        }
    });
    session.end();
    rig.stop();
}

#[test]
fn a_large_log_level_is_not_kept_with_its_session() {
    let rig = rig([fixture("stateful")]);
    let endpoint = rig.endpoint("fixture");
    let sessions: Vec<Legacy> = (0..12).map(|_| Legacy::open(&endpoint)).collect();
    let params = json!({"level": "x".repeat(LARGE)});
    let message = sessions[0].message(&json!(1), "logging/setLevel", params);
    assert_grows_less(&rig, 60, || {
        for session in &sessions {
            let request = session.request(&message).header("Connection", "close");
            assert_eq!(request.send(endpoint.address).unwrap().status(), 200);
        }
    });
    sessions.into_iter().for_each(Legacy::end);
    rig.stop();
}

#[test]
fn what_is_kept_for_clients_that_may_come_back_is_bounded() {
    let rig = rig([fixture("stateful")]);
    let endpoint = rig.endpoint("fixture");
    let mut sessions = Vec::new();
    // As large as an answer that is sent as an event whole.
    const ANSWER: u64 = 900_000;
    // Without a bound of a session it would be 180, without one of all 72 and more.
    assert_grows_less(&rig, 130, || {
        for _ in 0..12 {
            let session = Legacy::open(&endpoint);
            let mut firsts = Vec::new();
            for id in 0..17 {
                let params = json!({"name": "big", "arguments": {"bytes": ANSWER}});
                let message = session.message(&json!(id), "tools/call", params);
                let request = session.request(&message).header("Connection", "close");
                let request = request.with("Accept", "text/event-stream, application/json");
                let response = request.send(endpoint.address).unwrap();
                assert!(response.head.is_stream(), "only a stream is kept");
                assert!(response.body.len() as u64 > ANSWER, "the answer came");
                let first = response
                    .text()
                    .lines()
                    .find_map(|it| it.strip_prefix("id: ").map(str::to_owned));
                firsts.push(first.expect("events have ids"));
            }
            sessions.push((session, firsts));
        }
    });
    let statuses = |(session, firsts): &(Legacy, Vec<String>)| {
        [&firsts[0], &firsts[16]].map(|id| {
            let stream = session.listen(Some(id));
            (stream.head.status, stream.finish().unwrap().0.body.len() as u64 > ANSWER)
        })
    };
    assert_eq!(statuses(&sessions[0]), [(404, false), (404, false)], "others needed the room");
    assert_eq!(statuses(&sessions[11]), [(404, false), (200, true)], "its own need the room");
    sessions.into_iter().for_each(|(session, _)| session.end());
    rig.stop();
}

#[test]
fn large_capabilities_are_not_kept_with_a_child() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    assert_grows_less(&rig, 60, || {
        for id in 0..12_u64 {
            let large = "x".repeat(LARGE);
            modern.capabilities = json!({"experimental": {"n": id, "large": large}});
            let response = modern.call(id, "echo", json!({"text": "x"}));
            assert!(response.status() < 500, "{}", response.text());
        }
    });
    drop(modern);
    rig.stop();
}

#[test]
fn a_subscription_to_very_many_resources_is_cheap() {
    for era in ["legacy", "modern"] {
        let rig = rig([fixture_of(era, "stateful")]);
        let client = Modern::new(&rig.endpoint("fixture"));
        let echo = || whole(client.send_call(1, "echo", json!({"text": "x"})));
        assert_eq!(echo().tool_text().as_deref(), Some("x"));
        let uris: Vec<String> = (0..200_000).map(|n| n.to_string()).collect();
        let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
        let request = client.request(&client.message(&json!(2), "subscriptions/listen", wanted));
        assert_grows_less(&rig, 30, || {
            let before = ticks(&rig);
            let mut stream = request.begin(rig.address()).unwrap();
            let first = stream.next_message().unwrap().unwrap();
            assert!(first["method"].as_str().unwrap().ends_with("acknowledged"), "{era}");
            assert_eq!(echo().tool_text().as_deref(), Some("x"), "{era}");
            // Each compared with each other would be minutes.
            let used = ticks(&rig) - before;
            assert!(used < 1000, "{era}: {used} hundredths of a second");
        });
        rig.stop();
    }
}
