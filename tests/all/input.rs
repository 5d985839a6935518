//! Bad input: each gets the right status and a JSON-RPC error that says what is wrong.

mod edge;
mod framing;
mod lines;

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker, mcp};
use pontoon_tests::rig::Rig;
use serde_json::{Value, json};

use crate::{fixture, rig};

/// One wrong request and what it has to get.
struct Case {
    name: &'static str,
    request: Request,
    status: u16,
    /// None where no JSON-RPC code is promised.
    code: Option<i64>,
    /// A word of the error's text.
    says: &'static str,
}

fn case(name: &'static str, request: Request, status: u16, code: i64, says: &'static str) -> Case {
    Case { name, request, status, code: Some(code), says }
}

/// Sends each, compares, and sees that the bridge still works.
fn check(rig: &Rig, cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for Case { name, request, status, code, says } in cases {
        let response = match request.send(rig.address()) {
            Ok(response) => response,
            Err(error) => {
                wrong.push(format!("{name}: no answer: {error}"));
                continue;
            }
        };
        let got = (response.status(), code.and_then(|_| error_code(&response)));
        if got != (status, code) {
            let text = response.text();
            wrong.push(format!("{name}: wanted {status} {code:?}, got {got:?}: {text}"));
        } else if !response.text().to_lowercase().contains(&says.to_lowercase()) {
            wrong.push(format!("{name}: {says:?} is not in {}", response.text()));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let response = modern.call(1, "echo", json!({"text": "fine"}));
    assert_eq!(response.tool_text().as_deref(), Some("fine"), "{}", response.text());
}

fn error_code(response: &Response) -> Option<i64> {
    let answer: Value = serde_json::from_slice(&response.body).ok()?;
    answer.pointer("/error/code")?.as_i64()
}

/// A body whose arrays and objects nest this deep, and that the bridge answers itself.
fn nested(depth: usize) -> String {
    let arrays = depth - 2;
    let (open, close) = ("[".repeat(arrays), "]".repeat(arrays));
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"deep":{open}{close}}}}}"#)
}

