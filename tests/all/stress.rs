//! 64 clients with the same ids, aborts and killed children: nothing wrong, nothing lost.
//!
//! Every call carries a token of its own; the answer to it has to bring that token back, or be an
//! honest error. `PONTOON_STRESS_STATEFUL` and `PONTOON_STRESS_STATELESS` say how many calls.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pontoon_tests::client::{Connection, Endpoint, Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Rig, holds_within, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fixture, plan};

const CLIENTS: usize = 64;
const SOON: Duration = Duration::from_secs(5);
/// One client in four is of the modern era.
const MODERN_EVERY: usize = 4;
/// One call in so many is given up by its client.
const ABORT_ONE_IN: u64 = 50;

#[test]
fn no_answer_is_wrong_or_lost_on_kept_children() {
    run("stateful", calls("PONTOON_STRESS_STATEFUL", 5_000), Duration::from_millis(200));
}

#[test]
fn no_answer_is_wrong_or_lost_with_a_child_per_call() {
    run("stateless", calls("PONTOON_STRESS_STATELESS", 300), Duration::from_millis(50));
}

pub(crate) fn calls(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(count) => count.parse().unwrap_or_else(|_| panic!("{variable}={count} is no number")),
        Err(_) => default,
    }
}

#[derive(Default)]
struct Tally {
    right: AtomicUsize,
    errors: AtomicUsize,
    aborted: AtomicUsize,
    kills: AtomicUsize,
}

fn run(mode: &str, calls: usize, pause: Duration) {
    // All clients come from one address.
    let server = match mode {
        "stateful" => fixture(mode).with("max_processes_per_client", CLIENTS),
        _ => fixture(mode),
    };
    let rig = plan([server])
        .variable("MCPO_MAX_CONCURRENT", "256")
        .variable("MCPO_LOG_LEVEL", "error")
        .start();
    let endpoint = rig.endpoint("fixture");
    let descriptors = rig.descriptors();
    let tally = Tally::default();
    let over = AtomicBool::new(false);
    let wrong: Vec<String> = thread::scope(|scope| {
        let killer = scope.spawn(|| kill_children(&rig, pause, &over, &tally.kills));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let share = calls / CLIENTS + usize::from(number < calls % CLIENTS);
                let (endpoint, tally) = (&endpoint, &tally);
                scope.spawn(move || client(number, share, endpoint, tally))
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        killer.join().expect("the killer only kills");
        ends.into_iter().map(Result::unwrap).filter_map(Result::err).collect()
    });
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let Tally { right, errors, aborted, kills } = &tally;
    let (right, errors, aborted, kills) =
        (count(right), count(errors), count(aborted), count(kills));
    println!("{mode}: {right} right, {errors} errors, {aborted} aborted, {kills} children killed");
    assert!(wrong.is_empty(), "{} clients:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(right + errors + aborted, calls, "calls are lost");
    // One killed child fails no more calls than it had; modern clients may share theirs.
    let shared = if mode == "stateful" { CLIENTS / MODERN_EVERY } else { 1 };
    assert!(errors <= kills * shared, "{errors} errors for {kills} killed children");
    assert!(calls < 1_000 || kills > 0, "no child was ever killed");
    assert!(calls < 1_000 || aborted > 0, "no call was ever given up");
    rig.expect_settled(0);
    // What modern clients share may still run; it has a few descriptors each.
    let few = descriptors + 4 * (1 + rig.children().len()) + 16;
    wait_until("descriptors are given back", SOON, || rig.descriptors() <= few);
    rig.stop();
}

/// Kills a child with -9 after each pause, never the same place in the list twice running.
fn kill_children(rig: &Rig, pause: Duration, over: &AtomicBool, kills: &AtomicUsize) {
    let mut random = Random(0x9E37_79B9);
    while !holds_within(pause, || over.load(Ordering::Relaxed)) {
        let children = rig.children();
        let Some(child) = random.pick(&children) else { continue };
        if send_signal(child.pid, Signal::KILL).is_ok() {
            kills.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn client(number: usize, calls: usize, endpoint: &Endpoint, tally: &Tally) -> Result<(), String> {
    let outcome = if number.is_multiple_of(MODERN_EVERY) {
        talk(number, calls, &mut Modern::new(endpoint), tally)
    } else {
        let mut session = Legacy::open(endpoint);
        let outcome = talk(number, calls, &mut session, tally);
        session.end();
        outcome
    };
    outcome.map_err(|what| format!("client {number}: {what}"))
}

fn talk(number: usize, calls: usize, it: &mut impl Speaker, tally: &Tally) -> Result<(), String> {
    let mut random = Random(number as u64 + 1);
    for id in 1..=calls {
        let token = format!("{number}-{id}-{:x}", random.next());
        let params = json!({"name": "token", "arguments": {"value": token}});
        let message = it.message(&json!(id), "tools/call", params);
        if random.next().is_multiple_of(ABORT_ONE_IN) {
            abort(it, &message).map_err(|error| format!("call {id}: {error}"))?;
            tally.aborted.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let response = it.post(&message).map_err(|error| format!("call {id} is lost: {error}"))?;
        match judge(&response, id, &token)? {
            Verdict::Right => tally.right.fetch_add(1, Ordering::Relaxed),
            Verdict::Error => tally.errors.fetch_add(1, Ordering::Relaxed),
        };
        let quiet = it.kept().as_mut().is_none_or(Connection::is_quiet);
        if !quiet {
            return Err(format!("call {id}: more came than one answer"));
        }
    }
    Ok(())
}

/// Sends a call and goes away before its answer.
fn abort(it: &mut impl Speaker, message: &Value) -> io::Result<()> {
    *it.kept() = None;
    let mut connection = Connection::open(it.endpoint().address)?;
    connection.send(&it.request(message).bytes())
}

enum Verdict {
    Right,
    Error,
}

fn judge(response: &Response, id: usize, token: &str) -> Result<Verdict, String> {
    let messages = response.messages().map_err(|error| format!("call {id}: {error}"))?;
    let [answer] = &messages[..] else {
        return Err(format!("call {id}: {} answers: {}", messages.len(), response.text()));
    };
    if answer["id"] != id {
        return Err(format!("call {id}: the answer is to {}: {answer}", answer["id"]));
    }
    if let Some(error) = answer.get("error") {
        let says = error["message"].as_str().is_some_and(|text| !text.is_empty());
        return match error["code"].as_i64() {
            Some(_) if says && answer.get("result").is_none() => Ok(Verdict::Error),
            _ => Err(format!("call {id}: no honest error: {answer}")),
        };
    }
    let text = answer.pointer("/result/content/0/text").and_then(Value::as_str).unwrap_or_default();
    if answer["result"]["isError"] == true && text.contains("This call was not made") {
        return Ok(Verdict::Error);
    }
    match text.split_once(' ') {
        Some((said, _)) if said == token => Ok(Verdict::Right),
        _ => Err(format!("call {id}: wanted {token}, got {answer}")),
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        from.get(usize::try_from(self.next() % count).ok()?)
    }
}
