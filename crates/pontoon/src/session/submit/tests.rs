//! Calls on their way through a whole bridge in memory: their turns, their places and their time.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::app::test_bridge::{TestBridge, TestClient, TestConnection, ToolServer};
use crate::back::pair::STATEFUL;
use crate::config::Mode;
use crate::config::Warm;

const SECOND: Duration = Duration::from_secs(1);

/// A bridge for one call at a time, whose next waits so long for its turn.
fn with_one_slot(server: &ToolServer, queue_wait: Duration, timeout: Duration) -> TestBridge {
    TestBridge::start(server.servers(), |settings, server| {
        (settings.max_concurrent, settings.queue_wait) = (1, queue_wait);
        server.timeout = timeout;
    })
}

async fn until_waiting(bridge: &TestBridge, count: usize) {
    while bridge.site.sessions.admission.waiting() != count {
        tokio::task::yield_now().await;
    }
}

/// Holds the only slot for so long.
async fn hold(client: &TestClient<'_>, server: &ToolServer, seconds: u32) -> TestConnection {
    let heard = server.work_heard().len();
    let connection = client.send_call(100, "wait", &format!("{{\"seconds\":{seconds}}}")).await;
    while server.work_heard().len() == heard {
        tokio::task::yield_now().await;
    }
    connection
}

#[tokio::test(start_paused = true)]
async fn a_call_too_many_is_refused_at_once_where_none_may_wait() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = with_one_slot(&server, Duration::ZERO, 60 * SECOND);
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 10).await;
        let began = Instant::now();
        let refused = client.call(2, "echo", "{}").await;
        assert_eq!(refused.header("retry-after"), Some("5"));
        let (status, text) = refused.refusal().await;
        assert_eq!((status, began.elapsed()), (429, Duration::ZERO));
        assert!(text.starts_with("busy: all 1 calls that may run at once"), "{text}");
        assert!(holding.begin().await.answer().await.contains("\"id\":100"));
    }
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"concurrent\"}").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_turn_and_is_served_in_it() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = with_one_slot(&server, 20 * SECOND, 60 * SECOND);
    for client in TestClient::both(&bridge).await {
        let first = hold(&client, &server, 10).await;
        let began = Instant::now();
        let mut next = Vec::new();
        for id in 1..4 {
            next.push(client.send_call(id, "wait", "{\"seconds\":1}").await);
            until_waiting(&bridge, id as usize).await;
        }
        assert!(first.begin().await.answer().await.contains("\"id\":100"));
        for (id, waiting) in (1..4).zip(next) {
            let answer = waiting.begin().await.answer().await;
            assert!(answer.contains(&format!("\"id\":{id},\"result\"")), "{answer}");
            assert_eq!(began.elapsed().as_secs(), 10 + id, "one after the other");
        }
    }
    until_waiting(&bridge, 0).await;
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"concurrent\"}").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_does_not_come_is_refused_when_its_wait_is_over() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = with_one_slot(&server, 4 * SECOND, 60 * SECOND);
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 50).await;
        let began = Instant::now();
        let refused = client.call(2, "echo", "{}").await;
        assert_eq!(refused.header("retry-after"), Some("5"));
        let (status, text) = refused.refusal().await;
        assert_eq!((status, began.elapsed().as_secs()), (429, 4));
        assert!(text.starts_with("busy: all 1 calls that may run at once"), "{text}");
        until_waiting(&bridge, 0).await;
        client.give_up(100, holding).await;
        bridge.until_quiet().await;
    }
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"concurrent\"}").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_while_it_waits_starts_nothing() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = with_one_slot(&server, 60 * SECOND, 60 * SECOND);
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 50).await;
        let started = bridge.servers.started();
        let waiting = client.send_call(2, "echo", "{}").await;
        until_waiting(&bridge, 1).await;
        client.give_up(2, waiting).await;
        until_waiting(&bridge, 0).await;
        client.give_up(100, holding).await;
        bridge.until_quiet().await;
        assert_eq!(bridge.servers.started(), started, "for nobody");
        assert!(client.call(3, "echo", "{}").await.answer().await.contains("\"by\""));
    }
}

