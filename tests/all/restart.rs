//! Restarts and replicas: which sessions go on, and what is told of what was lost.

use std::path::Path;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Endpoint, Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Rig, Server};
use serde_json::{Value, json};

use crate::{fixture, fixture_of, plan};

/// A bridge that shares this jobs directory with others.
fn replica(jobs: &Path, server: Server) -> Rig {
    plan([server]).variable("MCPO_JOBS_DIR", jobs.to_str().unwrap()).start()
}

fn shared() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let jobs = place.path().join("jobs");
    (place, jobs)
}

/// The same session at another bridge.
fn moved(session: &Legacy, endpoint: &Endpoint) -> Legacy {
    Legacy::resume(endpoint, &session.session, &session.version)
}

fn echo(session: &mut Legacy) -> Response {
    session.call(1, "echo", json!({"text": "still here"}))
}

fn expect_echo(session: &mut Legacy) {
    let response = echo(session);
    assert_eq!(response.tool_text().as_deref(), Some("still here"), "{}", response.text());
}

fn expect_unknown(response: &Response) {
    assert_eq!(response.status(), 404, "{}", response.text());
    assert!(response.text().contains("send `initialize` again"), "{}", response.text());
}

#[test]
fn a_session_of_a_stateless_server_goes_on_at_any_replica_and_after_a_restart() {
    let (_place, jobs) = shared();
    let first = replica(&jobs, fixture("stateless"));
    let second = replica(&jobs, fixture("stateless"));
    let mut session = Legacy::open(&first.endpoint("fixture"));
    expect_echo(&mut session);
    let mut elsewhere = moved(&session, &second.endpoint("fixture"));
    expect_echo(&mut elsewhere);
    drop(elsewhere);
    let mut session = moved(&session, &first.endpoint("fixture"));
    expect_echo(&mut session);
    drop(session.kept().take());
    first.stop_with_sessions(1);
    second.kill_9();
    let third = replica(&jobs, fixture("stateless"));
    let mut session = moved(&session, &third.endpoint("fixture"));
    expect_echo(&mut session);
    session.end();
    third.stop();
}

/// What the client can be asked was said in `initialize`, at the other one.
#[test]
fn a_session_that_goes_on_elsewhere_can_be_asked() {
    let (_place, jobs) = shared();
    let first = replica(&jobs, fixture("stateless"));
    let second = replica(&jobs, fixture("stateless"));
    let able = json!({"elicitation": {}});
    for (capabilities, expected) in [(able, "accept:green"), (json!({}), "")] {
        let opened = Legacy::open_as(&first.endpoint("fixture"), "2025-06-18", &capabilities);
        let mut session = moved(&opened, &second.endpoint("fixture"));
        let mut call = session.send_call(1, "ask", json!({"question": "?"})).begin().unwrap();
        let message = call.next_message().unwrap().unwrap();
        if expected.is_empty() {
            assert_eq!(message["result"]["isError"], true, "{message}");
        } else {
            assert_eq!(message["method"], "elicitation/create", "{message}");
            let content = json!({"action": "accept", "content": {"answer": "green"}});
            let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": content});
            assert_eq!(session.post(&reply).unwrap().status(), 202);
            let answer = call.next_message().unwrap().unwrap();
            assert_eq!(answer["result"]["content"][0]["text"], expected, "{answer}");
        }
        drop(call);
        session.end();
        opened.end();
    }
    first.stop();
    second.stop();
}

#[test]
fn an_altered_session_id_is_refused() {
    let (_place, jobs) = shared();
    let rig = replica(&jobs, fixture("stateless"));
    let session = Legacy::open(&rig.endpoint("fixture"));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for at in 0..session.session.len() {
        let mut id = session.session.clone().into_bytes();
        id[at] = if id[at] == b'A' { b'B' } else { b'A' };
        let id = String::from_utf8(id).unwrap();
        let forged = Legacy::resume(&rig.endpoint("fixture"), &id, &session.version);
        expect_unknown(&forged.request(&ping).send(rig.address()).unwrap());
    }
    assert_eq!(rig.gauge("sessions"), 1, "nothing was made for them");
    session.end();
    rig.stop();
}

