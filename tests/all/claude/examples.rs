//! The examples of `pontoon-host`, as a newcomer runs them, with the real command on `PATH`.

use std::process::{Command, Stdio};

use pontoon_tests::claude::{Claude, NEWEST};
use serde_json::{Value, json};

/// Runs an example with this script of the model's, by both transports, and gives what it prints each time.
fn check(example: &str, script: &Value, expected: &[&str]) {
    for transport in ["stdio", "sdk"] {
        let Some(claude) = Claude::of_version(NEWEST, script) else { return };
        let bin = claude.home().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(claude.program(), bin.join("claude")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "it is waited for just below")]
        let mut command = Command::new(example);
        command.env_clear().envs(claude.environment()).env("PONTOON_TRANSPORT", transport);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let output = command.current_dir(claude.home()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{transport}: {said}{complaint}");
        for part in expected {
            assert!(said.contains(part), "{transport}: `{part}` is not in {said}{complaint}");
        }
        claude.leaves_no_process();
        let left = std::fs::read_dir(claude.home().join("tmp")).unwrap();
        let mut names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.find(|name| name.starts_with("claudecode_ipc_")), None, "{transport}");
    }
}

#[test]
fn fifteen_lines_to_a_tool() {
    let script = json!([
        [{"tool": "mcp__host_tools__add", "input": {"a": 2, "b": 40}}],
        "It is {{tool_result}}.",
    ]);
    check(env!("CARGO_BIN_EXE_example-ask"), &script, &["It is 42."]);
}

#[test]
fn a_tool_on_the_main_thread() {
    let line =
        |text: &str| json!([{"tool": "mcp__host_tools__write_line", "input": {"text": text}}]);
    let script = json!([line("old pond"), line("a frog leaps in"), "{{tool_result}} lines"]);
    let expected = ["2 lines", "The window has 2 lines."];
    check(env!("CARGO_BIN_EXE_example-window"), &script, &expected);
}

#[test]
fn a_database_as_context() {
    let script = json!([
        [{"tool": "mcp__shop__order", "input": {"item": "apples", "count": 3}}],
        [{"tool": "mcp__shop__order", "input": {"item": "pears", "count": 3}}],
        "{{tool_error}}: {{tool_result}}",
    ]);
    let expected =
        ["true: OrderError: only 2 are left", "In the database: {\"apples\": 7, \"pears\": 2}"];
    check(env!("CARGO_BIN_EXE_example-database"), &script, &expected);
}

#[test]
fn an_answer_as_it_is_written() {
    let script =
        json!([["Let me look.", {"tool": "mcp__host_tools__now", "input": {}}], "It is late."]);
    let expected = [
        "tools]",
        "Let me look.",
        "[uses mcp__host_tools__now with {}]",
        "[done]",
        "It is late.",
        "[2 turns]",
    ];
    check(env!("CARGO_BIN_EXE_example-streaming"), &script, &expected);
}

#[test]
fn a_tool_that_asks_another_agent() {
    let script = json!({
        "turns": [
            [{"tool": "mcp__host_tools__ask_poet", "input": {"task": "RAIN"}}],
            "The poet says: {{tool_result}}",
        ],
        "conversations": [{
            "match": "RAIN",
            "turns": [
                [{"tool": "mcp__host_tools__rhyme", "input": {"word": "rain"}}],
                "{{tool_result}} on the plain",
            ],
        }],
    });
    let expected = ["The poet says: rain, brain, train on the plain"];
    check(env!("CARGO_BIN_EXE_example-member-agent"), &script, &expected);
}
