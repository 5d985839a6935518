//! Fairness: one who wants everything leaves enough for the others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pontoon_tests::client::{Client, ERAS, Era, Legacy, Response, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use crate::limits::{metric, refused};
use crate::{fixture, plan};

const SOON: Duration = Duration::from_secs(10);
const PERMITS: usize = 8;
/// Three quarters of them, which is what one may have beside others.
const SHARE: u64 = 6;
const POLITE: usize = 10;
/// How often each polite one calls.
const CALLS: usize = 4;

/// A bridge behind a front end that says who its users are, with a second's wait or none.
fn bridge(permits: usize, queue_wait: &str) -> Rig {
    plan([fixture("stateless")])
        .variable("MCPO_MAX_CONCURRENT", &permits.to_string())
        .variable("MCPO_QUEUE_WAIT", queue_wait)
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
        .start()
}

/// How somebody is known.
#[derive(Clone, Copy)]
enum Known {
    User,
    Address,
}

fn client(rig: &Rig, era: Era, known: Known, number: usize) -> Client {
    let client = Client::new(era, &rig.endpoint("fixture"));
    match known {
        Known::User => client.with_header("X-OpenWebUI-User-Id", &format!("user-{number}")),
        Known::Address => client.with_header("X-Forwarded-For", &format!("198.51.100.{number}")),
    }
}

/// Keeps as many calls open as can be had, until `over`; each ends after a second and is followed
/// by another.
fn be_greedy(rig: &Rig, known: Known, over: &AtomicBool, served: &AtomicUsize) {
    thread::scope(|scope| {
        for _ in 0..2 * PERMITS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut client = client(rig, Era::Modern, known, 1);
                    if client.call(1, "wait", json!({"ms": 300})).status() == 200 {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// One after the other, so that one permit is enough.
fn be_polite(rig: &Rig, known: Known, number: usize) -> Vec<Response> {
    let mut client = client(rig, ERAS[number % 2], known, number);
    let answers = (0..CALLS)
        .map(|id| client.call(id, "echo", json!({"text": format!("{number} {id}")})))
        .collect();
    client.end();
    answers
}

/// With one greedy client, each call of each polite one is served, `together` or one by one.
fn check(queue_wait: &str, known: Known, together: bool) {
    let rig = bridge(PERMITS, queue_wait);
    // As soon as a second one was seen, nobody may have all.
    be_polite(&rig, known, 2);
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let answers: Vec<(usize, Vec<Response>)> = thread::scope(|scope| {
        scope.spawn(|| be_greedy(&rig, known, &over, &served));
        let is_greedy = pontoon_tests::rig::holds_within(SOON, || {
            metric(&rig, IN_USE) == SHARE && served.load(Ordering::Relaxed) > 0
        });
        let numbers = 2..2 + POLITE;
        let answers = match together {
            true => {
                let polite = numbers.map(|number| {
                    let rig = &rig;
                    (number, scope.spawn(move || be_polite(rig, known, number)))
                });
                let polite: Vec<_> = polite.collect();
                polite.into_iter().map(|(number, it)| (number, it.join().unwrap())).collect()
            }
            false => numbers.map(|number| (number, be_polite(&rig, known, number))).collect(),
        };
        over.store(true, Ordering::Relaxed);
        assert!(is_greedy, "the greedy one never had its share");
        answers
    });
    for (number, answers) in answers {
        for (id, response) in answers.iter().enumerate() {
            let expected = format!("{number} {id}");
            assert_eq!(response.tool_text(), Some(expected), "{}", response.text());
        }
    }
    if queue_wait == "0" {
        assert!(refused(&rig, "share") > 0, "the greedy one was never refused");
    }
    wait_until("all permits are back", SOON, || metric(&rig, IN_USE) == 0);
    rig.stop();
}

/// A legacy client of this user, who can be asked.
fn user(rig: &Rig, name: &str) -> Legacy {
    let (able, who) = (json!({"elicitation": {}}), [("X-OpenWebUI-User-Id", name)]);
    Legacy::open_able_with(&rig.endpoint("fixture"), &able, &who)
}

#[test]
fn a_call_that_goes_on_over_the_share_of_its_client_keeps_nobody_from_what_is_free() {
    let rig = bridge(4, "0");
    let (alice, mut bob) = (user(&rig, "alice"), user(&rig, "bob"));
    let mut asking = alice.send_call(1, "ask", json!({"question": "Well?"})).begin().unwrap();
    let question = asking.next_message().unwrap().unwrap();
    wait_until("a call that waits for a person has no permit", SOON, || metric(&rig, IN_USE) == 0);
    let open: Vec<_> =
        (2..5).map(|id| alice.send_call(id, "wait", json!({"ms": 60_000}))).collect();
    wait_until("alice has her share", SOON, || metric(&rig, IN_USE) == 3);
    let answer = json!({"action": "accept", "content": {"answer": "yes"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    assert_eq!(alice.request(&answer).send(rig.address()).unwrap().status(), 202);
    wait_until("her first call waits for its turn", SOON, || {
        metric(&rig, "pontoon_waiting_calls") == 1
    });
    let response = bob.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    drop((open, asking));
    alice.end();
    bob.end();
    rig.stop();
}

const IN_USE: &str = r#"pontoon_permits_in_use{limit="concurrent"}"#;

#[test]
fn a_greedy_user_shuts_nobody_out() {
    check("0", Known::User, false);
}

#[test]
fn a_greedy_address_shuts_nobody_out() {
    check("0", Known::Address, false);
}

#[test]
fn ten_polite_users_at_once_wait_for_their_turn_and_get_it() {
    check("20", Known::User, true);
}

#[test]
fn ten_polite_addresses_at_once_wait_for_their_turn_and_get_it() {
    check("20", Known::Address, true);
}
