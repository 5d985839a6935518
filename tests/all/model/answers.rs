//! What comes back: texts, what is known of a request, events as they happen, structured output.

use std::time::Duration;

use pontoon_host::model::{Event, Request, SessionChoice};
use serde_json::{Value, json};

use super::{Stage, TRANSPORTS, call};
use crate::host::tools;

#[test]
fn an_answer_comes_with_what_is_known_of_the_request() {
    let stage = Stage::new();
    let (response, metadata) = stage.ask(&json!([{"text": "hello"}])).unwrap();
    assert_eq!((response.text.as_str(), &response.structured_output), ("hello", &None));
    assert_eq!((metadata.turns, metadata.cost_usd), (1, Some(0.0125)));
    assert_eq!((metadata.usage.input_tokens, metadata.usage.output_tokens), (10, 5));
    assert_eq!(metadata.usage.cache_creation_input_tokens, 3);
    assert_eq!(metadata.usage.cache_read_input_tokens, 2);
    assert!(metadata.duration >= Duration::from_millis(1));
    assert_eq!(metadata.result["session_id"], json!(metadata.session_id));
    assert!(!metadata.session_id.is_empty());
    stage.nothing_is_left();
}

#[test]
fn events_come_as_they_happen_and_the_answer_is_the_last() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let go = stage.file("go");
        let script = json!([
            {"delta": "hel"}, {"delta": "lo"}, {"text": "hello"},
            {"wait_for": go},
            call("echo", &json!({"text": "again"})), call("fails", &json!({})), {"text": "bye"},
        ]);
        let seen = stage.runtime.block_on(async {
            let mut events = stage.model.request_stream(script.to_string());
            let mut seen = Vec::new();
            while let Some(event) = events.next().await {
                let event = shown(&event.unwrap());
                // The command waits for that, so the first text is seen before it goes on.
                if event == "text hello" {
                    std::fs::write(&go, "").unwrap();
                }
                seen.push(event);
            }
            seen
        });
        let expected = [
            "started",
            "delta hel",
            "delta lo",
            "text hello",
            "use mcp__mine__echo {\"text\":\"again\"}",
            "result false \"again\"",
            "use mcp__mine__fails {}",
            "result true \"ToolExecutionError: the disk is full\"",
            "text bye",
            "done bye",
        ];
        assert_eq!(seen, expected, "{transport:?}");
        stage.nothing_is_left();
    }
}

fn shown(event: &Event) -> String {
    match event {
        Event::Started(started) => {
            assert!(started.version.is_some() && !started.session_id.is_empty(), "{started:?}");
            assert!(started.tools.iter().any(|tool| tool == "mcp__mine__echo"), "{started:?}");
            "started".to_owned()
        }
        Event::TextDelta(text) => format!("delta {text}"),
        Event::Text(text) => format!("text {text}"),
        Event::ToolUse { name, input, .. } => format!("use {name} {input}"),
        Event::ToolResult { is_error, content, .. } => {
            format!("result {is_error} {}", content[0]["text"])
        }
        Event::Done(done) => format!("done {}", done.0.text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_come_as_the_command_writes_them() {
    let stage = Stage::new();
    let script = json!([{"raw": {"type": "news", "n": 1}}, {"delta": "no"}, {"text": "hello"}]);
    let messages: Vec<Value> = stage.runtime.block_on(async {
        let mut messages = stage.model.stream_messages(script.to_string());
        let mut all = Vec::new();
        while let Some(message) = messages.next().await {
            all.push(message.unwrap());
        }
        all
    });
    let kinds: Vec<_> = messages.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["system", "news", "assistant", "result"]);
    assert_eq!(messages[1], json!({"type": "news", "n": 1}));
    stage.nothing_is_left();
}

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
struct Person {
    name: String,
    age: u8,
}

#[test]
fn structured_output_becomes_a_value() {
    let stage = Stage::new();
    let ask = |output: Value| {
        let script = json!([{"result": {"structured_output": output}}]).to_string();
        stage.runtime.block_on(stage.model.request_typed::<Person>(script))
    };
    let ann = ask(json!({"name": "Ann", "age": 44})).unwrap();
    assert_eq!(ann, Person { name: "Ann".to_owned(), age: 44 });
    let error = ask(json!({"name": "Ann", "age": "old"})).unwrap_err();
    assert!(error.to_string().contains("no structured output that fits"), "{error}");
    let diagnosis = error.diagnosis().unwrap();
    assert!(diagnosis.session_id.is_some() && diagnosis.turns.is_some(), "{diagnosis:?}");
    // The command says success when the model gave none.
    let missing = ask(Value::Null).unwrap_err();
    assert!(missing.to_string().contains("the model gave none"), "{missing}");
    let arguments = stage.starts()[0]["arguments"].to_string();
    assert!(arguments.contains("--json-schema="), "{arguments}");
    // The command refuses the dialect that is named there.
    assert!(!arguments.contains("$schema"), "{arguments}");
}

#[test]
fn a_session_goes_on() {
    let stage = Stage::new();
    let (_, first) = stage.ask(&json!([{"text": "hello"}])).unwrap();
    let again = Request {
        session: SessionChoice::Resume(first.session_id.clone()),
        ..Request::from(json!([{"text": "{{session}}"}]).to_string())
    };
    let (response, second) = stage.request(again).unwrap();
    assert_eq!(response.text, first.session_id);
    assert_eq!(second.session_id, first.session_id);
    let last = Request { session: SessionChoice::Last, ..Request::from("hello") };
    stage.request(last).unwrap();
    assert!(stage.starts()[2]["arguments"].as_array().unwrap().contains(&json!("--continue")));
}

#[test]
fn the_first_result_counts() {
    let stage = Stage::new();
    let late = json!({"result": "later", "subtype": "error_during_execution", "is_error": true});
    let text = stage.text(&json!([{"text": "first"}, {"result": {}}, {"result": late}]));
    assert_eq!(text, "first");
    stage.nothing_is_left();
}

#[test]
fn what_is_not_known_is_counted_and_does_no_harm() {
    let stage = Stage::new();
    let script = json!([
        {"raw": {"type": "rate_limit_event"}}, {"garbage": "not json"}, {"garbage": ""},
        {"garbage": "[1, 2]"}, {"garbage": "{\"type\": 7}"},
        {"raw": {"type": "system", "subtype": "of_tomorrow"}},
        {"raw": {"type": "control_response", "response": {"request_id": "none", "subtype": "error"}}},
        {"raw": {"type": "assistant", "message": {"content": [{"type": "of_tomorrow"}]}}},
        {"text": "well"},
    ]);
    let (response, metadata) = stage.ask(&script).unwrap();
    assert_eq!(response.text, "well");
    // All but the empty line, and what is of a known kind.
    assert_eq!(metadata.unknown_messages, 5, "{:?}", metadata.result);
    // The command waits for an answer to a question, so it gets one.
    let text = stage.text(&json!([{"ask": {"subtype": "of_tomorrow"}}]));
    assert_eq!(text, "`of_tomorrow` is not known here");
}

#[test]
fn a_long_text_arrives_whole() {
    let stage = Stage::new();
    assert_eq!(stage.text(&json!([{"large": 3_000_000}])).len(), 3_000_000);
}
