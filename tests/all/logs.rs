//! The log: lines that parse, one trace for each request, no secrets, no forgeries, and a bridge that
//! goes on whatever becomes of them.

mod output;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::metrics::Page;
use pontoon_tests::rig::{Plan, Rig, Server, holds_within, wait_until};
use serde_json::{Value, json};

use crate::{fixture, on_a_small_disk, plan, rude, shell};

const SOON: Duration = Duration::from_secs(20);

/// The lines of a log, each of which has to parse and to have what every line has.
fn parsed(log: &str) -> Vec<Value> {
    let parse = |line: &str| {
        let parsed: Value =
            serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        for field in ["timestamp", "level", "message", "target"] {
            assert!(parsed[field].is_string(), "no {field}: {line}");
        }
        parsed
    };
    log.lines().map(parse).collect()
}

/// Waits for a line that has these fields, and gives it.
fn check(rig: &Rig, fields: &Value) -> Value {
    let has = |line: &Value| {
        fields.as_object().unwrap().iter().all(|(name, value)| match value.as_str() {
            Some(text) => line[name].as_str().is_some_and(|it| it.contains(text)),
            None => line[name] == *value,
        })
    };
    let mut found = None;
    let is_there = holds_within(SOON, || {
        found = parsed(&rig.log()).into_iter().find(has);
        found.is_some()
    });
    assert!(is_there, "no line has {fields}:\n{}", rig.log());
    found.unwrap()
}

fn at_level(level: &str, servers: impl IntoIterator<Item = Server>) -> Plan {
    plan(servers).variable("MCPO_LOG_LEVEL", level)
}

/// The trace id in the `traceparent` of an answer.
fn trace_of(response: &Response) -> String {
    let header = response.head.header("traceparent").unwrap_or_else(|| panic!("{response:?}"));
    let parts: Vec<_> = header.split('-').collect();
    let lengths: Vec<_> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [2, 32, 16, 2], "{header}");
    parts[1].to_owned()
}

const THEIRS: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const THEIR_STEP: &str = "00f067aa0ba902b7";

#[test]
fn every_line_about_a_request_has_its_trace() {
    for mode in ["stateless", "stateful"] {
        let rig = at_level("DEBUG", [fixture(mode)]).start();
        let client = Modern::new(&rig.endpoint("fixture"));
        let params = json!({"name": "crash", "arguments": {}});
        let request = client.request(&client.message(&json!(1), "tools/call", params));
        let parent = format!("00-{THEIRS}-{THEIR_STEP}-01");
        let crashed = request.header("traceparent", &parent).send(rig.address()).unwrap();
        assert_eq!((crashed.status(), trace_of(&crashed).as_str()), (502, THEIRS));
        let header = crashed.head.header("traceparent").unwrap();
        assert!(!header.contains(THEIR_STEP) && header.ends_with("-01"), "our own step: {header}");
        let theirs = |fields: Value| {
            assert_eq!(check(&rig, &fields)["trace_id"], THEIRS, "{mode}: {fields}");
        };
        // From the front, from the task of the call, and from its child.
        theirs(json!({"message": "request answered", "area": "mcp", "status": 502}));
        theirs(json!({"message": "a child ended early", "how": "exited with code 3"}));
        if mode == "stateless" {
            theirs(json!({"message": "stderr", "line": "crashing because it was asked to"}));
        }

        // Another request is another trace, made up here; so is a legacy client's.
        let mut legacy = Legacy::open(&rig.endpoint("fixture"));
        let crashed = [legacy.call(1, "crash", json!({})), {
            let mut modern = Modern::new(&rig.endpoint("fixture"));
            modern.call(1, "crash", json!({}))
        }];
        let traces: BTreeSet<_> = crashed.iter().map(trace_of).collect();
        assert!(traces.len() == 2 && !traces.contains(THEIRS), "{traces:?}");
        for trace in traces {
            let ended = check(&rig, &json!({"message": "a child ended early", "trace_id": trace}));
            assert_eq!(ended["server"], "fixture");
            check(&rig, &json!({"message": "request answered", "trace_id": trace}));
        }
        // What belongs to no request has no trace.
        assert!(check(&rig, &json!({"message": "server ready"}))["trace_id"].is_null());
        legacy.end();
        rig.stop();
    }
}

