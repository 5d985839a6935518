//! Servers that hang, flood, fork, die or stay: the examination ends, and nothing is left.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pontoon_tests::rig::{send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Surgery, codes, finding, report, rude};
use crate::binaries;

#[test]
fn how_a_server_ends_is_told() {
    let (deaf, _) = rude(&[], &["--how", "deaf"]);
    let evidence = finding(&deaf, "H27")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("SIGKILL"), "{evidence}");
    let (slow, _) = rude(&[], &["--how", "slow-exit", "--ms", "60000"]);
    let evidence = finding(&slow, "H27")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("SIGTERM"), "{evidence}");
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids").display().to_string();
    let (forks, _) = rude(&[], &["--how", "fork", "--pids", &pids]);
    assert_eq!(codes(&forks, &["error", "warning"]), ["D10"], "{forks:#}");
    let evidence = finding(&forks, "D10")["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("2 processes"), "{evidence}");
}

#[test]
fn a_server_that_cannot_be_opened_is_told_with_what_to_do() {
    let fails = |arguments: &[&str], why: &str, advice: &str| {
        let (report, code) = report(arguments);
        assert_eq!(code, 3, "{report:#}");
        let unexamined = &report["unexamined"];
        let has = |key: &str, part: &str| unexamined[key].as_str().unwrap().contains(part);
        assert!(has("why", why) && has("advice", advice), "{arguments:?}: {unexamined:#}");
        assert_eq!(report["recommendation"], Value::Null);
    };
    fails(&["--", "no-such-program-here"], "was not found", "install");
    fails(&["--", "/bin/cat"], "sends back what it is sent", "MCP server");
    let server = binaries().rude_server.display().to_string();
    let rude = |how: &[&'static str]| {
        let words = ["--timeout", "1s", "--", &server, "--how"].into_iter();
        words.chain(how.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    for (how, why, advice) in [
        (&["die-in-handshake"][..], "FIXTURE_TOKEN is not set", "--cwd"),
        (&["hang", "--when", "start"], "did not answer `initialize`", "stdio"),
        (&["freeze", "--when", "start"], "did not answer `initialize`", "stdio"),
        (&["flood-lines", "--when", "start"], "what it wrote begins with", "stdio"),
        (&["flood-stdout", "--when", "start"], "", ""),
    ] {
        let words = rude(how);
        fails(&words.iter().map(String::as_str).collect::<Vec<_>>(), why, advice);
    }
    fails(&["ws://127.0.0.1:1/"], "refused", "start the server");
    fails(&["http://127.0.0.1:1/"], "refused", "start the server");
}

#[test]
fn a_server_that_speaks_no_version_is_told_by_its_code() {
    let (report, code) = rude(&["--timeout", "2s"], &["--how", "no-version"]);
    assert_eq!((codes(&report, &["error"]), code), (vec!["D12".to_owned()], 3), "{report:#}");
    let evidence = finding(&report, "D12")["evidence"].as_str().unwrap();
    assert!(evidence.contains("unsupported protocol version"), "{evidence}");
}

#[test]
fn a_server_that_dies_in_the_middle_costs_what_follows_and_no_more() {
    let call = r#"echo={"text": "x"}"#;
    for how in ["die-mid-line", "die-after-one", "flood-stdout", "flood-lines", "freeze"] {
        let (report, code) = rude(&["--timeout", "3s", "--call", call], &["--how", how]);
        assert_ne!(code, 3, "{how}: {report:#}");
        assert_eq!(report["tools"], 2, "{how}");
        let found = codes(&report, &["error", "warning", "information"]);
        // One that ends with success after its answer does what some servers do.
        assert!(!found.is_empty() || how == "die-after-one", "{how}: {report:#}");
    }
}

#[test]
fn a_server_that_says_nothing_but_its_name_is_told_as_that() {
    for how in ["hang", "close-stdin"] {
        let (report, code) = rude(&["--timeout", "1s"], &["--how", how]);
        assert_eq!(code, 1, "{how}: {report:#}");
        assert!(codes(&report, &["error"]).contains(&"D13".to_owned()), "{how}: {report:#}");
    }
}

#[test]
fn a_server_that_hangs_at_a_list_is_not_measured_any_more() {
    let began = Instant::now();
    let (report, code) = rude(&["--timeout", "1s"], &["--how", "hang"]);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(codes(&report, &["error", "warning"]), ["D03", "D13"], "{report:#}");
    let hung = finding(&report, "D03")["evidence"].as_str().unwrap().to_owned();
    assert_eq!(hung, "`tools/list` had no answer within 1 s, and then `ping` none within 1 s");
    assert!(report.to_string().contains("the rest was not tried"), "{report:#}");
    // The start, the list and the ping, the end, and two more connections that are asked what they speak.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn what_a_killed_examination_left_goes_with_the_next() {
    let surgery = Surgery::new();
    let server = binaries().rude_server.display().to_string();
    let folders = || {
        let all = fs::read_dir(surgery.temporary()).unwrap().flatten().map(|it| it.file_name());
        let ours = all.filter(|it| it.to_string_lossy().starts_with("pontoon-scratch-"));
        ours.collect::<Vec<_>>()
    };
    let mut command = surgery.command(&["--", &server, "--how", "hang", "--when", "start"]);
    let mut examine = || command.stdout(Stdio::null()).spawn().unwrap();
    let soon = Duration::from_secs(10);
    let mut killed = examine();
    wait_until("the first has a folder", soon, || folders().len() == 1);
    let left = folders();
    send_signal(killed.id(), Signal::KILL).unwrap();
    killed.wait().unwrap();
    assert_eq!(folders(), left);
    let mut lives = examine();
    wait_until("only the second has one", soon, || folders().len() == 1 && folders() != left);
    let used = folders();
    let next = surgery.command(&["--", &server]).stdout(Stdio::null()).status().unwrap();
    assert!(next.success());
    assert_eq!(folders(), used);
    send_signal(lives.id(), Signal::INT).unwrap();
    lives.wait().unwrap();
    surgery.expect_nothing_left();
}

#[test]
fn words_that_make_no_sense_are_told() {
    for (arguments, part) in [
        (&["nowhere"][..], "there is no server \"nowhere\""),
        (&["--profile", "nobody", "--", "x"], "there is no profile of that name"),
        (&["--call", "a=b", "--", "x"], "TOOL="),
        (&["--header", "A: b"], "are for a URL"),
        (&["ftp://x"], "is not spoken here"),
        (&["http://me:secret@host/mcp"], "must hold no user name or password"),
        (&["--json", "--sarif", "--", "x"], "cannot be used with"),
    ] {
        let output = Surgery::new().examine(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part) && !said.contains("secret@"), "{arguments:?}: {said}");
    }
}

#[test]
fn an_interrupted_examination_ends_at_once_and_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let surgery = Surgery::new();
        let ready = surgery.place.path().join("ready");
        let script =
            format!("trap '' TERM; touch {}; while :; do sleep 600; done", ready.display());
        let mut command = surgery.command(&["--", "/bin/sh", "-c", &script]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("it has begun", Duration::from_secs(10), || ready.exists());
        assert!(
            fs::read_dir(surgery.temporary()).unwrap().next().is_some(),
            "or this shows nothing"
        );
        let asked = Instant::now();
        send_signal(child.id(), signal).unwrap();
        let mut status = None;
        wait_until("it ends", Duration::from_secs(10), || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(code));
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        surgery.expect_nothing_left();
    }
}

#[test]
fn servers_of_a_configuration_are_examined_by_their_names_or_all() {
    let surgery = Surgery::new();
    let file = surgery.place.path().join("mine.json");
    let rude = |how: &str| json!({"command": binaries().rude_server, "args": ["--how", how]});
    let well = json!({"command": binaries().rude_server});
    let config = json!({"mcpServers": {"well": well, "odd": rude("odd-schemas"), "gone": rude("die-in-handshake")}});
    fs::write(&file, config.to_string()).unwrap();
    let check = |names: &[&str], expected: &[&str], code: i32| {
        let arguments = [&["--json", "--config", "mine.json"], names].concat();
        let output = surgery.examine(&arguments);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names =
            report["servers"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(output.status.code(), Some(code));
    };
    check(&["well"], &["well"], 0);
    check(&["odd", "well"], &["odd", "well"], 1);
    check(&[], &["well", "odd", "gone"], 3);
}
