//! The word that state was lost is for a call. A client library that opens its subscription again by
//! itself must not be the one that hears it.

use pontoon_tests::client::Speaker;
use pontoon_tests::rig::{Plan, Rig, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;

use super::{CHAT, Headers, SOON, USER, behind_proxy, is_gone, modern, pid, tell};
use crate::fixture;

const ADA: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];

fn bridge(jobs: &tempfile::TempDir) -> Plan {
    behind_proxy(fixture("stateful")).variable("MCPO_JOBS_DIR", jobs.path().to_str().unwrap())
}

/// A subscription is served, the first call after it is told of the loss, and the next is made.
fn check_told_after_a_subscription(rig: &Rig, how: &str) {
    let mut client = modern(rig, ADA);
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    // The bridge may hear of a process's end after us. Then the subscription ends, and is opened again.
    let mut stream = None;
    wait_until("it is acknowledged", SOON, || {
        let open = client.send("sub", "subscriptions/listen", wanted.clone());
        let open = stream.insert(open.begin().unwrap());
        let first = open.next_message().unwrap().unwrap();
        first["method"] == "notifications/subscriptions/acknowledged"
    });
    let told = tell(&mut client, "tally");
    assert!(told.contains(how) && told.contains("is lost. This call was not made"), "{told}");
    assert_eq!(tell(&mut client, "tally"), "1", "it is told once");
    drop((stream, client));
}

#[test]
fn a_process_that_died_is_told_to_a_call_and_not_to_a_subscription() {
    let jobs = tempfile::tempdir().unwrap();
    let rig = bridge(&jobs).start();
    let adas = pid(&rig, ADA);
    send_signal(adas, Signal::KILL).unwrap();
    wait_until("it is gone", SOON, || is_gone(adas));
    check_told_after_a_subscription(&rig, "it was killed by signal 9");
    rig.stop();
}

#[test]
fn a_process_that_made_room_is_told_to_a_call_and_not_to_a_subscription() {
    let jobs = tempfile::tempdir().unwrap();
    let rig = bridge(&jobs).variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "4").start();
    let adas = pid(&rig, ADA);
    for chat in ["c2", "c3"] {
        pid(&rig, &[(USER, "ada"), (CHAT, chat)]);
    }
    for user in ["ben", "cleo"] {
        pid(&rig, &[(USER, user)]);
    }
    wait_until("the oldest is let go", SOON, || is_gone(adas));
    check_told_after_a_subscription(&rig, "it had to make room for those of others");
    rig.stop();
}

#[test]
fn a_restart_is_told_to_a_call_and_not_to_a_subscription() {
    let jobs = tempfile::tempdir().unwrap();
    let first = bridge(&jobs).start();
    pid(&first, ADA);
    first.stop();
    let second = bridge(&jobs).start();
    check_told_after_a_subscription(&second, "its bridge was restarted");
    second.stop();
}
