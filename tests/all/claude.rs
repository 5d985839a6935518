//! Host tools and live applications in the real Claude Code command, versions old and new.
//!
//! The model is a script, so that each conversation is known: what the model is asked next is looked at
//! in the record of the API that stands for it.

mod example_app;
mod examples;
#[cfg(target_os = "linux")]
mod kills;
mod live_app;
mod model;
mod schemas;
mod seed;
mod session;
mod websocket;

use std::sync::Arc;
use std::sync::mpsc::Sender;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pontoon_host::{Content, Tool, Toolset};
use pontoon_tests::claude::MessagesApi;
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// A red square.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII=";

/// Makes tests of functions that take a version.
macro_rules! in_every_version {
    ($($check:ident),*) => {
        in_every_version!(@ v2_0_0 "2.0.0", [$($check),*]);
        in_every_version!(@ v2_1_50 "2.1.50", [$($check),*]);
        in_every_version!(@ v2_1_250 "2.1.250", [$($check),*]);
        in_every_version!(@ v2_1_325 "2.1.325", [$($check),*]);
    };
    (@ $module:ident $version:literal, [$($check:ident),*]) => {
        mod $module {
            $(#[test]
            fn $check() {
                super::$check($version);
            })*
        }
    };
}
use in_every_version;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// One tool of each kind of answer, and one of which two calls must be under way at once.
fn tools() -> Toolset {
    let picture = STANDARD.decode(PICTURE).unwrap();
    let both = Arc::new(Barrier::new(2));
    let tools = [
        Tool::new("add", |Add { a, b }, _| async move { a + b }).description("Adds two numbers."),
        Tool::new("fails", |(), _| async { Err::<(), _>("the disk is full") }),
        Tool::new("picture", move |(), _| {
            let picture = Content::image(&picture, "image/png");
            async { picture }
        }),
        Tool::with_context("meet", &both, |both, Name { name }, _| async move {
            both.wait().await;
            format!("{name} met the other")
        })
        .read_only(true),
    ];
    tools.into_iter().fold(Toolset::new(), |set, tool| set.with(tool).unwrap())
}

/// A conversation that calls each of the [`tools`].
fn turns() -> Value {
    json!([
        [{"id": "sum", "tool": "mcp__mine__add", "input": {"a": 2, "b": 40}}],
        [{"id": "failure", "tool": "mcp__mine__fails", "input": {}}],
        [{"id": "picture", "tool": "mcp__mine__picture", "input": {}}],
        [{"id": "one", "tool": "mcp__mine__meet", "input": {"name": "one"}},
         {"id": "two", "tool": "mcp__mine__meet", "input": {"name": "two"}}],
        "That is all.",
    ])
}

/// The model got the answer of each call of [`turns`].
fn check_results(api: &MessagesApi) {
    let sum = api.tool_result("sum");
    assert_eq!(text(&sum), "42");
    assert_ne!(sum["is_error"], true);
    let failure = api.tool_result("failure");
    assert!(
        failure["is_error"] == true && text(&failure).contains("the disk is full"),
        "{failure}"
    );
    let picture = api.tool_result("picture");
    let source = &picture["content"][0]["source"];
    assert_eq!(source["media_type"], "image/png", "{picture}");
    assert_eq!(source["data"], PICTURE);
    for name in ["one", "two"] {
        assert_eq!(text(&api.tool_result(name)), format!("{name} met the other"));
    }
}

/// The text of a result, however it is written.
fn text(result: &Value) -> &str {
    let content = &result["content"];
    let text = content.as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or_else(|| panic!("no text: {result}"))
}

/// The message of this type.
fn message<'a>(messages: &'a [Value], kind: &str) -> &'a Value {
    let found = messages.iter().find(|message| message["type"] == kind);
    found.unwrap_or_else(|| panic!("no `{kind}`: {messages:#?}"))
}

/// A tool that tells when a call begins, never answers, and tells when it is given up.
pub(crate) fn watched(tells: Sender<&'static str>) -> Tool {
    struct Guard(Sender<&'static str>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    Tool::new("watched", move |(), _| {
        let guard = Guard(tells.clone());
        async move {
            let _ = guard.0.send("began");
            std::future::pending::<()>().await;
        }
    })
}
