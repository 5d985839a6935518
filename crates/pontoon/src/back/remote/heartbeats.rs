//! Signs of life over a WebSocket, with an application that is a task of the test: when it is given up, and when it is not.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pontoon_wire::{Era, method};
use tokio::time::Instant;

use super::connection::AppConnection;
use super::test_app::{TestApp, WebEnd, WebHeard};
use crate::back::pair::result;

const SECOND: Duration = Duration::from_secs(1);

/// What an application does when it is asked to work, or was pinged.
#[derive(Debug, Clone, Copy)]
enum Habit {
    /// It reads nothing once it has opened the conversation, so it never answers a ping.
    NeverReads,
    /// It answers one ping, and then reads nothing any more. The next connection is served well.
    FallsMute,
    /// It works on a call for so long, without a look at its socket. Then it answers.
    Works(Duration),
    /// It works on a call for ever.
    Hangs,
}

/// An application with this habit, and how many connections it took.
struct HabitualApp {
    test: TestApp,
    connections: Arc<AtomicUsize>,
}

impl HabitualApp {
    fn new(habit: Habit) -> Self {
        let connections = Arc::<AtomicUsize>::default();
        let taken = Arc::clone(&connections);
        let serve = move |end| serve(end, habit, taken.fetch_add(1, Ordering::SeqCst) == 0);
        Self { test: TestApp::with_websocket(serve), connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn connect(&self) -> Arc<AppConnection> {
        self.test.app().connect().await
    }

    /// Lets it answer a ping, makes a call, and gives its answer and how long that took.
    async fn call(&self) -> (String, u64) {
        tokio::time::sleep(20 * SECOND).await;
        let called = Instant::now();
        let params = "{\"name\":\"work\",\"arguments\":{}}";
        let call = self.test.pair.call(&self.test.client, Era::Legacy, method::CALL_TOOL, params);
        let answer = call.answer().await;
        (answer, called.elapsed().as_secs())
    }
}

async fn serve(mut end: WebEnd, habit: Habit, is_first: bool) {
    while let Some(heard) = end.next().await {
        match (heard, habit) {
            (WebHeard::Message(message, id), _) if message.method() == method::INITIALIZE => {
                end.say(&result(&id, "{\"protocolVersion\":\"2025-11-25\"}")).await;
                if let Habit::NeverReads = habit {
                    return pending().await;
                }
            }
            (WebHeard::Message(message, id), _) if message.method() == method::CALL_TOOL => {
                match habit {
                    Habit::Works(time) => tokio::time::sleep(time).await,
                    _ => return pending().await,
                }
                end.say(&result(&id, "{\"content\":[],\"said\":\"done\"}")).await;
            }
            (WebHeard::Ping, Habit::FallsMute) if is_first => return pending().await,
            (WebHeard::Message(..) | WebHeard::Ping, _) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_application_that_answers_no_ping_any_more_is_given_up_after_a_minute_and_connected_anew()
 {
    let app = HabitualApp::new(Habit::FallsMute);
    let began = Instant::now();
    let connection = app.connect().await;
    connection.lost().await;
    // It was heard for the last time after a quarter of a minute.
    assert_eq!(began.elapsed().as_secs(), 75);
    assert_eq!(connection.how_it_ended(), "it gave no sign of life for 60 s");
    app.test.app().lose(&connection, None).await;
    let again = app.connect().await;
    assert_eq!((began.elapsed().as_secs(), app.connections()), (75, 2));
    let lost = tokio::time::timeout(600 * SECOND, again.lost()).await;
    assert!(lost.is_err(), "it answers each ping: {}", again.how_it_ended());
}

#[tokio::test(start_paused = true)]
async fn an_application_that_never_answered_a_ping_is_not_blamed_for_its_silence() {
    let app = HabitualApp::new(Habit::NeverReads);
    let connection = app.connect().await;
    let lost = tokio::time::timeout(3600 * SECOND, connection.lost()).await;
    assert!(lost.is_err(), "{}", connection.how_it_ended());
}

#[tokio::test(start_paused = true)]
async fn an_application_that_answers_pings_only_between_calls_gives_its_answer_late() {
    // As long as its grace, and a little longer than that.
    for seconds in [119, 170] {
        let app = HabitualApp::new(Habit::Works(seconds * SECOND));
        let connection = app.connect().await;
        let (answer, took) = app.call().await;
        assert!(answer.contains("\"said\":\"done\""), "{answer}");
        assert_eq!(took, u64::from(seconds));
        // What it missed is forgiven, and it answers pings again.
        let lost = tokio::time::timeout(600 * SECOND, connection.lost()).await;
        assert!(lost.is_err(), "{}", connection.how_it_ended());
        assert_eq!(app.connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_application_that_hangs_in_a_call_is_given_up_some_pings_after_its_grace() {
    let app = HabitualApp::new(Habit::Hangs);
    let connection = app.connect().await;
    let (answer, took) = app.call().await;
    assert!(answer.contains("outcome is unknown"), "{answer}");
    // The grace, and three pings and the time for the last one, from the ping after it on.
    assert_eq!(took, 175);
    assert_eq!(connection.how_it_ended(), "it gave no sign of life for 180 s");
}
