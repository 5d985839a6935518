//! Children: which process answers, how it ends, and that it never outlives its use.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::processes::{self, Process};
use pontoon_tests::rig::{Rig, holds_within, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fixture, plan, rig, rude, shell};

const SOON: Duration = Duration::from_secs(5);
/// The whole stop ladder: two seconds after the end of the input, ten after SIGTERM.
const LADDER: Duration = Duration::from_secs(16);

fn pid(client: &mut impl Speaker, id: u32) -> u32 {
    let response = client.call(id, "pid", json!({}));
    let text = response.tool_text().unwrap_or_else(|| panic!("no pid: {}", response.text()));
    text.parse().unwrap()
}

fn echoes(client: &mut impl Speaker, id: u32) {
    let response = client.call(id, "echo", json!({"text": "still here"}));
    assert_eq!(response.tool_text().as_deref(), Some("still here"), "{}", response.text());
}

/// What an error of the bridge has to say in each era: a status of its own, or the same in `data`.
fn assert_failed(response: &Response, era: &str, status: u64, says: &str) {
    let answer = response.answer();
    let told = match era {
        "legacy" => {
            assert_eq!(response.status(), 200, "a bare status would end the session: {answer}");
            answer.pointer("/error/data/httpStatus").and_then(Value::as_u64)
        }
        _ => Some(u64::from(response.status())),
    };
    assert_eq!(told, Some(status), "{era}: {} {answer}", response.status());
    assert!(response.error_text().contains(says), "{era}: {says:?} is not in {answer}");
}

#[test]
fn a_session_keeps_its_child_and_shares_it_with_nobody() {
    let rig = rig([fixture("stateful")]);
    let mut one = Legacy::open(&rig.endpoint("fixture"));
    let mut other = Legacy::open(&rig.endpoint("fixture"));
    let first = pid(&mut one, 1);
    assert_eq!(first, pid(&mut one, 2));
    assert_ne!(first, pid(&mut other, 1));
    one.end();
    other.end();
    rig.wait_for_children(0);
    rig.stop();
}

#[test]
fn each_call_has_its_own_child_when_stateless() {
    let rig = rig([fixture("stateless")]);
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let mut pids = HashSet::new();
    for id in 0..5 {
        assert!(pids.insert(pid(&mut legacy, id)) && pids.insert(pid(&mut modern, id)));
    }
    rig.wait_for_children(0);
    drop(modern);
    legacy.end();
    rig.stop();
}

#[test]
fn a_dead_child_is_replaced_on_the_next_request() {
    let rig = rig([fixture("stateful")]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let mut last = pid(&mut session, 1);
    for id in 2..6 {
        send_signal(last, Signal::KILL).unwrap();
        wait_until("the child is gone", SOON, || processes::read(last).is_none());
        // What the dead one had in memory is lost: that is told, once, and nothing is done.
        let told = session.call(2 * id, "pid", json!({}));
        let text = told.tool_text().unwrap_or_default();
        assert!(text.contains("is lost. This call was not made"), "{}", told.text());
        assert_eq!(told.answer()["result"]["isError"], true);
        let next = pid(&mut session, 2 * id + 1);
        assert_ne!(next, last);
        last = next;
    }
    session.end();
    rig.stop();
}

#[test]
fn a_child_that_dies_in_a_call_fails_it_with_its_last_words() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let mut legacy = Legacy::open(&rig.endpoint("fixture"));
        let mut modern = Modern::new(&rig.endpoint("fixture"));
        let begun = Instant::now();
        let words = "crashing because it was asked to";
        assert_failed(&legacy.call(1, "crash", json!({})), "legacy", 502, words);
        assert_failed(&modern.call(1, "crash", json!({})), "modern", 502, words);
        assert!(begun.elapsed() < SOON, "{mode}: {:?}", begun.elapsed());
        echoes(&mut legacy, 2);
        echoes(&mut modern, 2);
        drop(modern);
        legacy.end();
        rig.stop();
    }
}

#[test]
fn a_child_that_dies_in_the_middle_of_a_line_fails_its_call() {
    let rig = rig([rude("die-mid-line", "stateful")]);
    let mut session = Legacy::open(&rig.endpoint("rude"));
    for id in 1..3 {
        let response = session.call(id, "echo", json!({"text": "x"}));
        assert_failed(&response, "legacy", 502, "9");
    }
    session.end();
    rig.stop();
}

