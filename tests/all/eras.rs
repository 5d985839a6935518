//! Both eras on both sides: what a client hears does not depend on what its server speaks.

use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Response, Speaker, mcp};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fixture, fixture_of, rig};

/// The era a server speaks, and the mode it runs in: all that a client should not notice.
const BACKS: [(&str, &str); 6] = [
    ("both", "stateful"),
    ("legacy", "stateful"),
    ("modern", "stateful"),
    ("both", "stateless"),
    ("legacy", "stateless"),
    ("modern", "stateless"),
];

fn result(response: &Response) -> Value {
    let answer = response.answer();
    assert_eq!(response.status(), 200, "{answer}");
    answer.get("result").unwrap_or_else(|| panic!("no result: {answer}")).clone()
}

#[test]
fn a_version_is_agreed_on_that_the_bridge_speaks() {
    let rig = rig([fixture("stateful")]);
    for (asked, wanted) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("2099-12-31", "2025-11-25"),
    ] {
        let session = Legacy::open_as(&rig.endpoint("fixture"), asked, &json!({}));
        assert_eq!(session.version, wanted, "asked for {asked}");
        assert!(session.initialized["serverInfo"]["name"].is_string());
        let visible = |byte| (0x21..=0x7E).contains(&byte);
        assert!(session.session.bytes().all(visible) && session.session.len() >= 16);
        session.end();
    }
    rig.stop();
}

#[test]
fn each_session_id_is_new() {
    let rig = rig([fixture("stateful")]);
    let sessions: Vec<_> = (0..8).map(|_| Legacy::open(&rig.endpoint("fixture"))).collect();
    let ids: std::collections::HashSet<_> = sessions.iter().map(|it| it.session.clone()).collect();
    assert_eq!(ids.len(), 8);
    assert_eq!(rig.gauge("sessions"), 8);
    sessions.into_iter().for_each(Legacy::end);
    rig.stop();
}

#[test]
fn a_server_is_discovered_whatever_it_speaks() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let discovered = result(&client.ask("d", "server/discover", json!({})));
        let versions = discovered["supportedVersions"].as_array().unwrap();
        assert!(versions.contains(&json!(mcp::MODERN)), "{era}: {discovered}");
        assert!(discovered["capabilities"]["tools"].is_object(), "{era}: {discovered}");
        assert_eq!(discovered["resultType"], "complete", "{era}");
        assert!(discovered["ttlMs"].is_u64() && discovered["cacheScope"].is_string(), "{era}");
        assert!(discovered["instructions"].as_str().unwrap().starts_with("A server for tests"));
        drop(client);
        rig.stop();
    }
}

#[test]
fn a_modern_client_hears_modern_results() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let list = result(&client.ask(1, "tools/list", json!({})));
        assert!(list["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"));
        assert_eq!(list["resultType"], "complete", "{era} {mode}");
        assert!(list["ttlMs"].is_u64() && list["cacheScope"].is_string(), "{era} {mode}: {list}");
        let echo = result(&client.call("x", "echo", json!({"text": "é\u{2028}\n"})));
        assert_eq!(
            echo["content"],
            json!([{"type": "text", "text": "é\u{2028}\n"}]),
            "{era} {mode}"
        );
        assert_eq!(echo["resultType"], "complete", "{era} {mode}");
        drop(client);
        rig.stop();
    }
}

#[test]
fn a_legacy_client_hears_legacy_results() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut client = Legacy::open(&rig.endpoint("fixture"));
        let instructions = client.initialized["instructions"].as_str().unwrap_or_default();
        assert!(instructions.starts_with("A server for tests"), "{era}: {}", client.initialized);
        let list = result(&client.ask(1, "tools/list", json!({})));
        assert!(list["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"));
        let echo = result(&client.call("x", "echo", json!({"text": "é"})));
        assert_eq!(echo["content"], json!([{"type": "text", "text": "é"}]), "{era} {mode}");
        for member in ["resultType", "ttlMs", "cacheScope"] {
            assert!(list.get(member).is_none(), "{era} {mode}: {member} in {list}");
            assert!(echo.get(member).is_none(), "{era} {mode}: {member} in {echo}");
        }
        client.end();
        rig.stop();
    }
}