/// The time of a call is over, and it hears what took it. Nothing of it is left.
async fn check_over(response: crate::app::test_bridge::TestResponse, began: Instant, says: &str) {
    let (status, text) = response.refusal().await;
    assert_eq!((status, began.elapsed().as_secs()), (504, 4), "{text}");
    let expected =
        format!("the server `demo` did not answer within 4 s, so this call was given up{says}");
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_deadline_whatever_else_its_server_has() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |_, server| {
        server.timeout = 60 * SECOND;
        server.tool_timeouts.push(("never".to_owned(), 4 * SECOND));
    });
    for client in TestClient::both(&bridge).await {
        let began = Instant::now();
        check_over(client.call(1, "never", "{}").await, began, "").await;
        server.until_heard(method::CANCELLED).await;
        let other = client.call(2, "wait", "{\"seconds\":5}").await;
        assert!(other.answer().await.contains("\"by\""), "another tool has another time");
        bridge.until_quiet().await;
    }
    let bridge = TestBridge::start(server.servers(), |_, server| server.timeout = 4 * SECOND);
    for client in TestClient::both(&bridge).await {
        let began = Instant::now();
        check_over(client.call(1, "never", "{}").await, began, "").await;
        let began = Instant::now();
        check_over(client.call(2, "wait", "{\"seconds\":5}").await, began, "").await;
        bridge.until_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_slot_counts_to_the_time_of_a_call() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = with_one_slot(&server, 600 * SECOND, 4 * SECOND);
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 3).await;
        let began = Instant::now();
        let response = client.call(2, "wait", "{\"seconds\":3}").await;
        check_over(response, began, ": the call had waited 3.0 s for a free slot").await;
        assert!(holding.begin().await.answer().await.contains("\"by\""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gets_no_slot_ends_at_its_deadline_and_the_one_that_has_it_goes_on() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        (settings.max_concurrent, settings.queue_wait) = (1, 600 * SECOND);
        server.timeout = 4 * SECOND;
        server.tool_timeouts.push(("wait".to_owned(), 60 * SECOND));
    });
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 10).await;
        let began = Instant::now();
        let response = client.call(2, "echo", "{}").await;
        check_over(response, began, ": the call was still waiting for a free slot").await;
        until_waiting(&bridge, 0).await;
        assert_eq!(bridge.site.sessions.admission.usage().0.used, 1);
        assert!(holding.begin().await.answer().await.contains("\"by\""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gets_no_place_on_its_process_ends_at_its_deadline() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        settings.queue_wait = 600 * SECOND;
        (server.mode, server.max_in_flight) = (STATEFUL, 1);
        server.timeout = 4 * SECOND;
        server.tool_timeouts.push(("wait".to_owned(), 60 * SECOND));
    });
    for client in TestClient::both(&bridge).await {
        let holding = hold(&client, &server, 10).await;
        let began = Instant::now();
        let response = client.call(2, "echo", "{}").await;
        let says = ": the call was still waiting for others of its conversation (max_in_flight)";
        check_over(response, began, says).await;
        assert!(holding.begin().await.answer().await.contains("\"by\""));
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_process_counts_to_the_time_of_its_call() {
    for mode in [Mode::Stateless, STATEFUL] {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| {
            (server.mode, server.timeout) = (mode, 4 * SECOND);
        });
        bridge.until_known().await;
        for client in TestClient::both(&bridge).await {
            server.slow_starts(3 * SECOND);
            let began = Instant::now();
            let response = client.call(1, "wait", "{\"seconds\":3}").await;
            check_over(response, began, ": its process was ready after 3.0 s").await;
            server.slow_starts(60 * SECOND);
            if mode == Mode::Stateless {
                let began = Instant::now();
                let response = client.call(2, "echo", "{}").await;
                check_over(response, began, ": its process was not ready for it").await;
            }
            server.slow_starts(Duration::ZERO);
            assert!(client.call(3, "echo", "{}").await.answer().await.contains("\"by\""));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_server_that_is_not_known_waits_no_longer_than_its_time() {
    let server = ToolServer::new(Era::Legacy);
    server.slow_starts(600 * SECOND);
    let bridge = TestBridge::start(server.servers(), |_, server| server.timeout = 4 * SECOND);
    let began = Instant::now();
    let response = TestClient::modern(&bridge).call(1, "echo", "{}").await;
    check_over(response, began, ": it is being started for the first time").await;
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_cancels_its_call_and_no_other() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let (ada, ben) = (TestClient::open(&bridge).await, TestClient::open(&bridge).await);
    let ours = ada.send_call(1, "wait", "{\"seconds\":9}").await;
    let theirs = ben.send_call(1, "wait", "{\"seconds\":9}").await;
    while server.work_heard().len() < 2 {
        tokio::task::yield_now().await;
    }
    let cancelled =
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}";
    ada.say(cancelled).await;
    let mut ours = ours.begin().await;
    assert_eq!(
        (ours.is_stream(), ours.data().await),
        (true, None),
        "no answer, as the protocol wants"
    );
    assert!(theirs.begin().await.answer().await.contains("\"id\":1,\"result\""));
}

#[tokio::test(start_paused = true)]
async fn no_more_is_started_while_too_many_processes_will_not_end() {
    let server = ToolServer::new(Era::Legacy).deaf();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let client = TestClient::modern(&bridge);
    let mut made = 0;
    let refused = loop {
        let response = client.call(made, "echo", "{}").await;
        if response.status != 200 {
            break response;
        }
        made += 1;
    };
    assert!(
        (60..=64).contains(&made),
        "{made} calls, and those who learnt are on their way out, too"
    );
    assert_eq!(refused.header("retry-after"), Some("10"));
    let (status, text) = refused.refusal().await;
    assert_eq!(status, 429);
    assert!(text.starts_with("64 processes of the server `demo` will not end"), "{text}");
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"leaving\"}").await, 1);
    // They are killed in the end, and then there is room.
    bridge.until_quiet().await;
    assert!(client.call(99, "echo", "{}").await.answer().await.contains("\"by\""));
}

