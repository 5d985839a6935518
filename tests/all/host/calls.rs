//! Calls through the bridge: what is listed, what comes back, and that each gets its own answer.

use std::collections::HashMap;

use serde_json::json;

use super::{Program, failure, text, tools};

const MODERN: &str = "io.modelcontextprotocol/protocolVersion";

#[test]
fn tools_are_listed_before_anything_is_connected_and_in_both_eras() {
    let mut program = Program::start(&tools());
    let mut client = program.bridge();
    // As the newest Claude Code begins.
    let meta = json!({"_meta": {MODERN: "2026-07-28"}});
    let probe = client.ask("server-discover-probe-1", "server/discover", &meta);
    assert_eq!(probe["result"]["supportedVersions"], json!(["2026-07-28"]), "{probe}");
    let modern = client.ask(1, "tools/list", &meta)["result"].take();
    assert_eq!(modern["resultType"], "complete");
    let hello = client.initialize();
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    client.send_line(r#"{"method":"tools/list","jsonrpc":"2.0","id":2}"#);
    let legacy = client.answer(2)["result"].take();
    assert_eq!(legacy["tools"], modern["tools"]);
    let names: Vec<_> =
        legacy["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names.len(), program.tools.names().len());
    let meet =
        legacy["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "meet").unwrap();
    assert_eq!(meet["title"], "Meet another");
    assert_eq!(meet["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(meet["_meta"]["anthropic/maxResultSizeChars"], 400_000);
    assert_eq!(meet["inputSchema"]["type"], "object");
    // The program is gone, and the list is still there.
    let (socket, schema) =
        (program.session().socket_path().to_owned(), program.place.path().join("kept.json"));
    std::fs::copy(program.session().schema_path(), &schema).unwrap();
    program.end();
    let mut late = super::bridge(&socket, &schema);
    late.initialize();
    assert_eq!(late.ask(1, "tools/list", &json!({}))["result"]["tools"], modern["tools"]);
    let unreachable = late.call(2, "echo", json!({"text": "x"}));
    assert!(failure(&unreachable).starts_with("IPCConnectionError: "), "{unreachable}");
    assert!(client.finish().success() && late.finish().success());
}

#[test]
fn results_of_every_kind_come_back_as_they_are() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "Grüße\n\"x\""}))), "Grüße\n\"x\"");
    assert_eq!(text(&client.call(2, "shout", json!({"text": "hey"}))), "HEY");
    let picture = client.call(3, "picture", json!({}));
    assert_eq!(
        picture["content"][0],
        json!({"type": "image", "data": "iVBORw==", "mimeType": "image/png"})
    );
    let facts = client.call(4, "facts", json!({}));
    assert_eq!(facts["structuredContent"], json!({"n": 1}));
    let error = client.call(5, "error_result", json!({}));
    assert_eq!(
        (failure(&error), &error["content"]),
        ("bad", &json!([{"type": "text", "text": "bad"}]))
    );
    let params =
        json!({"name": "whoami", "_meta": {"claudecode/toolUseId": "toolu_7", "progressToken": 1}});
    assert_eq!(text(&client.ask(6, "tools/call", &params)["result"]), "toolu_7");
    assert!(client.finish().success());
}

#[test]
fn what_fails_says_why_and_the_next_call_works() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    for (tool, arguments, expected) in [
        ("none", json!({}), "ToolNotFoundError: there is no tool `none`"),
        ("echo", json!({}), "ToolValidationError: \"text\" is a required property"),
        ("echo", json!({"text": 7}), "ToolValidationError: at /text: 7 is not of type \"string\""),
        ("fails", json!({}), "ToolExecutionError: the disk is full"),
        ("own_error", json!({}), "NotFoundError: no such row"),
        ("panics", json!({}), "PanicError: the tool panicked: oh no"),
        ("sleeps", json!({}), "TimeoutError: the tool took longer than its 50ms"),
    ] {
        let result = client.call(1, tool, arguments);
        assert!(failure(&result).starts_with(expected), "{tool}: {result}");
        assert_eq!(text(&client.call(2, "echo", json!({"text": "on"}))), "on");
    }
    assert!(client.finish().success());
}

#[test]
fn calls_overlap_from_the_first_on() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    // Each waits until the other is there.
    client.send_call(1, "meet", json!({}));
    client.send_call("two", "meet", json!({}));
    for id in [json!(1), json!("two")] {
        assert_eq!(text(&client.answer(id)["result"]), "met");
    }
    assert!(client.finish().success());
}

