//! `/health`, `/ready` and `pontoon health`: what they say when all is well, when it is not, and to
//! whom.

use std::fs;
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::Duration;

use pontoon_tests::client::{Connection, Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, Server, bridge_command, holds_within, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{binaries, fixture, on_a_small_disk, plan, rig, rude, shell};

const SOON: Duration = Duration::from_secs(40);

/// Waits until `/health` answers with this status and word, and with a reason for each of `told`.
fn check(rig: &Rig, status: u16, word: &str, told: &[&str]) {
    let mut last = String::new();
    let is_so = holds_within(SOON, || {
        let response = rig.get("/health");
        last = format!("{} {}", response.status(), response.text());
        let health = response.answer();
        let mut reasons = health["reasons"].as_array().cloned().unwrap_or_default();
        // The disk of whoever runs the tests may be full enough to be told.
        let is_about_disk = told.iter().any(|told| told.contains("disk"));
        let is_theirs = |reason: &Value| !is_about_disk && says_of_disk(reason);
        let is_full = reasons.iter().any(is_theirs);
        reasons.retain(|reason| !is_theirs(reason));
        let is_word = health["status"] == word || (word == "ok" && is_full);
        let says = |reason: &Value, told: &str| reason.as_str().unwrap().contains(told);
        response.status() == status
            && is_word
            && reasons.len() == told.len()
            && reasons.iter().zip(told).all(|(reason, told)| says(reason, told))
    });
    assert!(is_so, "wanted {status} {word} {told:?}, got {last}");
}

fn says_of_disk(reason: &Value) -> bool {
    reason.as_str().is_some_and(|reason| reason.starts_with("the disk of the jobs directory is"))
}

fn broken(name: &str) -> Server {
    Server::new(name, "/bin/false".as_ref(), &[]).that_may_fail()
}

#[test]
fn all_is_well_in_the_words_of_the_seed() {
    let rig = rig([fixture("stateful")]);
    check(&rig, 200, "ok", &[]);
    let response = rig.get("/health");
    assert_eq!(response.head.header("content-type"), Some("application/json"));
    assert_eq!(response.head.header("cache-control"), Some("no-store"));
    let health = response.answer();
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    let uptime = health["uptime"].as_u64().expect("seconds");
    assert!(uptime < 600, "{uptime}");
    let time = health["timestamp"].as_str().unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z");
    wait_until("time goes on", SOON, || rig.health()["timestamp"] != time);
    let server = &health["servers"]["fixture"];
    assert_eq!((&server["state"], &server["error"]), (&json!("ready"), &Value::Null));
    assert_eq!((&server["mode"], &server["isolation"]), (&json!("stateful"), &json!("basic")));
    rig.stop();
}

#[test]
fn one_broken_server_degrades_and_all_broken_is_down() {
    let rig = plan([fixture("stateless"), broken("b")]).start();
    check(&rig, 200, "degraded", &["the server `b` does not work"]);
    let health = rig.health();
    assert_eq!(health["servers"]["fixture"]["state"], "ready");
    assert_eq!(health["servers"]["b"]["state"], "failed");
    let error = health["servers"]["b"]["error"].as_str().unwrap();
    assert!(error.contains("exited with code 1"), "{error}");
    rig.stop();

    let missing = Server::new("a", "/nowhere/at-all".as_ref(), &[]).that_may_fail();
    let rig = plan([missing, broken("b")]).start();
    check(&rig, 503, "down", &["the server `a` does not work", "the server `b` does not work"]);
    let error = rig.health()["servers"]["a"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("/nowhere/at-all"), "{error}");
    rig.stop();
}

#[test]
fn a_server_that_breaks_and_is_mended_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let works = folder.path().join("works");
    fs::write(&works, "").unwrap();
    let script = format!("test -e {} || exit 9; exec FIXTURE", works.display());
    let rig = rig([shell(&script, "stateless")]);
    check(&rig, 200, "ok", &[]);
    fs::remove_file(&works).unwrap();
    // Each call on a connection of its own: minutes may lie between them.
    let client = || Modern::new(&rig.endpoint("shell"));
    let response = client().call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.status(), 502, "{}", response.text());
    check(&rig, 503, "down", &["the server `shell` does not work"]);
    let error = rig.health()["servers"]["shell"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("code 9"), "{error}");
    // What is known of it is served all the same.
    assert_eq!(client().ask(2, "tools/list", json!({})).status(), 200);
    fs::write(&works, "").unwrap();
    check(&rig, 200, "ok", &[]);
    assert_eq!(client().call(3, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    rig.stop();
}

#[test]
fn above_four_fifths_of_the_permits_it_is_degraded() {
    let rig = plan([fixture("stateless")]).variable("MCPO_MAX_CONCURRENT", "5").start();
    let client = Modern::new(&rig.endpoint("fixture"));
    let mut open: Vec<_> =
        (0..4).map(|id| client.send_call(id, "wait", json!({"ms": 60_000}))).collect();
    rig.wait_for_gauge("permits_in_use", 4);
    check(&rig, 200, "ok", &[]);
    open.push(client.send_call(5, "wait", json!({"ms": 60_000})));
    rig.wait_for_gauge("permits_in_use", 5);
    check(&rig, 200, "degraded", &["5 of 5 permits for calls (MCPO_MAX_CONCURRENT) are in use"]);
    drop(open);
    check(&rig, 200, "ok", &[]);
    rig.stop();
}

#[test]
fn above_four_fifths_of_the_kept_processes_it_is_degraded() {
    let plan = plan([fixture("stateful")]).variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "2");
    let rig = plan.start();
    let mut sessions = [(); 2].map(|()| Legacy::open(&rig.endpoint("fixture")));
    assert_eq!(sessions[0].call(1, "pid", json!({})).status(), 200);
    check(&rig, 200, "ok", &[]);
    assert_eq!(sessions[1].call(1, "pid", json!({})).status(), 200);
    check(&rig, 200, "degraded", &["2 of 2 kept processes (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)"]);
    assert_eq!(rig.health()["servers"]["fixture"]["stateful_processes"], 2);
    sessions.into_iter().for_each(Legacy::end);
    check(&rig, 200, "ok", &[]);
    rig.stop();
}

