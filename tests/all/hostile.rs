//! Servers and clients that mean harm, or act as if: nobody else hears, waits or pays for them.

mod budget;
mod memory;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Connection, Exchange, Legacy, Modern, Response, Speaker};
use pontoon_tests::program;
use pontoon_tests::rig::{Rig, Server, holds_within, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{binaries, fixture, fixture_of, plan, rig, rude};

const SOON: Duration = Duration::from_secs(5);

/// A file that steps of `play` wait for or make.
fn file(rig: &Rig, name: &str) -> String {
    rig.directory().join(name).display().to_string()
}

fn open_gate(gate: &str) {
    fs::write(gate, "").unwrap();
}

fn question(id: u64, text: &str) -> String {
    let schema = json!({"type": "object", "properties": {}});
    let params = json!({"message": text, "requestedSchema": schema});
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
        .to_string()
}

fn note(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

fn log(text: &str) -> String {
    note("notifications/message", &json!({"level": "error", "data": text}))
}

/// Calls `play`, with the wish to hear every log line.
fn play(client: &impl Speaker, id: u64, steps: &Value) -> Connection {
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let params = json!({"name": "play", "arguments": {"steps": steps}, "_meta": meta});
    client.send(id, "tools/call", params)
}

fn whole(connection: Connection) -> Response {
    connection.begin().unwrap().finish().unwrap().0
}

/// The first message on the way to an answer, which has to be a question.
fn hear_question(exchange: &mut Exchange) -> Value {
    let question = exchange.next_message().unwrap().unwrap_or_default();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    question
}

fn accept(session: &mut Legacy, question: &Value) {
    let result = json!({"action": "accept", "content": {}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(session.post(&answer).unwrap().status(), 202);
}

/// An error of the bridge says its status in both eras.
fn assert_failed(response: &Response, status: u64, says: &str) {
    let answer = response.answer();
    assert_eq!(answer.pointer("/error/data/httpStatus"), Some(&json!(status)), "{answer}");
    assert!(response.error_text().contains(says), "{says:?} is not in {answer}");
}

fn echoes(client: &mut impl Speaker, id: u64) {
    let response = client.call(id, "echo", json!({"text": "still here"}));
    assert_eq!(response.tool_text().as_deref(), Some("still here"), "{}", response.text());
}

/// What the bridge has computed so far, in hundredths of a second.
fn ticks(rig: &Rig) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", rig.pid())).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Lets time pass without a word to the bridge.
fn let_pass(time: Duration) {
    let begun = Instant::now();
    wait_until("time passes", 2 * time, || begun.elapsed() >= time);
}

#[test]
fn a_child_that_closed_its_input_fails_the_call_and_is_tried_twice_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let (flag, starts) = (directory.path().join("flag"), directory.path().join("starts"));
    let binaries = binaries();
    let script = format!(
        "echo x >> {}; [ -e {} ] && exec {} --how close-stdin; exec {}",
        starts.display(),
        flag.display(),
        binaries.rude_server.display(),
        binaries.fixture_server.display()
    );
    let server = Server::new("shell", Path::new("/bin/sh"), &["-c", &script]);
    let rig = rig([server.with("mode", "stateful").with("timeout", 3)]);
    let mut session = Legacy::open(&rig.endpoint("shell"));
    fs::write(&starts, "").unwrap();
    fs::write(&flag, "").unwrap();
    let mut call = session.send_call(1, "echo", json!({"text": "x"}));
    wait_until("the call fails", SOON, || !call.is_quiet());
    assert_failed(&whole(call), 502, "before it answered");
    let started = fs::read_to_string(&starts).unwrap().lines().count();
    assert!((1..=2).contains(&started), "{started} children were started");
    fs::remove_file(&flag).unwrap();
    echoes(&mut session, 2);
    session.end();
    rig.stop();
}

#[test]
fn an_idle_child_costs_no_processor_time() {
    let rig = rig([fixture("stateful").with("timeout", 1)]);
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut session, 1);
    // Past the deadline that the answered call had.
    let_pass(Duration::from_millis(1500));
    let before = ticks(&rig);
    let_pass(Duration::from_secs(2));
    let used = ticks(&rig) - before;
    assert!(used < 30, "{used} hundredths of a second in two idle seconds");
    echoes(&mut session, 2);
    session.end();
    rig.stop();
}

/// Alice's call says something in private while Bob's call is open; Bob may not hear it.
fn check_private(alice_before: impl FnOnce(&Rig, &mut Modern, &Value) -> Option<Value>) {
    let rig = rig([rude("plays", "stateful")]);
    let mut alice = Modern::new(&rig.endpoint("rude"));
    let bob = Modern::new(&rig.endpoint("rude"));
    let [go, said, end] = ["go", "said", "end"].map(|name| file(&rig, name));
    let steps = json!([
        question(1, "FIRST"), {"until": go}, log("SECRET"), question(2, "SECRET"), {"hear": 2},
        {"touch": said}, {"hear": 1},
    ]);
    let parked = alice_before(&rig, &mut alice, &steps);
    let bobs = play(&bob, 1, &json!([{"until": end}]));
    rig.wait_for_gauge("running", 1);
    open_gate(&go);
    let is_said = holds_within(SOON, || Path::new(&said).exists());
    open_gate(&end);
    let response = whole(bobs);
    assert!(!response.text().contains("SECRET"), "Bob heard {}", response.text());
    assert_eq!(response.tool_text().as_deref(), Some("played"), "{}", response.text());
    assert!(is_said, "Alice's question was neither asked nor refused");
    if let Some(asked) = parked {
        let params = json!({
            "name": "play",
            "arguments": {"steps": steps},
            "inputResponses": {"q1": {"action": "accept", "content": {}}},
            "requestState": asked["result"]["requestState"],
        });
        let response = alice.ask(2, "tools/call", params);
        assert!(
            response.tool_text().is_some_and(|it| it.contains("accept")),
            "{}",
            response.text()
        );
    }
    drop((alice, bob));
    rig.stop();
}

#[test]
fn what_a_waiting_call_says_reaches_no_other_client() {
    check_private(|rig, alice, steps| {
        let asked = whole(play(alice, 1, steps)).answer();
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        rig.wait_for_gauge("running", 0);
        Some(asked)
    });
}

#[test]
fn what_an_abandoned_call_says_reaches_no_other_client() {
    check_private(|rig, alice, steps| {
        // Its first question would end the call before it can be abandoned.
        let (mut steps, begun) = (steps.clone(), file(rig, "begun"));
        steps[0] = json!({"touch": begun});
        let abandoned = play(alice, 1, &steps);
        wait_until("the call is at work", SOON, || Path::new(&begun).exists());
        drop(abandoned);
        rig.wait_for_gauge("running", 0);
        None
    });
}

#[test]
fn what_one_of_two_calls_says_reaches_neither() {
    let rig = rig([rude("plays", "stateful")]);
    let [alice, bob] = [(); 2].map(|()| Modern::new(&rig.endpoint("rude")));
    let end = file(&rig, "end");
    let bobs = play(&bob, 1, &json!([{"until": end}]));
    rig.wait_for_gauge("running", 1);
    let response =
        whole(play(&alice, 1, &json!([log("SECRET"), question(1, "SECRET"), {"hear": 1}])));
    assert!(response.tool_text().is_some_and(|it| it.contains("error")), "{}", response.text());
    open_gate(&end);
    let response = whole(bobs);
    assert!(!response.text().contains("SECRET"), "Bob heard {}", response.text());
    rig.stop();
}

/// A server withdraws questions under ids that calls could have; no call may end by it.
fn check_withdrawn(rig: &Rig, client: &impl Speaker) {
    let end = file(rig, "end");
    let other = play(client, 1, &json!([{"until": end}]));
    rig.wait_for_gauge("running", 1);
    let withdrawn = |id: u64| {
        let params = json!({"requestId": id, "reason": "too late"});
        [question(id, "Which colour?"), note("notifications/cancelled", &params)]
    };
    let steps: Vec<String> = (0..30).flat_map(withdrawn).collect();
    let response = whole(play(client, 2, &json!(steps)));
    assert_eq!(response.tool_text().as_deref(), Some("played"), "{}", response.text());
    open_gate(&end);
    let response = whole(other);
    assert_eq!(response.tool_text().as_deref(), Some("played"), "{}", response.text());
    fs::remove_file(&end).unwrap();
}

#[test]
fn a_question_that_is_withdrawn_ends_no_call() {
    let rig = rig([rude("plays", "stateful")]);
    let session = Legacy::open(&rig.endpoint("rude"));
    check_withdrawn(&rig, &session);
    session.end();
    check_withdrawn(&rig, &Modern::new(&rig.endpoint("rude")));
    rig.stop();
}

/// Calls of `tool` ask what nobody answers: so many may wait and no more, and a stop ends them.
fn check_bounded(server: Server, tool: &str, arguments: &Value) {
    let name = server.name.clone();
    let mut rig = plan([server.with("timeout", 2)]).variable("MCPO_MAX_CONCURRENT", "2").start();
    // A session has a limit of its own, so one alone would not show that of the server.
    let sessions = [(); 2].map(|()| Legacy::open(&rig.endpoint(&name)));
    let mut waiting = Vec::new();
    let mut refused = Vec::new();
    for (id, session) in (0..260).zip(sessions.iter().cycle()) {
        let mut exchange = session.send_call(id, tool, arguments.clone()).begin().unwrap();
        let first = exchange.next_message().unwrap().unwrap();
        if first["method"] == "elicitation/create" {
            waiting.push(exchange);
        } else {
            refused.push(first);
        }
        rig.wait_for_gauge("permits_in_use", 0);
    }
    let begun = Instant::now();
    let children = holds_within(SOON, || rig.children().len() <= 256);
    rig.signal(Signal::TERM);
    let status = rig.wait_for_exit(Duration::from_secs(8));
    assert!(status.success(), "{status} after {:?}\n{}", begun.elapsed(), rig.stderr());
    rig.expect_nothing_left();
    assert_eq!((waiting.len(), refused.len(), children), (256, 4, true));
    assert!(refused[0].to_string().contains("too many questions"), "{}", refused[0]);
}

#[test]
fn calls_that_nobody_answers_are_bounded_and_hold_no_stop() {
    let steps = json!([question(1, "Is anybody there?"), {"hear": 1}]);
    check_bounded(rude("plays", "stateless"), "play", &json!({"steps": steps}));
}

#[test]
fn calls_of_modern_servers_that_nobody_answers_are_bounded_too() {
    let server = fixture_of("modern", "stateless");
    check_bounded(server, "ask", &json!({"question": "Is anybody there?"}));
}

#[test]
fn a_call_that_waits_for_its_client_holds_no_stop() {
    for (era, mode) in [("legacy", "stateful"), ("modern", "stateful"), ("modern", "stateless")] {
        let mut rig = rig([fixture_of(era, mode).with("timeout", 60)]);
        let session = Legacy::open(&rig.endpoint("fixture"));
        let call = session.send_call(1, "ask", json!({"question": "Anybody?"}));
        let mut exchange = call.begin().unwrap();
        hear_question(&mut exchange);
        rig.signal(Signal::TERM);
        let status = rig.wait_for_exit(Duration::from_secs(8));
        assert!(status.success(), "{era} {mode}: {status}\n{}", rig.stderr());
        rig.expect_nothing_left();
    }
}

#[test]
fn a_call_works_on_only_when_it_may_again() {
    let plan = plan([rude("plays", "stateless").with("timeout", 60)]);
    let rig = plan.variable("MCPO_MAX_CONCURRENT", "1").start();
    let mut session = Legacy::open(&rig.endpoint("rude"));
    let end = file(&rig, "end");
    let at_work: Vec<String> = (0..4).map(|id| file(&rig, &format!("at-work-{id}"))).collect();
    let mut calls = Vec::new();
    for (id, begun) in (0..).zip(&at_work) {
        let steps = json!([question(1, "May I?"), {"hear": 1}, {"touch": begun}, {"until": end}]);
        let mut exchange = play(&session, id, &steps).begin().unwrap();
        let question = hear_question(&mut exchange);
        rig.wait_for_gauge("permits_in_use", 0);
        calls.push((exchange, question));
    }
    for (_, question) in &calls {
        accept(&mut session, question);
    }
    let working = || at_work.iter().filter(|it| Path::new(it).exists()).count();
    wait_until("one call is at work", SOON, || working() > 0);
    rig.wait_for_gauge("permits_in_use", 1);
    let two = holds_within(Duration::from_secs(1), || working() > 1);
    let response = session.call(9, "echo", json!({"text": "x"}));
    assert_failed(&response, 429, "try again");
    open_gate(&end);
    for (mut exchange, _) in calls {
        let answer = exchange.next_message().unwrap().unwrap_or_default();
        assert!(answer["result"]["content"].is_array(), "{answer}");
    }
    session.end();
    rig.stop();
    assert!(!two, "several calls worked at once where one may");
}

#[test]
fn a_call_that_waits_for_its_turn_can_be_cancelled() {
    let plan = plan([rude("plays", "stateless").with("timeout", 60)]);
    let rig = plan.variable("MCPO_MAX_CONCURRENT", "1").start();
    let mut session = Legacy::open(&rig.endpoint("rude"));
    let end = file(&rig, "end");
    let steps = json!([question(1, "May I?"), {"hear": 1}, {"until": end}]);
    let calls = [1, 2].map(|id| {
        let mut exchange = play(&session, id, &steps).begin().unwrap();
        let question = hear_question(&mut exchange);
        rig.wait_for_gauge("permits_in_use", 0);
        (exchange, question)
    });
    accept(&mut session, &calls[0].1);
    rig.wait_for_gauge("permits_in_use", 1);
    accept(&mut session, &calls[1].1);
    session.notify("notifications/cancelled", &json!({"requestId": 2}));
    let ended = holds_within(SOON, || rig.gauge("running") == 1);
    open_gate(&end);
    drop(calls);
    session.end();
    rig.stop();
    assert!(ended, "the call was not cancelled while it waited for a permit");
}

#[test]
fn clients_that_all_look_different_lock_nobody_out() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut first = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut first, 1);
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    for id in 0..110_u64 {
        modern.capabilities = json!({"experimental": {"n": id}});
        echoes(&mut modern, id);
    }
    wait_until("idle children are let go", SOON, || rig.children().len() <= 100);
    let mut second = Legacy::open(&rig.endpoint("fixture"));
    echoes(&mut second, 1);
    echoes(&mut first, 2);
    drop(modern);
    first.end();
    second.end();
    rig.stop();
}