#[test]
fn an_unknown_method_is_told_in_the_way_of_the_era() {
    let rig = rig([fixture("stateful")]);
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let response = legacy.ask(1, "no/such", json!({}));
    assert_eq!(
        (response.status(), response.error_code()),
        (200, Some(-32601)),
        "{}",
        response.text()
    );
    legacy.end();
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let response = modern.ask(1, "no/such", json!({}));
    assert_eq!(
        (response.status(), response.error_code()),
        (404, Some(-32601)),
        "{}",
        response.text()
    );
    assert_eq!(response.answer()["id"], 1);
    // These left the protocol with the modern era.
    for gone in ["ping", "logging/setLevel", "resources/subscribe"] {
        let response = modern.ask(2, gone, json!({"level": "info", "uri": "test://x"}));
        assert_eq!((response.status(), response.error_code()), (404, Some(-32601)), "{gone}");
    }
    drop(modern);
    rig.stop();
}

#[test]
fn progress_comes_under_the_clients_token_and_before_the_answer() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut legacy = Legacy::open(&rig.endpoint("fixture"));
        let mut modern = Modern::new(&rig.endpoint("fixture"));
        for token in [json!("my token"), json!(7)] {
            let params = json!({
                "name": "count",
                "arguments": {"steps": 3, "delay_ms": 20},
                "_meta": {"progressToken": token},
            });
            for response in [
                legacy.ask(7, "tools/call", params.clone()),
                modern.ask(7, "tools/call", params.clone()),
            ] {
                let messages = response.messages().unwrap();
                let (answer, notes) = messages.split_last().unwrap();
                assert!(response.head.is_stream(), "{era} {mode}: {}", response.text());
                assert_eq!(answer["id"], 7, "{era} {mode}: {}", response.text());
                assert!(!notes.is_empty(), "{era} {mode}: {}", response.text());
                assert!(notes.iter().all(|note| note["params"]["progressToken"] == token));
                let steps: Vec<_> =
                    notes.iter().map(|it| it["params"]["progress"].as_u64()).collect();
                assert!(steps.is_sorted(), "{era} {mode}: {steps:?}");
            }
        }
        drop(modern);
        legacy.end();
        rig.stop();
    }
}

#[test]
fn a_legacy_client_is_asked_in_the_middle_of_its_call() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut client = Legacy::open(&rig.endpoint("fixture"));
        let mut call =
            client.send_call(5, "ask", json!({"question": "Which colour?"})).begin().unwrap();
        let question = call.next_message().unwrap().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{era} {mode}: {question}");
        assert_eq!(question["params"]["message"], "Which colour?", "{era} {mode}");
        let content = json!({"action": "accept", "content": {"answer": "green"}});
        let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
        assert_eq!(client.post(&reply).unwrap().status(), 202, "{era} {mode}");
        let answer = call.next_message().unwrap().unwrap();
        assert_eq!(answer["id"], 5, "{era} {mode}: {answer}");
        assert_eq!(
            answer["result"]["content"][0]["text"], "accept:green",
            "{era} {mode}: {answer}"
        );
        drop(call);
        client.end();
        rig.stop();
    }
}

#[test]
fn a_modern_client_is_asked_by_a_result_and_calls_again() {
    for (era, mode) in BACKS {
        let rig = rig([fixture_of(era, mode)]);
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let asked = result(&client.call(1, "ask", json!({"question": "Which colour?"})));
        assert_eq!(asked["resultType"], "input_required", "{era} {mode}: {asked}");
        let requests = asked["inputRequests"].as_object().unwrap();
        let (key, question) = requests.iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{era} {mode}: {asked}");
        assert_eq!(question["params"]["message"], "Which colour?", "{era} {mode}: {asked}");
        let mut params = json!({
            "name": "ask",
            "arguments": {"question": "Which colour?"},
            "inputResponses": {key: {"action": "accept", "content": {"answer": "green"}}},
        });
        if let Some(state) = asked.get("requestState") {
            params["requestState"] = state.clone();
        }
        let answer = result(&client.ask(2, "tools/call", params));
        assert_eq!(answer["content"][0]["text"], "accept:green", "{era} {mode}: {answer}");
        assert_eq!(answer["resultType"], "complete", "{era} {mode}");
        drop(client);
        rig.stop();
    }
}

