//! The deprecated HTTP+SSE transport (2024-11-05), for clients that have nothing newer.
//!
//! `GET /sse/{server}` opens a stream, whose first event says where to post messages; each is taken
//! with 202, and its answer comes on the stream. The session ends when the stream does.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request};
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Kind, Message, method};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::super::body::ResponseBody;
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, accepted, streamed};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::event_body::OnEnd;
use super::post::{Accepted, check_content, read_message, request_id};
use super::sse_stream::{SseBody, SseStream};
use crate::call::{Call, CallError, Reply};
use crate::observe::metrics::Limit;
use crate::session::Arrival;
use crate::session::entry::Entry;

/// Answers a request to `/sse/{server}`.
///
/// # Errors
///
/// Why no stream is opened.
pub fn open(
    site: &Arc<HttpSite>,
    entry: &Entry,
    request: &Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    if request.method() != Method::GET {
        let text = "GET opens a stream here; a client that posts finds MCP at /mcp/NAME";
        return Err(Refusal::not_allowed(text, "GET"));
    }
    if !Accepted::read(request.headers()).events {
        return Err(Refusal::invalid(406, "Accept must list text/event-stream"));
    }
    let server = &entry.back.server.name;
    let stream = site.streams.open(server, &caller.person).map_err(|why| {
        site.metrics.refused(Limit::Streams);
        Refusal::of_call(why.status(), &why)
    })?;
    let endpoint = format!("/sse/{server}/messages?session={}", stream.id);
    let on_end = {
        let (site, stream) = (Arc::clone(site), Arc::clone(&stream));
        OnEnd(Box::new(move || {
            site.streams.remove(&stream.id);
            if let Some(session) = stream.answers.close() {
                site.sessions.close(&session);
            }
        }))
    };
    let body = SseBody::new(stream, &endpoint, on_end);
    Ok(streamed(ResponseBody::Sse(Box::new(body))))
}

/// Answers a request to `/sse/{server}/messages`.
///
/// # Errors
///
/// Why the message is not taken.
pub async fn message(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    if request.method() != Method::POST {
        return Err(Refusal::not_allowed("messages are posted here", "POST"));
    }
    let query = request.uri().query().unwrap_or_default();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("session=")).unwrap_or_default();
    let stream = site.streams.find(&entry.back.server.name, id, &caller.person);
    let Some(stream) = stream else {
        let text = "the stream is unknown or has ended: open it again with GET /sse/NAME";
        return Err(Refusal::new(404, code::UNKNOWN_SESSION, text));
    };
    check_content(request.headers())?;
    let (head, body) = request.into_parts();
    let message = read_message(&head.headers, body, site, &caller.person.principal).await?;
    if message.kind() != Kind::Request {
        if let Some(session) = stream.answers.session() {
            let client = caller.legacy_client(entry, &session);
            site.sessions.note(entry, &session, &client, &message);
        }
        return Ok(accepted());
    }
    let id = request_id(&message).unwrap_or_default();
    let outbox = stream.answers.begin(id.clone(), None).map_err(|why| {
        if matches!(why, CallError::Busy { .. }) {
            site.metrics.refused(Limit::Streams);
        }
        Refusal::of_call(why.status(), &why).with_id(Some(id.clone()))
    })?;
    let session = stream.answers.session();
    let questions = session.as_ref().map(|session| Arc::clone(&session.questions));
    let reply = Reply::new(id, outbox, questions);
    let client = session.as_ref().map(|session| caller.legacy_client(entry, session));
    let caller = caller.clone();
    let (site, entry) = (Arc::clone(site), Arc::clone(entry));
    let tasks = site.sessions.tasks.clone();
    // A task of its own: the client may hang up after 202, and still gets its answer.
    let answering = async move {
        if message.method() == method::INITIALIZE {
            return initialize(&site, &entry, &stream, &message, &caller, reply).await;
        }
        let (Some(session), Some(client)) = (session, client) else {
            let text = "the session is not open: send `initialize` first";
            return reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        };
        session.touch();
        let (cancel, clock) = (CancellationToken::new(), entry.back.clock(&message));
        let call = Call {
            request: message,
            client,
            cancel,
            clock,
            may_repeat: false,
            promise: None,
            reply,
        };
        site.sessions.submit(&entry, Arrival::InSession(session), call).await;
    };
    tasks.spawn(answering.in_current_span());
    Ok(accepted())
}

