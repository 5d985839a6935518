//! The line that the log has of each call of a tool: one, whatever became of the call, on every front and every back.

use std::process::Stdio;
use std::time::Duration;

use pontoon_tests::client::{Client, ERAS, Era, Legacy, Modern, Request, Speaker};
use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::{Rig, Server, bridge_command, wait_until};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use crate::journal::calls;
use crate::{binaries, fixture, plan, rig};

const SOON: Duration = Duration::from_secs(10);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// What no argument may do: be in the log.
const PRIVATE: &str = "a private matter";

/// The lines of calls in a log, once there are this many.
fn lines(rig: &Rig, count: usize) -> Vec<Value> {
    let mut lines = Vec::new();
    wait_until(&format!("{count} calls are in the log"), SOON, || {
        let log = rig.log();
        let all = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines = all.filter(|line| line["message"] == "call").collect();
        lines.len() >= count
    });
    assert_eq!(lines.len(), count, "{lines:?}");
    assert!(!rig.log().contains(PRIVATE), "arguments are not logged");
    lines
}

/// What the journal and the log both say, under the same names but for the server's.
const SAME: [&str; 10] = [
    "tool",
    "status",
    "is_error",
    "bytes_in",
    "bytes_out",
    "files",
    "job_id",
    "user",
    "key",
    "trace_id",
];

/// What the journal says is what the log says.
fn agree(rig: &Rig, lines: &[Value]) {
    let facts = |told: &Value, server: &str| -> Vec<Value> {
        SAME.iter().chain([&server]).map(|&name| told[name].clone()).collect()
    };
    let in_journal = calls(rig, lines.len()).into_iter();
    let in_journal = in_journal.map(|call| serde_json::to_value(call).unwrap());
    let mut told: Vec<_> = in_journal.map(|call| facts(&call, "server_name")).collect();
    let mut logged: Vec<_> = lines.iter().map(|line| facts(line, "server")).collect();
    told.sort_by_key(|facts| format!("{facts:?}"));
    logged.sort_by_key(|facts| format!("{facts:?}"));
    assert_eq!(logged, told);
}

