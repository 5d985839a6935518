//! A disk that is full: the client is told, nothing half-made stays, and it works again with room.
//!
//! The disk is a small one that the test mounts, so these need the superuser; else they say so.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pontoon_tests::client::{Client, ERAS, Era, Request, Response, Speaker};
use pontoon_tests::disk::{SmallDisk, records};
use pontoon_tests::rig::{Plan, Rig, Server, wait_until};
use serde_json::{Value, json};

use crate::limits::{Refusal, check, metric, refused};
use crate::{fixture, plan};

const SOON: Duration = Duration::from_secs(10);
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const DISK_FULL: i64 = -31507;

/// A bridge with its jobs on this disk, that takes new ones while so many bytes are free.
fn on(disk: &SmallDisk, server: Server, min_free: u64) -> Plan {
    plan([server])
        .variable("MCPO_JOBS_DIR", &disk.jobs().display().to_string())
        .variable("MCPO_MIN_FREE_DISK", &min_free.to_string())
        // Records that found no room are tried again with each collection.
        .variable("MCPO_GC_INTERVAL", "1")
}

fn write(client: &mut Client, id: u64, name: &str, bytes: u64) -> Response {
    let text = "x".repeat(usize::try_from(bytes).unwrap());
    client.call(id, "write_file", json!({"name": name, "text": text}))
}

fn echo(client: &mut Client) -> Response {
    client.call(1, "echo", json!({"text": "x"}))
}

/// A call in a conversation that nobody had before: one with a workspace needs no more room.
fn begin(rig: &Rig, era: Era) -> Response {
    static CONVERSATIONS: AtomicUsize = AtomicUsize::new(0);
    let number = CONVERSATIONS.fetch_add(1, Ordering::Relaxed).to_string();
    let mut client =
        Client::new(era, &rig.endpoint("fixture")).with_header("X-Session-Id", &number);
    let response = echo(&mut client);
    client.end();
    response
}

/// Waits until calls are answered with this status: the room is looked at once a second.
fn wait_for_status(rig: &Rig, era: Era, status: u64) -> Response {
    let mut response = begin(rig, era);
    wait_until(&format!("status {status}"), SOON, || {
        response = begin(rig, era);
        response.told_status() == status
    });
    response
}

/// The jobs that are there.
fn jobs(disk: &SmallDisk) -> Vec<(String, Option<Value>)> {
    records(&disk.jobs())
}

#[track_caller]
fn check_full(response: &Response, era: Era, id: u64, about: u64, so: &str) {
    // How much is free changes while records are written.
    let said = response.text();
    let free =
        said.split_once("is full (").and_then(|(_, rest)| rest.split_once(" bytes are free"));
    let free: u64 =
        free.and_then(|(free, _)| free.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(free.abs_diff(about) < MIB / 4, "about {about}: {said}");
    let text = format!(
        "the disk with the jobs directory is full ({free} bytes are free), {so}: whoever runs the \
         bridge has to make room"
    );
    let refusal = Refusal { status: 507, code: DISK_FULL, retry_after: None, text: &text };
    check(response, era, id, &refusal);
}

const NOT_MADE: &str = "so the call was not made";
const NOT_KEPT: &str = "so the files of this call cannot be fetched; the call itself was made";

#[test]
fn a_call_without_room_for_its_job_is_refused_and_leaves_none() {
    for (mode, workspace) in [("stateless", "job"), ("stateless", "session"), ("stateful", "job")] {
        let Some(disk) = SmallDisk::mount(4 * MIB, 4000) else { return };
        let mut server = fixture(mode);
        if workspace == "session" {
            server = server.with("workspace", workspace);
        }
        let rig = on(&disk, server, MIB).start();
        for era in ERAS {
            disk.fill(MIB / 2);
            let response = wait_for_status(&rig, era, 507);
            check_full(&response, era, 1, disk.free(), NOT_MADE);
            let before = (refused(&rig, "disk"), jobs(&disk).len());
            for _ in 0..3 {
                assert_eq!(begin(&rig, era).told_status(), 507, "{mode} {workspace}");
            }
            let now = (refused(&rig, "disk"), jobs(&disk).len());
            assert_eq!(now, (before.0 + 3, before.1), "{mode} {workspace} {era:?}");
            check_full_elsewhere(&rig, &format!("{mode} {workspace}"));
            disk.empty();
            let response = wait_for_status(&rig, era, 200);
            assert_eq!(response.tool_text().as_deref(), Some("x"));
        }
        rig.stop();
        let left = jobs(&disk);
        assert!(left.iter().all(|(_, record)| record.is_some()), "half-made: {left:?}");
    }
}

/// The same by REST and by JSON-RPC, each in its words.
fn check_full_elsewhere(rig: &Rig, case: &str) {
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"echo","params":{"text":"x"}}"#;
    let error = format!("\"id\":7,\"error\":{{\"code\":{DISK_FULL},\"message\":\"the disk");
    for (path, body, says) in [
        ("/fixture/echo", r#"{"text":"x"}"#, "{\"detail\":{\"message\":\"the disk"),
        ("/mcpo/fixture/echo", r#"{"text":"x"}"#, "{\"detail\":{\"message\":\"the disk"),
        ("/mcpo/fixture", call, error.as_str()),
    ] {
        let request = Request::post(path, body).with("Content-Type", "application/json");
        let request = request.with("X-Session-Id", "of nobody before");
        let response = request.send(rig.address()).unwrap();
        assert_eq!(response.status(), 507, "{case} {path}: {}", response.text());
        assert!(response.text().contains(says), "{case} {path}: {}", response.text());
    }
}

#[test]
fn a_disk_without_room_for_names_is_full_too() {
    let Some(disk) = SmallDisk::mount(4 * MIB, 200) else { return };
    let rig = on(&disk, fixture("stateless"), 0).start();
    for era in ERAS {
        disk.fill_with_files();
        let response = wait_for_status(&rig, era, 507);
        check_full(&response, era, 1, disk.free(), NOT_MADE);
        let before = jobs(&disk).len();
        assert_eq!(begin(&rig, era).told_status(), 507);
        assert_eq!(jobs(&disk).len(), before);
        disk.empty();
        wait_for_status(&rig, era, 200);
    }
    rig.stop();
}

#[test]
fn what_a_server_says_of_a_full_disk_is_what_its_client_hears() {
    for mode in ["stateless", "stateful"] {
        let Some(disk) = SmallDisk::mount(MIB, 4000) else { return };
        let rig = on(&disk, fixture(mode), 0).start();
        for era in ERAS {
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            let response = write(&mut client, 1, "big.bin", 2 * MIB);
            match mode {
                "stateless" => {
                    assert_eq!(response.status(), 200, "{}", response.text());
                    let text = "`big.bin` was not written: No space left on device (os error 28)";
                    assert_eq!(response.tool_text().as_deref(), Some(text));
                    assert_eq!(response.answer()["result"]["isError"], true);
                }
                // Its half of a file is one that it made, and there is no room for a copy.
                _ => check_full(&response, era, 1, 0, NOT_KEPT),
            }
            let big = || find(&disk, "big.bin");
            assert!(!big().is_empty(), "the server's own files are its own");
            for path in big() {
                std::fs::remove_file(path).unwrap();
            }
            let response = echo(&mut client);
            assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
            client.end();
        }
        rig.stop();
        expect_ended(&disk);
    }
}

/// The files of this name anywhere on the disk.
fn find(disk: &SmallDisk, name: &str) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![disk.jobs()]);
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                next.push(path);
            } else if entry.file_name() == name {
                found.push(path);
            }
        }
    }
    found
}

