//! Calls by JSON-RPC: methods of MCP and names of tools.

use super::{picker, posted, rpc, server};
use crate::app::test_bridge::TestBridge;
use crate::app::test_bridge::request::post;

#[tokio::test(start_paused = true)]
async fn json_rpc_changes_nothing_in_arguments() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let tool = picker(&bridge).await;
    for (name, arguments, got) in [
        (&*tool, r#"{ "top" : 5, "more":1.50}"#, r#"{"$top":5,"more":1.50}"#),
        ("pick it0", r#"{ "$top" : "5","list":null}"#, r#"{ "$top" : "5","list":null}"#),
        ("pick it0", r#"{"other":1}"#, r#"{"other":1}"#),
    ] {
        for call in [
            rpc("\"id\":\"a\",", name, arguments),
            rpc(
                "\"id\":1,",
                "tools/call",
                &format!("{{\"name\":\"{name}\",\"arguments\":{arguments}}}"),
            ),
        ] {
            let (status, answer) = posted(&bridge, "/mcpo/demo", &call).await;
            assert_eq!(status, 200);
            assert!(answer.contains(&format!("\"got\":{got}")), "{call}: {answer}");
        }
    }
    let (status, _) =
        posted(&bridge, "/mcpo/demo", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"wait\"}").await;
    assert_eq!(status, 200, "parameters may be left out");
}

#[tokio::test(start_paused = true)]
async fn json_rpc_takes_methods_and_names_of_tools() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let (number, text) = ("\"id\":7,", "\"id\":\"seven\",");
    for (id, method, params, status, says) in [
        (
            number,
            "wait",
            "{\"seconds\":0}",
            200,
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[]",
        ),
        (text, "wait", "{}", 200, "\"id\":\"seven\""),
        (number, "tools/call", "{\"name\":\"wait\",\"arguments\":{}}", 200, "\"content\":[]"),
        (number, "ping", "{}", 200, "\"result\":{}"),
        (
            number,
            "initialize",
            "{\"protocolVersion\":\"2025-06-18\"}",
            200,
            "\"protocolVersion\":\"2025-06-18\"",
        ),
        (number, "fail", "{}", 200, "\"error\":{\"code\":-32601,\"message\":\"not here\"}"),
        (number, "end", "{}", 502, "\"httpStatus\":502"),
        ("", "wait", "{}", 400, "the tool \\\"wait\\\" was not called: a call needs an `id`"),
        ("\"id\":null,", "wait", "{}", 400, "error"),
        ("", "notifications/initialized", "{}", 202, ""),
        ("", "notifications/of_another_kind", "{}", 202, ""),
    ] {
        let (found, body) = posted(&bridge, "/mcpo/demo", &rpc(id, method, params)).await;
        assert_eq!(found, status, "{id}{method}: {body}");
        assert!(body.contains(says) && body.is_empty() == says.is_empty(), "{id}{method}: {body}");
    }
    for (body, says) in [
        ("[]", "error"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", "nothing was asked"),
        ("{", "\"code\":-32700"),
    ] {
        let (status, answer) = posted(&bridge, "/mcpo/demo", body).await;
        assert!(status == 400 && answer.contains(says), "{body}: {status} {answer}");
    }
    let calls = server.work_heard().into_iter().filter(|(_, what)| what == "tools/call wait");
    assert_eq!(calls.count(), 3, "without an id nothing runs");
}

#[tokio::test(start_paused = true)]
async fn a_request_by_json_rpc_without_an_id_is_refused_and_runs_nothing() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    bridge.until_known().await;
    let starts = server.starts().len();
    for method in [
        "tools/call",
        "tools/list",
        "prompts/get",
        "resources/read",
        "initialize",
        "ping",
        "group/tool",
        "notifications",
    ] {
        let params = "{\"name\":\"wait\",\"arguments\":{}}";
        let (status, body) = posted(&bridge, "/mcpo/demo", &rpc("", method, params)).await;
        assert_eq!(status, 400, "{method}: {body}");
        let says = format!("\\\"{method}\\\" was not ");
        assert!(body.contains(&says) && body.contains("needs an `id`"), "{method}: {body}");
        let null = rpc("\"id\":null,", method, params);
        assert_eq!(posted(&bridge, "/mcpo/demo", &null).await.0, 400, "{method}");
    }
    assert_eq!((server.work_heard(), server.starts().len()), (vec![], starts));
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_call_by_json_rpc_are_counted_while_it_works() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    bridge.until_known().await;
    let before = bridge.site.held.used().0;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(100_000));
    let mut connection = bridge.connect();
    connection.write(&post("/mcpo/demo", &[], &rpc("\"id\":1,", "never", &large))).await;
    server.until_heard("tools/call never").await;
    assert!(bridge.site.held.used().0 >= before + 100_000);
}
