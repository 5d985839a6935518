//! Requests that go wrong: each ends with a word about it, and leaves nothing.

use std::time::{Duration, Instant};

use pontoon_host::IpcError;
use pontoon_host::model::{Model, ModelError, Request, Settings};
use pontoon_tests::program;
use pontoon_tests::rig::{processes, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Stage, TRANSPORTS, call};
use crate::host::{SOON, tools};

#[test]
fn a_result_that_says_error_tells_what_is_known() {
    let stage = Stage::new();
    let failed = json!({"subtype": "error_max_turns", "is_error": true, "result": null, "num_turns": 2,
        "duration_ms": 1500, "errors": ["Reached maximum number of turns (2)"]});
    let error = stage.failure(&json!([{"stderr": "a warning"}, {"result": failed}]));
    let ModelError::Failed { message, diagnosis } = &error else { panic!("{error}") };
    assert_eq!(message, "Reached maximum number of turns (2)");
    assert_eq!(diagnosis.subtype.as_deref(), Some("error_max_turns"));
    assert_eq!((diagnosis.turns, diagnosis.duration), (Some(2), Some(Duration::from_millis(1500))));
    assert!(diagnosis.session_id.is_some());
    // Success that is an error, as the command writes it when the API refuses.
    let failed = json!({"is_error": true, "result": "API Error: 400", "api_error_status": 400});
    let error = stage.failure(&json!([{"result": failed}]));
    assert!(error.to_string().starts_with("API Error: 400"), "{error}");
    stage.nothing_is_left();
}

#[test]
fn a_command_that_ends_without_a_result_is_quoted() {
    let stage = Stage::new();
    let error = stage.failure(&json!([{"stderr": "out of paper"}, {"text": "he"}, {"exit": 3}]));
    let ModelError::Cli { what, diagnosis } = &error else { panic!("{error}") };
    assert!(what.contains("without a result") && what.contains('3'), "{what}");
    assert_eq!(diagnosis.stderr, ["out of paper"]);
    assert!(diagnosis.session_id.is_some());
    // Before it has said a word, as with options that it does not know.
    let stage = Stage::with(|settings| {
        let pontoon_host::model::Environment::InheritedAnd(more) = &mut settings.environment else {
            unreachable!()
        };
        more.push(("STAND_IN_FAIL".into(), "error: unknown option".into()));
    });
    let error = stage.failure(&json!([]));
    assert!(error.to_string().contains("unknown option"), "{error}");
    stage.nothing_is_left();
}

#[test]
fn a_command_that_is_not_there_or_no_program_is_named() {
    let missing = Stage::with(|settings| settings.cli = Some("/nowhere/claude".into()));
    let error = missing.failure(&json!([]));
    assert!(matches!(error, ModelError::CliNotFound { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/claude"), "{error}");
    let place = tempfile::tempdir().unwrap();
    let broken = program::copy("/etc/passwd".as_ref(), &place.path().join("claude"));
    let broken = Stage::with(|settings| settings.cli = Some(broken));
    let error = broken.failure(&json!([]));
    assert!(matches!(error, ModelError::Start(_) | ModelError::Cli { .. }), "{error:?}");
}

#[test]
fn tools_that_the_command_cannot_reach_are_an_error() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let check = |init: Value, expected: &str| {
            let error = stage.failure(&json!([{"init": init}, {"text": "I have no tools"}]));
            let ModelError::Ipc(IpcError::BridgeStartup(why)) = &error else { panic!("{error:?}") };
            assert!(why.contains(expected), "{why}");
        };
        let failed = json!([{"name": "mine", "status": "failed"}]);
        check(json!({"mcp_servers": []}), "has dropped the server `mine`");
        check(json!({"mcp_servers": failed}), "no connection to the server `mine`: failed");
        check(json!({"tools": ["Bash"]}), "echo");
        let mut listed = tools().names();
        listed.retain(|name| name != "picture");
        let listed: Vec<_> = listed.iter().map(|name| format!("mcp__mine__{name}")).collect();
        check(json!({"tools": listed}), "tools of the server `mine`: picture");
        stage.nothing_is_left();
    }
}

#[test]
fn a_tool_that_the_user_disallows_is_not_missed() {
    for transport in TRANSPORTS {
        let stage = Stage::with(|settings| {
            settings.disallowed_tools = vec!["mcp__mine__picture".to_owned()];
        });
        stage.offer(&tools(), transport);
        let text = stage.text(&json!([{"text": "{{tools}}"}]));
        assert!(text.contains("mcp__mine__echo") && !text.contains("picture"), "{text}");
    }
}

#[test]
fn a_bridge_that_is_none_is_named() {
    let wrong = |settings: &mut Settings| settings.bridge = Some("/bin/true".into());
    let stage = Stage::with(wrong);
    let error = stage.failure(&json!([]));
    let ModelError::Ipc(IpcError::BridgeStartup(why)) = &error else { panic!("{error:?}") };
    assert!(why.contains("/bin/true"), "{why}");
}

#[test]
fn a_request_that_takes_too_long_is_stopped() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let mut settings = stage.model.settings().clone();
        settings.timeout = Some(Duration::from_secs(5));
        let script = json!([call("echo", &json!({"text": "a"})), {"hang": true}]).to_string();
        let request = Request { settings: Some(settings), ..Request::from(script) };
        let error = stage.request(request).unwrap_err();
        let ModelError::Timeout { after, diagnosis } = &error else { panic!("{error:?}") };
        assert_eq!(*after, Duration::from_secs(5));
        assert!(diagnosis.session_id.is_some(), "{diagnosis:?}");
        stage.nothing_is_left();
    }
}

