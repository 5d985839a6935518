//! One deadline for a call: it counts from the request to the answer, whatever the call waits for, and what
//! took the time is told.

use std::fs;

use pontoon_tests::client::{Client, ERAS, Legacy, Modern, Response, Speaker, mcp};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use crate::limits::metric;
use crate::{fixture, plan, rig, shell};

/// What no test waits for.
const LONG: u64 = 60_000;
const SOON: std::time::Duration = std::time::Duration::from_secs(5);

#[track_caller]
fn check(response: &Response, seconds: u64, says: &str) {
    assert_eq!(response.told_status(), 504, "{}", response.text());
    let text = response.error_text();
    assert!(text.contains(&format!("within {seconds} s")), "{text}");
    assert!(text.contains(says), "{says:?} is not in {text}");
}

/// A start and an answer that each take less than the time of a call, and together more.
#[test]
fn the_start_of_a_process_counts_to_its_call() {
    for mode in ["stateless", "stateful"] {
        let directory = tempfile::tempdir().unwrap();
        let flag = directory.path().join("slow");
        let script = format!("[ -e {} ] && sleep 2.8; exec FIXTURE --era legacy", flag.display());
        let rig = rig([shell(&script, mode).with("timeout", 4)]);
        for era in ERAS {
            fs::write(&flag, "").unwrap();
            let mut client = Client::new(era, &rig.endpoint("shell"));
            let response = client.call(1, "wait", json!({"ms": 2800}));
            check(&response, 4, "its process was");
            fs::remove_file(&flag).unwrap();
            let response = client.call(2, "echo", json!({"text": "x"}));
            assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
            client.end();
        }
        rig.stop();
    }
}

#[test]
fn a_process_that_never_gets_ready_is_told_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("hang");
    let script = format!(
        "[ -e {} ] && {{ echo waiting for the moon >&2; exec sleep 60; }}; exec FIXTURE --era legacy",
        flag.display()
    );
    let rig = rig([shell(&script, "stateless").with("timeout", 1)]);
    fs::write(&flag, "").unwrap();
    for era in ERAS {
        let mut client = Client::new(era, &rig.endpoint("shell"));
        let response = client.call(1, "echo", json!({"text": "x"}));
        check(&response, 1, "its process was not ready for it");
        let text = response.error_text();
        assert!(text.contains("its last words: waiting for the moon"), "{text}");
        rig.wait_for_gauge("permits_in_use", 0);
        client.end();
    }
    rig.stop();
}

/// A bridge with one slot, for which calls wait as long as they may.
fn with_one_slot() -> Rig {
    let patient = fixture("stateless").with("timeout", 60);
    let hasty = shell("exec FIXTURE", "stateless").with("timeout", 4);
    plan([patient, hasty])
        .variable("MCPO_MAX_CONCURRENT", "1")
        .variable("MCPO_QUEUE_WAIT", "600")
        .start()
}

#[test]
fn the_wait_for_a_slot_counts_to_its_call() {
    for era in ERAS {
        let rig = with_one_slot();
        let (holder, client) =
            (Client::new(era, &rig.endpoint("fixture")), Client::new(era, &rig.endpoint("shell")));
        let first = holder.send_call(1, "wait", json!({"ms": 2800}));
        rig.wait_for_gauge("permits_in_use", 1);
        let second = client.send_call(1, "wait", json!({"ms": 2800}));
        let waiting = || metric(&rig, "pontoon_waiting_calls") == 1;
        wait_until("the second one waits", SOON, waiting);
        let first = first.begin().unwrap().finish().unwrap().0;
        assert_eq!(first.tool_text().as_deref(), Some("waited 2800 ms"), "{}", first.text());
        let second = second.begin().unwrap().finish().unwrap().0;
        check(&second, 4, "for a free slot");
        holder.end();
        client.end();
        rig.stop();
    }
}

#[test]
fn a_call_that_never_gets_a_slot_ends_with_its_time() {
    for era in ERAS {
        let rig = with_one_slot();
        let (mut holder, mut client) =
            (Client::new(era, &rig.endpoint("fixture")), Client::new(era, &rig.endpoint("shell")));
        let first = holder.send_call(1, "wait", json!({"ms": LONG}));
        rig.wait_for_gauge("permits_in_use", 1);
        let response = client.call(1, "echo", json!({"text": "x"}));
        check(&response, 4, "still waiting for a free slot");
        assert_eq!(rig.gauge("permits_in_use"), 1, "the first one goes on");
        assert_eq!(metric(&rig, "pontoon_waiting_calls"), 0);
        holder.give_up(1, first);
        holder.end();
        client.end();
        rig.stop();
    }
}

#[test]
fn a_call_that_never_gets_a_place_on_its_process_ends_with_its_time() {
    for era in ERAS {
        let server = fixture("stateful").with("max_in_flight", 1).with("timeout", 1);
        let server = server.with("tool_timeouts", json!({"wait": 60}));
        let rig = plan([server]).variable("MCPO_QUEUE_WAIT", "600").start();
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let first = client.send_call(1, "wait", json!({"ms": LONG}));
        rig.wait_for_gauge("running", 1);
        wait_until("it has its child", SOON, || rig.children().len() == 1);
        let response = client.call(2, "echo", json!({"text": "x"}));
        check(&response, 1, "others of its conversation (max_in_flight)");
        client.give_up(1, first);
        client.end();
        rig.stop();
    }
}

/// A server that says nothing from the beginning: what it offers is not known.
#[test]
fn a_first_start_that_hangs_ends_with_the_time_of_its_call() {
    let server = shell("exec sleep 60", "stateless").with("timeout", 1).that_may_fail();
    let rig = rig([server]);
    let mut modern = Modern::new(&rig.endpoint("shell"));
    let response = modern.call(1, "echo", json!({"text": "x"}));
    check(&response, 1, "it is being started for the first time");
    let response = Legacy::initialize(&rig.endpoint("shell"), mcp::LEGACY, &json!({}));
    check(&response, 1, "it is being started for the first time");
    drop(modern);
    rig.stop();
}