#[test]
fn every_call_is_one_line_of_the_log_that_says_who_called_what() {
    for mode in ["stateless", "stateful", "shared"] {
        for era in ERAS {
            let rig = plan([fixture(mode)]).variable("MCPO_API_KEYS", "ada=the-key-of-ada").start();
            let trace = format!("00-{TRACE}-00f067aa0ba902b7-01");
            let headers = [
                ("Authorization", "Bearer the-key-of-ada"),
                ("X-OpenWebUI-User-Id", "user-1"),
                ("traceparent", trace.as_str()),
            ];
            let endpoint = rig.endpoint("fixture");
            let make = |client: &mut dyn FnMut(u64, &str, Value)| {
                client(1, "echo", json!({"text": PRIVATE}));
                client(2, "write_file", json!({"name": "a.txt", "text": PRIVATE}));
                client(3, "no_such_tool", json!({"text": PRIVATE}));
                client(4, "crash", json!({"text": PRIVATE}));
            };
            match era {
                Era::Modern => {
                    let mut client = Modern::with(&endpoint, &headers);
                    make(&mut |id, tool, arguments| drop(client.call(id, tool, arguments)));
                }
                Era::Legacy => {
                    let mut client = Legacy::open_with(&endpoint, &headers);
                    make(&mut |id, tool, arguments| drop(client.call(id, tool, arguments)));
                    client.end();
                }
            }
            let lines = lines(&rig, 4);
            let expected = [
                ("echo", "completed"),
                ("write_file", "completed"),
                ("no_such_tool", "failed"),
                ("crash", "failed"),
            ];
            for (line, (tool, status)) in lines.iter().zip(expected) {
                let told =
                    ["level", "server", "tool", "user", "key", "address", "status", "trace_id"];
                let told = told.map(|name| line[name].as_str().unwrap_or_default());
                let expected =
                    ["INFO", "fixture", tool, "user-1", "ada", "127.0.0.1", status, TRACE];
                assert_eq!(told, expected, "{mode} {era:?}: {line}");
                assert!(line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
                assert!(line["bytes_in"].as_u64().unwrap() > 20, "{line}");
                assert_eq!(line["bytes_out"].as_u64().unwrap() > 0, tool != "crash", "{line}");
                assert_eq!(line["error"].is_string(), status == "failed", "{line}");
                let error = line["error"].as_str().unwrap_or_default();
                assert!(!error.contains("crashing because"), "a server's words: {line}");
                // What all share has no folder of a call.
                let has_files = tool == "write_file" && mode != "shared";
                assert_eq!(line["files"], u64::from(has_files), "{line}");
            }
            agree(&rig, &lines);
            rig.stop();
        }
    }
}

#[test]
fn a_call_that_was_refused_cancelled_or_late_is_one_line_too() {
    for era in ERAS {
        let server = fixture("stateless").with("timeout", 2).with("disabled_tools", json!(["pid"]));
        let rig = plan([server]).variable("MCPO_MAX_CONCURRENT", "1").start();
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let arguments = || json!({"ms": 60_000, "text": PRIVATE});
        let open = client.send_call(1, "wait", arguments());
        rig.wait_for_gauge("permits_in_use", 1);
        client.call(2, "echo", arguments());
        client.give_up(1, open);
        rig.wait_for_gauge("permits_in_use", 0);
        client.call(3, "wait", arguments());
        rig.wait_for_gauge("permits_in_use", 0);
        client.call(4, "pid", arguments());
        let lines = lines(&rig, 4);
        let mut told: Vec<_> = lines
            .iter()
            .map(|line| {
                ["tool", "status", "error"].map(|name| line[name].as_str().unwrap().to_owned())
            })
            .collect();
        told.sort();
        let expected = [
            ("echo", "refused", "busy: all 1 calls"),
            ("pid", "refused", "pid"),
            ("wait", "cancelled", "cancelled"),
            ("wait", "timed_out", "within 2 s"),
        ];
        for ([tool, status, error], (the_tool, the_status, part)) in told.iter().zip(expected) {
            assert_eq!((&**tool, &**status), (the_tool, the_status), "{era:?}: {told:?}");
            assert!(error.contains(part), "{era:?}: {error}");
        }
        agree(&rig, &lines);
        client.end();
        rig.stop();
    }
}

#[test]
fn a_call_over_rest_is_one_line_also_where_its_body_does_not_fit() {
    let rig = rig([fixture("stateless")]);
    let post = |tool: &str, body: &Value| {
        let request = Request::post(&format!("/mcpo/fixture/{tool}"), body.to_string());
        request.send(rig.address()).unwrap()
    };
    assert_eq!(post("echo", &json!({"text": PRIVATE})).status(), 200);
    assert_eq!(post("echo", &json!({"text": {"deep": PRIVATE}})).status(), 422);
    // The first is told behind its answer, so the second may be told before it.
    let lines = lines(&rig, 2);
    let mut ends: Vec<_> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["completed", "refused"]);
    agree(&rig, &lines);
    rig.stop();
}

