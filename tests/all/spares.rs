//! Spares: processes that are ready before anyone calls, each for one call and no more.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Legacy, Modern, Speaker};
use pontoon_tests::program;
use pontoon_tests::rig::{Rig, Server, holds_within, processes, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{binaries, fixture, fixture_of, plan, rig};

const SOON: Duration = Duration::from_secs(10);

const HITS: &str = r#"pontoon_spare_hits_total{server="fixture"}"#;
const MISSES: &str = r#"pontoon_spare_misses_total{server="fixture"}"#;
const FAILURES: &str = r#"pontoon_child_start_failures_total{server="fixture"}"#;

/// The well-behaved server, which takes so long to start.
fn slow(start_ms: u32) -> Server {
    let mut server = fixture("stateless");
    server.args = vec![format!("--start-delay-ms={start_ms}")];
    server
}

fn wait_for_spares(rig: &Rig, count: u64) {
    wait_until(&format!("{count} spares"), SOON, || rig.gauge("spares") == count);
    // A page that counts them while they leave would say less than there are.
    rig.wait_for_children(usize::try_from(count).unwrap());
}

fn pid(client: &mut impl Speaker) -> u32 {
    let response = client.call(1, "pid", json!({}));
    let text = response.tool_text().unwrap_or_else(|| panic!("no pid: {}", response.text()));
    text.parse().unwrap()
}

fn pids(rig: &Rig) -> HashSet<u32> {
    rig.children().iter().map(|child| child.pid).collect()
}

/// The jobs in a directory, by the names of their folders.
fn jobs(directory: &Path) -> HashSet<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn each_spare_is_used_once_and_another_takes_its_place() {
    let rig = rig([fixture("stateless").with("warm", 3)]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let mut used = HashSet::new();
    for call in 1..=12 {
        wait_for_spares(&rig, 3);
        let waiting = pids(&rig);
        assert!(waiting.is_disjoint(&used), "one that was used waits again");
        let pid = pid(&mut client);
        assert!(waiting.contains(&pid), "call {call} was not served by a spare");
        assert!(used.insert(pid), "call {call} was served by one that was used before");
    }
    assert_eq!((rig.metric(HITS), rig.metric(MISSES)), (12.0, 0.0));
    wait_for_spares(&rig, 3);
    assert_eq!(rig.health()["servers"]["fixture"]["spares"], 3);
    assert!((rig.metric(r#"pontoon_spares{server="fixture"}"#) - 3.0).abs() < 0.1);
    // They work for nobody yet.
    assert_eq!((rig.gauge("running"), rig.gauge("permits_in_use")), (0, 0));
    drop(client);
    rig.stop();
}

#[test]
fn calls_at_once_never_get_the_same_spare() {
    let plan = plan([fixture("stateless").with("warm", 4)]);
    let rig = plan.variable("MCPO_MAX_CONCURRENT", "64").start();
    wait_for_spares(&rig, 4);
    let client = Modern::new(&rig.endpoint("fixture"));
    let mut used = HashSet::new();
    for _ in 0..4 {
        let calls: Vec<_> = (0..8).map(|_| client.send_call(1, "pid", json!({}))).collect();
        for call in calls {
            let response = call.begin().unwrap().finish().unwrap().0;
            let pid = response.tool_text().unwrap_or_else(|| panic!("{}", response.text()));
            assert!(used.insert(pid), "two calls had the same process");
        }
    }
    drop(client);
    rig.stop();
}

#[test]
fn a_spare_that_died_is_replaced_and_never_served() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("jobs");
    let plan = plan([fixture("stateless").with("warm", 2)]);
    let rig = plan.variable("MCPO_JOBS_DIR", folder.to_str().unwrap()).start();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    for round in 0..8 {
        wait_for_spares(&rig, 2);
        let waiting = pids(&rig);
        waiting.iter().for_each(|pid| send_signal(*pid, Signal::KILL).unwrap());
        // As soon as they are dead: the bridge may not have heard of it yet.
        let is_dead = |pid: &u32| processes::read(*pid).is_none_or(|process| process.is_over());
        wait_until("they are dead", SOON, || waiting.iter().all(is_dead));
        let pid = pid(&mut client);
        assert!(!waiting.contains(&pid), "round {round}");
    }
    wait_for_spares(&rig, 2);
    wait_until("a job for each call and each spare", SOON, || jobs(&folder).len() == 8 + 2);
    drop(client);
    rig.stop();
}

#[test]
fn a_server_that_stops_starting_is_tried_less_and_less_often() {
    let jobs_dir = tempfile::tempdir().unwrap();
    let gate = jobs_dir.path().join("gate");
    std::fs::write(&gate, "").unwrap();
    let mut server = fixture("stateless").with("warm", 3);
    server.args = vec![format!("--gate={}", gate.display())];
    let folder = jobs_dir.path().join("jobs");
    let plan = plan([server]).variable("MCPO_JOBS_DIR", folder.to_str().unwrap());
    let rig = plan.start();
    wait_for_spares(&rig, 3);
    std::fs::remove_file(&gate).unwrap();
    pids(&rig).iter().for_each(|pid| send_signal(*pid, Signal::KILL).unwrap());
    wait_until("a start fails", SOON, || rig.metric(FAILURES) >= 1.0);
    // At first all three, then one after one second, two, four.
    assert!(!holds_within(Duration::from_secs(6), || rig.metric(FAILURES) > 6.0), "too many");
    assert!(rig.metric(FAILURES) >= 5.0, "it is not tried again");
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let refused = client.call(1, "pid", json!({}));
    assert_eq!(refused.status(), 502, "{}", refused.text());
    assert!(refused.error_text().contains("its gate is closed"), "{}", refused.text());
    std::fs::write(&gate, "").unwrap();
    wait_until("they are back", Duration::from_secs(30), || rig.gauge("spares") == 3);
    assert_ne!(pid(&mut client), 0);
    drop(client);
    // What did not start has left nothing; the two calls have a record each.
    wait_for_spares(&rig, 3);
    wait_until("5 jobs", SOON, || jobs(&folder).len() == 5);
    rig.stop();
}

#[test]
fn clients_of_different_kinds_miss_once_and_hit_from_then_on() {
    for era in ["both", "legacy"] {
        let rig = rig([fixture_of(era, "stateless").with("warm", 4)]);
        wait_for_spares(&rig, 4);
        let endpoint = rig.endpoint("fixture");
        let (mut hits, mut misses) = (0.0, 0.0);
        let mut check = |is_hit: bool, what: &str| {
            *if is_hit { &mut hits } else { &mut misses } += 1.0;
            assert_eq!((rig.metric(HITS), rig.metric(MISSES)), (hits, misses), "{era}: {what}");
            wait_for_spares(&rig, 4);
        };
        let mut plain = Legacy::open_with(&endpoint, &[]);
        let mut able = Legacy::open(&endpoint);
        let old = json!({"roots": {"listChanged": true}});
        let mut old = Legacy::open_as(&endpoint, "2024-11-05", &old);
        let mut modern = Modern::new(&endpoint);
        modern.capabilities = json!({});
        // What is kept before anyone came is for modern clients; on a server that knows only the
        // handshake, that is for everyone who can be asked nothing.
        pid(&mut plain);
        check(era == "legacy", "plain");
        pid(&mut able);
        check(false, "able");
        pid(&mut old);
        check(false, "old");
        pid(&mut modern);
        check(true, "modern");
        for what in ["again", "and again"] {
            pid(&mut plain);
            check(true, what);
            pid(&mut able);
            check(true, what);
            pid(&mut old);
            check(true, what);
            pid(&mut modern);
            check(true, what);
        }
        // A spare has shaken hands for its client: it may ask one who can be asked.
        let mut asked = able.send_call(3, "ask", json!({"question": "?"})).begin().unwrap();
        let question = asked.next_message().unwrap().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let answer = json!({"action": "accept", "content": {"answer": "yes"}});
        able.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})).unwrap();
        let answer = asked.next_message().unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "accept:yes", "{answer}");
        drop((asked, modern));
        [plain, able, old].into_iter().for_each(Legacy::end);
        rig.stop();
    }
}

