//! Many calls to an application that is closed, started again, changed and dropped all the while.
//!
//! `PONTOON_SOAK` says how many calls; the part `soak` of the tests makes as many as it says there.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{Home, text};

/// Calls that the client has under way.
const WINDOW: usize = 16;

/// What became of a call.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    unknown: usize,
    not_made: usize,
}

/// The tool of a call: most are plain, some may be made twice, a few close everything.
fn tool(number: usize) -> &'static str {
    match number % 200 {
        0 => "die",
        1 | 2 => "die_once",
        3..=40 => "read",
        41..=45 => "wait",
        _ => "echo",
    }
}

fn may_repeat(tool: &str) -> bool {
    matches!(tool, "read" | "die_once")
}

/// Closes, starts and changes an application until it is told to stop. Gives how often.
fn disturb(place: &Place, deeds: &Deeds, is_over: &std::sync::mpsc::Receiver<()>) -> usize {
    let mut app = Some(LiveApp::start(place, Manner::default(), deeds));
    let mut rounds = 0;
    loop {
        let pause = Duration::from_millis([20, 90, 250, 40, 160][rounds % 5]);
        match is_over.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return rounds,
        }
        rounds += 1;
        match (rounds % 4, app.take()) {
            (1, Some(running)) => {
                running.drop_connections();
                app = Some(running);
            }
            (_, Some(running)) => running.close(),
            (_, None) => {
                let more_tools = vec![format!("tool-{}", rounds % 3)];
                let manner = Manner { more_tools, ..Manner::default() };
                app = Some(LiveApp::start(place, manner, deeds));
            }
        }
    }
}

/// What the bridge has: descriptors, and memory in kB.
fn uses(pid: u32) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    (descriptors, line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn take(client: &mut StdioServer, open: &mut HashMap<u64, String>, tally: &mut Tally) {
    let answer = client.wait_for("an answer", |message| message["id"].is_u64());
    let id = answer["id"].as_u64().unwrap();
    let expected = open.remove(&id).unwrap_or_else(|| panic!("it is answered twice: {answer}"));
    let result = &answer["result"];
    match (&result["isError"], &result["_meta"]["pontoon/outcome"]) {
        (Value::Null, _) => {
            assert_eq!(text(result), expected, "an answer of another call");
            tally.answered += 1;
        }
        (Value::Bool(true), Value::String(outcome)) if outcome == "unknown" => tally.unknown += 1,
        (Value::Bool(true), Value::String(outcome)) if outcome == "not made" => tally.not_made += 1,
        _ => panic!("{answer}"),
    }
}

#[test]
fn every_call_is_answered_once_whatever_becomes_of_the_application() {
    let calls: usize =
        std::env::var("PONTOON_SOAK").map_or(400, |calls| calls.parse().expect("a number"));
    let (home, deeds) = (Home::new(), Deeds::default());
    let place = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds).place();
    let Place::WebSocket(port) = place else { unreachable!("it was made so") };
    let (stop, is_over) = channel();
    let disturbing = {
        let (place, deeds) = (place.clone(), deeds.clone());
        thread::spawn(move || disturb(&place, &deeds, &is_over))
    };
    let options = ["--max-in-flight", "8", "--connect-wait", "60s", "--log-level", "error"];
    let mut client = home.client(&format!("ws://127.0.0.1:{port}"), &options);
    let (mut open, mut tally) = (HashMap::new(), Tally::default());
    let mut early = None;
    for number in 0..calls {
        if open.len() >= WINDOW {
            take(&mut client, &mut open, &mut tally);
        }
        let (text, tool) = (format!("call {number}"), tool(number));
        client.send_call(number, tool, json!({"text": text, "ms": 3}));
        open.insert(number as u64, text);
        if number == calls / 4 {
            early = Some(uses(client.pid()));
        }
    }
    while !open.is_empty() {
        take(&mut client, &mut open, &mut tally);
    }
    stop.send(()).unwrap();
    let rounds = disturbing.join().unwrap();
    let (descriptors, memory) = uses(client.pid());
    println!(
        "{calls} calls, {rounds} disturbances: {tally:?}; {descriptors} descriptors, {memory} kB"
    );
    assert_eq!(tally.answered + tally.unknown + tally.not_made, calls);
    assert_eq!(tally.not_made, 0, "each waits long enough");
    assert!(tally.answered >= calls / 2, "{tally:?}");
    let repeated = deeds.repeated();
    let forbidden: Vec<_> = repeated
        .iter()
        .filter(|text| !may_repeat(tool(text["call ".len()..].parse().unwrap())))
        .collect();
    assert!(forbidden.is_empty(), "made twice without permission: {forbidden:?}");
    let (descriptors_before, memory_before) = early.unwrap();
    assert!(descriptors <= descriptors_before + 8, "{descriptors_before} -> {descriptors}");
    assert!(memory <= memory_before + 8 * 1024, "{memory_before} -> {memory} kB");
    home.finish(client);
}