#[test]
fn a_parked_call_holds_no_permit_and_ends_with_the_bridge() {
    let mut rig = rig([fixture_of("legacy", "stateless")]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let asked = result(&client.call(1, "ask", json!({"question": "Which colour?"})));
    assert_eq!(asked["resultType"], "input_required");
    rig.wait_for_gauge("permits_in_use", 0);
    // A state that nobody gave opens nothing, and starts no second question either.
    let state = asked["requestState"].as_str().unwrap();
    let last = if state.ends_with('0') { '1' } else { '0' };
    let changed = format!("{}{last}", &state[..state.len() - 1]);
    for made_up in ["made up", &changed] {
        let params = json!({
            "name": "ask",
            "arguments": {"question": "Which colour?"},
            "inputResponses": {"x": {"action": "decline"}},
            "requestState": made_up,
        });
        let response = client.ask(2, "tools/call", params);
        assert!(response.answer().get("error").is_some(), "{made_up}: {}", response.text());
    }
    drop(client);
    // Nobody may ever come back with an answer: a stop does not wait for one.
    rig.signal(Signal::TERM);
    let status = rig.wait_for_exit(Duration::from_secs(10));
    assert!(status.success(), "{status}\n{}", rig.stderr());
    rig.expect_nothing_left();
}

#[test]
fn a_client_that_cannot_be_asked_is_not() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut client = Legacy::open_as(&rig.endpoint("fixture"), mcp::LEGACY, &json!({}));
    let response = client.call(1, "ask", json!({"question": "Which colour?"}));
    let methods: Vec<_> = response.messages().unwrap();
    assert!(methods.iter().all(|it| it.get("method").is_none()), "{}", response.text());
    assert_eq!(response.answer()["id"], 1, "{}", response.text());
    client.end();
    rig.stop();
}

#[test]
fn programs_at_one_address_are_each_asked_what_they_can_answer() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut silent = Modern::new(&rig.endpoint("fixture"));
    silent.capabilities = json!({});
    let mut asked = Modern::new(&rig.endpoint("fixture"));
    // In turns: neither finds the other's process, and both find their own again.
    for _ in 0..2 {
        for client in [&mut silent, &mut asked] {
            assert!(client.call(1, "echo", json!({"text": "x"})).tool_text().is_some());
        }
    }
    rig.wait_for_children(2);
    let question = json!({"question": "Which colour?"});
    let answer = result(&silent.call(1, "ask", question.clone()));
    assert_eq!(answer["resultType"], "complete", "{answer}");
    let answer = result(&asked.call(1, "ask", question));
    assert_eq!(answer["resultType"], "input_required", "{answer}");
    drop((silent, asked));
    rig.stop();
}

#[test]
fn questions_that_nobody_answers_keep_no_neighbour_waiting() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let states = [(); 5].map(|()| {
        let asked = result(&client.call(1, "ask", json!({"question": "Which colour?"})));
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        asked
    });
    assert_eq!(client.call(2, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    rig.wait_for_children(6);
    for asked in &states {
        let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let params = json!({
            "name": "ask",
            "arguments": {"question": "Which colour?"},
            "inputResponses": {key: {"action": "accept", "content": {"answer": "green"}}},
            "requestState": asked["requestState"],
        });
        let answer = result(&client.ask(3, "tools/call", params));
        assert_eq!(answer["content"][0]["text"], "accept:green", "{answer}");
    }
    // Those that were started only because others waited are let go again.
    assert_eq!(client.call(4, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    rig.wait_for_children(1);
    drop(client);
    rig.stop();
}

#[test]
fn a_subscription_is_acknowledged_first_and_told_what_it_asked_for() {
    for era in ["both", "legacy", "modern"] {
        let rig = rig([fixture_of(era, "stateful")]);
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let mut stream = client.send("sub", "subscriptions/listen", wanted).begin().unwrap();
        let first = stream.next_message().unwrap().unwrap();
        let acknowledged = "notifications/subscriptions/acknowledged";
        assert_eq!(first["method"], acknowledged, "{era}: {first}");
        let of = "/params/_meta/io.modelcontextprotocol~1subscriptionId";
        assert_eq!(first.pointer(of), Some(&json!("sub")), "{era}: {first}");
        // A change that nobody asked to hear of is not told.
        for tool in ["test_trigger_prompt_change", "test_trigger_tool_change"] {
            let response = client.call(1, tool, json!({}));
            assert_eq!(response.status(), 200, "{era}: {}", response.text());
        }
        let second = stream.next_message().unwrap().unwrap();
        assert_eq!(second["method"], "notifications/tools/list_changed", "{era}: {second}");
        assert_eq!(second.pointer(of), Some(&json!("sub")), "{era}: {second}");
        drop((stream, client));
        rig.stop();
    }
}