#[test]
fn sixty_four_at_once_a_thousand_times_each_get_their_own_answer() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    let mut wrong = 0;
    for round in 0..1000 {
        let mut expected: HashMap<_, _> = (0..64).map(|n| (n, format!("{round}-{n}"))).collect();
        for (id, token) in &expected {
            client.send_call(*id, "echo", json!({"text": token}));
        }
        while !expected.is_empty() {
            let answer = client.wait_for("an answer", |_| true);
            let token = expected.remove(&answer["id"].as_i64().unwrap()).expect("asked once");
            wrong += usize::from(text(&answer["result"]) != token);
        }
    }
    assert_eq!(wrong, 0);
    assert_eq!(client.unheard(), Vec::<serde_json::Value>::new());
    assert!(client.finish().success());
}

#[test]
fn progress_comes_in_order_and_before_the_answer() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    for round in 0..20 {
        let params = json!({"name": "counts", "arguments": {}, "_meta": {"progressToken": round}});
        client.send(round, "tools/call", &params);
        let mut seen = Vec::new();
        let answer = loop {
            let message = client.wait_for("progress or the answer", |_| true);
            if message["id"] == round {
                break message;
            }
            assert_eq!(message["params"]["progressToken"], round, "{message}");
            assert_eq!(
                (&message["params"]["total"], &message["params"]["message"]),
                (&json!(3), &json!("counting"))
            );
            seen.push(message["params"]["progress"].as_i64().unwrap());
        };
        assert_eq!(text(&answer["result"]), "done");
        assert!(seen.is_sorted() && !seen.is_empty(), "{seen:?}");
    }
    assert!(client.finish().success());
}

#[test]
fn a_client_hears_that_tools_came_or_went() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    client.initialize();
    client.call(1, "echo", json!({"text": "connected"}));
    let late = pontoon_host::Tool::new("late", |(), _| async { "here now" });
    let names = |client: &mut pontoon_tests::stdio::StdioServer| {
        let changed = "notifications/tools/list_changed";
        client.wait_for("the news", |message| message["method"] == changed);
        let list = client.ask("list", "tools/list", &json!({}))["result"]["tools"].take();
        list.as_array().unwrap().iter().map(|tool| tool["name"].to_string()).collect::<Vec<_>>()
    };
    // One that has no connection yet cannot be told, and sees it when it lists them.
    let mut early = program.bridge();
    early.initialize();
    program.tools.add(late).unwrap();
    assert!(names(&mut client).contains(&"\"late\"".to_owned()));
    let list = early.ask("list", "tools/list", &json!({}))["result"]["tools"].take();
    assert!(list.as_array().unwrap().iter().any(|tool| tool["name"] == "late"), "{list}");
    assert_eq!(text(&client.call(2, "late", json!({}))), "here now");
    assert!(program.tools.remove("late"));
    assert!(!names(&mut client).contains(&"\"late\"".to_owned()));
    assert!(failure(&client.call(3, "late", json!({}))).contains("there is no tool `late`"));
    assert!(client.finish().success());
}

#[test]
fn what_is_too_long_is_told_and_the_connection_lives_on() {
    const MIB: usize = 1 << 20;
    let program = Program::start(&tools());
    let mut client = program.bridge();
    let result = client.call(1, "big", json!({"bytes": 9 * MIB}));
    assert_eq!(text(&result).len(), 9 * MIB);
    let result = client.call(2, "big", json!({"bytes": 11 * MIB}));
    assert!(
        failure(&result).starts_with("IPCMessageSizeError: the result is too long"),
        "{result}"
    );
    let result = client.call(3, "echo", json!({"text": "x".repeat(11 * MIB)}));
    assert!(failure(&result).contains("over the limit of 10485760"), "{result}");
    let arguments = json!({"text": "x".repeat(9 * MIB)});
    assert_eq!(text(&client.call(4, "echo", arguments)).len(), 9 * MIB);
    assert!(client.finish().success());
}

#[test]
fn what_cannot_be_read_is_answered_with_its_id() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    client
        .send_line(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\ud83d"}}"#);
    assert_eq!(client.answer(7)["error"]["code"], -32700);
    assert!(client.finish().success());
}

#[test]
fn a_large_answer_is_whole_though_the_input_has_ended() {
    let program = Program::start(&tools());
    let mut client = program.bridge();
    client.send_call(1, "big", json!({"bytes": 1 << 20}));
    client.close_input();
    assert_eq!(text(&client.answer(1)["result"]).len(), 1 << 20);
    assert!(client.wait().success());
}
