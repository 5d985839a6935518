//! The end of the bridge: open calls finish, new ones are refused, a second signal means now.

use std::time::{Duration, Instant};

use pontoon_tests::client::{Connection, Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::{fixture, plan, rig, rude};

const SOON: Duration = Duration::from_secs(5);
/// A stop in which nothing answers any more: each wait of it has an end.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn open_calls_finish_before_the_bridge_ends() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut rig = rig([fixture("stateful")]);
        let session = Legacy::open(&rig.endpoint("fixture"));
        let modern = Modern::new(&rig.endpoint("fixture"));
        let open = [
            session.send_call(1, "wait", json!({"ms": 1500})),
            modern.send_call(1, "wait", json!({"ms": 1500})),
        ];
        rig.wait_for_gauge("running", 2);
        let begun = Instant::now();
        rig.signal(signal);
        for connection in open {
            let response = connection.begin().unwrap().finish().unwrap().0;
            assert_eq!(
                response.tool_text().as_deref(),
                Some("waited 1500 ms"),
                "{}",
                response.text()
            );
        }
        let status = rig.wait_for_exit(SOON);
        assert!(status.success(), "{status}\n{}", rig.stderr());
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        rig.expect_nothing_left();
    }
}

#[test]
fn a_draining_bridge_takes_no_new_call() {
    let mut rig = rig([fixture("stateful")]);
    let modern = Modern::new(&rig.endpoint("fixture"));
    let open = modern.send_call(1, "wait", json!({"ms": 3000}));
    rig.wait_for_gauge("running", 1);
    rig.signal(Signal::TERM);
    let refused = || {
        let Ok(mut connection) = Connection::open(rig.address()) else { return true };
        let params = json!({"name": "echo", "arguments": {"text": "x"}});
        let request: Request = modern.request(&modern.message(&json!(2), "tools/call", params));
        let answer = connection.send(&request.bytes()).and_then(|()| connection.begin());
        answer.map_or(true, |exchange| exchange.head.status == 503)
    };
    wait_until("new calls are refused", Duration::from_secs(2), refused);
    let response = open.begin().unwrap().finish().unwrap().0;
    assert_eq!(response.tool_text().as_deref(), Some("waited 3000 ms"), "{}", response.text());
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}

/// A proxy never repeats what it has sent, so its connections stay until it lets go of them.
#[test]
fn a_proxy_may_use_the_connection_it_has_once_more() {
    let plan = plan([fixture("stateless")]);
    let mut rig = plan.variable("MCPO_TRUSTED_PROXIES", "127.0.0.1").start();
    let modern = Modern::new(&rig.endpoint("fixture"));
    let params = json!({"name": "echo", "arguments": {"text": "x"}});
    let request: Request = modern.request(&modern.message(&json!(1), "tools/call", params));
    let mut connection = Connection::open(rig.address()).unwrap();
    connection.send(&request.bytes()).unwrap();
    let (first, kept) = connection.begin().unwrap().finish().unwrap();
    assert_eq!(first.tool_text().as_deref(), Some("x"), "{}", first.text());
    let mut connection = kept.expect("the connection stays");
    let begun = Instant::now();
    rig.signal(Signal::TERM);
    wait_until("no connection is taken", SOON, || Connection::open(rig.address()).is_err());
    connection.send(&request.bytes()).unwrap();
    let (last, kept) = connection.begin().unwrap().finish().unwrap();
    assert_eq!(last.tool_text().as_deref(), Some("x"), "{}", last.text());
    assert!(kept.is_none(), "the answer says that it was the last");
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    rig.expect_nothing_left();
}

#[test]
fn open_streams_do_not_hold_the_bridge() {
    let mut rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let stream = session.listen(None);
    assert_eq!(stream.head.status, 200);
    rig.signal(Signal::TERM);
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut rig = rig([rude("deaf", "stateful"), fixture("stateful")]);
    let mut deaf = Legacy::open(&rig.endpoint("rude"));
    assert_eq!(deaf.call(1, "echo", json!({"text": "x"})).status(), 200);
    let open = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    rig.signal(Signal::TERM);
    wait_until("it drains", SOON, || rig.try_health().is_err());
    let begun = Instant::now();
    rig.signal(Signal::TERM);
    rig.wait_for_exit(Duration::from_secs(2));
    assert!(begun.elapsed() < Duration::from_secs(2));
    rig.expect_nothing_left();
    drop(open);
}

