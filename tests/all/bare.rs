//! A JSON-RPC request without a session, as `curl` sends one: answered, and nothing of it is left.

use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::{Value, json};

use crate::{fixture, fixture_of, plan, rig};

const SOON: Duration = Duration::from_secs(10);

/// A request as `curl` writes it, with these headers too.
fn plain(message: &Value, headers: &[(&str, &str)]) -> Request {
    let request = Request::new("POST", "/mcp/fixture")
        .header("Content-Type", "application/json")
        .body(message.to_string());
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
}

fn tool(name: &str, arguments: &Value) -> Value {
    request("tools/call", &json!({"name": name, "arguments": arguments}))
}

fn ask(rig: &Rig, message: &Value, headers: &[(&str, &str)]) -> Response {
    let response = plain(message, headers).send(rig.address()).unwrap();
    assert_eq!(response.head.header("mcp-session-id"), None, "{response:?}");
    response
}

/// What a tool says to a request with these headers.
fn said(rig: &Rig, message: &Value, headers: &[(&str, &str)]) -> String {
    let response = ask(rig, message, headers);
    assert!(!response.head.is_stream(), "{message}: {}", response.text());
    response.tool_text().unwrap_or_else(|| panic!("{message}: {}", response.text()))
}

const JSON: (&str, &str) = ("Accept", "application/json");
const ANY: (&str, &str) = ("Accept", "*/*");
const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

#[test]
fn a_request_without_a_session_is_answered_and_leaves_none() {
    let completion = json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": ""},
    });
    for (era, mode) in [("legacy", "stateless"), ("legacy", "stateful"), ("modern", "stateless")] {
        let rig = rig([fixture_of(era, mode)]);
        for accept in [&[][..], &[ANY], &[JSON], &[BOTH]] {
            assert_eq!(said(&rig, &tool("echo", &json!({"text": "桟橋"})), accept), "桟橋");
            for (method, params, member) in [
                ("ping", json!({}), ""),
                ("tools/list", json!({}), "/tools/0/name"),
                ("resources/list", json!({}), "/resources/0/uri"),
                ("resources/templates/list", json!({}), "/resourceTemplates/0"),
                ("resources/read", json!({"uri": "test://static-text"}), "/contents/0/text"),
                ("prompts/list", json!({}), "/prompts/0/name"),
                ("prompts/get", json!({"name": "test_simple_prompt"}), "/messages/0"),
                ("completion/complete", completion.clone(), "/completion/values"),
            ] {
                let response = ask(&rig, &request(method, &params), accept);
                let answer = response.answer();
                assert_eq!((response.status(), &answer["id"]), (200, &json!("a")), "{answer}");
                let result = answer["result"].pointer(member);
                assert!(result.is_some(), "{era} {mode} {method}: {answer}");
            }
        }
        // Which fails if a session is left.
        rig.stop();
    }
}

#[test]
fn whose_process_answers_is_what_it_is_for_every_request() {
    let rig = plan([fixture("stateful").with("max_processes_per_ip", 4)])
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
        .start();
    let from = |address| ("X-Forwarded-For", address);
    let (one, two) = (from("10.0.0.1"), from("10.0.0.2"));
    let chat = [one, ("X-OpenWebUI-User-Id", "ada"), ("X-OpenWebUI-Chat-Id", "c")];
    let places: [&[(&str, &str)]; 4] = [&[one], &[two], &[one, ("X-Session-Id", "n")], &chat];
    let pids = || places.map(|headers| said(&rig, &tool("pid", &json!({})), headers));
    let first = pids();
    assert_eq!(first, pids(), "each has its own again");
    let mut different = first.to_vec();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 4, "{first:?}");
    // A session has a process of its own; without one a client gets that of its address.
    let mut session = Legacy::open_with(&rig.endpoint("fixture"), &[one]);
    let own = session.call(1, "pid", json!({})).tool_text().unwrap();
    assert!(!first.contains(&own), "{own}: {first:?}");
    session.end();
    assert_eq!(first, pids());
    rig.stop();
}

#[test]
fn a_key_without_a_name_is_nobody_s_here_too() {
    let rig = plan([fixture("stateful")]).variable("MCPO_API_KEY", "the-key-of-everybody").start();
    let key = ("Authorization", "Bearer the-key-of-everybody");
    let response = ask(&rig, &tool("pid", &json!({})), &[key]);
    assert_eq!(response.status(), 403, "{}", response.text());
    assert!(response.error_text().contains("it is not known who asks"), "{}", response.text());
    rig.stop();
}

