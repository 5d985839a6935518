//! An application that comes and goes, in the real command by `pontoon connect`.

use pontoon_tests::claude::{Claude, NEWEST};
use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use serde_json::{Value, json};

use super::{in_every_version, message, text};
use crate::binaries;

fn server(app: &LiveApp) -> Value {
    json!({"command": binaries().pontoon, "args": ["connect", app.url()]})
}

fn app(deeds: &Deeds) -> LiveApp {
    LiveApp::start(&Place::WebSocket(0), Manner::default(), deeds)
}

in_every_version!(an_application_is_used_lost_and_used_again);

fn an_application_is_used_lost_and_used_again(version: &str) {
    let script = json!([
        [{"id": "first", "tool": "mcp__mine__echo", "input": {"text": "one"}}],
        [{"id": "lost", "tool": "mcp__mine__die", "input": {"text": "two"}}],
        [{"id": "again", "tool": "mcp__mine__echo", "input": {"text": "three"}}],
        "That is all.",
    ]);
    let Some(claude) = Claude::of_version(version, &script) else { return };
    let deeds = Deeds::default();
    let app = app(&deeds);
    let messages = claude.run(&server(&app));
    let start = message(&messages, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    let listed = start["tools"].as_array().unwrap();
    assert!(listed.contains(&json!("mcp__mine__echo")), "{listed:?}");
    let api = claude.api();
    assert_eq!(text(&api.tool_result("first")), "one");
    let lost = api.tool_result("lost");
    assert!(lost["is_error"] == true && text(&lost).contains("outcome is unknown"), "{lost}");
    assert_eq!(text(&api.tool_result("again")), "three");
    assert_eq!((deeds.count("two"), deeds.repeated()), (1, Vec::new()));
    assert_eq!(message(&messages, "result")["result"], "That is all.");
    claude.leaves_no_process();
}

#[test]
fn a_tool_that_an_application_adds_reaches_the_model() {
    let script = json!([
        [{"id": "grow", "tool": "mcp__mine__grow", "input": {"text": "grown"}}],
        [{"id": "wait", "tool": "mcp__mine__wait", "input": {"text": "a moment", "ms": 2000}}],
        [{"id": "grown", "tool": "mcp__mine__grown", "input": {"text": "here I am"}}],
        "done",
    ]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let deeds = Deeds::default();
    let app = app(&deeds);
    let mut server = server(&app);
    // Else the model sees names only, and asks for the rest.
    server["alwaysLoad"] = json!(true);
    claude.run(&server);
    assert_eq!(text(&claude.api().tool_result("grown")), "here I am");
    assert!(claude.api().offered_tools().contains(&"mcp__mine__grown".to_owned()));
    claude.leaves_no_process();
}

#[test]
fn an_application_that_is_away_keeps_its_tools_and_the_model_is_told_to_have_it_started() {
    let script = json!([
        [{"id": "away", "tool": "mcp__mine__echo", "input": {"text": "hello"}}],
        "done",
    ]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let deeds = Deeds::default();
    let app = app(&deeds);
    let mut server = server(&app);
    server["args"].as_array_mut().unwrap().extend([json!("--connect-wait"), json!("1s")]);
    // It is seen once, and then closed.
    let seen = claude.run(&server);
    assert_eq!(message(&seen, "result")["result"], "done");
    assert_eq!(deeds.count("hello"), 1);
    app.close();
    let messages = claude.run(&server);
    let start = message(&messages, "system");
    assert!(start["tools"].as_array().unwrap().contains(&json!("mcp__mine__echo")), "{start}");
    let last = claude.api().requests().pop().unwrap()["messages"].to_string();
    assert!(last.contains("start the application, or ask the user to"), "{last}");
    assert_eq!(deeds.count("hello"), 1);
    claude.leaves_no_process();
}