#[test]
fn a_child_that_dies_in_the_handshake_fails_the_request_at_once_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("broken");
    let script = format!(
        "[ -e {} ] && {{ echo 'no licence was found' >&2; exit 3; }}; exec FIXTURE",
        flag.display()
    );
    for mode in ["stateless", "stateful"] {
        let rig = rig([shell(&script, mode)]);
        let mut legacy = Legacy::open(&rig.endpoint("shell"));
        let mut modern = Modern::new(&rig.endpoint("shell"));
        fs::write(&flag, "").unwrap();
        let begun = Instant::now();
        let response = legacy.call(1, "echo", json!({"text": "x"}));
        assert_failed(&response, "legacy", 502, "no licence was found");
        assert!(begun.elapsed() < Duration::from_secs(1), "{mode}: {:?}", begun.elapsed());
        let begun = Instant::now();
        let response = modern.call(1, "echo", json!({"text": "x"}));
        assert_failed(&response, "modern", 502, "no licence was found");
        assert!(begun.elapsed() < Duration::from_secs(1), "{mode}: {:?}", begun.elapsed());
        fs::remove_file(&flag).unwrap();
        echoes(&mut legacy, 2);
        echoes(&mut modern, 2);
        drop(modern);
        legacy.end();
        rig.stop();
    }
}

#[test]
fn a_server_that_cannot_start_is_told_and_the_others_work() {
    let broken = rude("die-in-handshake", "stateful").that_may_fail();
    let rig = rig([broken, fixture("stateful")]);
    rig.wait_for_state("rude", "failed");
    let told = rig.health()["servers"]["rude"]["error"].to_string();
    assert!(told.contains("FIXTURE_TOKEN is not set"), "{told}");
    let begun = Instant::now();
    let mut modern = Modern::new(&rig.endpoint("rude"));
    let response = modern.call(1, "echo", json!({"text": "x"}));
    assert_failed(&response, "modern", 502, "FIXTURE_TOKEN is not set");
    let response = Legacy::initialize(&rig.endpoint("rude"), "2025-11-25", &json!({}));
    assert!(response.error_text().contains("FIXTURE_TOKEN is not set"), "{}", response.text());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(modern);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut session, 1);
    session.end();
    rig.stop();
}

#[test]
fn a_hanging_call_is_ended_at_its_deadline() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode).with("timeout", 1)]);
        let mut legacy = Legacy::open(&rig.endpoint("fixture"));
        let mut modern = Modern::new(&rig.endpoint("fixture"));
        let begun = Instant::now();
        let response = legacy.call(1, "wait", json!({"ms": 60_000}));
        assert_failed(&response, "legacy", 504, "1 s");
        let response = modern.call(1, "wait", json!({"ms": 60_000}));
        assert_failed(&response, "modern", 504, "1 s");
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(2) && took < Duration::from_secs(6), "{took:?}");
        rig.wait_for_gauge("running", 0);
        rig.wait_for_gauge("permits_in_use", 0);
        echoes(&mut legacy, 2);
        drop(modern);
        legacy.end();
        rig.stop();
    }
}

#[test]
fn a_child_that_hangs_from_its_start_is_ended_at_the_deadline() {
    let rig = rig([rude("freeze", "stateless").with("timeout", 1)]);
    let mut modern = Modern::new(&rig.endpoint("rude"));
    let response = modern.call(1, "echo", json!({"text": "x"}));
    assert_failed(&response, "modern", 504, "1 s");
    wait_until("the frozen child is gone", LADDER, || rig.children().is_empty());
    drop(modern);
    rig.stop();
}

#[test]
fn a_modern_client_that_leaves_cancels_its_call() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let mut modern = Modern::new(&rig.endpoint("fixture"));
        let connection = modern.send_call(1, "wait", json!({"ms": 60_000}));
        rig.wait_for_gauge("running", 1);
        wait_until("a child works", SOON, || !rig.children().is_empty());
        drop(connection);
        wait_until("the call is cancelled", SOON, || rig.gauge("running") == 0);
        wait_until("its permit is free", SOON, || rig.gauge("permits_in_use") == 0);
        if mode == "stateless" {
            rig.wait_for_children(0);
        }
        echoes(&mut modern, 1);
        drop(modern);
        rig.stop();
    }
}

#[test]
fn a_legacy_client_that_leaves_does_not_cancel_its_call() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let session = Legacy::open(&rig.endpoint("fixture"));
        let connection = session.send_call(1, "wait", json!({"ms": 2500}));
        rig.wait_for_gauge("running", 1);
        drop(connection);
        let ended = holds_within(Duration::from_millis(1500), || rig.gauge("running") == 0);
        assert!(!ended, "{mode}: the call was cancelled");
        rig.wait_for_gauge("running", 0);
        session.end();
        rig.stop();
    }
}

