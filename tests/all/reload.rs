//! A configuration that changes while the bridge runs: what is new holds, what is the same goes on.

use std::time::Duration;

use pontoon_tests::client::{Connection, Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server, holds_within, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::{binaries, plan};

const SOON: Duration = Duration::from_secs(10);
const TAKEN: &str = r#"pontoon_config_reloads_total{result="ok"}"#;
const REFUSED: &str = r#"pontoon_config_reloads_total{result="failed"}"#;

/// A server with this name, whose command line tells which definition it is of.
fn server(name: &str, label: &str, mode: &str) -> Server {
    let label = format!("--label={label}");
    Server::new(name, &binaries().fixture_server, &[&label]).with("mode", mode)
}

fn bridge(servers: &[Server]) -> Plan {
    plan(servers.iter().cloned())
}

/// Gives the bridge these servers, and waits until it has taken them over.
fn reload(rig: &Rig, servers: &[Server]) {
    let before = rig.metric(TAKEN);
    rig.write_config(servers);
    rig.signal(Signal::HUP);
    wait_until("it is taken over", SOON, || rig.metric(TAKEN) > before);
}

/// Gives the bridge a configuration that it cannot take, and waits until it has said so.
fn refuse(rig: &Rig, text: &str) {
    let before = rig.metric(REFUSED);
    rig.write_config_text(text);
    rig.signal(Signal::HUP);
    wait_until("it is refused", SOON, || rig.metric(REFUSED) > before);
}

fn tell(client: &mut impl Speaker, tool: &str) -> String {
    let response = client.call(1, tool, json!({}));
    response.tool_text().unwrap_or_else(|| panic!("{tool}: {}", response.text()))
}

/// The definition that serves a call.
fn label(rig: &Rig, name: &str) -> String {
    label_through(&mut Modern::new(&rig.endpoint(name)))
}

fn label_through(client: &mut impl Speaker) -> String {
    let arguments: Vec<String> = serde_json::from_str(&tell(client, "arguments")).unwrap();
    arguments[0].trim_start_matches("--label=").to_owned()
}

/// Begins a call that goes on for two seconds.
fn begin(rig: &Rig, client: &impl Speaker) -> Connection {
    let connection = client.send_call(9, "wait", json!({"ms": 2000}));
    rig.wait_for_gauge("running", 1);
    wait_until("a child works", SOON, || !rig.children().is_empty());
    connection
}

fn finish(connection: Connection) -> Response {
    connection.begin().unwrap().finish().unwrap().0
}

#[test]
fn what_is_added_answers_and_what_is_changed_is_new() {
    let rig = bridge(&[server("a", "old", "stateless"), server("b", "old", "stateful")]).start();
    assert_eq!((label(&rig, "a"), label(&rig, "b")), ("old".into(), "old".into()));
    assert_eq!(Modern::new(&rig.endpoint("c")).call(1, "pid", json!({})).status(), 404);
    reload(
        &rig,
        &[
            server("a", "new", "stateless"),
            server("b", "new", "stateful"),
            server("c", "new", "stateless"),
        ],
    );
    for name in ["a", "b", "c"] {
        assert_eq!(label(&rig, name), "new", "{name}");
    }
    // What is told of a server is of its new definition too.
    let tools = Modern::new(&rig.endpoint("a")).ask(1, "tools/list", json!({})).text();
    assert!(tools.contains("of_new") && !tools.contains("of_old"), "{tools}");
    assert_eq!((rig.metric(TAKEN), rig.metric(REFUSED)), (1.0, 0.0));
    wait_until("it is told", SOON, || rig.stderr().contains("configuration taken over"));
    rig.stop();
}

#[test]
fn a_call_under_way_ends_with_the_definition_it_began_with() {
    for mode in ["stateless", "stateful"] {
        let rig = bridge(&[server("a", "old", mode), server("gone", "old", mode)]).start();
        for name in ["a", "gone"] {
            let client = Modern::new(&rig.endpoint(name));
            let old = begin(&rig, &client);
            match name {
                "a" => reload(&rig, &[server("a", "new", mode), server("gone", "old", mode)]),
                _ => reload(&rig, &[server("a", "new", mode)]),
            }
            if name == "a" {
                assert_eq!(label(&rig, "a"), "new", "{mode}: others do not wait for it");
            } else {
                let response = Modern::new(&rig.endpoint("gone")).call(1, "pid", json!({}));
                assert_eq!(response.status(), 404, "{mode}: {}", response.text());
                assert!(response.error_text().contains("there are: a"), "{}", response.text());
            }
            let response = finish(old);
            let text = response.tool_text();
            assert_eq!(text.as_deref(), Some("waited 2000 ms"), "{mode}: {}", response.text());
        }
        let health = rig.health();
        assert!(health["servers"].get("gone").is_none(), "{health}");
        // Of the old ones nothing is left: at most the one kept process of the new.
        let kept = usize::from(mode == "stateful");
        rig.wait_for_children(kept);
        rig.stop();
    }
}

#[test]
fn a_call_that_waits_for_a_person_goes_on_waiting() {
    for mode in ["stateless", "stateful"] {
        let rig = bridge(&[server("a", "old", mode)]).start();
        let mut session = Legacy::open(&rig.endpoint("a"));
        let call = session.send_call(9, "ask", json!({"question": "?"}));
        let mut call = call.begin().unwrap();
        let question = call.next_message().unwrap().unwrap();
        reload(&rig, &[server("a", "new", mode)]);
        assert_eq!(label_through(&mut session), "new", "{mode}");
        let answer = json!({"action": "accept", "content": {"answer": "yes"}});
        session.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})).unwrap();
        let answer = call.next_message().unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "accept:yes", "{mode}: {answer}");
        drop(call);
        session.end();
        rig.stop();
    }
}

