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
use super::post::{accepts, check_content, read_message, request_id};
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
    if !accepts(request.headers(), "text/event-stream") {
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
            if let Some(session) = stream.close() {
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
        if let Some(session) = stream.session() {
            let client = caller.legacy_client(entry, &session);
            site.sessions.note(entry, &session, &client, &message);
        }
        return Ok(accepted());
    }
    let id = request_id(&message).unwrap_or_default();
    let outbox = stream.begin(id.clone()).map_err(|why| {
        if matches!(why, CallError::Busy { .. }) {
            site.metrics.refused(Limit::Streams);
        }
        Refusal::of_call(why.status(), &why).with_id(Some(id.clone()))
    })?;
    let session = stream.session();
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
        let call = Call { request: message, client, cancel, clock, reply };
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
        Ok((session, result)) if stream.welcome(&session) => reply.result(&result),
        Ok((session, _)) => {
            site.sessions.close(&session);
            let text = "the session is open already: open another stream for another session";
            reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
    }
}