#[test]
fn a_client_may_call_itself_what_it_likes_and_keeps_its_child() {
    let rig = rig([fixture_of("legacy", "stateful")]);
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let mut pids = Vec::new();
    for id in 0..110 {
        let info = json!({"name": format!("client {id}"), "version": "1"});
        let meta = json!({"io.modelcontextprotocol/clientInfo": info});
        let params = json!({"name": "pid", "arguments": {}, "_meta": meta});
        pids.push(modern.ask(id, "tools/call", params).tool_text());
    }
    pids.dedup();
    assert!(pids.len() == 1 && pids[0].is_some(), "{pids:?}");
    drop(modern);
    rig.stop();
}

/// A line that is too long is told to every open call at once, and the next one works.
fn check_too_long(rig: &Rig, client: &mut impl Speaker) {
    let never = file(rig, "never");
    let other = play(client, 1, &json!([{"until": never}]));
    rig.wait_for_gauge("running", 1);
    let begun = Instant::now();
    let long = play(client, 2, &json!([{"long": 2 << 20}, {"until": never}]));
    assert_failed(&whole(long), 502, "MCPO_MAX_MESSAGE");
    assert_failed(&whole(other), 502, "MCPO_MAX_MESSAGE");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    echoes(client, 3);
    rig.wait_for_gauge("running", 0);
}

