//! The journal: every tool call is a line of it, of every mode, whatever became of it; and what its job says.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use pontoon::jobs::{CallStatus, JournalLine, Store, StoreOptions};
use pontoon_tests::client::{ERAS, Era, Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, bridge_command, wait_until};
use serde_json::{Value, json};

use crate::{binaries, fixture, plan, rig, shell};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SOON: Duration = Duration::from_secs(10);

fn jobs(rig: &Rig) -> PathBuf {
    rig.directory().join("jobs")
}

/// The calls in the journal, once there are this many.
pub(crate) fn calls(rig: &Rig, count: usize) -> Vec<JournalLine<'static>> {
    let store = Store::visit(&jobs(rig), StoreOptions::default()).unwrap();
    let mut calls = Vec::new();
    wait_until(&format!("{count} calls are in the journal"), SOON, || {
        calls = store.calls().unwrap();
        calls.len() >= count
    });
    assert_eq!(calls.len(), count, "{calls:?}");
    calls
}

/// The record of a job that has ended.
fn record(rig: &Rig, job: &str) -> Value {
    let path = jobs(rig).join(job).join("metadata.json");
    let mut record = Value::Null;
    wait_until(&format!("{} is there", path.display()), SOON, || {
        let text = std::fs::read(&path).unwrap_or_default();
        record = serde_json::from_slice(&text).unwrap_or_default();
        !record.is_null()
    });
    record
}

/// Makes one call of each kind.
fn make_calls(client: &mut impl Speaker) {
    client.call(1, "echo", json!({"text": "x"}));
    client.call(2, "write_file", json!({"name": "a.txt", "text": "x"}));
    // No file can have this name.
    client.call(3, "write_file", json!({"name": "/dev/null/x", "text": "x"}));
    client.call(4, "no_such_tool", json!({}));
    client.call(5, "crash", json!({}));
}

/// How the journal and the jobs tell of one call of each kind.
fn check(rig: &Rig, era: Era, has_jobs: bool) {
    let trace = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [
        ("Authorization", "Bearer the-key-of-ada"),
        ("X-OpenWebUI-User-Id", "user-1"),
        ("traceparent", trace.as_str()),
    ];
    let endpoint = rig.endpoint("fixture");
    match era {
        Era::Modern => make_calls(&mut Modern::with(&endpoint, &headers)),
        Era::Legacy => {
            let mut client = Legacy::open_with(&endpoint, &headers);
            make_calls(&mut client);
            client.end();
        }
    }
    let calls = calls(rig, 5);
    let (completed, failed) = (CallStatus::Completed, CallStatus::Failed);
    let expected = [
        ("echo", completed, false, has_jobs, None),
        ("write_file", completed, false, true, None),
        ("write_file", completed, true, has_jobs, None),
        ("no_such_tool", failed, false, has_jobs, Some("(error -32602)")),
        ("crash", failed, false, has_jobs, Some("exited with code 3")),
    ];
    for (call, (tool, status, is_error, has_job, why)) in calls.iter().zip(expected) {
        assert_eq!((&*call.server_name, &*call.tool), ("fixture", tool));
        assert_eq!((call.status, call.is_error), (status, is_error), "{call:?}");
        assert_eq!(call.job_id.is_some(), has_job, "{era:?} {call:?}");
        assert_eq!(call.error.is_some(), why.is_some(), "{call:?}");
        let error = call.error.as_deref().unwrap_or_default();
        assert!(error.contains(why.unwrap_or_default()), "{call:?}");
        let who = (call.user.as_deref(), call.key.as_deref(), call.address.is_loopback());
        assert_eq!(who, (Some("user-1"), Some("ada"), true));
        assert_eq!(call.trace_id.as_deref(), Some(TRACE));
        let Some(job) = &call.job_id else { continue };
        let record = record(rig, job);
        assert_eq!(record["status"], json!(status), "{record}");
        assert_eq!(record["is_error"].as_bool().unwrap_or_default(), is_error, "{record}");
        assert_eq!(record["error"].as_str(), call.error.as_deref(), "{record}");
        assert_eq!(record["trace_id"], TRACE, "{record}");
        assert_eq!(record.get("response").is_some(), tool != "crash", "{record}");
    }
}