#[test]
fn a_session_is_good_for_its_server_its_user_and_its_bridges_only() {
    let (_place, jobs) = shared();
    let other = Server { name: "other".to_owned(), ..fixture("stateless") };
    let rig = plan([fixture("stateless"), other])
        .variable("MCPO_JOBS_DIR", jobs.to_str().unwrap())
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
        .start();
    let ada = [("X-OpenWebUI-User-Id", "ada")];
    let session = Legacy::open_with(&rig.endpoint("fixture"), &ada);
    let ask = |endpoint: &Endpoint, user: &str| -> Response {
        let client = moved(&session, endpoint);
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let request: Request = client.request(&ping).header("X-OpenWebUI-User-Id", user);
        request.send(endpoint.address).unwrap()
    };
    assert_eq!(ask(&rig.endpoint("fixture"), "ada").status(), 200);
    expect_unknown(&ask(&rig.endpoint("fixture"), "bob"));
    expect_unknown(&ask(&rig.endpoint("other"), "ada"));
    let (_elsewhere, other_jobs) = shared();
    let stranger = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", other_jobs.to_str().unwrap())
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
        .start();
    expect_unknown(&ask(&stranger.endpoint("fixture"), "ada"));
    session.end();
    rig.stop();
    stranger.stop();
}

#[test]
fn replicas_without_a_common_directory_share_a_secret() {
    let secret = "a secret for sessions, long enough";
    let replica = || plan([fixture("stateless")]).variable("MCPO_SESSION_SECRET", secret).start();
    let (first, second) = (replica(), replica());
    let session = Legacy::open(&first.endpoint("fixture"));
    let mut elsewhere = moved(&session, &second.endpoint("fixture"));
    expect_echo(&mut elsewhere);
    elsewhere.end();
    session.end();
    first.stop();
    second.stop();
}

#[test]
fn a_session_that_was_ended_does_not_go_on() {
    let (_place, jobs) = shared();
    let rig = replica(&jobs, fixture("stateless"));
    let session = Legacy::open(&rig.endpoint("fixture"));
    let mut again = moved(&session, &rig.endpoint("fixture"));
    session.end();
    expect_unknown(&echo(&mut again));
    drop(again);
    rig.stop();
}

/// A process for each conversation loses what it had in memory. That is said, once.
#[test]
fn a_stateful_server_says_once_what_a_restart_cost() {
    let (_place, jobs) = shared();
    let chat = [("X-OpenWebUI-User-Id", "ada"), ("X-OpenWebUI-Chat-Id", "c1")];
    let start = || {
        plan([fixture("stateful")])
            .variable("MCPO_JOBS_DIR", jobs.to_str().unwrap())
            .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
            .start()
    };
    let tally = |it: &mut dyn FnMut() -> Response| -> Value {
        let response = it();
        response.answer()["result"].clone()
    };
    let mut opened: Option<(String, String)> = None;
    for kill in [false, true, false] {
        let rig = start();
        let endpoint = rig.endpoint("fixture");
        let is_first = opened.is_none();
        let mut session = match &opened {
            None => Legacy::open(&endpoint),
            Some((session, version)) => Legacy::resume(&endpoint, session, version),
        };
        let mut modern = Modern::with(&endpoint, &chat);
        for client in [0, 1] {
            let mut call = || match client {
                0 => session.call(1, "tally", json!({})),
                _ => modern.call(1, "tally", json!({})),
            };
            if !is_first {
                let told = tally(&mut call);
                let text = told["content"][0]["text"].as_str().unwrap_or_default();
                assert_eq!(told["isError"], true, "{told}");
                assert!(
                    text.contains("its bridge was restarted") && text.contains("is lost"),
                    "{text}"
                );
            }
            for expected in ["1", "2"] {
                let told = tally(&mut call);
                assert_eq!(told["content"][0]["text"], expected, "{told}");
            }
        }
        opened = Some((session.session.clone(), session.version.clone()));
        drop(modern);
        drop(session);
        if kill {
            rig.kill_9();
        } else {
            rig.stop_with_sessions(1);
        }
    }
}

