//! Refusals are heard: by the client, as an error that says what to do, and by the operator, in the log.

use std::collections::HashSet;
use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, wait_until};
use serde_json::{Value, json};

use crate::{fixture, plan};

const SOON: Duration = Duration::from_secs(10);
const KEY: (&str, &str) = ("Authorization", "Bearer the-key-of-bob");
const JSON: (&str, &str) = ("Content-Type", "application/json");
const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

fn with_key() -> Plan {
    plan([fixture("stateful")])
        .variable("MCPO_API_KEYS", "bob=the-key-of-bob")
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
        .variable("MCPO_MAX_BODY", "1000")
}

/// A request with a body and these headers, and no others but `Host`.
fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let request = match body {
        "" => Request::new(method, path),
        body => Request::new(method, path).body(body),
    };
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// The error of a refusal, which must be one of JSON-RPC.
#[track_caller]
fn told(response: &Response, status: u16) -> String {
    assert_eq!(response.status(), status, "{}", response.text());
    let body: Value = serde_json::from_slice(&response.body)
        .unwrap_or_else(|error| panic!("{status}: {error}: {:?}", response.text()));
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    assert!(body["error"]["code"].is_i64() && body.get("id").is_some(), "{body}");
    let text = body["error"]["message"].as_str().unwrap_or_default();
    assert!(text.len() > 10, "says nothing: {body}");
    text.to_owned()
}

/// The lines about refusals in the log.
fn lines(rig: &Rig) -> Vec<Value> {
    let log = rig.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["message"].as_str().is_some_and(|it| it.starts_with("refused")))
        .collect()
}

/// Waits for the line about a refusal with this status whose `why` has these words.
#[track_caller]
fn logged(rig: &Rig, status: u16, words: &str) -> Value {
    let mut found = None;
    wait_until(&format!("a line about {status} with {words:?}"), SOON, || {
        let is_it = |line: &Value| {
            line["status"] == status && line["why"].as_str().is_some_and(|why| why.contains(words))
        };
        found = lines(rig).into_iter().find(is_it);
        found.is_some()
    });
    let line = found.unwrap();
    assert_eq!(line["level"], "WARNING", "{line}");
    line
}

