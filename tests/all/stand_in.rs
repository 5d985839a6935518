//! The stand-in for the Claude Code command, which other tests rely on.

use std::process::Command;

use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use crate::binaries;
use crate::host::{Program, tools};

fn command(config: &Value) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the kit ends it")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_stand-in-claude"));
    command.args(["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]);
    command.args([
        "--permission-prompt-tool",
        "stdio",
        "--allowedTools",
        "mcp__mine",
        "--mcp-config",
    ]);
    command.arg(json!({"mcpServers": {"mine": config}}).to_string());
    command
}

fn prompt(cli: &mut StdioServer, script: &Value) {
    let message = json!({"role": "user", "content": script.to_string()});
    cli.send_line(&json!({"type": "user", "session_id": "", "message": message}).to_string());
}

fn wait_for(cli: &mut StdioServer, kind: &str) -> Value {
    cli.wait_for(kind, |message| message["type"] == kind)
}

fn answer(cli: &mut StdioServer, question: &Value, response: &Value) {
    let response =
        json!({"subtype": "success", "request_id": question["request_id"], "response": response});
    cli.send_line(&json!({"type": "control_response", "response": response}).to_string());
}

#[test]
fn it_calls_tools_of_a_server_that_it_starts() {
    let program = Program::start(&tools());
    let config = program.session().mcp_server_config(&binaries().pontoon);
    let mut cli = StdioServer::start(&mut command(&config));
    prompt(
        &mut cli,
        &json!([
            {"call": [{"tool": "mcp__mine__meet", "input": {}}, {"tool": "mcp__mine__meet", "input": {}},
                      {"tool": "mcp__mine__fails", "input": {}}]},
            {"kill_server": "mine"},
            {"call": [{"tool": "mcp__mine__echo", "input": {"text": "again"}}]},
            {"text": "it says {{result}}"},
        ]),
    );
    let start = wait_for(&mut cli, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    assert!(start["tools"].as_array().unwrap().contains(&json!("mcp__mine__echo")), "{start}");
    let results: Vec<Value> = (0..4).map(|_| wait_for(&mut cli, "user")).collect();
    let failed = results.iter().filter(|it| it["message"]["content"][0]["is_error"] == true);
    assert_eq!(failed.count(), 1, "{results:#?}");
    let end = wait_for(&mut cli, "result");
    assert_eq!(end["result"], "it says again", "{end}");
    assert_eq!((&end["subtype"], &end["num_turns"]), (&json!("success"), &json!(3)));
    assert!(cli.finish().success());
}

#[test]
fn it_calls_tools_of_its_starter_and_asks_for_permissions() {
    let mut cli = StdioServer::start(&mut command(&json!({"type": "sdk", "name": "mine"})));
    let open =
        json!({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}});
    cli.send_line(&open.to_string());
    let opened = wait_for(&mut cli, "control_response");
    assert_eq!(opened["response"]["request_id"], "1", "{opened}");
    prompt(
        &mut cli,
        &json!([{"call": [{"tool": "mcp__mine__add", "input": {"a": 1}}]}, {"text": "{{result}}"},
                {"ask": {"tool_name": "Bash", "input": {}}}]),
    );
    for result in [
        json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
        json!({}),
        json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
        json!({"content": [{"type": "text", "text": "one"}]}),
    ] {
        let question = wait_for(&mut cli, "control_request");
        let id = question["request"]["message"]["id"].clone();
        let response = json!({"jsonrpc": "2.0", "id": id, "result": result});
        answer(&mut cli, &question, &json!({"mcp_response": response}));
    }
    let question = wait_for(&mut cli, "control_request");
    assert_eq!(question["request"]["tool_name"], "Bash", "{question}");
    answer(&mut cli, &question, &json!({"behavior": "deny", "message": "no"}));
    let end = wait_for(&mut cli, "result");
    assert!(end["result"].as_str().unwrap().contains("deny"), "{end}");
    assert_eq!(cli.unheard().iter().filter(|it| it["type"] == "user").count(), 1);
    assert!(cli.finish().success());
}

#[test]
fn it_can_be_interrupted_and_ends_with_an_error() {
    let mut cli = StdioServer::start(&mut command(&json!({"type": "none"})));
    prompt(&mut cli, &json!([{"hang": true}]));
    wait_for(&mut cli, "system");
    let stop =
        json!({"type": "control_request", "request_id": "2", "request": {"subtype": "interrupt"}});
    cli.send_line(&stop.to_string());
    let end = wait_for(&mut cli, "result");
    assert_eq!(end["subtype"], "error_during_execution", "{end}");
    assert_eq!(cli.finish().code(), Some(1));
}