/// Two replicas each have a process for the conversation, and only one of them knows how it stands.
#[test]
fn a_conversation_that_comes_back_to_a_replica_is_not_served_what_was_before() {
    let (_place, jobs) = shared();
    let chat = [("X-OpenWebUI-User-Id", "ada"), ("X-OpenWebUI-Chat-Id", "c1")];
    let replica = || {
        plan([fixture("stateful")])
            .variable("MCPO_JOBS_DIR", jobs.to_str().unwrap())
            .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
            .start()
    };
    let rigs = [replica(), replica()];
    let mut clients = rigs.each_ref().map(|rig| Modern::with(&rig.endpoint("fixture"), &chat));
    let mut tally = |at: usize| clients[at].call(1, "tally", json!({})).tool_text().unwrap();
    assert_eq!(tally(0), "1");
    for at in [1, 0, 1] {
        let told = tally(at);
        assert!(told.contains("another replica has it"), "{told}");
        assert_eq!(tally(at), "1");
        // Only a process that was left alone for a moment may be outdated.
        let begun = Instant::now();
        let mut count = 1;
        while begun.elapsed() < Duration::from_millis(100) {
            count += 1;
            assert_eq!(tally(at), count.to_string());
        }
    }
    drop(clients);
    rigs.into_iter().for_each(Rig::stop);
}

/// What was let go of in order is nothing to be told of.
#[test]
fn a_session_that_was_ended_leaves_no_loss_behind() {
    let (_place, jobs) = shared();
    let rig = replica(&jobs, fixture("stateful"));
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let again = moved(&session, &rig.endpoint("fixture"));
    assert_eq!(session.call(1, "tally", json!({})).tool_text().as_deref(), Some("1"));
    session.end();
    rig.wait_for_children(0);
    rig.stop();
    let rig = replica(&jobs, fixture("stateful"));
    let mut again = moved(&again, &rig.endpoint("fixture"));
    let told = again.call(1, "tally", json!({}));
    assert_eq!(told.tool_text().as_deref(), Some("1"), "{}", told.text());
    again.end();
    rig.stop();
}

/// The streams of two bridges have the same numbers, and nothing of one may be heard as the other's.
#[test]
fn a_stream_of_another_bridge_is_not_taken_up() {
    let (_place, jobs) = shared();
    let first = replica(&jobs, fixture("stateless"));
    let second = replica(&jobs, fixture("stateless"));
    let session = Legacy::open(&first.endpoint("fixture"));
    let elsewhere = moved(&session, &second.endpoint("fixture"));
    let count = |session: &Legacy, steps: u32| {
        let params = json!({
            "name": "count",
            "arguments": {"steps": steps, "delay_ms": 10},
            "_meta": {"progressToken": "t"},
        });
        let mut call = session.send(9, "tools/call", params).begin().unwrap();
        let first = call.next_event().unwrap().unwrap().id.expect("events have ids");
        while let Some(message) = call.next_message().unwrap() {
            if message["id"] == 9 {
                break;
            }
        }
        first
    };
    let (ours, theirs) = (count(&session, 3), count(&elsewhere, 2));
    assert_ne!(ours, theirs);
    let refused = elsewhere.listen(Some(&ours)).finish().unwrap().0;
    let text = refused.text();
    assert_eq!(refused.status(), 400, "{text}");
    assert!(text.contains("another replica") && text.contains("the session goes on"), "{text}");
    // The session's own stream is heard from now on: what was said there before is gone.
    let feed = session.listen(None).next_event().unwrap().unwrap().id.expect("a priming event");
    assert_eq!(elsewhere.listen(Some(&feed)).head.status, 200);
    session.end();
    elsewhere.end();
    first.stop();
    second.stop();
}

#[test]
fn a_state_of_another_bridge_is_told_apart() {
    let (_place, jobs) = shared();
    let first = replica(&jobs, fixture_of("legacy", "stateless"));
    let second = replica(&jobs, fixture_of("legacy", "stateless"));
    let mut client = Modern::new(&first.endpoint("fixture"));
    let asked = client.call(1, "ask", json!({"question": "?"})).answer()["result"].clone();
    let params = json!({
        "name": "ask",
        "arguments": {"question": "?"},
        "inputResponses": {"q1": {"action": "decline"}},
        "requestState": asked["requestState"],
    });
    let mut elsewhere = Modern::new(&second.endpoint("fixture"));
    let refused = elsewhere.ask(2, "tools/call", params.clone()).answer();
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("another replica") && text.contains("begin anew"), "{refused}");
    let answer = client.ask(2, "tools/call", params).answer();
    assert_eq!(answer["result"]["content"][0]["text"], "decline", "{answer}");
    drop((client, elsewhere));
    first.stop();
    second.stop();
}
