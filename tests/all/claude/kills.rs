//! `kill -9` at any moment of a request to the real command.

use std::time::Duration;

use pontoon_tests::claude::{Claude, NEWEST};
use serde_json::json;

use crate::host::kills::Killing;

#[test]
fn nothing_is_left_whatever_is_killed() {
    let call = |number: usize| json!([{"tool": "mcp__host_tools__echo", "input": {"text": number.to_string()}}]);
    let mut turns: Vec<_> = (0..5).map(call).collect();
    turns.push(json!("done"));
    let Some(claude) = Claude::of_version(NEWEST, &json!(turns)) else { return };
    let longest = Duration::from_millis(1200);
    let mut killing =
        Killing::new(claude.program(), "go".to_owned(), claude.environment(), longest);
    for number in 0..20 {
        killing.kill_one(number);
    }
    killing.check_next();
}