#[test]
fn a_session_goes_on_with_the_new_definition() {
    let rig = bridge(&[server("a", "old", "stateful"), server("b", "old", "stateful")]).start();
    let mut session = Legacy::open(&rig.endpoint("a"));
    assert_eq!(label_through(&mut session), "old");
    let stream = session.listen(None);
    assert_eq!(stream.head.status, 200);
    reload(&rig, &[server("a", "new", "stateful"), server("b", "old", "stateful")]);
    assert_eq!(label_through(&mut session), "new");
    assert_eq!(tell(&mut session, "tally"), "1");
    let pong = session.ask(2, "ping", json!({})).answer();
    assert_eq!(pong["result"], json!({}), "{pong}");
    drop(stream);
    session.end();
    rig.wait_for_children(0);
    rig.stop();
}

#[test]
fn a_session_of_a_server_that_is_gone_is_gone() {
    let rig = bridge(&[server("a", "old", "stateful"), server("b", "old", "stateful")]).start();
    let mut session = Legacy::open(&rig.endpoint("a"));
    tell(&mut session, "pid");
    reload(&rig, &[server("b", "old", "stateful")]);
    assert_eq!(session.call(1, "pid", json!({})).status(), 404);
    rig.wait_for_children(0);
    // It comes back, and so does the session: nobody has ended it.
    reload(&rig, &[server("a", "old", "stateful"), server("b", "old", "stateful")]);
    assert_eq!(tell(&mut session, "tally"), "1");
    session.end();
    rig.stop();
}

#[test]
fn what_stays_the_same_keeps_its_processes() {
    let same = || server("same", "x", "stateful");
    let rig = bridge(&[same(), server("other", "old", "stateful")]).start();
    let mut session = Legacy::open(&rig.endpoint("same"));
    let mut modern = Modern::new(&rig.endpoint("same"));
    let pids = (tell(&mut session, "pid"), tell(&mut modern, "pid"));
    for label in ["new", "newer", "newest"] {
        reload(&rig, &[server("other", label, "stateful"), same()]);
        assert_eq!((tell(&mut session, "pid"), tell(&mut modern, "pid")), pids, "{label}");
    }
    reload(&rig, &[same()]);
    assert_eq!((tell(&mut session, "pid"), tell(&mut modern, "pid")), pids);
    // A small change is a change: a process that was started with another limit is not kept.
    reload(&rig, &[same().with("timeout", 77)]);
    assert_ne!(tell(&mut session, "pid"), pids.0);
    drop(modern);
    session.end();
    rig.stop();
}