#[test]
fn a_command_that_heeds_nothing_is_killed() {
    let stage = Stage::with(|settings| settings.timeout = Some(Duration::from_millis(500)));
    let began = Instant::now();
    let error = stage.failure(&json!([{"ignore_sigterm": true}, {"deaf": true}, {"hang": true}]));
    assert!(matches!(error, ModelError::Timeout { .. }), "{error:?}");
    stage.nothing_is_left();
    // It had its five seconds.
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn what_the_command_has_started_ends_with_the_request() {
    for keeps_output in [false, true] {
        let stage = Stage::new();
        let spawn = |name: &str| json!({"spawn": "sleep 1000", "pid": stage.file(name), "keeps_output": keeps_output});
        let pid = |name: &str| -> u32 {
            std::fs::read_to_string(stage.file(name)).unwrap().parse().unwrap()
        };
        assert_eq!(stage.text(&json!([spawn("answered"), {"text": "hello"}])), "hello");
        assert!(processes::read(pid("answered")).is_none_or(|process| process.is_zombie()));
        stage.failure(&json!([spawn("failed"), {"exit": 1}]));
        assert!(processes::read(pid("failed")).is_none_or(|process| process.is_zombie()));
        stage.nothing_is_left();
        // Given up without a word.
        let model = stage.model.clone();
        let script = json!([spawn("dropped"), {"hang": true}]).to_string();
        let request = stage.runtime.spawn(async move { model.request(script).await });
        stage.wait_for_file("dropped");
        request.abort();
        stage.nothing_stays();
    }
}

#[test]
fn a_stream_that_is_dropped_or_stopped_ends_its_request() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let script = json!([{"hang": true}]).to_string();
        stage.runtime.block_on(async {
            let mut events = stage.model.request_stream(script.clone());
            events.next().await.unwrap().unwrap();
            events.stop().await;
            stage.nothing_is_left();
            let mut events = stage.model.request_stream(script);
            events.next().await.unwrap().unwrap();
        });
        stage.nothing_stays();
    }
}

#[test]
fn a_command_is_asked_to_end_before_it_is_killed() {
    let stage = Stage::new();
    let give_up = |script: Value, begun: &str| {
        let model = stage.model.clone();
        let request = stage.runtime.spawn(async move { model.request(script.to_string()).await });
        stage.wait_for_file(begun);
        request.abort();
        stage.nothing_stays();
    };
    give_up(json!([{"touch": stage.file("one")}, {"hang": true}]), "one");
    assert!(stage.record().iter().any(|entry| entry["signal"] == "SIGTERM"));
    // One that does not heed that is gone a little later.
    let stubborn = json!([{"ignore_sigterm": true}, {"touch": stage.file("two")}, {"hang": true}]);
    give_up(stubborn, "two");
}

#[test]
fn a_command_that_is_killed_is_an_error_and_leaves_nothing() {
    for transport in TRANSPORTS {
        let stage = Stage::offering(&tools(), transport);
        let script = json!([{"touch": stage.file("begun")}, call("waits", &json!({}))]).to_string();
        let model = stage.model.clone();
        let request = stage.runtime.spawn(async move { model.request(script).await });
        stage.wait_for_file("begun");
        let pid = stage.starts()[0]["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let error = stage.runtime.block_on(request).unwrap().unwrap_err();
        assert!(error.to_string().contains("without a result"), "{transport:?}: {error}");
        stage.nothing_is_left();
    }
}

#[test]
fn a_request_ends_with_its_runtime() {
    let stage = Stage::offering(&tools(), TRANSPORTS[0]);
    let runtime = Runtime::new().unwrap();
    let model: Model = stage.model.clone();
    let script = json!([{"touch": stage.file("begun")}, {"hang": true}]).to_string();
    runtime.spawn(async move { model.request(script).await });
    stage.wait_for_file("begun");
    runtime.shutdown_background();
    wait_until("its files are gone", SOON, || stage.directories().iter().all(|it| !it.exists()));
}

#[test]
fn half_a_character_costs_no_message() {
    let stage = Stage::new();
    let text =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"half \ud83d"}]}}"#;
    let result = r#"{"type":"result","subtype":"success","result":"cut \ud83d","session_id":"s"}"#;
    let (response, metadata) = stage.ask(&json!([{"garbage": text}, {"garbage": result}])).unwrap();
    assert_eq!(response.text, "cut \u{fffd}");
    assert_eq!(metadata.unknown_messages, 0);
    stage.nothing_is_left();
}

#[test]
fn a_stream_that_is_not_read_does_not_keep_the_command() {
    let stage = Stage::with(|settings| settings.timeout = Some(Duration::from_secs(5)));
    let text = json!({"text": "more"});
    let script = Value::from(vec![text; 500]).to_string();
    let mut events = {
        let _runtime = stage.runtime.enter();
        stage.model.request_stream(script)
    };
    wait_until("the command begins", SOON, || !stage.processes().is_empty());
    wait_until("the command is ended", SOON, || stage.processes().is_empty());
    let mut last = None;
    stage.runtime.block_on(async {
        while let Some(event) = events.next().await {
            last = Some(event);
        }
    });
    assert!(matches!(last, Some(Err(ModelError::Timeout { .. }))), "{last:?}");
}

#[test]
fn a_timeout_that_never_comes_is_none() {
    let stage = Stage::with(|settings| settings.timeout = Some(Duration::MAX));
    assert_eq!(stage.text(&json!([{"text": "yes"}])), "yes");
}

#[test]
fn what_an_error_has_cost_is_known() {
    let stage = Stage::new();
    let result = json!({"subtype": "error_max_turns", "is_error": true, "total_cost_usd": 0.25});
    let error = stage.failure(&json!([{"result": result}]));
    let result = error.diagnosis().unwrap().result.clone().unwrap();
    assert_eq!(result["total_cost_usd"], 0.25);
}