#[test]
fn every_refusal_on_an_mcp_path_is_an_error_that_says_what_to_do() {
    let rig = with_key().start();
    let (mcp, sse, ping) =
        ("/mcp/fixture", "/sse/fixture", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let large = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":{:?}}}", "x".repeat(2000));
    let messages = "/sse/fixture/messages?session=0";
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let session = ("Mcp-Session-Id", "0");
    let wrong = ("Authorization", "Bearer no-key-of-anyone");
    let cases: &[(u16, &str, Request)] = &[
        (401, "Authorization: Bearer KEY", request("POST", mcp, &[JSON, BOTH], ping)),
        (401, "Authorization: Bearer KEY", request("GET", sse, &[BOTH], "")),
        (401, "Authorization: Bearer KEY", request("POST", messages, &[JSON], ping)),
        (403, "none of the keys", request("POST", mcp, &[JSON, BOTH, wrong], ping)),
        (403, "none of the keys", request("GET", sse, &[BOTH, wrong], "")),
        (400, "sent once", request("POST", mcp, &[JSON, BOTH, KEY, KEY], ping)),
        (
            403,
            "MCPO_ALLOWED_ORIGINS",
            request("POST", mcp, &[JSON, BOTH, KEY, ("Origin", "https://evil.org")], ping),
        ),
        (400, "Host", request("POST", mcp, &[JSON, BOTH, KEY, ("Host", "evil.org")], ping)),
        (404, "/mcp/NAME", request("POST", "/mcp", &[JSON, BOTH, KEY], ping)),
        (404, "/mcp/NAME", request("POST", "/mcp/fixture/more", &[JSON, BOTH, KEY], ping)),
        (404, "there are: fixture", request("POST", "/mcp/absent", &[JSON, BOTH, KEY], ping)),
        (404, "`initialize` again", request("POST", mcp, &[JSON, BOTH, KEY, session], ping)),
        (404, "GET /sse/NAME", request("POST", messages, &[JSON, KEY], ping)),
        (405, "POST, GET and DELETE", request("PUT", mcp, &[JSON, BOTH, KEY], ping)),
        (405, "only POST", request("GET", mcp, &[BOTH, KEY], "")),
        (405, "GET opens", request("POST", sse, &[JSON, BOTH, KEY], ping)),
        (
            406,
            "Accept must list",
            request("POST", mcp, &[JSON, KEY, ("Accept", "text/html")], ping),
        ),
        (406, "Accept must list", request("GET", sse, &[KEY, ("Accept", "text/html")], "")),
        (413, "MCPO_MAX_BODY", request("POST", mcp, &[JSON, BOTH, KEY], &large)),
        (
            415,
            "Content-Type",
            request("POST", mcp, &[("Content-Type", "text/plain"), BOTH, KEY], ping),
        ),
        (
            415,
            "Content-Encoding",
            request("POST", mcp, &[JSON, BOTH, KEY, ("Content-Encoding", "gzip")], ping),
        ),
        (400, "Mcp-Session-Id", request("POST", mcp, &[JSON, BOTH, KEY], answer)),
        (400, "JSON", request("POST", mcp, &[JSON, BOTH, KEY], "{")),
        (
            400,
            "stands twice",
            request(
                "POST",
                mcp,
                &[JSON, BOTH, KEY, ("X-Session-Id", "a"), ("X-Session-Id", "b")],
                ping,
            ),
        ),
    ];
    for (status, words, request) in cases {
        let text = told(&request.send(rig.address()).unwrap(), *status);
        assert!(text.contains(words), "{status}: {text}");
    }
    let statuses: HashSet<_> = cases.iter().map(|(status, ..)| u64::from(*status)).collect();
    wait_until("each has its line", SOON, || {
        let told: HashSet<_> =
            lines(&rig).iter().filter_map(|line| line["status"].as_u64()).collect();
        told.is_superset(&statuses)
    });
    // Elsewhere the answer is mcpo's.
    let plain = Request::new("GET", "/metrics").send(rig.address()).unwrap();
    assert_eq!(plain.text(), r#"{"detail":"Missing or invalid Authorization header"}"#);
    rig.stop();
}

#[test]
fn a_line_says_who_was_refused_from_where_and_why() {
    let rig = with_key().start();
    let from = ("X-Forwarded-For", "198.51.100.7");
    let user = ("X-OpenWebUI-User-Id", "u1");
    request("POST", "/mcp/fixture", &[from, JSON, BOTH], "{}").send(rig.address()).unwrap();
    let line = logged(&rig, 401, "Missing or invalid Authorization header");
    assert_eq!(
        (&line["who"], &line["from"]),
        (&json!("unknown"), &json!("198.51.100.7")),
        "{line}"
    );
    assert_eq!(line["server"], "fixture", "{line}");
    request("POST", "/mcp/absent", &[from, KEY, JSON, BOTH], "{}").send(rig.address()).unwrap();
    let line = logged(&rig, 404, "there is no server");
    assert_eq!((&line["who"], &line["server"]), (&json!("key bob"), &json!("absent")), "{line}");
    request("PUT", "/mcp/fixture", &[from, KEY, user], "").send(rig.address()).unwrap();
    let line = logged(&rig, 405, "are answered here");
    assert_eq!(line["who"], "user u1 of key bob", "{line}");
    assert!(!rig.stderr().contains("the-key-of-bob"), "a key is told to nobody");
    rig.stop();
}

#[test]
fn what_a_limit_refuses_is_logged_in_both_eras() {
    let server = fixture("stateful").with("max_processes_per_client", 1);
    let rig = plan([server]).variable("MCPO_API_KEYS", "bob=the-key-of-bob").start();
    let (one, another) = (("X-Session-Id", "a"), ("X-Session-Id", "b"));
    let working = Modern::with(&rig.endpoint("fixture"), &[KEY, one]);
    let working = working.send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    let mut modern = Modern::with(&rig.endpoint("fixture"), &[KEY, another]);
    assert_eq!(modern.call(1, "pid", json!({})).status(), 429);
    let line = logged(&rig, 429, "max_processes_per_client");
    assert_eq!((&line["who"], &line["from"]), (&json!("key bob"), &json!("127.0.0.1")), "{line}");
    // A legacy client is told in an answer of status 200, because another would end its session.
    let before = lines(&rig).len();
    let mut legacy = Legacy::open_with(&rig.endpoint("fixture"), &[KEY]);
    wait_until("its own line", SOON, || {
        assert_eq!(legacy.call(1, "pid", json!({})).status(), 200);
        lines(&rig).len() > before
    });
    legacy.end();
    drop((working, modern));
    rig.wait_for_gauge("running", 0);
    rig.stop();
}

#[test]
fn a_storm_of_refusals_is_a_line_a_second_and_a_count() {
    let rig = with_key().start();
    let storm = 200;
    for _ in 0..storm {
        let refused = request("POST", "/mcp/fixture", &[JSON, BOTH], "{}").send(rig.address());
        assert_eq!(refused.unwrap().status(), 401);
    }
    let seen = || {
        let lines: Vec<_> = lines(&rig).into_iter().filter(|line| line["status"] == 401).collect();
        let more: u64 = lines.iter().filter_map(|line| line["more"].as_u64()).sum();
        let own = lines.iter().filter(|line| line.get("why").is_some()).count();
        (lines, own as u64 + more)
    };
    wait_until("all are told or counted", SOON, || seen().1 == storm);
    let (lines, _) = seen();
    assert!(lines.len() < 20, "{} lines", lines.len());
    rig.stop();
}
