//! The first calls of servers that are not known yet: they cost little more than the server's own start.
//!
//! Ratios of times that are taken in turns are compared here, of starts that take long by construction, so that
//! a busy machine does not decide.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Client, ERAS, Era, Legacy, Modern, Speaker};
use pontoon_tests::rig::{Rig, Server, remove_in_use, wait_until};
use serde_json::{Value, json};

use crate::{binaries, plan, rig};

/// How often each is measured; the median counts.
const ROUNDS: usize = 3;

/// So much longer than the server's own start may its first call take.
const MOST: f64 = 2.0;

/// The modes and the workspaces that go with them.
const KINDS: [[&str; 2]; 3] =
    [["stateless", "job"], ["stateful", "session"], ["stateless", "session"]];

/// A server that works.
struct Good {
    name: String,
    /// The era of its client.
    client: Era,
    /// Its mode and its workspace.
    kind: [&'static str; 2],
    args: Vec<String>,
}

/// Fifteen of them: of every era and mode, for clients of both eras, with starts of different length, the shortest of
/// so many milliseconds.
fn good(least: usize) -> Vec<Good> {
    let server = |number: usize| {
        let era = ["both", "legacy", "modern"][number % 3];
        let delay = least + 50 * (number % 3);
        let args = ["--era", era, "--start-delay-ms", &delay.to_string()].map(str::to_owned);
        let kind = KINDS[number / 2 % 3];
        Good { name: format!("m-{number}"), client: ERAS[number % 2], kind, args: args.to_vec() }
    };
    (0..15).map(server).collect()
}

/// All thirty: those, ten that hang in different ways, and five that are missing.
fn all(good: &[Good]) -> Vec<Server> {
    let hello = r#"{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}"#;
    let then_hangs = format!(
        r#"read -r line; id=$(printf '%s' "$line" | sed 's/.*"id":\([^,}}]*\).*/\1/'); printf '%s\n' '{hello}'; exec cat >/dev/null"#
    );
    let ways = [
        "exec sleep 600",
        "exec cat >/dev/null",
        "while echo garbage; do sleep 1; done",
        "exec </dev/null; exec sleep 600",
        &then_hangs,
    ];
    let hanging = (0..10).map(|number| {
        // Whichever way they are sorted, some that hang come before some that work.
        let name = format!("{}-hangs-{number}", ["a", "z"][number % 2]);
        Server::new(&name, Path::new("/bin/sh"), &["-c", ways[number % 5]])
    });
    let missing = (0..5)
        .map(|number| Server::new(&format!("m-gone-{number}"), Path::new("/nowhere/program"), &[]));
    let good = good.iter().map(|good| {
        let args: Vec<_> = good.args.iter().map(String::as_str).collect();
        let server = Server::new(&good.name, &binaries().fixture_server, &args);
        server.with("mode", good.kind[0]).with("workspace", good.kind[1])
    });
    hanging.chain(missing).chain(good).map(Server::that_may_fail).collect()
}

/// How long a process of the server takes from its start to the answer of a call.
#[allow(clippy::disallowed_methods, reason = "a process without the bridge, to compare with")]
fn directly(good: &Good) -> Duration {
    let began = Instant::now();
    let mut child = std::process::Command::new(binaries().fixture_server)
        .args(&good.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |message: Value| {
        writeln!(input, "{message}").unwrap();
        let is_answer = |line: &String| line.contains("\"id\":");
        message["id"].is_number().then(|| lines.by_ref().map(Result::unwrap).find(is_answer));
    };
    let request = |id: u64, method: &str, mut params: Value, meta: &Value| {
        if meta.is_object() {
            params["_meta"] = meta.clone();
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    };
    let speaks_modern = good.args[1] == "modern";
    let meta = match speaks_modern {
        true => json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        }),
        false => Value::Null,
    };
    if speaks_modern {
        ask(request(1, "server/discover", json!({}), &meta));
    } else {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        });
        ask(request(1, "initialize", hello, &meta));
        ask(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    ask(request(2, "tools/call", json!({"name": "echo", "arguments": {"text": "x"}}), &meta));
    let took = began.elapsed();
    drop(input);
    child.wait().unwrap();
    took
}

/// How long a new client takes to its first answer.
fn bridged(rig: &Rig, good: &Good) -> Duration {
    let began = Instant::now();
    let mut client = Client::new(good.client, &rig.endpoint(&good.name));
    let response = client.call(1, "echo", json!({"text": "x"}));
    let took = began.elapsed();
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}: {}", good.name, response.text());
    client.end();
    took
}