#[tokio::test(start_paused = true)]
async fn an_idle_process_that_does_not_end_with_its_input_is_made_to() {
    let server = ToolServer::new(Era::Legacy).deaf();
    let bridge = TestBridge::start(server.servers(), |_, server| server.mode = STATEFUL);
    let [modern, legacy] = TestClient::both(&bridge).await;
    for client in [&modern, &legacy] {
        assert!(client.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
    }
    bridge.servers.until_living(2).await;
    let began = Instant::now();
    bridge.until_quiet().await;
    assert!(began.elapsed() >= 1800 * SECOND, "it was idle for {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_a_start_where_a_process_is_ready() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |_, server| server.warm = Warm::Fixed(2));
    server.slow_starts(3 * SECOND);
    bridge.until_known().await;
    while bridge.entry().back.spares() < 2 {
        tokio::time::sleep(SECOND).await;
    }
    let client = TestClient::modern(&bridge);
    let began = Instant::now();
    let mut answers = Vec::new();
    for id in [1, 1] {
        answers.push(client.call(id, "echo", "{}").await.answer().await);
    }
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_ne!(answers[0], answers[1], "each is used once");
    // One more than there are starts cold, and is not refused.
    answers.push(client.call(1, "echo", "{}").await.answer().await);
    assert!(answers[2].contains("\"by\"") && !answers[..2].contains(&answers[2]), "{answers:?}");
    assert_eq!(began.elapsed().as_secs(), 3);
}