#[test]
fn a_configuration_with_a_mistake_changes_nothing_and_is_told() {
    let rig = bridge(&[server("a", "old", "stateful")]).start();
    let mut client = Modern::new(&rig.endpoint("a"));
    let pid = tell(&mut client, "pid");
    for (text, told) in [
        ("{", "mcp-servers.json"),
        ("", "mcp-servers.json"),
        (r#"{"mcpServers": {"a": {"command": "/bin/true", "mode": "statefull"}}}"#, "stateful"),
        (r#"{"mcpServers": {"a b": {"command": "/bin/true"}}}"#, "a b"),
        (r#"{"mcpServers": {"a": {"command": "x", "args": ["${env:NO_SUCH_NAME}"]}}}"#, "NO_SUCH"),
    ] {
        let before = rig.stderr().len();
        refuse(&rig, text);
        // The line comes to us a moment after it was counted.
        wait_until(&format!("{told:?} is told"), SOON, || {
            let said = rig.stderr()[before..].to_owned();
            said.contains("the old one stays") && said.contains(told)
        });
        assert_eq!(tell(&mut client, "pid"), pid, "{text}");
    }
    let failed = rig.metric(REFUSED);
    std::fs::remove_file(rig.directory().join("mcp-servers.json")).unwrap();
    rig.signal(Signal::HUP);
    wait_until("it is refused", SOON, || rig.metric(REFUSED) > failed);
    assert_eq!(tell(&mut client, "pid"), pid, "a file that is missing is not an empty one");
    assert!(rig.metric(TAKEN) < 0.5);
    drop(client);
    rig.stop();
}

#[test]
fn one_server_that_does_not_work_stops_no_other() {
    let rig = bridge(&[server("a", "old", "stateless")]).start();
    let missing = Server::new("missing", "/no/such/program".as_ref(), &[]);
    let failing = Server::new("failing", "/bin/false".as_ref(), &[]);
    reload(
        &rig,
        &[server("a", "new", "stateless"), missing, failing, server("b", "new", "stateful")],
    );
    assert_eq!((label(&rig, "a"), label(&rig, "b")), ("new".into(), "new".into()));
    for name in ["missing", "failing"] {
        rig.wait_for_state(name, "failed");
        let refused = Modern::new(&rig.endpoint(name)).call(1, "pid", json!({}));
        assert_eq!(refused.status(), 502, "{name}: {}", refused.text());
    }
    // The machine may have reasons of its own.
    let broken = || rig.health()["reasons"].to_string().matches("does not work").count();
    assert_eq!(broken(), 2);
    reload(&rig, &[server("a", "new", "stateless")]);
    assert_eq!(broken(), 0);
    rig.stop();
}

#[test]
fn a_change_of_the_file_takes_effect_by_itself_where_that_is_wanted() {
    let rig = bridge(&[server("a", "old", "stateful")]).argument("--hot-reload").start();
    let mut session = Legacy::open(&rig.endpoint("a"));
    assert_eq!(label_through(&mut session), "old");
    rig.write_config(&[server("a", "new", "stateful"), server("b", "new", "stateless")]);
    wait_until("it is taken over", SOON, || rig.metric(TAKEN) > 0.5);
    assert_eq!((label_through(&mut session), label(&rig, "b")), ("new".into(), "new".into()));
    // A mistake is told and waits to be put right; a signal works besides.
    rig.write_config_text("{");
    wait_until("it is refused", SOON, || rig.metric(REFUSED) > 0.5);
    assert_eq!(label_through(&mut session), "new");
    reload(&rig, &[server("a", "newest", "stateful")]);
    assert_eq!(label_through(&mut session), "newest");
    session.end();
    rig.stop();
}

#[test]
fn without_a_signal_or_the_switch_a_change_waits() {
    let rig = bridge(&[server("a", "old", "stateless")]).start();
    rig.write_config(&[server("a", "new", "stateless")]);
    assert!(!holds_within(Duration::from_secs(4), || rig.metric(TAKEN) > 0.5));
    assert_eq!(label(&rig, "a"), "old");
    rig.stop();
}

#[test]
fn signals_in_a_row_and_calls_at_once_lose_nothing() {
    let rig = bridge(&[server("a", "0", "stateless"), server("b", "0", "stateful")]).start();
    let mut session = Legacy::open(&rig.endpoint("b"));
    for round in 1..=5 {
        let number = round.to_string();
        let calls: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|name| {
                let client = Modern::new(&rig.endpoint(name));
                [0, 1].map(|_| client.send_call(1, "count", json!({"steps": 3, "delay_ms": 50})))
            })
            .collect();
        rig.write_config(&[server("a", &number, "stateless"), server("b", &number, "stateful")]);
        (0..3).for_each(|_| rig.signal(Signal::HUP));
        for call in calls {
            let response = finish(call);
            let text = response.tool_text();
            assert_eq!(text.as_deref(), Some("counted to 3"), "{}", response.text());
        }
        wait_until("the newest serves", SOON, || label(&rig, "a") == number);
        wait_until("the newest serves", SOON, || label_through(&mut session) == number);
    }
    session.end();
    rig.stop();
}