#[test]
fn a_body_that_is_no_message_is_refused() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let body = |body: &[u8]| session.request(&json!({})).body(body);
    let text = |text: &str| body(text.as_bytes());
    let ping = |id: &str| text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
    let (parse, invalid) = (-32700, -32600);
    check(
        &rig,
        vec![
            case("empty", text(""), 400, parse, ""),
            case("broken", text("{\"jsonrpc\":"), 400, parse, "ends too early"),
            case("not JSON", text("hello"), 400, parse, "not JSON"),
            case("trailing", text("{} {}"), 400, parse, "more text after"),
            case("too deep", text(&nested(129)), 400, parse, "deep"),
            case("very deep", text(&nested(1_000_000)), 400, parse, "deep"),
            case(
                "not UTF-8",
                body(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"),
                400,
                parse,
                "UTF-8",
            ),
            case(
                "overlong",
                body(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xc0\xaf\",\"method\":\"x\"}"),
                400,
                parse,
                "UTF-8",
            ),
            case("half a pair", ping(r#""\ud800""#), 400, parse, "surrogate"),
            case("pair reversed", ping(r#""\udc00\ud800""#), 400, parse, "surrogate"),
            case("byte order mark", text("\u{feff}{}"), 400, parse, "not JSON"),
            case(
                "control byte",
                body(b"{\"jsonrpc\":\"2.0\",\"id\":\"\x01\",\"method\":\"x\"}"),
                400,
                parse,
                "not JSON",
            ),
            case("NaN", ping("NaN"), 400, parse, "not JSON"),
            case(
                "batch",
                text(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#),
                400,
                invalid,
                "batch",
            ),
            case("empty batch", text("[]"), 400, invalid, "batch"),
            case("scalar", text("7"), 400, invalid, "object"),
            case("no method", text(r#"{"jsonrpc":"2.0","id":1}"#), 400, invalid, ""),
            case("null id", ping("null"), 400, invalid, "id"),
            case("fractional id", ping("1.5"), 400, invalid, "id"),
            case("object id", ping("{}"), 400, invalid, "id"),
            case("bool id", ping("true"), 400, invalid, "id"),
            case("long id", ping(&format!("\"{}\"", "x".repeat(300))), 400, invalid, "id"),
            case(
                "method no string",
                text(r#"{"jsonrpc":"2.0","id":1,"method":7}"#),
                400,
                invalid,
                "method",
            ),
            case("no version", text(r#"{"id":1,"method":"ping"}"#), 400, invalid, "jsonrpc"),
            case(
                "wrong version",
                text(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
                400,
                invalid,
                "jsonrpc",
            ),
        ],
    );
    for duplicate in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","\u006eame":"crash"}}"#,
    ] {
        let response = text(duplicate).send(rig.address()).unwrap();
        assert_eq!(response.status(), 400, "{duplicate}: {}", response.text());
        assert!(matches!(response.error_code(), Some(-32700 | -32600)), "{duplicate}");
        assert!(response.error_text().contains("twice"), "{duplicate}: {}", response.text());
    }
    let deepest = text(&nested(128)).send(rig.address()).unwrap();
    assert_eq!(deepest.answer()["result"], json!({}), "{}", deepest.text());
    session.end();
    rig.stop();
}

#[test]
fn a_request_in_the_wrong_clothes_is_refused() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let good = session.request(&session.message(&json!(1), "ping", json!({})));
    let elsewhere = Request::post("/mcp/nowhere", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let status = |name, request, status| Case { name, request, status, code: None, says: "" };
    check(
        &rig,
        vec![
            case("unknown server", elsewhere, 404, -32600, "nowhere"),
            status("unknown path", Request::post("/nowhere", "{}"), 404),
            status("text", good.clone().with("Content-Type", "text/plain"), 415),
            status(
                "form",
                good.clone().with("Content-Type", "application/x-www-form-urlencoded"),
                415,
            ),
            status("no type", good.clone().without("Content-Type"), 415),
            status("two types", good.clone().header("Content-Type", "text/plain"), 400),
            status("accepts HTML", good.clone().with("Accept", "text/html"), 406),
            status("compressed", good.clone().header("Content-Encoding", "gzip"), 415),
            case(
                "unknown session",
                good.clone().with("Mcp-Session-Id", "nobody"),
                404,
                -32001,
                "session",
            ),
            status("two sessions", good.clone().header("Mcp-Session-Id", "other"), 400),
            status(
                "same session twice",
                good.clone().header("Mcp-Session-Id", &session.session),
                400,
            ),
            status("two versions", good.clone().header("MCP-Protocol-Version", "2025-03-26"), 400),
            status("unknown version", good.clone().with("MCP-Protocol-Version", "1999-01-01"), 400),
            status("foreign host", good.clone().with("Host", "evil.example"), 403),
            status("host beside", good.clone().with("Host", "127.0.0.1.evil.example"), 403),
            status("foreign origin", good.clone().header("Origin", "http://evil.example"), 403),
            status("null origin", good.clone().header("Origin", "null"), 403),
            status("no host", good.clone().without("Host"), 400),
            status("two hosts", good.clone().header("Host", "evil.example"), 400),
        ],
    );
    for (name, value) in [
        ("Host", "localhost"),
        ("Host", "localhost:9999"),
        ("Host", "[::1]:80"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("Content-Type", "Application/JSON"),
        ("Accept", "text/event-stream;q=0.5, application/json"),
    ] {
        let response = good.clone().with(name, value).send(rig.address()).unwrap();
        assert_eq!(response.status(), 200, "{name}: {value}: {}", response.text());
    }
    let local = good.clone().header("Origin", "http://localhost:3000").send(rig.address()).unwrap();
    assert_eq!(local.status(), 200, "{}", local.text());
    session.end();
    rig.stop();
}

#[test]
fn each_method_of_http_has_its_rules() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let path = "/mcp/fixture";
    let bare = |method| Request::new(method, path).header("Accept", "text/event-stream");
    let modern = |method| bare(method).header("MCP-Protocol-Version", mcp::MODERN);
    let status = |name, request, status| Case { name, request, status, code: None, says: "" };
    check(
        &rig,
        vec![
            status("modern GET", modern("GET"), 405),
            status("modern DELETE", modern("DELETE"), 405),
            status("PUT", bare("PUT"), 405),
            status("PATCH", bare("PATCH"), 405),
            status("GET without session", bare("GET"), 405),
            status("DELETE without session", bare("DELETE"), 405),
            status("GET in no session", bare("GET").header("Mcp-Session-Id", "nobody"), 404),
            status("DELETE of no session", bare("DELETE").header("Mcp-Session-Id", "nobody"), 404),
            status("GET accepts JSON", session.bare("GET").with("Accept", "application/json"), 406),
            status("GET nowhere", Request::new("GET", "/mcp/nowhere"), 404),
            status("POST /health", Request::post("/health", "{}"), 405),
        ],
    );
    for method in ["GET", "DELETE"] {
        let response = modern(method).send(rig.address()).unwrap();
        assert_eq!(response.head.header("allow"), Some("POST"), "{method}");
    }
    session.end();
    rig.stop();
}

#[test]
fn modern_headers_have_to_agree_with_the_body() {
    let rig = rig([fixture("stateful")]);
    let client = Modern::new(&rig.endpoint("fixture"));
    let echo = json!({"name": "echo", "arguments": {"text": "x"}});
    let good = client.request(&client.message(&json!("m"), "tools/call", echo.clone()));
    let without = |key: &str| {
        let mut message = client.message(&json!("m"), "tools/call", echo.clone());
        message["params"]["_meta"]
            .as_object_mut()
            .unwrap()
            .remove(&format!("io.modelcontextprotocol/{key}"));
        client.request(&message)
    };
    let with_version = |version: &str| {
        let mut message = client.message(&json!("m"), "tools/call", echo.clone());
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        client.request(&message).with("MCP-Protocol-Version", version)
    };
    let mismatch = -32020;
    check(
        &rig,
        vec![
            case(
                "other method",
                good.clone().with("Mcp-Method", "tools/list"),
                400,
                mismatch,
                "Mcp-Method",
            ),
            case(
                "method in capitals",
                good.clone().with("Mcp-Method", "Tools/Call"),
                400,
                mismatch,
                "Mcp-Method",
            ),
            case("no method", good.clone().without("Mcp-Method"), 400, mismatch, "Mcp-Method"),
            case(
                "two methods",
                good.clone().header("Mcp-Method", "tools/call"),
                400,
                mismatch,
                "Mcp-Method",
            ),
            case("other name", good.clone().with("Mcp-Name", "crash"), 400, mismatch, "Mcp-Name"),
            case("no name", good.clone().without("Mcp-Name"), 400, mismatch, "Mcp-Name"),
            case("two names", good.clone().header("Mcp-Name", "echo"), 400, mismatch, "Mcp-Name"),
            case(
                "other version",
                good.clone().with("MCP-Protocol-Version", "2025-11-25"),
                400,
                mismatch,
                "MCP-Protocol-Version",
            ),
            case(
                "no version",
                good.clone().without("MCP-Protocol-Version"),
                400,
                mismatch,
                "MCP-Protocol-Version",
            ),
            case(
                "no capabilities",
                without("clientCapabilities"),
                400,
                -32602,
                "clientCapabilities",
            ),
            case("unknown version", with_version("2030-01-01"), 400, -32022, "2030-01-01"),
        ],
    );
    let refused = with_version("2030-01-01").send(rig.address()).unwrap().answer();
    assert_eq!(refused["id"], "m");
    assert_eq!(refused["error"]["data"]["requested"], "2030-01-01", "{refused}");
    let supported = refused["error"]["data"]["supported"].as_array().unwrap();
    assert!(supported.contains(&json!(mcp::MODERN)), "{refused}");
    for (name, value) in
        [("Mcp-Name", "  echo  "), ("Mcp-Name", "=?base64?ZWNobw==?="), ("mcp-session-id", "x")]
    {
        let response = good.clone().with(name, value).send(rig.address()).unwrap();
        assert_eq!(response.status(), 200, "{name}: {value}: {}", response.text());
    }
    rig.stop();
}

#[test]
fn mirrored_arguments_have_to_agree_with_their_headers() {
    let rig = rig([fixture("stateful")]);
    let client = Modern::new(&rig.endpoint("fixture"));
    let arguments = json!({"region": "eu", "priority": 3, "place": {"city": "北"}});
    let params = json!({"name": "test_x_mcp_header", "arguments": arguments});
    let good = client
        .request(&client.message(&json!(1), "tools/call", params))
        .header("Mcp-Param-Region", "eu")
        .header("Mcp-Param-Priority", "3")
        .header("Mcp-Param-City", "=?base64?5YyX?=");
    let response = good.send(rig.address()).unwrap();
    assert_eq!(response.status(), 200, "{}", response.text());
    let mismatch = -32020;
    let other = |name, value| good.clone().with(name, value);
    check(
        &rig,
        vec![
            case("other region", other("Mcp-Param-Region", "us"), 400, mismatch, "Region"),
            case("no region", good.clone().without("Mcp-Param-Region"), 400, mismatch, "Region"),
            case("region in capitals", other("Mcp-Param-Region", "EU"), 400, mismatch, "Region"),
            case("other number", other("Mcp-Param-Priority", "4"), 400, mismatch, "Priority"),
            case("other city", other("Mcp-Param-City", "=?base64?5Y2X?="), 400, mismatch, "City"),
            case("city twice", good.clone().header("Mcp-Param-City", "x"), 400, mismatch, "City"),
            case(
                "urgent out of nothing",
                other("Mcp-Param-Urgent", "true"),
                400,
                mismatch,
                "Urgent",
            ),
        ],
    );
    rig.stop();
}