#[test]
fn a_killed_bridge_leaves_no_child() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids").display().to_string();
    let mut forking = rude("fork", "stateful");
    forking.args.extend(["--pids".to_owned(), pids.clone(), "--how".to_owned(), "deaf".to_owned()]);
    let rig = rig([fixture("stateful"), forking]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut session, 1);
    let mut deaf = Legacy::open(&rig.endpoint("rude"));
    echoes(&mut deaf, 1);
    let waiting = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 60_000}));
    wait_until("three children", SOON, || rig.children().len() >= 3);
    rig.kill_9();
    drop(waiting);
    assert_gone(&pids);
}

/// Fails when a process whose id is in this file is there.
fn assert_gone(pids: &str) {
    let pids = fs::read_to_string(pids).unwrap();
    assert!(pids.lines().count() >= 2, "no grandchildren were started");
    let left: Vec<Process> =
        pids.lines().filter_map(|pid| processes::read(pid.parse().unwrap())).collect();
    assert!(!left.iter().any(|it| it.name == "sleep" || it.name == "sh"), "{left:?}");
}

#[test]
fn grandchildren_go_with_their_child() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids").display().to_string();
    let mut forking = rude("fork", "stateless");
    forking.args.extend(["--pids".to_owned(), pids.clone()]);
    let rig = rig([forking]);
    let mut session = Legacy::open(&rig.endpoint("rude"));
    echoes(&mut session, 1);
    let left = || rig.descendants().into_iter().filter(|it| it.name == "sleep").collect::<Vec<_>>();
    wait_until("the grandchildren are gone", LADDER, || left().is_empty());
    assert_gone(&pids);
    session.end();
    rig.stop();
}

#[test]
fn a_deaf_child_is_killed() {
    let rig = rig([rude("deaf", "stateless")]);
    let mut modern = Modern::new(&rig.endpoint("rude"));
    let begun = Instant::now();
    echoes(&mut modern, 1);
    assert!(begun.elapsed() < SOON, "the answer waited for the exit: {:?}", begun.elapsed());
    wait_until("the deaf child is gone", LADDER, || rig.children().is_empty());
    drop(modern);
    rig.stop();
}

#[test]
fn a_flood_on_stderr_neither_blocks_nor_fills_memory() {
    let rig = rig([rude("flood-stderr", "stateful")]);
    let mut session = Legacy::open(&rig.endpoint("rude"));
    for id in 1..20 {
        echoes(&mut session, id);
    }
    assert!(rig.peak_resident_bytes() < 64 << 20, "{} bytes", rig.peak_resident_bytes());
    assert!(rig.stderr().len() < 8 << 20, "the flood went into the log");
    session.end();
    rig.stop();
}

/// A call that floods has to fail with memory bounded, and the next one to find a fresh child.
fn check_flood(how: &str, rig: &Rig) {
    let mut modern = Modern::new(&rig.endpoint("rude"));
    let response = modern.call(1, "echo", json!({"text": "x"}));
    assert!(response.answer().get("error").is_some(), "{how}: {}", response.status());
    let peak = rig.peak_resident_bytes();
    assert!(peak < 128 << 20, "{how}: {peak} bytes");
    wait_until("the child is replaced", LADDER, || rig.children().is_empty());
}

#[test]
fn a_line_of_400_megabytes_fails_its_call_and_not_the_bridge() {
    let rig = rig([rude("long-line", "stateless"), fixture("stateful")]);
    check_flood("long-line", &rig);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut session, 1);
    session.end();
    rig.stop();
}

#[test]
fn a_flood_without_a_newline_fails_its_call_and_not_the_bridge() {
    let rig = rig([rude("flood-stdout", "stateless").with("timeout", 20)]);
    check_flood("flood-stdout", &rig);
    rig.stop();
}

#[test]
fn a_flood_of_log_lines_is_ended_at_the_deadline() {
    let rig = rig([rude("flood-lines", "stateless").with("timeout", 2)]);
    check_flood("flood-lines", &rig);
    assert!(rig.stderr().len() < 8 << 20, "the flood went into the log");
    rig.stop();
}

#[test]
fn a_child_may_write_before_it_reads() {
    let rig = rig([rude("writes-before-reads", "stateless")]);
    let mut modern = Modern::new(&rig.endpoint("rude"));
    // Bigger than any pipe, so that both sides write at once.
    let text = "x".repeat(1 << 20);
    let response = modern.call(1, "echo", json!({"text": text}));
    assert_eq!(response.tool_text().map(|it| it.len()), Some(1 << 20), "{}", response.status());
    drop(modern);
    rig.stop();
}

