//! The first minute: a server that runs is called from a shell, a configuration is written and tried, a browser looks, and
//! who types something else is told what was meant.

mod at_url;
mod init;
mod page;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pontoon_tests::rig::{Plan, Rig, Server, bridge_command, holds_within, send_signal};
use rustix::process::Signal;

use crate::{binaries, plan};

/// What a command said, and its exit code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs the bridge with these words in a folder, to its end.
fn run(directory: &Path, words: &[&str]) -> Said {
    run_with(directory, words, |_| {})
}

fn run_with(directory: &Path, words: &[&str], change: impl FnOnce(&mut Command)) -> Said {
    let mut command = bridge_command(&binaries().pontoon, directory);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    change(&mut command);
    let child = command.spawn().unwrap();
    let pid = child.id();
    let waiting = std::thread::spawn(move || child.wait_with_output().unwrap());
    if !holds_within(Duration::from_secs(60), || waiting.is_finished()) {
        send_signal(pid, Signal::KILL).unwrap();
        panic!("{words:?} does not end: {:?}", waiting.join().unwrap());
    }
    let Output { status, stdout, stderr } = waiting.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// A bridge in front of the demo server.
fn demo_plan() -> Plan {
    plan([Server::new("demo", &binaries().pontoon, &["demo"])])
}

fn demo() -> Rig {
    demo_plan().start()
}

#[test]
fn words_that_are_no_command_are_told_what_was_meant() {
    let place = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["serve", "sh", "-c", "a b"][..], "pontoon serve -- sh -c 'a b'"),
        (&["serve", "--port", "0", "sh"], "pontoon serve --port 0 -- sh"),
        (&["sh", "-c", "x"], "pontoon serve -- sh -c x"),
        (&["mcpo", "sh", "-c", "x"], "pontoon mcpo [OPTIONS] -- sh -c x"),
        (&["serve", "--prot", "9000"], "'--port'"),
        (&["http://127.0.0.1:1/mcp/x"], "pontoon tools --url http://127.0.0.1:1/mcp/x"),
        (&["tools", "http://127.0.0.1:1/mcp/x"], "pontoon tools --url http://127.0.0.1:1/mcp/x"),
        (
            &["call", "http://127.0.0.1:1/mcp/x", "t"],
            "pontoon call --url http://127.0.0.1:1/mcp/x TOOL",
        ),
        (&["call", "--url", "127.0.0.1:1/mcp/x", "t"], "did you mean http://127.0.0.1:1/mcp/x?"),
        (&["call", "--url", "demo", "t"], "http://127.0.0.1:8080/mcp/demo"),
        (&["call", "demo"], "which tool of \"demo\"? `pontoon tools demo` lists them"),
        (&["call"], "which server, and which tool?"),
        (&["tools"], "pontoon tools [OPTIONS] --url <URL>"),
        (&["call", "--save", "demo", "greet"], "--url"),
        (&["tools", "--token-env", "X", "demo"], "for a server at a --url"),
        (&["init", "tim"], "did you mean time?"),
        (&["check", "--json"], "--start"),
    ] {
        let said = run(place.path(), words);
        assert!(said.err.contains(says), "{words:?}: {says:?} is not in {said:?}");
        let code = if words[0] == "mcpo" { 1 } else { 2 };
        assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{words:?}: {said:?}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something was made");
}