async fn initialize(
    site: &HttpSite,
    entry: &Arc<Entry>,
    stream: &SseStream,
    request: &Message,
    caller: &Caller,
    reply: Reply,
) {
    let key_of = |session: &Arc<str>| caller.key(Some(session), &entry.back.server);
    match site.sessions.open(entry, request, &caller.person, key_of).await {
        Err(why) => reply.fail(why),
        Ok((session, result)) if stream.answers.welcome(&session) => reply.result(&result),
        Ok((session, _)) => {
            site.sessions.close(&session);
            let text = "the session is open already: open another stream for another session";
            reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::Era;
    use std::time::Duration;
    use tokio::time::Instant;

    use super::*;
    use crate::app::test_bridge::request::{bare, initialize, post, request};
    use crate::app::test_bridge::{TestBridge, TestResponse, ToolServer};

    const GET: [(&str, &str); 1] = [("accept", "text/event-stream")];

    /// A stream, and where its messages go.
    async fn open(bridge: &TestBridge) -> (TestResponse, String) {
        let mut stream = bridge.connect().send(&bare("GET", "/sse/demo", &GET)).await;
        let hello = stream.event().await.unwrap();
        let endpoint = hello.strip_prefix("event: endpoint\ndata: ").expect(&hello);
        (stream, endpoint.trim_end().to_owned())
    }

    async fn say(bridge: &TestBridge, endpoint: &str, body: &str) -> u16 {
        bridge.connect().send(&post(endpoint, &[], body)).await.status
    }

    /// The same, with a session on it.
    async fn begin(bridge: &TestBridge) -> (TestResponse, String) {
        let (mut stream, endpoint) = open(bridge).await;
        assert_eq!(say(bridge, &endpoint, &initialize("2024-11-05", "{}")).await, 202);
        assert!(stream.data().await.unwrap().contains("\"protocolVersion\":\"2024-11-05\""));
        (stream, endpoint)
    }

    fn call(id: u32, tool: &str, seconds: u32) -> String {
        let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{\"seconds\":{seconds}}}}}");
        request(id, "tools/call", &params)
    }

    fn bridge(server: &ToolServer) -> TestBridge {
        TestBridge::start(server.servers(), |_, _| {})
    }

    #[tokio::test(start_paused = true)]
    async fn answers_come_on_the_stream_as_they_are_ready_each_under_its_id() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        let (mut stream, endpoint) = begin(&bridge).await;
        for message in [call(1, "wait", 5), call(2, "echo", 0), request(3, method::DISCOVER, "{}")]
        {
            assert_eq!(say(&bridge, &endpoint, &message).await, 202);
        }
        let mut ids = Vec::new();
        while ids.len() < 3 {
            let answer: serde_json::Value =
                serde_json::from_str(&stream.data().await.unwrap()).unwrap();
            let what = if answer["error"]["code"] == -32601 { "unknown" } else { "result" };
            ids.push((answer["id"].as_u64().unwrap(), what));
        }
        assert_eq!(ids, [(3, "unknown"), (2, "result"), (1, "result")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_says_every_15_seconds_that_it_lives() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        let (mut stream, endpoint) = begin(&bridge).await;
        let began = Instant::now();
        assert_eq!(say(&bridge, &endpoint, &call(1, "wait", 40)).await, 202);
        let mut heard = Vec::new();
        loop {
            let event = stream.event().await.unwrap();
            heard.push((event.starts_with(':'), began.elapsed().as_secs()));
            if event.contains("\"result\"") {
                break;
            }
        }
        assert_eq!(heard, [(true, 15), (true, 30), (false, 40)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_with_its_stream_and_so_do_its_calls() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        let (stream, endpoint) = begin(&bridge).await;
        assert_eq!(say(&bridge, &endpoint, &call(1, "never", 0)).await, 202);
        server.until_heard("tools/call never").await;
        assert_eq!(bridge.site.sessions.count(), 1);
        drop(stream);
        bridge.until_quiet().await;
        assert_eq!(bridge.site.sessions.count(), 0);
        assert_eq!(say(&bridge, &endpoint, &call(2, "echo", 0)).await, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_on_which_nothing_begins_is_let_go_after_a_minute() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        let (mut forgotten, endpoint) = open(&bridge).await;
        let (used, _) = begin(&bridge).await;
        let began = Instant::now();
        while forgotten.event().await.is_some() {}
        assert_eq!(began.elapsed().as_secs(), 60);
        assert_eq!(say(&bridge, &endpoint, &initialize("2024-11-05", "{}")).await, 404);
        assert_eq!(bridge.site.sessions.count(), 1, "the other goes on");
        drop(used);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_opened_first_and_once() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        let (mut stream, endpoint) = open(&bridge).await;
        assert_eq!(say(&bridge, &endpoint, &call(1, "echo", 0)).await, 202);
        assert!(stream.data().await.unwrap().contains("send `initialize` first"));
        for says in ["\"protocolVersion\"", "the session is open already"] {
            assert_eq!(say(&bridge, &endpoint, &initialize("2024-11-05", "{}")).await, 202);
            let answer = stream.data().await.unwrap();
            assert!(answer.contains(says), "{answer}");
        }
        assert_eq!(bridge.site.sessions.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_opens_no_stream_is_told_so() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = bridge(&server);
        for (method, path, headers, status) in [
            ("POST", "/sse/demo", &GET[..], 405),
            ("GET", "/sse/demo", &[("accept", "application/json")], 406),
            ("GET", "/sse/demo/messages?session=x", &GET, 405),
            ("GET", "/sse/other", &GET, 404),
        ] {
            let response = bridge.connect().send(&bare(method, path, headers)).await;
            assert_eq!(response.status, status, "{method} {path}");
        }
        let began = Instant::now();
        let mut open = Vec::new();
        loop {
            let response = bridge.connect().send(&bare("GET", "/sse/demo", &GET)).await;
            if response.status != 200 {
                assert_eq!((response.status, response.header("retry-after")), (429, Some("10")));
                break;
            }
            open.push(response);
        }
        assert_eq!((open.len(), began.elapsed()), (64, Duration::ZERO));
    }
}