#[test]
fn a_line_too_long_is_told_to_all_open_calls_at_once() {
    let server = rude("plays", "stateful").with("timeout", 20);
    let rig = plan([server]).variable("MCPO_MAX_MESSAGE", "1MiB").start();
    let mut session = Legacy::open(&rig.endpoint("rude"));
    check_too_long(&rig, &mut session);
    session.end();
    check_too_long(&rig, &mut Modern::new(&rig.endpoint("rude")));
    rig.stop();
}

#[test]
fn an_answer_cannot_be_forged_through_a_log_line() {
    let rig = rig([rude("plays", "stateful")]);
    let [victim, forger] = [(); 2].map(|()| Modern::new(&rig.endpoint("rude")));
    let end = file(&rig, "end");
    let victims = play(&victim, 1, &json!([{"until": end}]));
    rig.wait_for_gauge("running", 1);
    let forged = |id: u64| {
        let result = json!({"content": [{"type": "text", "text": "FORGED"}]});
        format!("[info] handling {}", json!({"jsonrpc": "2.0", "id": id, "result": result}))
    };
    let steps: Vec<String> = (0..=50).map(forged).collect();
    let response = whole(play(&forger, 2, &json!(steps)));
    assert_eq!(response.tool_text().as_deref(), Some("played"), "{}", response.text());
    open_gate(&end);
    let response = whole(victims);
    assert_eq!(response.tool_text().as_deref(), Some("played"), "{}", response.text());
    rig.stop();
}