#[test]
fn any_number_of_kinds_of_clients_shares_the_spares_there_are() {
    let rig = rig([fixture("stateless").with("warm", 2)]);
    wait_for_spares(&rig, 2);
    for number in 0..30 {
        let capabilities = json!({"experimental": {"number": number}});
        let mut session = Legacy::open_as(&rig.endpoint("fixture"), "2025-11-25", &capabilities);
        pid(&mut session);
        session.end();
        assert!(rig.gauge("spares") <= 2);
    }
    wait_for_spares(&rig, 2);
    rig.stop();
}

#[test]
fn spares_take_no_more_memory_than_said() {
    let plan = plan([fixture("stateless").with("warm", 5)]);
    let rig = plan.variable("MCPO_WARM_MEMORY", "4MiB").start();
    wait_until("one spare", SOON, || rig.gauge("spares") >= 1);
    let most = || rig.gauge("spares") > 2;
    assert!(!holds_within(Duration::from_secs(3), most), "{} spares", rig.gauge("spares"));
    rig.stop();
}

#[test]
fn spares_leave_nothing_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("jobs");
    let server = fixture("stateless").with("warm", 3);
    let plan = plan([server]).variable("MCPO_JOBS_DIR", folder.to_str().unwrap());
    let rig = plan.start();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let mut recorded = HashSet::new();
    for _ in 0..6 {
        wait_for_spares(&rig, 3);
        let response = client.call(1, "pid", json!({}));
        recorded.insert(response.head.header("x-mcpo-job-id").unwrap().to_owned());
    }
    assert_eq!(recorded.len(), 6);
    wait_for_spares(&rig, 3);
    let mut found = HashSet::new();
    wait_until("a job for each call and each spare", SOON, || {
        found = jobs(&folder);
        found.len() == 9
    });
    assert!(found.is_superset(&recorded), "{found:?} {recorded:?}");
    drop(client);
    rig.stop();
    assert_eq!(jobs(&folder), recorded, "what waited was nobody's");
    for job in &recorded {
        let text = std::fs::read_to_string(folder.join(job).join("metadata.json")).unwrap();
        let metadata: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(metadata["status"], "completed", "{metadata}");
    }
}