#[test]
fn a_disk_that_fills_is_told() {
    on_a_small_disk("health::filling_disk");
}

#[test]
#[ignore = "run by the test above on a small disk"]
fn filling_disk() {
    let place = std::env::current_dir().unwrap();
    let rig = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", place.join("jobs").to_str().unwrap())
        .variable("MCPO_MIN_FREE_DISK", "1MiB")
        .start();
    check(&rig, 200, "ok", &[]);
    assert_eq!(rig.health()["disk"]["total"], 8 << 20);
    let fill = |bytes: usize| fs::write(place.join("filler"), vec![1; bytes]).unwrap();
    fill(6_900_000);
    check(&rig, 200, "degraded", &["the disk of the jobs directory is 8"]);
    fill(7_900_000);
    check(&rig, 200, "degraded", &["bytes left, new jobs need 1048576 (MCPO_MIN_FREE_DISK)"]);
    fs::remove_file(place.join("filler")).unwrap();
    check(&rig, 200, "ok", &[]);
    rig.stop();
}

#[test]
fn a_stranger_sees_whether_it_works_and_nothing_more() {
    let plan = plan([fixture("stateful"), broken("hidden-server")]);
    let rig = plan.variable("MCPO_API_KEYS", "me=a-key-that-is-long").start();
    check(&rig, 200, "degraded", &["hidden-server"]);
    let strangers: [&[(&str, &str)]; 2] =
        [&[], &[("Authorization", "Bearer another-key-than-ours")]];
    for headers in strangers {
        let request = Request::new("GET", "/health");
        let request = headers.iter().fold(request, |it, (name, value)| it.header(name, value));
        let response = request.send(rig.address()).unwrap();
        let health = response.answer();
        assert_eq!((response.status(), &health["status"]), (200, &json!("degraded")));
        let fields: Vec<_> = health.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["status", "timestamp", "version", "uptime"], "{headers:?}");
    }
    let ready = Request::new("GET", "/ready").send(rig.address()).unwrap();
    assert_eq!(ready.answer(), json!({"ready": true}));
    for path in ["/health", "/ready", "/metrics"] {
        let response = Request::new("POST", path).header("Content-Length", "0").send(rig.address());
        let response = response.unwrap();
        assert_eq!((response.status(), response.head.header("allow")), (405, Some("GET")));
    }
    rig.stop();
}

#[test]
fn it_is_not_ready_while_it_learns() {
    let mut slow = rude("slow-start", "stateless").that_may_fail();
    slow.args.extend(["--ms".to_owned(), "1500".to_owned()]);
    let rig = rig([fixture("stateless"), slow]);
    let response = rig.get("/ready");
    let expected = json!({"ready": false, "reason": "servers are still being learnt"});
    assert_eq!((response.status(), response.answer()), (503, expected));
    assert_eq!(rig.health()["servers"]["rude"]["state"], "learning");
    check(&rig, 200, "ok", &[]);
    wait_until("it is ready", SOON, || rig.get("/ready").status() == 200);
    rig.stop();
}

