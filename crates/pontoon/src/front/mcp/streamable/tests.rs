//! The transport as a client sees it, through a whole bridge in memory.

use std::time::Duration;

use hyper::header::CONTENT_TYPE;
use tokio::time::Instant;

use super::*;
use crate::app::test_bridge::request::{bare, modern, post};
use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
use crate::call::Outcome;
use crate::outbox::{Item, OutcomeForm};

fn bridge(server: &ToolServer) -> TestBridge {
    TestBridge::start(server.servers(), |_, _| {})
}

/// The id of an event.
fn id_of(event: &str) -> &str {
    event.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id")
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_first_is_json_and_after_a_note_it_is_an_event() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    for client in TestClient::both(&bridge).await {
        let alone = client.call(7, "wait", "{\"seconds\":1}").await;
        assert_eq!((alone.status, alone.is_stream()), (200, false));
        assert!(alone.body().await.contains("\"id\":7"));
        let mut stream = client.call(7, "note", "{\"seconds\":1}").await;
        assert_eq!((stream.status, stream.is_stream()), (200, true));
        let note = stream.data().await.unwrap();
        assert!(note.contains("\"progressToken\":7"), "{note}");
        assert!(stream.data().await.unwrap().contains("\"result\""));
        assert_eq!(stream.event().await, None, "nothing follows the answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_silent_becomes_a_stream_and_says_every_15_seconds_that_it_lives() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    for client in TestClient::both(&bridge).await {
        let began = Instant::now();
        let mut stream = client.call(7, "wait", "{\"seconds\":50}").await;
        let mut heard = vec![("head".to_owned(), began.elapsed().as_secs())];
        while let Some(event) = stream.event().await {
            let first = event.split([':', '\n']).next().unwrap_or_default().to_owned();
            let what = if event.contains("\"result\"") { "answer".to_owned() } else { first };
            heard.push((what, began.elapsed().as_secs()));
        }
        let mut expected = vec![("head", 15), ("", 30), ("", 45), ("answer", 50)];
        if client.session.is_some() {
            // So that the client can come back before anything was said.
            expected.insert(1, ("id", 15));
        }
        let expected: Vec<_> =
            expected.into_iter().map(|(what, at)| (what.to_owned(), at)).collect();
        assert_eq!(heard, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_that_goes_away_cancels_its_call_and_its_process_is_gone() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    // Before the response began, and in the middle of it.
    let client = TestClient::modern(&bridge);
    let connection = client.send_call(1, "never", "{}").await;
    server.until_heard("tools/call never").await;
    drop(connection);
    bridge.until_quiet().await;
    let mut stream = client.call(2, "note", "{\"seconds\":60}").await;
    assert!(stream.data().await.unwrap().contains("progress"));
    let began = Instant::now();
    drop(stream);
    bridge.until_quiet().await;
    assert!(began.elapsed() < Duration::from_secs(15), "it did not work to its end");
    let body = client.call(3, "echo", "{}").await.body().await;
    assert!(body.contains("\"by\""), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_that_goes_away_comes_back_for_its_answer() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let session = TestClient::open(&bridge).await;
    let mut stream = session.call(3, "note", "{\"seconds\":40}").await;
    let primed = stream.event().await.unwrap();
    let note = stream.event().await.unwrap();
    assert!(note.contains("progress"), "{note}");
    drop(stream);
    // After the priming event it hears the note again; after the note only what it missed.
    let mut again = session.bare("GET", Some(id_of(&primed))).await;
    assert!(again.data().await.unwrap().contains("progress"));
    drop(again);
    let mut last = session.bare("GET", Some(id_of(&note))).await;
    let answer = last.data().await.unwrap();
    assert!(answer.contains("\"id\":3,\"result\""), "{answer}");
    assert_eq!(last.event().await, None);
    let calls = server.work_heard();
    assert_eq!(calls.len(), 1, "one call, never cancelled: {calls:?}");
    bridge.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_taken_up_in_its_own_session_only_and_once_it_is_known() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let (ada, ben) = (TestClient::open(&bridge).await, TestClient::open(&bridge).await);
    let mut stream = ada.call(3, "note", "{\"seconds\":1}").await;
    let primed = stream.event().await.unwrap();
    let foreign = ben.bare("GET", Some(id_of(&primed))).await;
    assert_eq!(foreign.status, 400);
    assert!(foreign.body().await.contains("none of this session"));
    assert_eq!(ada.bare("GET", Some("x")).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_stream_of_its_own_and_another_when_that_is_gone() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let session = TestClient::open(&bridge).await;
    let first = session.bare("GET", None).await;
    assert!(first.is_stream());
    let second = session.bare("GET", None).await;
    assert_eq!(second.status, 409);
    drop(first);
    // The bridge has to see that it is gone.
    while !session.bare("GET", None).await.is_stream() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_unknown_or_has_ended_is_told_as_such_for_every_method() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let mut session = TestClient::open(&bridge).await;
    assert_eq!(session.bare("DELETE", None).await.status, 200);
    for id in [session.session.clone(), Some("made-up".to_owned())] {
        session.session = id;
        let posted = session.call(1, "echo", "{}").await;
        assert_eq!(posted.status, 404);
        let body = posted.body().await;
        assert!(body.contains("send `initialize` again") && body.contains("\"id\":1"), "{body}");
        assert_eq!(session.bare("GET", None).await.status, 404);
        assert_eq!(session.bare("DELETE", None).await.status, 404);
    }
    let without = post("/mcp/demo", &[], "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
    let response = bridge.connect().send(&without).await;
    assert_eq!(response.status, 200, "one that names no session needs none");
    assert!(response.body().await.contains("\"result\":{}"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_ends_its_open_calls_and_its_streams() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let session = TestClient::open(&bridge).await;
    let mut feed = session.bare("GET", None).await;
    let mut call = session.call(1, "note", "{\"seconds\":900}").await;
    assert!(call.data().await.unwrap().contains("progress"));
    assert_eq!(session.bare("DELETE", None).await.status, 200);
    assert_eq!(call.data().await, None, "a call that was cancelled has no answer");
    assert_eq!(feed.data().await, None);
    bridge.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn two_calls_of_one_id_at_once_get_each_their_own_answer() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let session = TestClient::open(&bridge).await;
    let slow = session.send_call(5, "wait", "{\"seconds\":9}").await;
    let of_slow = server.until_heard("tools/call wait").await;
    let quick = session.call(5, "echo", "{}").await.body().await;
    let slow = slow.begin().await.body().await;
    assert!(
        slow.contains(&format!("\"id\":5,\"result\":{{\"content\":[],\"by\":{of_slow}")),
        "{slow}"
    );
    assert!(quick.contains("\"id\":5") && slow != quick, "{quick}");
}

#[tokio::test(start_paused = true)]
async fn the_modern_era_has_only_posts() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    for method in ["GET", "DELETE"] {
        let request = bare(method, "/mcp/demo", &[("mcp-protocol-version", "2026-07-28")]);
        let response = bridge.connect().send(&request).await;
        assert_eq!((response.status, response.header("allow")), (405, Some("POST")));
    }
    let listed = bridge.connect().send(&modern(1, "tools/list", "")).await;
    assert!(listed.body().await.contains("tool0"));
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    let headers = [("mcp-protocol-version", "2026-07-28")];
    let noted = bridge.connect().send(&post("/mcp/demo", &headers, note)).await;
    assert_eq!(noted.status, 202, "without a session a note is taken, and says nothing");
}

#[tokio::test(start_paused = true)]
async fn who_has_no_session_to_come_back_to_is_not_let_go_before_the_answer() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"release\",\
                \"arguments\":{\"seconds\":20}}}";
    let accept = [("accept", "text/event-stream, application/json")];
    let mut response = bridge.connect().send(&post("/mcp/demo", &accept, call)).await;
    assert!(response.data().await.unwrap().contains("\"result\""));
}

/// A response to a request of a modern client: JSON or events, and the job that its head names.
async fn respond(stream: &Arc<Stream>) -> (bool, Option<String>) {
    let cancel = CancellationToken::new().drop_guard();
    let asked = ResponseWanted::Modern { cancel, is_probe: false };
    let response = outcome(stream, asked).await;
    let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    let is_stream = header(CONTENT_TYPE.as_str()).as_deref() == Some("text/event-stream");
    (is_stream, header("x-mcpo-job-id"))
}

fn stream() -> Arc<Stream> {
    Stream::new(0, Bytes::from_static(b"7"), Vec::new())
}

fn text() -> pontoon_wire::Text {
    Bytes::from_static(b"{}").into()
}

#[tokio::test(start_paused = true)]
async fn a_long_silence_begins_a_stream_which_names_its_job() {
    let (stream, job) = (stream(), uuid::Uuid::new_v4());
    assert_eq!(respond(&stream).await, (true, None));
    stream.outbox.set_job(Some(job));
    assert_eq!(respond(&stream).await, (true, Some(job.to_string())));
    assert_eq!(stream.outbox.settle(), OutcomeForm::Event);
}

#[tokio::test(start_paused = true)]
async fn no_stream_begins_while_an_answer_is_made_that_goes_out_by_itself() {
    let stream = stream();
    let answering = Arc::clone(&stream);
    tokio::spawn(async move {
        tokio::time::sleep(KEEP_ALIVE / 2).await;
        assert_eq!(answering.outbox.settle(), OutcomeForm::Whole);
        // Its files are looked for.
        tokio::time::sleep(3 * KEEP_ALIVE).await;
        answering.outbox.finish(Some(Outcome::Answer(text(), None, None)));
    });
    assert_eq!(respond(&stream).await, (false, None));
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_an_outcome_that_is_taken_whole_is_dropped() {
    let stream = stream();
    stream.outbox.take_whole();
    stream.outbox.push(Item::Note(text()));
    let answering = Arc::clone(&stream);
    tokio::spawn(async move {
        tokio::time::sleep(2 * KEEP_ALIVE).await;
        answering.outbox.push(Item::Note(text()));
        answering.outbox.finish(Some(Outcome::Answer(text(), None, None)));
    });
    assert_eq!(respond(&stream).await, (false, None));
}
