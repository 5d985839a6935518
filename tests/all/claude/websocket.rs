//! A server of the bridge in the real command, over a WebSocket.

use pontoon_tests::claude::Claude;
use serde_json::json;

use super::{in_every_version, message, text};
use crate::{fixture, plan};

in_every_version!(
    a_server_of_the_bridge_is_used_over_a_websocket,
    without_its_key_the_command_says_that_the_server_failed
);

fn a_server_of_the_bridge_is_used_over_a_websocket(version: &str) {
    let turns = json!([
        [{"id": "first", "tool": "mcp__mine__echo", "input": {"text": "桟橋"}}],
        [{"id": "one", "tool": "mcp__mine__echo", "input": {"text": "one"}},
         {"id": "two", "tool": "mcp__mine__echo", "input": {"text": "two"}}],
        [{"id": "large", "tool": "mcp__mine__echo", "input": {"text": "x".repeat(20_000)}}],
        "That is all.",
    ]);
    // One tool of the fixture has a schema that the model's API does not take; older versions tell of it all the same.
    let script = json!({"turns": turns, "any_schema": true});
    let Some(claude) = Claude::of_version(version, &script) else { return };
    let rig = plan([fixture("stateful")]).variable("MCPO_API_KEYS", "cli=the-key-of-it").start();
    let url = format!("ws://{}/ws/fixture", rig.address());
    let headers = json!({"Authorization": "Bearer the-key-of-it"});
    let messages = claude.run(&json!({"type": "ws", "url": url, "headers": headers}));
    let start = message(&messages, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    for (id, said) in [("first", "桟橋"), ("one", "one"), ("two", "two")] {
        assert_eq!(text(&claude.api().tool_result(id)), said);
    }
    assert!(text(&claude.api().tool_result("large")).contains("xxxxxxxx"));
    assert_eq!(message(&messages, "result")["result"], "That is all.");
    claude.leaves_no_process();
    rig.stop();
}

fn without_its_key_the_command_says_that_the_server_failed(version: &str) {
    let Some(claude) = Claude::of_version(version, &json!(["done"])) else { return };
    let rig = plan([fixture("stateful")]).variable("MCPO_API_KEYS", "cli=the-key-of-it").start();
    let url = format!("ws://{}/ws/fixture", rig.address());
    let messages = claude.run(&json!({"type": "ws", "url": url}));
    let start = message(&messages, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "failed", "{start}");
    claude.leaves_no_process();
    rig.stop();
}