#[test]
fn only_a_client_that_names_events_gets_them() {
    for era in ["legacy", "modern"] {
        let rig = rig([fixture_of(era, "stateless")]);
        let mut count = tool("count", &json!({"steps": 3}));
        count["params"]["_meta"] = json!({"progressToken": "t"});
        for accept in [&[][..], &[ANY], &[JSON]] {
            let response = ask(&rig, &count, accept);
            assert!(!response.head.is_stream(), "{}", response.text());
            assert!(response.tool_text().is_some(), "{}", response.text());
        }
        let response = ask(&rig, &count, &[BOTH]);
        assert!(response.head.is_stream(), "{}", response.text());
        let messages = response.messages().unwrap();
        assert_eq!(messages[0]["params"]["progressToken"], "t", "{messages:?}");
        assert_eq!(messages.len(), 4, "{messages:?}");
        // A question is refused, for it could not be answered.
        for accept in [JSON, BOTH] {
            let response = ask(&rig, &tool("ask", &json!({"question": "why?"})), &[accept]);
            assert!(!response.head.is_stream(), "{}", response.text());
            let answer = response.answer();
            assert!(answer["result"]["isError"] == true || answer["error"].is_object(), "{answer}");
        }
        rig.stop();
    }
}

#[test]
fn a_failure_has_its_own_status() {
    let rig = rig([fixture("stateless").with("tool_timeouts", json!({"wait": 1}))]);
    for (name, status) in [("crash", 502), ("wait", 504)] {
        let response = ask(&rig, &tool(name, &json!({"ms": 60_000})), &[]);
        assert_eq!(response.status(), status, "{}", response.text());
        assert_eq!(response.answer()["id"], "a", "{}", response.text());
        assert!(response.head.header("x-mcpo-job-id").is_some(), "{response:?}");
    }
    // What the server itself says is no failure of ours.
    let response = ask(&rig, &tool("no_such_tool", &json!({})), &[]);
    assert_eq!((response.status(), response.error_code()), (200, Some(-32602)));
    rig.stop();
}

#[test]
fn a_client_that_goes_away_cancels_its_call() {
    let rig = rig([fixture("stateless")]);
    let message = tool("wait", &json!({"ms": 600_000}));
    for accept in [JSON, BOTH] {
        let mut connection = pontoon_tests::client::Connection::open(rig.address()).unwrap();
        connection.send(&plain(&message, &[accept]).bytes()).unwrap();
        wait_until("the call is made", SOON, || rig.children().len() == 1);
        drop(connection);
        rig.wait_for_children(0);
    }
    rig.stop();
}

#[test]
fn what_needs_a_session_says_so_and_the_rest_is_as_it_was() {
    let rig = rig([fixture("stateful")]);
    for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"] {
        let params = json!({"uri": "test://watched-resource", "level": "info"});
        let response = ask(&rig, &request(method, &params), &[]);
        assert!(response.error_text().contains("needs a session"), "{}", response.text());
    }
    let ping = request("ping", &json!({}));
    let status = |request: Request| request.send(rig.address()).unwrap().status();
    assert_eq!(status(plain(&ping, &[("Mcp-Session-Id", "none")])), 404);
    assert_eq!(status(plain(&ping, &[("MCP-Protocol-Version", "2025-03-26")])), 200);
    assert_eq!(status(plain(&ping, &[("MCP-Protocol-Version", "1999-01-01")])), 400);
    assert_eq!(status(plain(&ping, &[("MCP-Protocol-Version", "2026-07-28")])), 400);
    assert_eq!(status(plain(&ping, &[("Accept", "text/event-stream")])), 406);
    assert_eq!(status(plain(&ping, &[("Accept", "text/html")])), 406);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(status(plain(&note, &[])), 202);
    assert_eq!(status(plain(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}), &[])), 400);
    // Who speaks the protocol has to take both, as before.
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}});
    assert_eq!(status(plain(&request("initialize", &hello), &[JSON])), 406);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let modern = Modern::new(&rig.endpoint("fixture"));
    let of_modern = modern.request(&modern.message(&json!(1), "tools/list", json!({})));
    for request in [session.request(&ping), of_modern] {
        assert_eq!(status(request.clone().with(JSON.0, JSON.1)), 406);
        assert_eq!(status(request.with(ANY.0, ANY.1)), 200);
    }
    session.end();
    rig.stop();
}