/// Takes the times of all of them, each in a thread of its own.
fn at_once(good: &[Good], measure: impl Fn(&Good) -> Duration + Sync) -> Vec<Duration> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = good.iter().map(|good| scope.spawn(|| measure(good))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A bridge that knows nothing yet.
fn cold(good: &[Good]) -> Rig {
    plan(all(good)).variable("MCPO_MAX_CONCURRENT", "64").start()
}

/// Compares the medians of what was measured in each round: with the bridge, and without.
#[track_caller]
fn check(good: &[Good], rounds: &[Vec<(Duration, Duration)>]) {
    let mut ratios: Vec<_> = (0..good.len())
        .map(|at| {
            let median = |of: fn(&(Duration, Duration)) -> Duration| {
                let mut times: Vec<_> = rounds.iter().map(|round| of(&round[at])).collect();
                times.sort();
                times[times.len() / 2].as_secs_f64()
            };
            (median(|it| it.0) / median(|it| it.1), good[at].name.as_str())
        })
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let text: Vec<_> = ratios.iter().map(|(ratio, name)| format!("{name} {ratio:.2}")).collect();
    println!("{}", text.join(", "));
    let worst = ratios.last().unwrap().0;
    assert!(worst <= MOST, "a first call took {worst:.2} times the server's own start: {text:?}");
}

#[test]
fn first_calls_one_after_the_other_cost_little_more_than_the_servers_own_start() {
    let good = good(300);
    let round = |number: usize| {
        let rig = cold(&good);
        // Each round begins elsewhere: whatever comes late is learnt by then.
        let order = (0..good.len()).map(|at| (at + 5 * number) % good.len());
        let mut times = vec![(Duration::ZERO, Duration::ZERO); good.len()];
        order.for_each(|at| times[at] = (bridged(&rig, &good[at]), directly(&good[at])));
        rig.stop();
        times
    };
    check(&good, &(0..ROUNDS).map(round).collect::<Vec<_>>());
}

#[test]
fn first_calls_at_once_cost_little_more_than_the_servers_own_starts_at_once() {
    let good = good(1000);
    let round = |_| {
        let direct = at_once(&good, directly);
        let rig = cold(&good);
        let through = at_once(&good, |good| bridged(&rig, good));
        rig.stop();
        through.into_iter().zip(direct).collect()
    };
    check(&good, &(0..ROUNDS).map(round).collect::<Vec<_>>());
}

#[test]
fn first_clients_that_waited_together_share_nothing() {
    for [mode, workspace] in KINDS {
        let server = Server::new("slow", &binaries().fixture_server, &["--start-delay-ms", "500"]);
        let server = server.with("mode", mode).with("workspace", workspace).that_may_fail();
        let rig = plan([server])
            .variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
            .variable("MCPO_MAX_CONCURRENT", "64")
            .start();
        let tell = |who: &str, tool: &str| {
            let headers = [("X-OpenWebUI-User-Id", who), ("X-OpenWebUI-Chat-Id", who)];
            let mut client = Modern::with(&rig.endpoint("slow"), &headers);
            let response = client.call(1, tool, json!({}));
            response.tool_text().unwrap_or_else(|| panic!("{mode}: {}", response.text()))
        };
        let people = ["ada", "ben", "cyd", "dot"];
        let pids: Vec<_> = std::thread::scope(|scope| {
            let threads = people.map(|who| scope.spawn(move || tell(who, "pid")));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(pids.iter().collect::<HashSet<_>>().len(), people.len(), "{mode} {pids:?}");
        if mode == "stateful" {
            let again: Vec<_> = people.iter().map(|who| tell(who, "pid")).collect();
            assert_eq!(again, pids, "each has kept its own");
        }
        let folder = |who: &&str| -> Value { serde_json::from_str(&tell(who, "folder")).unwrap() };
        let folders: HashSet<_> = people.iter().map(|it| folder(it)["cwd"].to_string()).collect();
        assert_eq!(folders.len(), people.len(), "{mode} {workspace}");
        rig.stop();
    }
}

#[test]
fn a_head_start_whose_place_is_gone_is_not_used() {
    for [mode, workspace] in KINDS {
        let server = Server::new("slow", &binaries().fixture_server, &["--start-delay-ms", "500"]);
        let server = server.with("mode", mode).with("workspace", workspace).that_may_fail();
        let rig = rig([server]);
        let mut session = Legacy::open(&rig.endpoint("slow"));
        wait_until("only the head start is left", super::SOON, || rig.gauge("children") == 1);
        let jobs = rig.directory().join("jobs");
        remove_in_use(&jobs);
        let response = session.call(1, "write_file", json!({"name": "made.txt", "text": "x"}));
        let text = response.tool_text();
        assert_eq!(text.as_deref(), Some("wrote 1 bytes to made.txt"), "{}", response.text());
        session.end();
        rig.stop();
    }
}
