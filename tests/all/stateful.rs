//! Kept processes: whose each is, how it is found again, how many there may be, and when one goes.

mod company;
mod loss;
mod shares;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Connection, Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::processes;
use pontoon_tests::rig::{Plan, Rig, Server, holds_within, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::{fixture, plan};

type Headers<'a> = &'a [(&'a str, &'a str)];

const USER: &str = "X-OpenWebUI-User-Id";
const CHAT: &str = "X-OpenWebUI-Chat-Id";
const FROM: &str = "X-Forwarded-For";
const NAMED: &str = "X-Session-Id";
const ALICE: (&str, &str) = ("Authorization", "Bearer the-key-of-alice");
const BOB: (&str, &str) = ("Authorization", "Bearer the-key-of-bob");

const SOON: Duration = Duration::from_secs(5);
/// The whole stop ladder: two seconds after the end of the input, ten after SIGTERM.
const LADDER: Duration = Duration::from_secs(16);

/// A bridge whose clients are what the proxy on this machine says.
fn behind_proxy(server: Server) -> Plan {
    plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
}

fn with_keys(server: Server) -> Plan {
    plan([server]).variable("MCPO_API_KEYS", "alice=the-key-of-alice,bob=the-key-of-bob")
}

fn modern(rig: &Rig, headers: Headers<'_>) -> Modern {
    Modern::with(&rig.endpoint("fixture"), headers)
}

fn legacy(rig: &Rig, headers: Headers<'_>) -> Legacy {
    Legacy::open_with(&rig.endpoint("fixture"), headers)
}

/// The text that a tool without arguments gives.
fn tell(client: &mut impl Speaker, tool: &str) -> String {
    let response = client.call(1, tool, json!({}));
    response.tool_text().unwrap_or_else(|| panic!("{tool}: {}", response.text()))
}

/// The process that serves a modern request with these headers.
fn pid(rig: &Rig, headers: Headers<'_>) -> u32 {
    tell(&mut modern(rig, headers), "pid").parse().unwrap()
}

/// Each of these keeps a process of its own, and finds it again.
fn check_apart(rig: &Rig, people: &[Headers<'_>]) {
    let first: Vec<_> = people.iter().map(|person| pid(rig, person)).collect();
    let again: Vec<_> = people.iter().map(|person| pid(rig, person)).collect();
    assert_eq!(first, again, "each finds its own again");
    let different: HashSet<_> = first.iter().collect();
    assert_eq!(different.len(), people.len(), "{people:?}: {first:?}");
}

/// Begins a call that takes this long, and waits until `calls` of them run.
fn busy(rig: &Rig, client: &impl Speaker, ms: u32, calls: u64) -> Connection {
    let connection = client.send_call(7, "wait", json!({"ms": ms}));
    rig.wait_for_gauge("running", calls);
    connection
}

fn finish(connection: Connection) -> Response {
    connection.begin().unwrap().finish().unwrap().0
}

fn is_gone(pid: u32) -> bool {
    processes::read(pid).is_none()
}

#[test]
fn a_chat_keeps_its_process_over_its_sessions_and_their_ends() {
    let rig = behind_proxy(fixture("stateful")).start();
    let mut pids = HashSet::new();
    for (user, chat) in [("ada", "c1"), ("ada", "c2"), ("ben", "c1")] {
        let mut own = HashSet::new();
        for turn in 1..=3 {
            // Open WebUI opens and deletes a session for every turn of a chat.
            let mut session = legacy(&rig, &[(USER, user), (CHAT, chat)]);
            assert_eq!(tell(&mut session, "tally"), turn.to_string(), "{user} {chat}");
            own.insert(tell(&mut session, "pid"));
            session.end();
        }
        assert_eq!(own.len(), 1, "{user} {chat}");
        assert!(pids.is_disjoint(&own), "another chat has the same process");
        pids.extend(own);
    }
    assert_eq!(rig.children().len(), 3);
    rig.stop();
}

#[test]
fn a_session_without_a_chat_takes_its_process_with_it() {
    let rig = behind_proxy(fixture("stateful")).start();
    // The session is the better key than the user alone.
    let (mut one, mut other) = (legacy(&rig, &[(USER, "ada")]), legacy(&rig, &[(USER, "ada")]));
    assert_ne!(tell(&mut one, "pid"), tell(&mut other, "pid"));
    one.end();
    rig.wait_for_children(1);
    assert_eq!(tell(&mut other, "tally"), "1");
    other.end();
    rig.wait_for_children(0);
    rig.stop();
}

#[test]
fn a_name_for_a_conversation_belongs_to_whoever_gave_it() {
    let rig = with_keys(fixture("stateful")).start();
    check_apart(
        &rig,
        &[
            &[ALICE, (NAMED, "slides")],
            &[ALICE, (NAMED, "tables")],
            &[BOB, (NAMED, "slides")],
            &[ALICE],
            &[BOB],
        ],
    );
    rig.stop();
}

#[test]
fn a_name_given_at_one_address_says_nothing_at_another() {
    let rig = behind_proxy(fixture("stateful")).start();
    check_apart(
        &rig,
        &[
            &[(FROM, "198.51.100.1"), (NAMED, "slides")],
            &[(FROM, "198.51.100.2"), (NAMED, "slides")],
            &[(FROM, "198.51.100.1"), (NAMED, "tables")],
            &[(FROM, "198.51.100.1")],
            &[(FROM, "198.51.100.2")],
        ],
    );
    rig.stop();
}

#[test]
fn by_address_alone_nothing_else_counts() {
    let server = fixture("stateful").with("session_key", "ip");
    let rig = behind_proxy(server).start();
    let plain = pid(&rig, &[(FROM, "198.51.100.1")]);
    for person in [
        &[(USER, "ada"), (CHAT, "c1")][..],
        &[(USER, "ben"), (CHAT, "c2")],
        &[(NAMED, "slides")],
        &[("Authorization", "Bearer whatever")],
    ] {
        let headers: Vec<_> = person.iter().copied().chain([(FROM, "198.51.100.1")]).collect();
        assert_eq!(pid(&rig, &headers), plain, "{person:?}");
    }
    assert_ne!(pid(&rig, &[(FROM, "198.51.100.2"), (USER, "ada"), (CHAT, "c1")]), plain);
    // X-Real-IP counts where X-Forwarded-For does not stand.
    assert_eq!(pid(&rig, &[("X-Real-IP", "198.51.100.1")]), plain);
    // A legacy client has a session, which does not count either, and a process of its era.
    let mut one = legacy(&rig, &[(FROM, "198.51.100.1")]);
    let mut other = legacy(&rig, &[(FROM, "198.51.100.1")]);
    assert_eq!(tell(&mut one, "pid"), tell(&mut other, "pid"));
    one.end();
    assert_eq!(tell(&mut other, "tally"), "1", "an end of a session is not the address's");
    other.end();
    rig.stop();
}

#[test]
fn who_cannot_be_recognised_shares_nothing_and_leaves_nothing() {
    let rig = behind_proxy(fixture("stateful")).start();
    let mut pids = HashSet::new();
    for unknown in [&[][..], &[], &[(FROM, "not an address")], &[(FROM, "unknown")]] {
        assert!(pids.insert(pid(&rig, unknown)), "{unknown:?} shares a process");
    }
    rig.wait_for_children(0);
    assert_eq!(rig.health()["stateful_processes"]["used"], 0);
    rig.stop();
}

#[test]
fn idle_processes_are_looked_for_as_often_as_said() {
    let rig = behind_proxy(fixture("stateful"))
        .variable("MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT", "1")
        .variable("MCPO_STATEFUL_CLEANUP_INTERVAL", "600")
        .start();
    let kept = pid(&rig, &[(USER, "ada"), (CHAT, "c1")]);
    assert!(!holds_within(Duration::from_secs(3), || is_gone(kept)), "nobody was to look yet");
    assert_eq!(pid(&rig, &[(USER, "ada"), (CHAT, "c1")]), kept);
    rig.stop();
}

#[test]
fn a_chat_too_many_costs_its_user_the_oldest_idle_one_and_nobody_else() {
    let server = fixture("stateful").with("max_processes_per_client", 2);
    let rig = behind_proxy(server).start();
    let chat = |user, chat| pid(&rig, &[(USER, user), (CHAT, chat)]);
    let bens = chat("ben", "c1");
    let (first, second) = (chat("ada", "c1"), chat("ada", "c2"));
    assert_eq!(chat("ada", "c1"), first, "used again, so the second is the oldest now");
    let third = chat("ada", "c3");
    wait_until("the second is let go", SOON, || is_gone(second));
    assert_eq!((chat("ada", "c1"), chat("ada", "c3")), (first, third));
    assert_eq!(chat("ben", "c1"), bens);
    assert_eq!(rig.children().len(), 3);
    rig.stop();
}

#[test]
fn a_client_whose_chats_are_all_at_work_is_told_to_wait() {
    let server = fixture("stateful").with("max_processes_per_client", 1);
    let rig = behind_proxy(server).start();
    let ada = modern(&rig, &[(USER, "ada"), (CHAT, "c1")]);
    let first = busy(&rig, &ada, 60_000, 1);
    let refused = modern(&rig, &[(USER, "ada"), (CHAT, "c2")]).call(1, "pid", json!({}));
    assert_eq!((refused.status(), refused.head.header("retry-after")), (429, Some("5")));
    let told = "busy: all 1 conversations of this client with the server `fixture` are at work \
                (max_processes_per_client); try again in 5 s";
    assert_eq!(refused.error_text(), told);
    // One address with many conversations is a front end that does not say who its users are.
    let anonymous = modern(&rig, &[(FROM, "198.51.100.1"), (NAMED, "a")]);
    let second = busy(&rig, &anonymous, 60_000, 2);
    let mut session = legacy(&rig, &[(FROM, "198.51.100.1")]);
    let refused = session.call(1, "pid", json!({}));
    assert_eq!(refused.answer().pointer("/error/data/httpStatus"), Some(&json!(429)));
    let told = refused.error_text();
    assert!(told.contains("ENABLE_FORWARD_USER_INFO_HEADERS"), "{told}");
    assert!(told.contains("MCPO_TRUSTED_PROXIES"), "{told}");
    drop((first, second, ada, anonymous));
    rig.wait_for_gauge("running", 0);
    assert_eq!(tell(&mut session, "tally"), "1");
    session.end();
    rig.stop();
}

#[test]
fn an_address_gets_another_process_only_when_its_are_busy_and_so_many() {
    let server = fixture("stateful").with("max_processes_per_ip", 3);
    let rig = behind_proxy(server).start();
    let person: Headers<'_> = &[(FROM, "198.51.100.1")];
    let first = pid(&rig, person);
    for _ in 0..3 {
        assert_eq!(pid(&rig, person), first, "an idle one is used again");
    }
    let client = modern(&rig, person);
    let calls: Vec<_> = (1..=4).map(|running| busy(&rig, &client, 60_000, running)).collect();
    rig.wait_for_children(3);
    let shared: HashSet<_> = (0..4).map(|_| pid(&rig, person)).collect();
    assert_eq!(rig.children().len(), 3, "no more than three");
    let children: HashSet<_> = rig.children().iter().map(|child| child.pid).collect();
    assert!(shared.is_subset(&children), "{shared:?} {children:?}");
    // Another address has its own, and a conversation with a name has one of its own.
    assert!(!children.contains(&pid(&rig, &[(FROM, "198.51.100.2")])));
    assert!(!children.contains(&pid(&rig, &[(FROM, "198.51.100.1"), (NAMED, "a")])));
    drop((calls, client));
    rig.wait_for_gauge("running", 0);
    rig.stop();
}

#[test]
fn in_all_there_are_as_many_as_said() {
    let rig = behind_proxy(fixture("stateful"))
        .variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "1")
        .start();
    let (ada, ben): (Headers<'_>, Headers<'_>) =
        (&[(USER, "ada"), (CHAT, "c1")], &[(USER, "ben"), (CHAT, "c1")]);
    let adas = pid(&rig, ada);
    let told = "busy: all 1 processes that may be kept for conversations are in use \
                (MCPO_STATEFUL_MAX_TOTAL_PROCESSES); try again in 60 s";
    let refused = modern(&rig, ben).call(1, "pid", json!({}));
    assert_eq!((refused.status(), refused.head.header("retry-after")), (429, Some("60")));
    assert_eq!(refused.error_text(), told);
    let mut session = legacy(&rig, ben);
    let refused = session.call(1, "pid", json!({}));
    assert_eq!((refused.status(), refused.error_text().as_str()), (200, told));
    let data = json!({"httpStatus": 429, "retryAfter": 60});
    assert_eq!(refused.answer().pointer("/error/data"), Some(&data));
    assert_eq!(pid(&rig, ada), adas, "who has one keeps it");
    // Another chat of the same user takes the place of the first.
    assert_ne!(pid(&rig, &[(USER, "ada"), (CHAT, "c2")]), adas);
    wait_until("the first is let go", SOON, || is_gone(adas));
    session.end();
    rig.stop();
}

#[test]
fn a_dead_process_takes_no_place() {
    let rig = behind_proxy(fixture("stateful"))
        .variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "1")
        .start();
    let (ada, ben): (Headers<'_>, Headers<'_>) =
        (&[(USER, "ada"), (CHAT, "c1")], &[(USER, "ben"), (CHAT, "c1")]);
    let adas = pid(&rig, ada);
    send_signal(adas, Signal::KILL).unwrap();
    // The bridge hears of it a moment after the system knows.
    let mut client = modern(&rig, ben);
    let mut served = || client.call(1, "pid", json!({})).status() == 200;
    wait_until("the place is free", Duration::from_secs(2), &mut served);
    // And still its client hears of it.
    let told = tell(&mut modern(&rig, ada), "pid");
    assert!(told.contains("is lost. This call was not made"), "{told}");
    drop(client);
    rig.stop();
}

