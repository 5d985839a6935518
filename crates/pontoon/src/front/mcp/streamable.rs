//! MCP over HTTP: `POST`, `GET` and `DELETE` of `/mcp/{server}`, in both eras.
//!
//! The status and type of a response are decided as late as possible: JSON when the outcome is the
//! first thing that comes, a stream of events otherwise or after some silence.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request};
use pontoon_wire::envelope::result_answer;
use pontoon_wire::error::code;
use pontoon_wire::{Era, Kind, Message, Revision, Slot, method};
use tokio_util::sync::CancellationToken;

use super::super::headers::only_text;
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, accepted, empty, json};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::event_body::{EventBody, EventOptions, KEEP_ALIVE, OnEnd};
use super::outcome::{event_stream, events, legacy_json, modern_json};
use super::post::{
    self, LAST_EVENT, SESSION, VERSION, accepts, check_media, header_list, read_message,
};
use crate::call::{Call, Reply};
use crate::client::Client;
use crate::ids::EventPlace;
use crate::outbox::Next;
use crate::session::catalog::Entry;
use crate::session::legacy::Session;
use crate::session::stream::Stream;
use crate::session::{Arrival, NoSession};

/// Answers a request to `/mcp/{server}`.
///
/// # Errors
///
/// Why it is refused.
pub async fn handle(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    match *request.method() {
        Method::POST => post(site, entry, request, caller).await,
        Method::GET => get(site, entry, request.headers(), caller),
        Method::DELETE => delete(site, entry, request.headers(), caller),
        _ => {
            Err(Refusal::not_allowed("POST, GET and DELETE are answered here", "POST, GET, DELETE"))
        }
    }
}

async fn post(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    check_media(request.headers())?;
    let (head, body) = request.into_parts();
    let message = read_message(&head.headers, body, site, &caller.person.principal).await?;
    let id = post::request_id(&message);
    let answered = take(site, entry, &head.headers, message, caller).await;
    answered.map_err(|refusal| refusal.with_id(id))
}

/// Takes a message that was posted.
async fn take(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    message: Message,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let version = only_text(headers, VERSION)?;
    match (post::era(&message, version), message.kind()) {
        (Era::Modern, Kind::Request) => {
            let headers = header_list(headers);
            post::check_modern(&headers, &message)?;
            let client = caller.modern_client(entry, &message);
            Ok(modern_request(site, entry, &headers, client, message).await)
        }
        (Era::Modern, _) => Ok(accepted()),
        (Era::Legacy, Kind::Request) if message.method() == method::INITIALIZE => {
            Box::pin(initialize(site, entry, &message, caller)).await
        }
        (Era::Legacy, kind) => {
            let session = find_session(site, entry, headers, caller)?;
            let client = caller.legacy_client(entry, &session);
            if kind == Kind::Request {
                let prefers_events = post::prefers_events(headers);
                let answer = legacy_request(site, entry, session, client, message, prefers_events);
                return Ok(answer.await);
            }
            site.sessions.note(entry, &session, &client, &message);
            Ok(accepted())
        }
    }
}

async fn initialize(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: &Message,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let key_of = |session: &Arc<str>| caller.key(Some(session), &entry.back.server);
    let opened = site.sessions.open(entry, request, &caller.person, key_of).await;
    let (session, result) = opened.map_err(|why| Refusal::of_call(200, &why))?;
    let id = String::from_utf8_lossy(request.raw(Slot::Id).unwrap_or_default());
    let mut response = json(200, &Bytes::from(result_answer(&id, &result)).into());
    let value = HeaderValue::from_str(&session.id).expect("a session id is plain ASCII");
    response.headers_mut().insert(SESSION, value);
    Ok(response)
}