#[test]
fn a_call_of_an_application_behind_serve_is_one_line_and_so_is_one_behind_connect() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let rig = rig([Server::reached("max", "url", &app.url())]);
    rig.wait_for_state("max", "ready");
    let mut client = Client::new(Era::Modern, &rig.endpoint("max"));
    client.call(1, "echo", json!({"text": PRIVATE}));
    client.end();
    let told = lines(&rig, 1);
    assert_eq!((&told[0]["server"], &told[0]["status"]), (&json!("max"), &json!("completed")));
    agree(&rig, &told);
    rig.stop();

    let home = tempfile::Builder::new().prefix("pc").tempdir_in("/tmp").unwrap();
    let log = home.path().join("log");
    let mut command = bridge_command(&binaries().pontoon, home.path());
    command.args(["connect", &app.url(), "--no-share", "--log-file"]).arg(&log);
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    wait_until("its tools are known", SOON, || {
        !client.ask("list", "tools/list", &json!({}))["result"]["tools"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    client.call(1, "echo", json!({"text": PRIVATE}));
    assert!(client.finish().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(" call server=")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains(" tool=echo ") && lines[0].contains(" status=completed "), "{text}");
    assert!(!text.contains(PRIVATE), "{text}");
}

#[test]
fn the_log_tells_of_one_request_by_its_trace_or_its_job() {
    let logs = tempfile::tempdir().unwrap();
    let rig = plan([fixture("stateless")])
        .variable("MCPO_LOG_DIR", logs.path().to_str().unwrap())
        .start();
    let trace = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let mut client = Modern::with(&rig.endpoint("fixture"), &[("traceparent", &trace)]);
    client.call(1, "crash", json!({}));
    let mut other = Modern::new(&rig.endpoint("fixture"));
    other.call(1, "echo", json!({"text": PRIVATE}));
    let line = lines(&rig, 2).into_iter().find(|line| line["tool"] == "crash").unwrap();
    let job = line["job_id"].as_str().unwrap().to_owned();
    let asked = |id: &str, more: &[&str]| {
        let mut command = bridge_command(&binaries().pontoon, rig.directory());
        command.env("MCPO_LOG_DIR", logs.path()).args(["logs", id]).args(more);
        let told = command.stdin(Stdio::null()).output().unwrap();
        (told.status.code(), String::from_utf8([told.stdout, told.stderr].concat()).unwrap())
    };
    wait_until("the log file has the call", SOON, || asked(TRACE, &[]).1.contains(" call server="));
    for id in [TRACE, &trace, &job] {
        let (code, text) = asked(id, &[]);
        assert_eq!(code, Some(0), "{text}");
        let of_trace = text.lines().all(|line| line.contains(TRACE));
        let parts = ["ERROR a child ended early", " INFO call server=fixture tool=crash "];
        assert!(of_trace && parts.iter().all(|part| text.contains(part)), "{text}");
        let (_, raw) = asked(id, &["--json"]);
        let raw: Vec<Value> = raw.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(raw.len(), text.lines().count());
        assert!(raw.is_sorted_by_key(|line| line["timestamp"].as_str().unwrap().to_owned()));
    }
    let (code, text) = asked(&"1".repeat(32), &[]);
    assert!(code == Some(1) && text.contains("is of this request"), "{text}");
    let mut command = bridge_command(&binaries().pontoon, rig.directory());
    let told = command.args(["logs", TRACE]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(told.stderr).unwrap();
    let parts = ["MCPO_LOG_DIR is not set", "docker logs", "journalctl"];
    assert!(told.status.code() == Some(1) && parts.iter().all(|it| text.contains(it)), "{text}");
    rig.stop();
}

#[test]
fn replicas_are_told_in_one_table_and_a_dead_one_says_so() {
    let start =
        || plan([fixture("stateless")]).variable("MCPO_API_KEYS", "ada=the-key-of-ada").start();
    let rigs = [start(), start()];
    for rig in &rigs {
        let headers = [("Authorization", "Bearer the-key-of-ada"), ("X-OpenWebUI-User-Id", "u")];
        Modern::with(&rig.endpoint("fixture"), &headers).call(1, "echo", json!({"text": "x"}));
    }
    let urls = rigs.each_ref().map(|rig| format!("http://{}", rig.address()));
    let asked = |urls: &[&str], key: &str| {
        let mut command = bridge_command(&binaries().pontoon, rigs[0].directory());
        command.args(["status", "--token-env", "ADAS_KEY"]).env("ADAS_KEY", key);
        for url in urls {
            command.args(["--url", url]);
        }
        let told = command.stdin(Stdio::null()).output().unwrap();
        (told.status.code(), String::from_utf8([told.stdout, told.stderr].concat()).unwrap())
    };
    let (code, table) = asked(&[&urls[0], &urls[1]], "the-key-of-ada");
    let sum = table.lines().last().unwrap_or_default();
    let sum: Vec<_> = sum.split_whitespace().collect();
    assert_eq!(
        (code, &sum[..6]),
        (Some(0), &["2", "replicas", "2", "answer", "2", "0"][..]),
        "{table}"
    );
    // Nothing listens at port 1 of this machine.
    let (code, table) = asked(&[&urls[0], "http://127.0.0.1:1"], "the-key-of-ada");
    assert_eq!(code, Some(1), "{table}");
    assert!(table.contains("http://127.0.0.1:1  ") && table.contains("does not answer"), "{table}");
    assert!(table.contains("1 answer"), "{table}");
    let (code, table) = asked(&[&urls[0]], "another");
    assert!(code == Some(1) && table.contains("does not know the key"), "{table}");
    let (code, said) = asked(&[&urls[0]], "");
    assert!(code == Some(1) && said.contains("ADAS_KEY"), "{said}");
    rigs.into_iter().for_each(Rig::stop);
}