#[test]
fn where_state_is_switched_off_every_call_has_its_process() {
    let rig = behind_proxy(fixture("stateful")).variable("MCPO_STATEFUL_ENABLED", "false").start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    assert_ne!(pid(&rig, person), pid(&rig, person));
    assert_eq!(rig.health()["servers"]["fixture"]["mode"], "stateless");
    let said = rig.stderr();
    assert!(said.contains("MCPO_STATEFUL_ENABLED"), "no warning: {said}");
    rig.wait_for_children(0);
    rig.stop();
}

#[test]
fn a_lost_process_is_told_once_and_one_that_left_in_order_is_not() {
    let rig = behind_proxy(fixture("stateful")).start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    let mut client = modern(&rig, person);
    assert_eq!(tell(&mut client, "tally"), "1");
    let killed = pid(&rig, person);
    send_signal(killed, Signal::KILL).unwrap();
    wait_until("it is gone", SOON, || is_gone(killed));
    let told = client.call(1, "tally", json!({}));
    assert_eq!((told.status(), &told.answer()["result"]["isError"]), (200, &json!(true)));
    let text = told.tool_text().unwrap();
    assert!(text.contains("has ended (it was killed by signal 9"), "{text}");
    assert!(text.contains("is lost. This call was not made. Call again"), "{text}");
    assert_eq!(tell(&mut client, "tally"), "1", "the call was not made, and the next is");

    let left = pid(&rig, person);
    assert_eq!(tell(&mut client, "leave"), "goodbye");
    wait_until("it is gone", SOON, || is_gone(left));
    assert_eq!(tell(&mut client, "tally"), "1", "a new one, without a word");
    drop(client);
    rig.stop();
}