#[test]
fn it_is_not_ready_while_it_stops() {
    let mut rig = rig([fixture("stateful")]);
    let open = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 3000}));
    rig.wait_for_gauge("running", 1);
    rig.signal(Signal::TERM);
    // Who still gets an answer is told; everybody else finds nobody.
    let is_ready = || {
        let mut connection = Connection::open(rig.address()).ok()?;
        connection.send(&Request::new("GET", "/ready").bytes()).ok()?;
        Some(connection.begin().ok()?.head.status == 200)
    };
    wait_until("it is not ready", SOON, || is_ready() != Some(true));
    assert_ne!(is_ready(), Some(true), "and stays so");
    let response = open.begin().unwrap().finish().unwrap().0;
    assert_eq!(response.tool_text().as_deref(), Some("waited 3000 ms"), "{}", response.text());
    assert!(rig.wait_for_exit(SOON).success());
    rig.expect_nothing_left();
}

/// Runs `pontoon health` with these variables.
fn ask(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let place = tempfile::tempdir().unwrap();
    let mut command = bridge_command(&binaries().pontoon, place.path());
    command.envs(variables.iter().copied()).arg("health").args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_command_succeeds_for_ok_and_degraded_and_tells_people_why() {
    let rig = plan([fixture("stateless"), broken("b")]).start();
    rig.wait_for_state("b", "failed");
    let url = format!("http://{}", rig.address());
    let (code, out, _) = said(&ask(&[], &["--url", &url]));
    assert_eq!(code, Some(0), "{out}");
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("degraded (pontoon "), "{out}");
    assert_eq!(lines[1], "  the server `b` does not work");
    assert!(out.contains("  fixture: ready, 0 running\n"), "{out}");
    assert!(out.contains("  b: failed, 0 running\n    ") && out.contains("code 1"), "{out}");
    let (code, out, _) = said(&ask(&[], &["--json", "--url", &url]));
    let health: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &health["status"]), (Some(0), &json!("degraded")));
    assert_eq!(health["servers"]["b"]["state"], "failed");
    rig.stop();
}

#[test]
fn the_command_fails_for_down_and_for_nobody() {
    let rig = plan([broken("b")]).start();
    rig.wait_for_state("b", "failed");
    let url = format!("http://{}", rig.address());
    let (code, out, _) = said(&ask(&[], &["--url", &url]));
    assert_eq!((code, out.starts_with("down (")), (Some(1), true), "{out}");
    let (code, out, _) = said(&ask(&[], &["--url", &url, "--json"]));
    assert_eq!(
        (code, serde_json::from_str::<Value>(&out).unwrap()["status"] == "down"),
        (Some(1), true)
    );
    rig.stop();
    let (code, out, error) = said(&ask(&[], &["--url", &url]));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.contains(&format!("no bridge answers at {url}")), "{error}");
    let (code, _, error) = said(&ask(&[], &["--url", "ftp://x"]));
    assert_eq!(code, Some(1));
    assert!(error.contains("write an address such as"), "{error}");
}

#[test]
fn the_command_finds_a_bridge_that_listens_everywhere_and_shows_its_key() {
    // Some port that is free: it must be known before the bridge starts.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let everywhere = format!("0.0.0.0:{free}");
    let key = "a-key-that-is-long";
    let place = tempfile::tempdir().unwrap();
    let mut command = bridge_command(&binaries().pontoon, place.path());
    let variables = [("MCPO_LISTEN", everywhere.as_str()), ("MCPO_API_KEY", key)];
    command.envs(variables).env("MCPO_STRICT_AUTH", "true").arg("serve");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bridge = command.spawn().unwrap();
    let mut last = (None, String::new(), String::new());
    let answered = holds_within(SOON, || {
        last = said(&ask(&variables, &[]));
        last.0 == Some(0) && last.1.contains("demo: ready")
    });
    let file = place.path().join("key");
    fs::write(&file, format!("{key}\n")).unwrap();
    let by_file =
        [("MCPO_LISTEN", everywhere.as_str()), ("MCPO_API_KEY_FILE", file.to_str().unwrap())];
    let by_file = said(&ask(&by_file, &[]));
    let without = said(&ask(&variables[..1], &[]));
    let wrong = said(&ask(&[variables[0], ("MCPO_API_KEY", "another-key-than-ours")], &[]));
    pontoon_tests::rig::send_signal(bridge.id(), Signal::TERM).unwrap();
    wait_until("it ends", SOON, || bridge.try_wait().unwrap().is_some());
    assert!(answered, "{last:?}");
    assert!(by_file.0 == Some(0) && by_file.1.contains("demo: ready"), "{by_file:?}");
    assert!(
        without.0 == Some(0) && !without.1.contains("demo"),
        "only whether it works: {without:?}"
    );
    assert_eq!(wrong.0, Some(1), "whoever shows a key wants it to count: {wrong:?}");
    assert!(wrong.2.contains("MCPO_API_KEY"), "{wrong:?}");
}