#[test]
fn every_tool_call_is_a_line_of_the_journal() {
    for (mode, workspace) in [("stateless", "job"), ("stateless", "session"), ("stateful", "job")] {
        for era in ERAS {
            let mut server = fixture(mode);
            if workspace == "session" {
                server = server.with("workspace", workspace);
            }
            let rig = plan([server]).variable("MCPO_API_KEYS", "ada=the-key-of-ada").start();
            check(&rig, era, mode == "stateless");
            rig.stop();
        }
    }
}

/// What `pontoon jobs` with these words says of the calls of this bridge.
fn told_of(rig: &Rig, words: &[&str]) -> (bool, String) {
    let mut command = bridge_command(&binaries().pontoon, rig.directory());
    let told = command.arg("jobs").args(words).stdin(Stdio::null()).output().unwrap();
    let text = [told.stdout, told.stderr].concat();
    (told.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn who_called_what_is_told_at_a_shell_while_the_bridge_runs() {
    let rig = plan([fixture("stateless")]).variable("MCPO_API_KEYS", "ada=the-key-of-ada").start();
    let headers = [("Authorization", "Bearer the-key-of-ada"), ("X-OpenWebUI-User-Id", "user-1")];
    make_calls(&mut Modern::with(&rig.endpoint("fixture"), &headers));
    let made = calls(&rig, 5);
    let (is_well, table) = told_of(&rig, &[]);
    let lines: Vec<_> = table.lines().collect();
    assert!(is_well && lines.len() == 6 && lines[0].starts_with("BEGAN "), "{table}");
    for (line, call) in lines[1..].iter().zip(&made) {
        let tells = |part: &str| line.contains(part);
        assert!(tells("fixture") && tells(&call.tool) && tells("user-1 (ada)"), "{line}");
        assert!(call.job_id.as_deref().is_none_or(tells), "{line}");
    }
    let (_, failed) = told_of(&rig, &["--status", "failed", "--json"]);
    let tools = failed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let tools: Vec<_> = tools.map(|call| call["tool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tools, ["write_file", "no_such_tool", "crash"]);
    let (_, last) = told_of(&rig, &["-n", "1"]);
    assert!(last.contains("crash") && last.contains("4 earlier ones are not shown"), "{last}");
    let (is_well, none) = told_of(&rig, &["--user", "somebody"]);
    assert!(is_well && none.contains("no such call"), "{none}");

    let job = made[1].job_id.as_deref().unwrap();
    record(&rig, job);
    let (_, shown) = told_of(&rig, &["show", job]);
    let parts = [job, "write_file", "user-1 (ada) from 127.0.0.1", "a.txt (1 bytes)"];
    assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    let (_, whole) = told_of(&rig, &["show", job, "--json"]);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["request"]["params"]["arguments"]["name"], "a.txt", "{whole}");
    let (is_well, wrong) = told_of(&rig, &["show", "00000000-0000-4000-8000-000000000000"]);
    assert!(!is_well && wrong.contains("there is no record of a job"), "{wrong}");
    let (is_well, wrong) = told_of(&rig, &["show", "x"]);
    assert!(!is_well && wrong.contains("`pontoon jobs` lists them"), "{wrong}");
    rig.stop();
}

#[test]
fn where_no_bridge_ever_was_there_is_nothing_to_tell_and_nothing_is_made() {
    let place = tempfile::tempdir().unwrap();
    let mut command = bridge_command(&binaries().pontoon, place.path());
    let told = command.arg("jobs").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success() && said.contains("there is no jobs directory"), "{said}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn what_a_server_writes_as_it_ends_is_in_the_record_of_its_job() {
    let rig = rig([shell("FIXTURE; echo bye > last.txt", "stateless")]);
    for tool in ["echo", "write_file"] {
        let arguments = json!({"text": "x", "name": "first.txt"});
        let response = Modern::new(&rig.endpoint("shell")).call(1, tool, arguments);
        let job = response.head.header("x-mcpo-job-id").unwrap_or_else(|| panic!("{response:?}"));
        let expected = match tool {
            "echo" => vec!["last.txt"],
            _ => vec!["first.txt", "last.txt"],
        };
        let mut found = Vec::new();
        wait_until(&format!("the job names {expected:?}"), SOON, || {
            let record = record(&rig, job);
            let files = record["files"].as_array().cloned().unwrap_or_default();
            found = files.iter().map(|it| it["path"].as_str().unwrap().to_owned()).collect();
            found == expected
        });
        let path = format!("/files/{job}/last.txt");
        let download = Request::new("GET", &path).send(rig.address()).unwrap();
        assert_eq!(download.text(), "bye\n");
    }
    rig.stop();
}