#[test]
fn a_bridge_can_be_stopped_while_it_learns() {
    let mut slow = rude("hang", "stateful").that_may_fail();
    slow.args.extend(["--when".to_owned(), "start".to_owned()]);
    let mut rig = rig([slow]);
    // One for each era.
    rig.wait_for_children(2);
    rig.signal(Signal::TERM);
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}

/// Its answer has come, but another has its permit.
#[test]
fn a_call_that_may_not_go_on_yet_is_told_that_the_bridge_stops() {
    let plan = plan([fixture("stateless")]);
    let mut rig = plan.variable("MCPO_MAX_CONCURRENT", "1").start();
    let mut session = Legacy::open(&rig.endpoint("fixture"));
    let mut asking = session.send_call(1, "ask", json!({"question": "?"})).begin().unwrap();
    let question = asking.next_message().unwrap().unwrap();
    let other = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 2000}));
    rig.wait_for_gauge("permits_in_use", 1);
    let content = json!({"action": "accept", "content": {"answer": "green"}});
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": content});
    assert_eq!(session.post(&reply).unwrap().status(), 202);
    wait_until("it waits", SOON, || rig.metric("pontoon_waiting_calls") > 0.5);
    rig.signal(Signal::TERM);
    let answer = asking.next_message().unwrap().expect("an answer before the end");
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("the bridge is stopping"), "{answer}");
    drop(other.begin().unwrap().finish().unwrap());
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}

/// The process that starts servers for the bridge.
pub(crate) fn helper(rig: &Rig) -> u32 {
    let helper = rig.descendants().into_iter().find(|process| process.parent == rig.pid());
    helper.expect("a helper").pid
}

#[test]
fn a_bridge_whose_helper_was_killed_says_so_and_ends() {
    let mut rig = rig([fixture("stateful")]);
    let client = Modern::new(&rig.endpoint("fixture"));
    let open = client.send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    send_signal(helper(&rig), Signal::KILL).unwrap();
    let told = open.begin().unwrap().finish().unwrap().0;
    assert_eq!(told.status(), 502, "{}", told.text());
    let status = rig.wait_for_exit(LONG);
    assert_eq!(status.code(), Some(1), "a supervisor starts it again for that");
    let said = "the helper process that starts servers has ended, and all servers with it";
    assert!(rig.stderr().contains(said), "{}", rig.stderr());
    assert!(rig.log().lines().any(|line| line.contains("ERROR") && line.contains(said)));
    rig.expect_nothing_left();
}

/// A helper that is stopped can end nothing: the bridge ends without it, and the children with the helper.
#[test]
fn a_bridge_ends_in_time_though_its_helper_is_stopped() {
    let mut rig = rig([rude("deaf", "stateful"), fixture("stateful")]);
    for server in ["rude", "fixture"] {
        let mut client = Modern::new(&rig.endpoint(server));
        assert_eq!(client.call(1, "echo", json!({"text": "x"})).status(), 200);
    }
    let helper = helper(&rig);
    send_signal(helper, Signal::STOP).unwrap();
    rig.signal(Signal::TERM);
    // Children have 17 s, and nothing is waited for twice.
    let status = rig.wait_for_exit(Duration::from_secs(30));
    assert_eq!(status.code(), Some(1), "{}", rig.stderr());
    assert!(rig.stderr().contains("processes of servers did not end"), "{}", rig.stderr());
    send_signal(helper, Signal::CONT).unwrap();
    rig.expect_nothing_left();
}

#[test]
fn a_second_signal_ends_a_bridge_at_once_though_its_helper_is_stopped() {
    let mut rig = rig([rude("deaf", "stateful")]);
    let mut client = Modern::new(&rig.endpoint("rude"));
    assert_eq!(client.call(1, "echo", json!({"text": "x"})).status(), 200);
    drop(client);
    let helper = helper(&rig);
    send_signal(helper, Signal::STOP).unwrap();
    rig.signal(Signal::TERM);
    wait_until("it drains", SOON, || rig.try_health().is_err());
    rig.signal(Signal::INT);
    assert_eq!(rig.wait_for_exit(SOON).code(), Some(130), "{}", rig.stderr());
    send_signal(helper, Signal::CONT).unwrap();
    rig.expect_nothing_left();
}

#[test]
fn a_start_that_hangs_ends_with_the_time_of_its_call() {
    let rig = rig([fixture("stateless").with("timeout", 1)]);
    let helper = helper(&rig);
    send_signal(helper, Signal::STOP).unwrap();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.status(), 504, "{}", response.text());
    assert!(response.error_text().contains("its process was not ready"), "{}", response.text());
    drop(client);
    send_signal(helper, Signal::CONT).unwrap();
    rig.stop();
}