fn expect_ended(disk: &SmallDisk) {
    for (name, record) in jobs(disk) {
        let status = record.as_ref().map(|record| record["status"].clone());
        let has_ended = status.as_ref().is_some_and(|it| it == "completed" || it == "failed");
        assert!(has_ended, "{name} is {status:?}");
    }
}

#[test]
fn a_file_without_room_for_its_copy_stays_in_the_workspace_and_comes_later() {
    for mode in ["stateless", "stateful"] {
        for era in ERAS {
            let Some(disk) = SmallDisk::mount(2 * MIB, 4000) else { return };
            let server = match mode {
                "stateless" => fixture(mode).with("workspace", "session"),
                _ => fixture(mode),
            };
            let rig = on(&disk, server, 0).start();
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            let first = write(&mut client, 1, "small.txt", 10);
            assert_eq!(first.status(), 200, "{}", first.text());
            let pid = client.call(1, "pid", json!({})).tool_text();
            let first_job = first.head.header("x-mcpo-job-id").unwrap().to_owned();
            disk.fill(600 * KIB);
            let response = write(&mut client, 2, "large.bin", 400 * KIB);
            assert_eq!(response.told_status(), 507, "{}", response.text());
            let text = response.error_text();
            assert!(text.contains(NOT_KEPT), "{text}");
            assert!(refused(&rig, "disk") >= 1);
            // No half of the copy is left, nor the job that it was for.
            wait_until("only the workspace has the file", SOON, || {
                find(&disk, "large.bin").len() == 1
            });
            assert!(find(&disk, "large.bin")[0].starts_with(disk.jobs().join(".sessions")));
            assert!(disk.jobs().join(first_job).exists(), "older jobs stay");
            assert_eq!(find(&disk, "small.txt").len(), 2);
            disk.empty();
            // The next call brings it, and a child that keeps state is the same.
            let response = client.call(3, "pid", json!({}));
            if mode == "stateful" {
                assert_eq!(response.tool_text(), pid, "{}", response.text());
            }
            let link = response.head.header("link").unwrap_or_default();
            assert!(link.contains("/large.bin"), "{link:?}: {}", response.text());
            assert_eq!(find(&disk, "large.bin").len(), 2);
            client.end();
            rig.stop();
            expect_ended(&disk);
        }
    }
}

#[test]
fn an_answer_goes_out_although_its_record_cannot_be_written() {
    let Some(disk) = SmallDisk::mount(MIB, 4000) else { return };
    let rig = on(&disk, fixture("stateless"), 0).start();
    for era in ERAS {
        disk.fill(0);
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let response = echo(&mut client);
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
        let job = response.head.header("x-mcpo-job-id").unwrap().to_owned();
        let status = || {
            let record = jobs(&disk).into_iter().find(|(name, _)| *name == job)?.1?;
            Some(record["status"].as_str()?.to_owned())
        };
        rig.wait_for_children(0);
        assert_eq!(status(), None, "there is no room for it");
        disk.empty();
        wait_until("the record is written", SOON, || status().as_deref() == Some("completed"));
        client.end();
    }
    assert_eq!(refused(&rig, "disk"), 0);
    assert!(metric(&rig, "pontoon_sweeps_total") > 0);
    rig.stop();
    expect_ended(&disk);
}
