//! Tools of the program in a request, by both transports.

use std::sync::mpsc::channel;

use pontoon_host::model::{Event, Model, ModelError, Request, Transport};
use pontoon_host::{Tool, Toolset};
use serde_json::{Value, json};

use super::{Stage, TRANSPORTS, call};
use crate::host::{SOON, tools};

/// A set with one tool, that says a word.
fn saying(word: &'static str) -> Toolset {
    Toolset::new().with(Tool::new("say", move |(), _| async move { word })).unwrap()
}

#[test]
fn tools_are_called_and_their_answers_arrive() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let both = json!([{"tool": "mcp__mine__meet", "input": {}}, {"tool": "mcp__mine__meet", "input": {}}]);
        let check = |call: Value, expected: &str| {
            let text = stage.text(&json!([call, {"text": "{{result}}"}]));
            assert!(text.contains(expected), "{transport:?}: {:.200}", text);
        };
        check(call("echo", &json!({"text": "日本"})), "日本");
        check(call("fails", &json!({})), "the disk is full");
        check(call("panics", &json!({})), "PanicError");
        check(call("echo", &json!({"text": 7})), "ToolValidationError");
        check(json!({"call": both}), "met");
        check(call("big", &json!({"bytes": 2_000_000})), &"x".repeat(2_000_000));
        // The limit is that of the socket.
        let is_too_long = if transport == Transport::Stdio { "IPCMessageSizeError" } else { "xxx" };
        check(call("big", &json!({"bytes": 11_000_000})), is_too_long);
        stage.nothing_is_left();
    }
}

#[test]
fn pictures_arrive() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let script = json!([call("picture", &json!({}))]).to_string();
        let content = stage.runtime.block_on(async {
            let mut messages = stage.model.stream_messages(script);
            loop {
                let message = messages.next().await.unwrap().unwrap();
                if message["type"] == "user" {
                    break message["message"]["content"][0]["content"][0].clone();
                }
            }
        });
        assert_eq!(content["source"]["media_type"], "image/png", "{transport:?}: {content}");
        assert_eq!(content["source"]["data"], "iVBORw==");
        stage.nothing_stays();
    }
}

#[test]
fn a_request_may_have_some_of_the_tools_only() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let ask = |names: &[&str], script: &Value| {
            let tools = Some(names.iter().map(|&name| name.to_owned()).collect());
            stage.request(Request { tools, ..Request::from(script.to_string()) })
        };
        let (response, _) = ask(&["echo", "shout"], &json!([{"text": "{{tools}}"}])).unwrap();
        assert_eq!(response.text, "Bash,Read,Write,mcp__mine__echo,mcp__mine__shout");
        // Also a command that calls it nevertheless gets nowhere.
        let script = json!([call("fails", &json!({})), {"text": "{{result}}"}]);
        let (response, _) = ask(&["echo"], &script).unwrap();
        assert!(response.text.contains("No such tool"), "{}", response.text);
        let (response, _) = ask(&[], &json!([{"text": "{{tools}}"}])).unwrap();
        assert_eq!(response.text, "Bash,Read,Write");
        let error = ask(&["echo", "nothing"], &json!([])).unwrap_err();
        let ModelError::ToolNotFound { missing, available } = error else { panic!("{error}") };
        assert_eq!(missing, ["nothing"]);
        assert!(available.contains(&"echo".to_owned()));
        stage.model.clear_agent_toolsets();
        let error = ask(&["echo"], &json!([])).unwrap_err();
        assert!(matches!(error, ModelError::ToolsetNotRegistered { .. }), "{error}");
        stage.nothing_is_left();
    }
}