#[test]
fn every_line_about_a_call_names_its_job_which_names_its_trace() {
    for workspace in ["job", "session"] {
        let server = fixture("stateless").with("workspace", workspace);
        let rig = at_level("DEBUG", [server.with("tool_timeouts", json!({"wait": 1}))]).start();
        let mut client = Modern::new(&rig.endpoint("fixture"));
        for (tool, line) in [("crash", "a child ended early"), ("wait", "a call timed out")] {
            let response = client.call(1, tool, json!({"ms": 60_000}));
            let (trace, job) =
                (trace_of(&response), response.head.header("x-mcpo-job-id").unwrap());
            for message in [line, "request answered"] {
                let found = check(&rig, &json!({"message": message, "trace_id": trace}));
                assert_eq!(found["job_id"], job, "{workspace}: {found}");
            }
            let metadata = rig.directory().join("jobs").join(job).join("metadata.json");
            wait_until("the call is recorded", SOON, || metadata.exists());
            let metadata: Value = serde_json::from_slice(&fs::read(metadata).unwrap()).unwrap();
            assert_eq!((&metadata["job_id"], &metadata["trace_id"]), (&json!(job), &json!(trace)));
        }
        // What belongs to no call has none, and what has none says nothing of it.
        assert!(check(&rig, &json!({"message": "server ready"}))["job_id"].is_null());
        let lists = client.ask(2, "tools/list", json!({}));
        let line = json!({"message": "request answered", "trace_id": trace_of(&lists)});
        assert!(check(&rig, &line)["job_id"].is_null());
        rig.stop();
    }
}

#[test]
fn calls_at_once_do_not_mix_their_traces() {
    let rig = at_level("DEBUG", [fixture("stateless").with("timeout", 2)]).start();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let call = |tool: &'static str| {
            let mut client = Modern::new(&rig.endpoint("fixture"));
            scope.spawn(move || (tool, client.call(1, tool, json!({"ms": 60_000}))))
        };
        let calls = [call("crash"), call("wait"), call("crash"), call("wait")];
        calls.map(|call| call.join().unwrap()).into()
    });
    for (tool, response) in answers {
        let trace = trace_of(&response);
        let message = if tool == "crash" { "a child ended early" } else { "a call timed out" };
        check(&rig, &json!({"message": message, "trace_id": trace}));
        let failures = ["a child ended early", "a call timed out"];
        let told = parsed(&rig.log()).into_iter().filter(|line| {
            line["trace_id"] == trace && failures.iter().any(|it| line["message"] == *it)
        });
        assert_eq!(told.count(), 1, "{tool} {trace}: {}", rig.log());
    }
    rig.stop();
}

/// A log of errors alone still has each call that failed.
#[test]
fn a_call_that_failed_is_an_error_in_the_log() {
    let rig = at_level("ERROR", [fixture("stateless").with("timeout", 2)]).start();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    client.call(1, "crash", json!({}));
    client.call(2, "wait", json!({"ms": 60_000}));
    // A bridge that stops waits for its connections.
    drop(client);
    for message in ["a child ended early", "a call timed out"] {
        check(&rig, &json!({"message": message, "level": "ERROR"}));
    }
    rig.stop();
}

/// A process that was stopped because it was idle, and whose it was.
#[test]
fn the_log_tells_whose_process_was_stopped() {
    let server = fixture("stateful").with("idle_timeout", 1);
    let rig = at_level("INFO", [server]).variable("MCPO_STATEFUL_CLEANUP_INTERVAL", "1").start();
    Modern::new(&rig.endpoint("fixture")).call(1, "pid", json!({}));
    let stopped = check(&rig, &json!({"message": "stopped an idle child"}));
    assert_eq!(
        (&stopped["server"], &stopped["who"]),
        (&json!("fixture"), &json!("Address(127.0.0.1)"))
    );
    rig.stop();
}