#[test]
fn questions_of_cancelled_calls_are_forgotten() {
    let rig = rig([rude("plays", "stateful")]);
    let mut session = Legacy::open(&rig.endpoint("rude"));
    let steps = |id: u64| json!([question(id, "Which colour?"), {"hear": id}]);
    for id in 0..300 {
        let mut exchange = play(&session, id, &steps(id)).begin().unwrap();
        hear_question(&mut exchange);
        session.notify("notifications/cancelled", &json!({"requestId": id}));
    }
    rig.wait_for_gauge("running", 0);
    let mut exchange = play(&session, 1000, &steps(1000)).begin().unwrap();
    let question = hear_question(&mut exchange);
    accept(&mut session, &question);
    let answer = exchange.next_message().unwrap().unwrap_or_default();
    assert_eq!(answer["id"], 1000, "{answer}");
    session.end();
    rig.stop();
}

#[test]
fn a_page_from_a_foreign_address_is_refused_wherever_the_bridge_listens() {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = directory.path().join("pontoon");
    let mut binaries = binaries();
    // The kit's own bridges listen on loopback; the fifth word is the configuration.
    let listen = "serve --listen 0.0.0.0:0 --insecure --config \"$5\"";
    let script = format!("exec {} {listen}", binaries.pontoon.display());
    binaries.pontoon = program::script(&wrapper, &script);
    let rig = pontoon_tests::rig::Plan::new(binaries, [fixture("stateful")]).start();
    assert!(rig.address().ip().is_unspecified(), "{}", rig.address());
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let message = client.message(&json!(1), "tools/list", json!({}));
    let status = |origin: &str| {
        let request = client.request(&message).header("Origin", origin);
        request.header("Connection", "close").send(rig.address()).unwrap().status()
    };
    for foreign in ["203.0.113.9", "203.0.113.9:8080", "[2001:db8::1]", "evil.example", "127.0.0.2"]
    {
        assert_eq!(status(&format!("http://{foreign}")), 403, "{foreign}");
        assert_eq!(status(&format!("https://{foreign}")), 403, "{foreign}");
    }
    assert_eq!(status("http://127.0.0.1"), 200);
    assert_eq!(status("http://localhost:3000"), 200);
    echoes(&mut client, 2);
    drop(client);
    rig.stop();
}