#[test]
fn a_result_of_two_megabytes_passes_whole() {
    let rig = rig([fixture("stateful")]);
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let response = legacy.call(1, "big", json!({"bytes": 2 << 20}));
    assert_eq!(response.tool_text().map(|it| it.len()), Some(2 << 20));
    assert!(!response.head.is_stream(), "some clients refuse events that large");
    legacy.end();
    rig.stop();
}

#[test]
fn a_child_gets_a_chosen_environment_and_no_descriptor_of_ours() {
    let rig = plan([fixture("stateful").with("env", json!({"CHOSEN": "yes"}))])
        .variable("CANARY_SECRET", "leaked")
        .start();
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let other = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 60_000}));
    let response = session.call(1, "environment", json!({}));
    let environment: Value = serde_json::from_str(&response.tool_text().unwrap()).unwrap();
    assert_eq!(environment["CHOSEN"], "yes");
    assert!(environment.get("PATH").is_some() && environment.get("HOME").is_some());
    assert!(environment.get("CANARY_SECRET").is_none(), "{environment}");
    let ours = |name: &&String| name.starts_with("MCPO_") || name.starts_with("RUST_");
    let leaked: Vec<_> = environment.as_object().unwrap().keys().filter(ours).collect();
    let known = ["MCPO_WORKDIR", "MCPO_JOB_ID", "MCPO_BASE_URL"];
    assert!(leaked.iter().all(|name| known.contains(&name.as_str())), "{leaked:?}");
    let child = pid(&mut session, 2);
    assert_eq!(processes::descriptors(child), Some(3), "stdin, stdout, stderr");
    drop(other);
    session.end();
    rig.stop();
}

#[test]
fn an_idle_child_is_stopped_and_started_again() {
    let rig = rig([fixture("stateful").with("idle_timeout", 1)]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let first = pid(&mut session, 1);
    rig.wait_for_children(0);
    assert_ne!(pid(&mut session, 2), first);
    session.end();
    rig.stop();
}

#[test]
fn looking_starts_no_child() {
    let rig = rig([fixture("stateful")]);
    rig.wait_for_children(0);
    let started = || {
        // One that has ended may not have been reaped yet.
        let spawned = rig.descendants().into_iter().filter(|it| !it.is_zombie()).count();
        (rig.children().len(), spawned)
    };
    let before = started();
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    for method in ["ping", "tools/list", "prompts/list", "resources/templates/list"] {
        let response = legacy.ask(1, method, json!({}));
        assert!(response.answer().get("result").is_some(), "{method}: {}", response.text());
    }
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    for method in ["server/discover", "tools/list", "prompts/list"] {
        let response = modern.ask(1, method, json!({}));
        assert!(response.answer().get("result").is_some(), "{method}: {}", response.text());
    }
    rig.health();
    assert_eq!(started(), before);
    drop(modern);
    legacy.end();
    rig.stop();
}

#[test]
fn a_server_that_ends_with_its_input_is_not_blamed_for_a_late_end() {
    let place = tempfile::tempdir().unwrap();
    let late = place.path().join("late");
    let script =
        format!("[ -e {} ] && {{ FIXTURE; exec sleep 600; }}; exec FIXTURE", late.display());
    let rig = rig([shell(&script, "stateless")]);
    // Those that told what it offers end in order; only the spawner stays.
    let name = |exit| format!("pontoon_child_exits_total{{server=\"shell\",exit=\"{exit}\"}}");
    let ended = || rig.metric(&name("clean")) + rig.metric(&name("abnormal"));
    wait_until("they are gone", Duration::from_secs(20), || ended() > 1.5);
    fs::write(&late, "").unwrap();
    let mut client = Modern::new(&rig.endpoint("shell"));
    assert_eq!(client.call(1, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    wait_until("it is made to end", Duration::from_secs(20), || ended() > 2.5);
    drop(client);
    let healed = rig.health()["servers"]["shell"]["heals"].clone();
    assert!(healed["H27"].is_null(), "{healed}");
    rig.stop();
}

#[test]
fn an_answer_that_cannot_be_read_fails_its_call_and_not_after_its_timeout() {
    for (how, why) in [
        ("not-utf8", "it is not valid JSON-RPC"),
        ("twin-keys", "the member `id` stands twice"),
        ("deep", "it is nested deeper than 128 levels"),
    ] {
        for mode in ["stateless", "stateful"] {
            // Longer than the client waits for anything.
            let server = rude(how, mode).with("timeout", 600);
            let rig = rig([server.with("heal", json!({"H06": "off"}))]);
            let mut client = Modern::new(&rig.endpoint("rude"));
            let response = client.call(1, "echo", json!({"text": "x"}));
            assert_failed(&response, "modern", 502, why);
            drop(client);
            rig.stop();
        }
    }
}
