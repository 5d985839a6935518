//! Programs and bridges that we did not write, made from the protocol's text: without ids, one call at a time.

use std::path::Path;
use std::process::Command;

use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{Program, bridge, failure, text, tools};

fn python(script: &str, args: &[&Path]) -> StdioServer {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("all/host");
    #[expect(clippy::disallowed_methods, reason = "the kit ends it")]
    let mut command = Command::new("python3");
    StdioServer::start(command.arg(place.join(script)).args(args))
}

/// A Python program with tools, and the bridge to it.
fn python_parent() -> (tempfile::TempDir, StdioServer, StdioServer) {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let (socket, schema) = (place.path().join("p.sock"), place.path().join("schema.json"));
    let mut parent = python("python_parent.py", &[&socket, &schema]);
    parent.wait_for("it is ready", |message| message["ready"] == true);
    let client = bridge(&socket, &schema);
    (place, parent, client)
}

#[test]
fn a_parent_that_was_made_from_the_text_works() {
    let (_place, _parent, mut client) = python_parent();
    client.initialize();
    let list = client.ask(1, "tools/list", &json!({}))["result"]["tools"].take();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(text(&client.call(2, "echo", json!({"text": "こんにちは"}))), "こんにちは");
    assert_eq!(failure(&client.call(3, "fails", json!({}))), "ValueError: it cannot be done");
    assert_eq!(
        failure(&client.call(4, "none", json!({}))),
        "ToolNotFoundError: Tool not found: none"
    );
    assert!(client.finish().success());
}

#[test]
fn sixty_four_calls_at_once_to_a_parent_without_ids_each_get_their_own_answer() {
    let (_place, _parent, mut client) = python_parent();
    for round in 0..3 {
        let id = |n: i64| round * 1000 + n;
        for n in 0..64 {
            // Every seventh takes too long for its client, which gives it up.
            let ms = if n % 7 == 3 { 60_000 } else { 1 };
            client.send_call(id(n), "echo", json!({"text": format!("{round}-{n}"), "ms": ms}));
        }
        for n in (0..64).filter(|n| n % 7 == 3) {
            client.notify(
                "notifications/cancelled",
                &json!({"requestId": id(n), "reason": "timed out"}),
            );
        }
        for n in (0..64).filter(|n| n % 7 != 3) {
            assert_eq!(text(&client.answer(id(n))["result"]), format!("{round}-{n}"));
        }
    }
    assert_eq!(text(&client.call("last", "echo", json!({"text": "last"}))), "last");
    assert_eq!(client.unheard(), Vec::<Value>::new(), "what was given up is not answered");
    assert!(client.finish().success());
}

#[test]
fn bridges_that_were_made_from_the_text_work() {
    let program = Program::start(&tools());
    for how in ["kept", "each"] {
        let mut bridge =
            python("python_bridge.py", &[program.session().socket_path(), how.as_ref()]);
        let said = bridge.wait_for("its answers", |_| true);
        let answers = said["answers"].as_array().unwrap();
        assert_eq!(text(&answers[0]["result"]), "ほ");
        assert_eq!(
            answers[1]["error"],
            json!({"message": "the disk is full", "type": "ToolExecutionError"})
        );
        assert_eq!(answers[2]["error"]["type"], "ToolNotFoundError");
        assert_eq!(text(&answers[3]["result"]).len(), 200_000);
        assert!(bridge.finish().success());
    }
}