#[test]
fn calls_of_one_chat_run_at_once_up_to_the_limit() {
    let server = fixture("stateful").with("max_in_flight", 2);
    let rig = behind_proxy(server).start();
    let person: Headers<'_> = &[(USER, "ada"), (CHAT, "c1")];
    let mut client = modern(&rig, person);
    tell(&mut client, "pid");
    let begun = Instant::now();
    let calls: Vec<_> = (1..=2).map(|running| busy(&rig, &client, 1500, running)).collect();
    assert_eq!(rig.children().len(), 1);
    let told = "busy: 2 calls are under way in this conversation with the server `fixture` \
                (max_in_flight); try again in 5 s";
    let refused = client.call(1, "pid", json!({}));
    assert_eq!((refused.status(), refused.head.header("retry-after")), (429, Some("5")));
    assert_eq!(refused.error_text(), told);
    for call in calls {
        assert_eq!(finish(call).tool_text().as_deref(), Some("waited 1500 ms"));
    }
    assert!(begun.elapsed() < Duration::from_millis(2900), "one after the other");
    assert_eq!(tell(&mut client, "tally"), "1");
    drop(client);
    rig.stop();
}

#[test]
fn a_session_is_of_no_use_with_another_key() {
    let rig = with_keys(fixture("stateful")).start();
    let mut session = legacy(&rig, &[ALICE]);
    assert_eq!(tell(&mut session, "tally"), "1");
    let message = session.message(&json!(1), "tools/call", json!({"name": "tally"}));
    let own = session.request(&message);
    let stolen = own.with(BOB.0, BOB.1).send(rig.address()).unwrap();
    assert_eq!(stolen.status(), 404, "{}", stolen.text());
    for method in ["GET", "DELETE"] {
        let stolen = session.bare(method).with(BOB.0, BOB.1).send(rig.address()).unwrap();
        assert_eq!(stolen.status(), 404, "{method}: {}", stolen.text());
    }
    assert_eq!(tell(&mut session, "tally"), "2", "nobody but its owner used it");
    session.end();
    rig.stop();
}