#[test]
fn two_tasks_of_one_name_are_given_to_nobody() {
    let rig = rig([rude("task-one", "stateless")]);
    let endpoint = rig.endpoint("rude");
    let [mut alice, mut bob] = [(); 2].map(|()| Modern::new(&endpoint));
    let begin = |client: &mut Modern, whose: &str| {
        let answer = client.call(1, "echo", json!({"text": whose})).answer();
        assert_eq!(answer["result"]["taskId"], "1", "{answer}");
    };
    let result = |client: &Modern| {
        let message = client.message(&json!(2), "tasks/get", json!({"taskId": "1"}));
        let request = client.request(&message).header("Mcp-Name", "1");
        request.header("Connection", "close").send(endpoint.address).unwrap()
    };
    begin(&mut alice, "of Alice");
    let alone = result(&alice);
    let of_alice = alone.answer();
    let text = of_alice.pointer("/result/result/content/0/text");
    assert_eq!(text, Some(&json!("of Alice")), "{of_alice}");
    begin(&mut bob, "of Bob");
    for client in [&alice, &bob] {
        let response = result(client);
        assert!(response.answer().get("error").is_some(), "{}", response.text());
        assert!(!response.text().contains("of "), "{}", response.text());
    }
    drop((alice, bob));
    rig.stop();
}
