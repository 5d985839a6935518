//! A session, and the command as anybody starts it, with `pontoon ipc` in its configuration.

use std::sync::Arc;
use std::sync::mpsc::channel;

use pontoon_host::Tool;
use pontoon_tests::claude::{Claude, NEWEST};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{check_results, in_every_version, message, text, tools, turns, watched};
use crate::binaries;
use crate::host::{Program, SOON};

in_every_version!(tools_are_listed_and_called_and_their_answers_arrive);

fn tools_are_listed_and_called_and_their_answers_arrive(version: &str) {
    let Some(claude) = Claude::of_version(version, &turns()) else { return };
    let mut program = Program::start(&tools());
    let messages = claude.run(&server(&program));
    let start = message(&messages, "system");
    assert_eq!(start["subtype"], "init", "{start}");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    let listed = start["tools"].as_array().unwrap();
    for name in ["add", "fails", "picture", "meet"] {
        assert!(listed.contains(&json!(format!("mcp__mine__{name}"))), "{listed:?}");
    }
    check_results(claude.api());
    let end = message(&messages, "result");
    assert_eq!(end["result"], "That is all.", "{end}");
    claude.leaves_no_process();
    program.end();
    assert_eq!(program.files(), 0);
}

#[test]
fn a_bridge_that_is_killed_costs_one_call() {
    let script = json!([
        [{"id": "watched", "tool": "mcp__mine__watched", "input": {}}],
        [{"id": "sum", "tool": "mcp__mine__add", "input": {"a": 1, "b": 2}}],
        "done",
    ]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let (tells, hears) = channel();
    let tools = tools();
    tools.add(watched(tells)).unwrap();
    let program = Program::start(&tools);
    let conversation = claude.start(&server(&program));
    assert_eq!(hears.recv_timeout(SOON), Ok("began"));
    let bridge = binaries().pontoon.canonicalize().unwrap();
    let processes = claude.processes();
    let bridges = processes.iter().filter(|it| it.program().as_ref() == Some(&bridge));
    let [bridge] = bridges.collect::<Vec<_>>()[..] else { panic!("not one: {processes:?}") };
    let pid = Pid::from_raw(bridge.pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(hears.recv_timeout(SOON), Ok("dropped"));
    conversation.finish();
    assert_eq!(claude.api().tool_result("watched")["is_error"], true);
    assert_eq!(text(&claude.api().tool_result("sum")), "3");
    claude.leaves_no_process();
}

#[test]
fn a_tool_that_is_added_reaches_the_model() {
    // The command lists the tools anew while the conversation goes on, so it has a few turns for it.
    let grow = json!([{"tool": "mcp__mine__grow", "input": {}}]);
    let add = json!([{"tool": "mcp__mine__add", "input": {"a": 1, "b": 2}}]);
    let script = json!([grow, add, add, add, add, add, add, add, "done"]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let tools = tools();
    let grown = tools.clone();
    let grow = Tool::new("grow", move |(), _| {
        grown.add(Tool::new("late", |(), _| async {})).unwrap();
        async { "it has grown" }
    });
    tools.add(grow).unwrap();
    let program = Program::start(&tools);
    let mut server = server(&program);
    // Else the model sees names only, and asks for the rest.
    server["alwaysLoad"] = json!(true);
    let messages = claude.run(&server);
    let listed = message(&messages, "system")["tools"].clone();
    assert!(!listed.as_array().unwrap().contains(&json!("mcp__mine__late")), "{listed}");
    let offered = claude.api().offered_tools();
    assert!(offered.iter().any(|name| name == "mcp__mine__late"), "{offered:?}");
}

#[test]
fn a_call_that_takes_too_long_for_the_client_ends_in_the_program() {
    struct Guard(Arc<Notify>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let script = json!([
        [{"id": "stuck", "tool": "mcp__mine__stuck", "input": {}}],
        [{"id": "heard", "tool": "mcp__mine__is_given_up", "input": {}}],
        "done",
    ]);
    let Some(claude) = Claude::of_version(NEWEST, &script) else { return };
    let given_up = Arc::new(Notify::new());
    let stuck = Tool::with_context("stuck", &given_up, |given_up, (), _| async move {
        let _guard = Guard(given_up);
        std::future::pending::<()>().await;
    });
    // It is called while the conversation goes on, whose end would give up all calls.
    let is_given_up = Tool::with_context("is_given_up", &given_up, |given_up, (), _| async move {
        given_up.notified().await;
        "it is"
    });
    let tools = tools().with(stuck).unwrap().with(is_given_up).unwrap();
    let program = Program::start(&tools);
    let mut server = server(&program);
    server["timeout"] = json!(1000);
    claude.run(&server);
    let stuck = claude.api().tool_result("stuck");
    assert!(text(&stuck).contains("timed out"), "{stuck}");
    assert_eq!(text(&claude.api().tool_result("heard")), "it is");
}

/// How the command starts the bridge.
fn server(program: &Program) -> Value {
    program.session().mcp_server_config(&binaries().pontoon)
}