#[test]
fn the_levels_of_the_seed_are_known() {
    let all = ["ERROR", "WARNING", "INFO", "DEBUG"];
    let levels = [("CRITICAL", 1), ("ERROR", 1), ("WARNING", 2), ("INFO", 3), ("debug", 4)];
    for (level, count) in levels {
        let broken = Server::new("broken", Path::new("/bin/false"), &[]).that_may_fail();
        let rig = at_level(level, [fixture("stateless"), broken]).start();
        rig.wait_for_state("broken", "failed");
        let crashed = Modern::new(&rig.endpoint("fixture")).call(1, "crash", json!({}));
        assert_eq!(crashed.status(), 502);
        let expected: BTreeSet<_> = all[..count].iter().map(|it| json!(it).to_string()).collect();
        let seen = || -> BTreeSet<_> {
            parsed(&rig.log()).iter().map(|line| line["level"].to_string()).collect()
        };
        let is_so = holds_within(SOON, || seen() == expected);
        assert!(is_so, "{level}: wanted {expected:?}, saw {:?}", seen());
        rig.stop();
    }
}

/// The log files in a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn each_instance_has_a_file_of_its_own_with_all_its_lines() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("made/for/logs");
    let start = || {
        let plan = at_level("INFO", [fixture("stateless")]);
        plan.variable("MCPO_LOG_DIR", folder.to_str().unwrap()).start()
    };
    let rigs = [start(), start()];
    for rig in &rigs {
        let crashed = Modern::new(&rig.endpoint("fixture")).call(1, "crash", json!({}));
        check(rig, &json!({"message": "a child ended early", "trace_id": trace_of(&crashed)}));
    }
    let found = files(&folder);
    assert_eq!(found.len(), 2, "{found:?}");
    for rig in rigs {
        let own = format!("-{}.log", rig.pid());
        let is_own = |path: &&PathBuf| path.to_str().unwrap().ends_with(&own);
        let file = found.iter().find(is_own).unwrap_or_else(|| panic!("{own}: {found:?}"));
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("pontoon-"), "{name}");
        let same = || fs::read_to_string(file).unwrap() == rig.log();
        wait_until("the file has what was printed", SOON, same);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file), mode(&folder)), (0o600, 0o700));
        rig.stop();
        let log = fs::read_to_string(file).unwrap();
        assert_eq!(parsed(&log).last().unwrap()["message"], "stopped", "up to the last word");
    }
}

