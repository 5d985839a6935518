//! Clients that share a process, servers that share a limit, and calls that share a child.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pontoon_tests::client::{Legacy, Modern, Speaker};
use pontoon_tests::rig::{Server, processes, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{CHAT, Headers, LADDER, SOON, USER, behind_proxy, busy, finish, is_gone, pid, tell};
use crate::{binaries, fixture, plan, rude};

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"a secret"}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"your name?","requestedSchema":{"type":"object","properties":{}}}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A server that says what it is told to, in one process for all at an address.
fn shared() -> Server {
    rude("plays", "stateful").with("session_key", "ip")
}

fn steps(steps: &[Value]) -> Value {
    json!({"steps": steps})
}

fn touch(path: &Path) {
    fs::write(path, "").unwrap();
}

#[test]
fn what_a_shared_process_logs_or_asks_is_never_anothers() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { place.path().join(name) };
    let rig = plan([shared()]).start();
    let (ada, ben) = (Legacy::open(&rig.endpoint("rude")), Legacy::open(&rig.endpoint("rude")));
    let mut hears = ben.listen(None);
    let of_ada = [json!({"until": file("go")}), json!(LOG), json!(QUESTION), json!({"hear": "q"})];
    let adas = ada.send_call(1, "play", steps(&of_ada));
    rig.wait_for_gauge("running", 1);
    let of_ben = [json!({"until": file("end")}), json!(CHANGED)];
    let bens = ben.send_call(1, "play", steps(&of_ben));
    rig.wait_for_gauge("running", 2);
    rig.wait_for_children(1);
    touch(&file("go"));
    let answer = finish(adas).tool_text().unwrap();
    assert!(answer.contains("no call of a client is open"), "{answer}");
    touch(&file("end"));
    // The first that Ben hears is what concerns all.
    let first = hears.next_message().unwrap().unwrap();
    assert_eq!(first["method"], "notifications/tools/list_changed", "{first}");
    assert_eq!(finish(bens).status(), 200);
    drop(hears);
    ada.end();
    ben.end();
    rig.stop();
}

#[test]
fn a_question_outside_of_calls_is_refused_for_a_client_that_answers_none() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    let (begun, go, told) = (file("begun"), file("go"), file("told"));
    let rig = plan([rude("plays", "stateful")]).start();
    let session = Legacy::open_as(&rig.endpoint("rude"), "2025-11-25", &json!({}));
    let given_up = session.send_call(
        1,
        "play",
        steps(&[
            json!({"touch": begun}),
            json!({"until": go}),
            json!(QUESTION),
            json!({"hear": "q"}),
            json!({"touch": told}),
        ]),
    );
    wait_until("it is at work", SOON, || begun.exists());
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let mut session = session;
    assert_eq!(session.post(&cancel).unwrap().status(), 202);
    rig.wait_for_gauge("running", 0);
    touch(&go);
    wait_until("the server hears that nobody answers", SOON, || told.exists());
    drop(given_up);
    session.end();
    rig.stop();
}

#[test]
fn a_call_that_waits_for_a_person_keeps_no_other_waiting() {
    let place = tempfile::tempdir().unwrap();
    let go = place.path().join("go");
    let server = shared().with("max_in_flight", 1);
    let rig = plan([server]).variable("MCPO_QUEUE_WAIT", "60").start();
    let client = Modern::new(&rig.endpoint("rude"));
    let asks = [json!({"until": go}), json!(QUESTION), json!({"hear": "q"})];
    let parked = client.send_call(1, "play", steps(&asks));
    rig.wait_for_gauge("running", 1);
    let waits = client.send_call(2, "echo", json!({"text": "soon"}));
    rig.wait_for_gauge("running", 2);
    let begun = Instant::now();
    touch(&go);
    assert_eq!(finish(parked).answer()["result"]["resultType"], "input_required");
    let answer = finish(waits);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(begun.elapsed() < Duration::from_secs(30), "nobody woke it: {:?}", begun.elapsed());
    drop(client);
    rig.stop();
}

#[test]
fn a_subscription_is_no_call() {
    let server = fixture("stateful").with("max_in_flight", 1);
    let rig = behind_proxy(server).start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    let mut client = super::modern(&rig, person);
    let listen = |id: u64| {
        let filter = json!({"notifications": {"toolsListChanged": true}});
        client.send(id, "subscriptions/listen", filter).begin().unwrap()
    };
    let first = listen(1);
    assert_eq!(first.head.status, 200);
    let call = busy(&rig, &client, 500, 2);
    // Nor does it wait for one.
    let second = listen(2);
    assert_eq!(second.head.status, 200);
    assert_eq!(finish(call).tool_text().as_deref(), Some("waited 500 ms"));
    assert_eq!(tell(&mut client, "tally"), "1");
    drop((first, second, client));
    rig.wait_for_gauge("running", 0);
    rig.stop();
}

#[test]
fn a_clients_idle_process_of_one_server_makes_room_for_another_server() {
    let other = Server::new("other", &binaries().fixture_server, &[]).with("mode", "stateful");
    let rig = plan([fixture("stateful"), other])
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
        .variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "1")
        .start();
    let ada: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    let first = pid(&rig, ada);
    // Somebody else's is not touched.
    let bens = Modern::with(&rig.endpoint("other"), &[(USER, "ben"), (CHAT, "c1")]).call(
        1,
        "pid",
        json!({}),
    );
    assert_eq!(bens.status(), 429, "{}", bens.text());
    let mut client = Modern::with(&rig.endpoint("other"), ada);
    assert_ne!(tell(&mut client, "pid").parse(), Ok(first));
    wait_until("the first is let go", SOON, || is_gone(first));
    drop(client);
    rig.stop();
}

/// The signals that a stopped process has yet to take.
fn pending(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

#[test]
fn a_process_that_hangs_is_asked_to_end_and_gets_no_other_call() {
    // Whether it hangs is known after two seconds, which the next call has.
    let rig = behind_proxy(fixture("stateful").with("timeout", 4)).start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    let mut client = super::modern(&rig, person);
    assert_eq!(tell(&mut client, "tally"), "1");
    let hung = pid(&rig, person);
    send_signal(hung, Signal::STOP).unwrap();
    assert_eq!(client.call(1, "tally", json!({})).status(), 504);
    // At once: whether it hangs is not even known yet.
    let told = tell(&mut client, "tally");
    assert!(told.contains("it answered nothing any more and was stopped"), "{told}");
    assert!(told.contains("is lost. This call was not made"), "{told}");
    let has_signal = |signal: Signal| pending(hung) & (1 << (signal.as_raw() - 1)) != 0;
    wait_until("it is asked to end", SOON, || has_signal(Signal::TERM));
    assert!(!has_signal(Signal::KILL) && processes::read(hung).is_some(), "it has ten seconds");
    assert_eq!(tell(&mut client, "tally"), "1", "a new one");
    wait_until("the old one is gone", LADDER, || is_gone(hung));
    drop(client);
    rig.stop();
}

#[test]
fn another_session_of_a_chat_hears_the_log_of_its_calls() {
    let server = crate::fixture_of("modern", "stateful");
    let rig = behind_proxy(server).start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    for round in 0..3 {
        let mut session = super::legacy(&rig, person);
        session.ask(1, "logging/setLevel", json!({"level": "debug"}));
        let response = session.call(2, "test_logging_tool", json!({}));
        let logged = response.messages().unwrap().into_iter();
        let logged = logged.filter(|it| it["method"] == "notifications/message").count();
        assert_eq!(logged, 1, "round {round}: {}", response.text());
        session.end();
    }
    rig.stop();
}
