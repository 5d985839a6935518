//! The application of `examples/live-app` in the real command, by `pontoon connect`: listed, called, killed in the middle
//! of a call, started again, and with tools that come while it runs.

use std::path::Path;

use pontoon_tests::claude::{Claude, NEWEST};
use pontoon_tests::example_app::{ExampleApp, TOKEN, TOKEN_VARIABLE};
use serde_json::{Value, json};

use super::{in_every_version, message, text};
use crate::binaries;

fn start(claude: &Claude, port: u16) -> ExampleApp {
    ExampleApp::start(Path::new(env!("CARGO_BIN_EXE_example-live-app")), claude.home(), port, &[])
}

fn server(app: &ExampleApp) -> Value {
    json!({
        "command": binaries().pontoon,
        "args": ["connect", app.url(), "--token-env", TOKEN_VARIABLE],
        "env": {TOKEN_VARIABLE: TOKEN},
        // Else the model sees names only, and asks for the rest.
        "alwaysLoad": true,
    })
}

in_every_version!(it_is_listed_called_killed_and_started_again);

fn it_is_listed_called_killed_and_started_again(version: &str) {
    let object = |text: &str| json!({"patch": "demo", "text": text, "position": [10, 20.5]});
    let script = json!([
        [{"id": "patches", "tool": "mcp__mine__list_active_patches", "input": {}}],
        [{"id": "lost", "tool": "mcp__mine__add_max_object", "input": object("lost")}],
        [{"id": "again", "tool": "mcp__mine__add_max_object", "input": object("again")}],
        [{"id": "log", "tool": "mcp__mine__get_console_log", "input": {"lines": 10}}],
        "That is all.",
    ]);
    let Some(claude) = Claude::of_version(version, &script) else { return };
    let mut app = start(&claude, 0);
    app.enter("hang 600 add_max_object");
    let conversation = claude.start(&server(&app));
    app.wait_for("hangs");
    let port = app.port();
    // As `kill -9` does.
    drop(app);
    let app = start(&claude, port);
    let messages = conversation.finish();
    let listed = message(&messages, "system");
    assert_eq!(listed["mcp_servers"][0]["status"], "connected", "{listed}");
    let ours = listed["tools"].as_array().unwrap().iter();
    let ours = ours.filter(|tool| tool.as_str().unwrap().starts_with("mcp__mine__"));
    assert_eq!(ours.count(), 11, "{listed}");
    let api = claude.api();
    assert_eq!(text(&api.tool_result("patches")), r#"{"count":1,"patches":["demo"]}"#);
    let lost = api.tool_result("lost");
    assert!(lost["is_error"] == true && text(&lost).contains("outcome is unknown"), "{lost}");
    // The third object of the new application: nothing was made twice, and no word of the user's was needed.
    assert_eq!(text(&api.tool_result("again")), r#"{"object":"obj-3"}"#);
    let log = api.tool_result("log");
    assert!(text(&log).contains("obj-3 is again at 10, 20.5"), "{log}");
    assert_eq!(message(&messages, "result")["result"], "That is all.");
    app.close();
    claude.leaves_no_process();
}

#[test]
fn a_tool_that_comes_while_it_runs_reaches_the_model() {
    let (new, look) = ("mcp__mine__play_drums", "mcp__mine__get_frontmost_patch");
    let script = json!([
        [{"id": "first", "tool": "mcp__mine__create_patch", "input": {"name": "new"}}],
        // However long it takes until the tools are read again.
        {"until_tool": new, "delay_ms": 50, "content": [{"tool": look, "input": {}}]},
        [{"id": "drums", "tool": new, "input": {}}],
        "done",
    ]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let mut app = start(&claude, 0);
    let conversation = claude.start(&server(&app));
    app.wait_for("create_patch begins");
    app.enter("add play_drums");
    let messages = conversation.finish();
    let listed = message(&messages, "system");
    assert!(!listed["tools"].as_array().unwrap().contains(&json!(new)), "{listed}");
    let api = claude.api();
    let offered: Vec<bool> =
        api.requests().iter().map(|request| tool_names(request).contains(&new)).collect();
    assert!(!offered[0] && offered.is_sorted() && offered[offered.len() - 1], "{offered:?}");
    assert_eq!(text(&api.tool_result("drums")), "play_drums was played");
    assert_eq!(message(&messages, "result")["result"], "done");
    app.close();
    claude.leaves_no_process();
}

fn tool_names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str()).collect()
}