#[test]
fn a_running_request_keeps_its_tools_when_others_are_set() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&saying("old"), transport);
        let script = json!([
            {"touch": stage.file("begun")}, {"wait_for": stage.file("go")},
            call("say", &json!({})), {"text": "{{result}}"},
        ]);
        let running = stage.runtime.spawn({
            let model = stage.model.clone();
            async move { model.request(script.to_string()).await }
        });
        stage.wait_for_file("begun");
        stage.offer(&saying("new"), transport);
        let asked = json!([call("say", &json!({})), {"text": "{{result}}"}]);
        assert_eq!(stage.text(&asked), "new", "{transport:?}");
        stage.model.clear_agent_toolsets();
        std::fs::write(stage.file("go"), "").unwrap();
        let response = stage.runtime.block_on(running).unwrap().unwrap();
        assert_eq!(response.text, "old", "{transport:?}");
        stage.nothing_is_left();
    }
}

#[test]
fn requests_at_the_same_time_do_not_touch_each_other() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let script = |own: &str, other: &str| {
            json!([
                {"touch": stage.file(own)}, {"wait_for": stage.file(other)},
                call("echo", &json!({"text": own})), {"text": "{{result}}"},
            ])
        };
        let scripts = [script("one", "two"), script("two", "three"), script("three", "one")];
        let ask = |model: &Model, script: &Value| {
            let (model, script) = (model.clone(), script.to_string());
            stage.runtime.spawn(async move { model.request(script).await.unwrap().text })
        };
        let running = scripts.each_ref().map(|script| ask(&stage.model, script));
        let texts = running.map(|request| stage.runtime.block_on(request).unwrap());
        assert_eq!(texts, ["one", "two", "three"], "{transport:?}");
        stage.nothing_is_left();
    }
}

#[test]
fn a_tool_that_is_added_reaches_a_running_request() {
    for transport in TRANSPORTS {
        let tools = tools();
        let grown = tools.clone();
        let grow = Tool::new("grow", move |(), _| {
            grown.add(Tool::new("late", |(), _| async { "I am late" })).unwrap();
            async {}
        });
        tools.add(grow).unwrap();
        let stage = Stage::offering(&tools, transport);
        let script = json!([
            call("grow", &json!({})), {"wait_for_tool": "mcp__mine__late"},
            call("late", &json!({})), {"text": "{{result}}"},
        ]);
        assert_eq!(stage.text(&script), "I am late", "{transport:?}");
    }
}

#[test]
fn a_bridge_that_dies_is_started_again_and_reaches_the_program() {
    let stage = Stage::offering(&tools(), Transport::Stdio);
    let echo = |text: &str| call("echo", &json!({"text": text}));
    let script = json!([echo("one"), {"kill_server": "mine"}, echo("two"), {"text": "{{result}}"}]);
    assert_eq!(stage.text(&script), "two");
    stage.nothing_is_left();
}

#[test]
fn a_tool_hears_that_its_request_was_given_up() {
    for transport in TRANSPORTS {
        let (tells, hears) = channel();
        let tools = tools();
        tools.add(crate::claude::watched(tells)).unwrap();
        let stage = Stage::offering(&tools, transport);
        let script = json!([call("watched", &json!({}))]).to_string();
        let model = stage.model.clone();
        let request = stage.runtime.spawn(async move { model.request(script).await });
        assert_eq!(hears.recv_timeout(SOON), Ok("began"), "{transport:?}");
        request.abort();
        assert_eq!(hears.recv_timeout(SOON), Ok("dropped"), "{transport:?}");
        stage.nothing_stays();
    }
}

#[test]
fn no_tool_works_on_once_its_request_has_been_stopped() {
    for transport in TRANSPORTS {
        let (tells, hears) = channel();
        let tools = tools();
        tools.add(crate::claude::watched(tells)).unwrap();
        let stage = Stage::offering(&tools, transport);
        let script = json!([call("watched", &json!({}))]).to_string();
        stage.runtime.block_on(async {
            let mut events = stage.model.request_stream(script);
            let used = |event: &Event| matches!(event, Event::ToolUse { .. });
            while !used(&events.next().await.unwrap().unwrap()) {}
            tokio::task::block_in_place(|| assert_eq!(hears.recv_timeout(SOON), Ok("began")));
            events.stop().await;
            assert_eq!(hears.try_recv(), Ok("dropped"), "{transport:?}");
        });
        stage.nothing_stays();
    }
}