#[test]
fn a_file_that_is_full_is_turned_over() {
    let place = tempfile::tempdir().unwrap();
    let plan = at_level("DEBUG", [rude("flood-stderr", "stateful")]);
    let rig = plan.variable("MCPO_LOG_DIR", place.path().to_str().unwrap()).start();
    let mut session = Legacy::open(&rig.endpoint("rude"));
    assert_eq!(session.call(1, "echo", json!({"text": "x"})).status(), 200);
    wait_until("two files are full", Duration::from_secs(300), || files(place.path()).len() >= 3);
    session.end();
    for file in files(place.path()) {
        let facts = fs::metadata(&file).unwrap();
        assert!(facts.len() <= 10 << 20, "{file:?} has {} bytes", facts.len());
        assert_eq!(facts.permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let old = files(place.path()).pop().unwrap();
    assert!(old.to_str().unwrap().ends_with(&format!("-{}.log.2", rig.pid())), "{old:?}");
    assert!(parsed(&fs::read_to_string(old).unwrap()).len() > 1000);
    rig.stop();
}

#[test]
fn no_secret_is_in_the_log_in_an_answer_or_on_a_page() {
    let place = tempfile::tempdir().unwrap();
    let says = "echo \"$1 $ACCESS_TOKEN $PLAIN_SECRET\" >&2; echo '{\"'$1 >&2; ";
    let tells = |name: &str, script: &str| {
        let mut server = shell(&format!("{says}{script}"), "stateless");
        server.name = name.to_owned();
        server.args.extend(["sh".to_owned(), "${env:GIVEN}".to_owned()]);
        let env = json!({"ACCESS_TOKEN": "${env:TAKEN}", "PLAIN_SECRET": "canary-plain-secret"});
        server.with("env", env)
    };
    let servers = [tells("works", "exec FIXTURE"), tells("dies", "exit 3").that_may_fail()];
    let variables = [
        ("GIVEN", "canary-\"given\"-argument"),
        ("TAKEN", "canary-taken-variable"),
        ("MCPO_API_KEYS", "me=canary-key-of-mine"),
        ("MCPO_OWUI_JWT_SECRET", "canary-jwt-secret"),
        ("MCPO_LINK_SECRET", "canary-link-secret-long-enough"),
        ("MCPO_TRUSTED_PROXIES", "127.0.0.1"),
        ("MCPO_LOG_DIR", place.path().to_str().unwrap()),
    ];
    let plan = at_level("TRACE", servers);
    let plan = variables.iter().fold(plan, |plan, (name, value)| plan.variable(name, value));
    let rig = plan.start();
    rig.wait_for_state("dies", "failed");

    let key = ("Authorization", "Bearer canary-key-of-mine");
    let jwt = "X-OpenWebUI-User-Jwt";
    let mut told = String::new();
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let attempts: [(&str, &str, Headers<'_>); 8] = [
        ("works", "crash", &[key]),
        ("works", "write_file", &[key]),
        ("works", "canary_tool", &[key]),
        ("dies", "echo", &[key]),
        ("works", "echo", &[("Authorization", "Bearer canary-key-of-nobody")]),
        ("works", "echo", &[("Authorization", "Basic bWU6Y2FuYXJ5LWtleS1vZi1taW5l")]),
        ("works", "echo", &[key, (jwt, "canary.jwt.signature")]),
        (
            "works",
            "echo",
            &[key, ("Cookie", "session=canary-cookie"), ("X-Api-Key", "canary-header")],
        ),
    ];
    let mut statuses = Vec::new();
    for (server, tool, headers) in attempts {
        let client = Modern::new(&rig.endpoint(server));
        let params = json!({"name": tool, "arguments": {"name": "a.txt", "text": "x"}});
        let request = client.request(&client.message(&json!(1), "tools/call", params));
        let request = headers.iter().fold(request, |it, (name, value)| it.header(name, value));
        let response = request.send(rig.address()).unwrap();
        statuses.push(response.status());
        // What the client itself called is the client's to hear again.
        told += &response.text().replace("canary_tool", "");
        told += &format!("{:?}", response.head);
    }
    assert_eq!(statuses, [502, 200, 200, 502, 403, 401, 401, 200]);
    assert!(told.contains("its last words: [hidden] [hidden] [hidden]"), "{told}");
    check(&rig, &json!({"message": "a child ended early", "how": "[hidden]"}));
    check(&rig, &json!({"message": "stderr", "line": "[hidden] [hidden] [hidden]"}));
    check(&rig, &json!({"message": "server failed", "why": "[hidden]"}));
    for path in ["/health", "/metrics"] {
        told += &rig.get(path).text();
    }
    // The line of a call says which tool it was of.
    told += &rig.stderr().replace("canary_tool", "");
    let file = files(place.path()).pop().unwrap();
    rig.stop();
    told += &fs::read_to_string(file).unwrap().replace("canary_tool", "");
    for secret in ["canary", "Y2FuYXJ5LWtleS1vZi1taW5l"] {
        let place = told.find(secret).map(|at| told[at.saturating_sub(300)..][..400].to_owned());
        assert_eq!(place, None, "{secret}");
    }
}

#[test]
fn a_secret_that_a_reload_brings_stays_out_too() {
    let says = "echo \"$1\" >&2; exec FIXTURE";
    let rig =
        at_level("DEBUG", [shell(says, "stateless")]).variable("LATER", "canary-later").start();
    let file = rig.directory().join("mcp-servers.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let args = config["mcpServers"]["shell"]["args"].as_array_mut().unwrap();
    args.extend([json!("sh"), json!("${env:LATER}")]);
    fs::write(&file, config.to_string()).unwrap();
    rig.signal(rustix::process::Signal::HUP);
    check(&rig, &json!({"message": "configuration taken over"}));
    let crashed = Modern::new(&rig.endpoint("shell")).call(1, "crash", json!({}));
    assert!(crashed.text().contains("[hidden]"), "{}", crashed.text());
    check(&rig, &json!({"message": "stderr", "line": "[hidden]"}));
    assert!(!rig.log().contains("canary") && !crashed.text().contains("canary"), "{}", rig.log());
    rig.stop();
}

#[test]
fn what_a_child_complains_of_cannot_forge_a_line() {
    let complains = r#"printf '{"level":"ERROR","message":"forged"}\n' >&2
        printf 'a\r{"message":"forged"}\r\n\033[2J\033]0;title\007\302\233 31mred\n' >&2
        printf '\342\200\256reversed\342\201\246 \357\273\277\000\010\n' >&2
        exec FIXTURE"#;
    let rig = at_level("DEBUG", [shell(complains, "stateless")]).start();
    let crashed = Modern::new(&rig.endpoint("shell")).call(1, "crash", json!({}));
    assert_eq!(crashed.status(), 502);
    check(&rig, &json!({"message": "stderr", "line": "reversed"}));
    let log = rig.log();
    assert!(parsed(&log).iter().all(|line| line["message"] != "forged"), "{log}");
    let tricks: [char; 8] =
        ['\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{0}', '\u{8}', '\r'];
    for (what, text) in [("the log", &log), ("the answer", &crashed.error_text())] {
        assert!(!text.contains(tricks), "{what}: {text:?}");
    }
    for escaped in ["\\u00", "\\u20", "\\ufeff", "\\r"] {
        assert!(!log.contains(escaped), "not even escaped: {log}");
    }
    rig.stop();
}

#[test]
fn a_log_disk_that_is_full_stops_nothing() {
    on_a_small_disk("logs::full_log_disk");
}

#[test]
#[ignore = "run by the test above on a small disk"]
fn full_log_disk() {
    let place = std::env::current_dir().unwrap();
    let folder = place.join("logs");
    let plan = at_level("DEBUG", [fixture("stateless")]);
    let rig = plan.variable("MCPO_LOG_DIR", folder.to_str().unwrap()).start();
    let dropped = || Page::of(&rig).value("pontoon_log_lines_dropped_total", &[]);
    assert_eq!(dropped(), 0.0);
    let filler = place.join("filler");
    let full = fs::write(&filler, vec![1; 9 << 20]);
    assert!(full.is_err(), "the disk is small");
    let mut client = Modern::new(&rig.endpoint("fixture"));
    wait_until("lines are lost", SOON, || {
        let answer = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(answer.tool_text().as_deref(), Some("x"), "{}", answer.text());
        dropped() > 0.0
    });
    check(&rig, &json!({"message": "the log file cannot be written", "level": "ERROR"}));
    fs::remove_file(&filler).unwrap();
    wait_until("lines are written again", SOON, || {
        Request::new("GET", "/ready").send(rig.address()).unwrap();
        parsed(&rig.log()).iter().any(|line| line["message"] == "the log file can be written again")
    });
    drop(client);
    rig.stop();
    let log = fs::read_to_string(&files(&folder)[0]).unwrap();
    let lines = parsed(&log);
    assert!(lines.iter().any(|line| line["message"].as_str().unwrap().contains("lost")), "{log}");
}