#[test]
fn a_start_that_fails_leaves_nothing_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("jobs");
    let program = program::copy(&binaries().fixture_server, &directory.path().join("server"));
    let server = Server::new("fixture", &program, &[]).with("warm", 1);
    let plan = plan([server]).variable("MCPO_JOBS_DIR", folder.to_str().unwrap());
    let rig = plan.start();
    wait_for_spares(&rig, 1);
    // With its program gone, it cannot even be started.
    std::fs::remove_file(&program).unwrap();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    client.call(1, "pid", json!({}));
    for _ in 0..5 {
        assert_eq!(client.call(1, "pid", json!({})).status(), 502);
    }
    drop(client);
    wait_until("only the first call has a job", SOON, || jobs(&folder).len() == 1);
    rig.stop();
}

#[test]
fn a_new_definition_drains_the_spares_of_the_old() {
    let server = |warm: u32, label: &str| {
        let mut server = fixture("stateless").with("warm", warm);
        server.args = vec![format!("--label={label}")];
        server
    };
    let rig = rig([server(3, "old")]);
    wait_for_spares(&rig, 3);
    let old = pids(&rig);
    rig.write_config(&[server(2, "new")]);
    rig.signal(Signal::HUP);
    wait_until("the old are gone", SOON, || pids(&rig).is_disjoint(&old));
    wait_for_spares(&rig, 2);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let arguments = client.call(1, "arguments", json!({})).tool_text();
    assert_eq!(arguments.as_deref(), Some(r#"["--label=new"]"#));
    rig.write_config(&[server(0, "new")]);
    rig.signal(Signal::HUP);
    wait_for_spares(&rig, 0);
    drop(client);
    rig.stop();
}

#[test]
fn auto_keeps_more_while_calls_come_and_fewer_when_they_stop() {
    let rig = rig([slow(400).with("warm", "auto")]);
    wait_for_spares(&rig, 1);
    let client = Modern::new(&rig.endpoint("fixture"));
    let mut most = 0;
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let calls: Vec<_> = (0..2).map(|_| client.send_call(1, "pid", json!({}))).collect();
        for call in calls {
            let response = call.begin().unwrap().finish().unwrap().0;
            assert!(response.tool_text().is_some(), "{}", response.text());
        }
        most = most.max(rig.gauge("spares"));
    }
    wait_until("more than one", SOON, || {
        most = most.max(rig.gauge("spares"));
        most >= 3
    });
    drop(client);
    wait_until("one again", Duration::from_secs(60), || rig.gauge("spares") == 1);
    rig.stop();
}