/// The session that the headers name.
fn find_session(
    site: &HttpSite,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Arc<Session>, Refusal> {
    let Some(id) = only_text(headers, SESSION)? else {
        let text = "the header Mcp-Session-Id is missing: send `initialize` first and repeat the id it gives";
        return Err(Refusal::invalid(400, text));
    };
    if let Some(version) = only_text(headers, VERSION)?
        && Revision::parse(version).is_none()
    {
        let text = format!("the protocol version {version:?} is not spoken here");
        return Err(Refusal::invalid(400, text));
    }
    let session = site.sessions.find(entry, id, &caller.person, SystemTime::now());
    session.map_err(|why| match &why {
        NoSession::Unknown => Refusal::new(404, code::UNKNOWN_SESSION, why.to_string()),
        NoSession::Busy(busy) => Refusal::new(503, busy.to_error().code, why.to_string()),
    })
}

async fn legacy_request(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    session: Arc<Session>,
    client: Arc<Client>,
    request: Message,
    prefers_events: bool,
) -> HttpResponse {
    session.touch();
    let id = request.copy(Slot::Id).unwrap_or_default();
    let stream = session.new_stream(id.clone());
    let reply = Reply::new(id, Arc::clone(&stream.outbox), Some(Arc::clone(&session.questions)));
    let (cancel, clock) = (CancellationToken::new(), entry.back.clock(&request));
    let call = Call { request, client, cancel, clock, reply };
    site.sessions.submit(entry, Arrival::InSession(Arc::clone(&session)), call).await;
    // A client that goes away now does not cancel: its call goes on, and it may come back.
    let can_poll = session.revision >= Revision::V2025_11_25;
    let first = match tokio::time::timeout(KEEP_ALIVE, stream.outbox.next()).await {
        Ok(Next::End(Some(outcome))) if !prefers_events => {
            return legacy_json(outcome, &stream.request_id);
        }
        Ok(next) => Some(next),
        Err(_) => None,
    };
    session.keep_stream(&stream);
    let options = EventOptions {
        ids: Some(session.events.clone()),
        is_primed: can_poll,
        cancel: None,
        on_end: None,
    };
    events(&stream, first, options)
}

async fn modern_request(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    headers: &[(&str, &[u8])],
    client: Arc<Client>,
    request: Message,
) -> HttpResponse {
    let id = request.copy(Slot::Id).unwrap_or_default();
    let is_probe = request.method() == method::DISCOVER;
    let stream = Stream::new(0, id.clone(), Vec::new());
    let reply = Reply::new(id, Arc::clone(&stream.outbox), None);
    let (cancel, clock) = (CancellationToken::new(), entry.back.clock(&request));
    // A client that goes away cancels.
    let guard = cancel.clone().drop_guard();
    let call = Call { client, request, cancel: cancel.clone(), clock, reply };
    site.sessions.submit(entry, Arrival::Alone(headers), call).await;
    let first = match tokio::time::timeout(KEEP_ALIVE, stream.outbox.next()).await {
        Ok(Next::End(Some(outcome))) => {
            guard.disarm();
            return modern_json(outcome, &stream.request_id, is_probe);
        }
        Ok(next) => Some(next),
        Err(_) => None,
    };
    guard.disarm();
    let options = EventOptions { ids: None, is_primed: false, cancel: Some(cancel), on_end: None };
    events(&stream, first, options)
}

fn get(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    refuse_modern(headers)?;
    if !accepts(headers, "text/event-stream") {
        return Err(Refusal::invalid(406, "Accept must list text/event-stream"));
    }
    let session = find_session(site, entry, headers, caller)?;
    session.touch();
    let last = match only_text(headers, LAST_EVENT)? {
        Some(id) => last_event(&session, id)?,
        None => None,
    };
    let number = last.map_or(0, |(stream, _)| stream);
    let Some(stream) = session.stream(number) else {
        return Err(Refusal::invalid(404, "the stream of Last-Event-ID is not kept"));
    };
    let on_end = match number {
        0 => Some(claim_feed(&session)?),
        _ => None,
    };
    let connection = stream
        .connect(last.map(|(_, event)| event))
        .map_err(|late| Refusal::invalid(404, late.to_string()))?;
    let is_primed = session.revision >= Revision::V2025_11_25 && last.is_none();
    let ids = Some(session.events.clone());
    let options = EventOptions { ids, is_primed, cancel: None, on_end };
    Ok(event_stream(EventBody::new(connection, None, options)))
}

/// The session's own stream has one connection at a time.
fn claim_feed(session: &Arc<Session>) -> Result<OnEnd, Refusal> {
    if session.is_fed.swap(true, Ordering::AcqRel) {
        return Err(Refusal::invalid(409, "this session has an open GET stream already"));
    }
    let session = Arc::clone(session);
    Ok(OnEnd(Box::new(move || {
        session.is_fed.store(false, Ordering::Release);
        session.touch();
    })))
}

/// The stream and the number of the event that a client saw last; `None` if it hears the session's own
/// stream from now on, because what it missed was kept by a bridge that is not this one.
fn last_event(session: &Session, id: &str) -> Result<Option<(u64, u64)>, Refusal> {
    match session.events.read(id) {
        Some(EventPlace::Here(stream, event)) => Ok(Some((stream, event))),
        Some(EventPlace::Elsewhere(0)) => Ok(None),
        // Not 404, which would say that the session is over.
        Some(EventPlace::Elsewhere(_)) => {
            let text = "the stream of Last-Event-ID was kept by a bridge that was restarted, or by another replica, and \
                 its events are not here: the session goes on, but whether that call was made is not known";
            Err(Refusal::invalid(400, text))
        }
        None => Err(Refusal::invalid(400, format!("Last-Event-ID {id:?} is none of this session"))),
    }
}

fn delete(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    refuse_modern(headers)?;
    let session = find_session(site, entry, headers, caller)?;
    site.sessions.close(&session);
    Ok(empty(200))
}

/// The modern era has neither `GET` nor `DELETE`.
fn refuse_modern(headers: &HeaderMap) -> Result<(), Refusal> {
    let version = only_text(headers, VERSION)?.and_then(Revision::parse);
    if version.map(Revision::era) == Some(Era::Modern) || !headers.contains_key(SESSION) {
        let text = "only POST is answered here, but for legacy sessions (Mcp-Session-Id)";
        return Err(Refusal::not_allowed(text, "POST"));
    }
    Ok(())
}
