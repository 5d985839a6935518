//! MCP over HTTP: `POST`, `GET` and `DELETE` of `/mcp/{server}`, in both eras.
//!
//! The status and type of a response are decided as late as possible: JSON when the outcome is the
//! first thing that comes, a stream of events otherwise or after some silence.

use std::pin::Pin;
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
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::headers::only_text;
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, accepted, empty, json};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::event_body::{EventBody, EventOptions, KEEP_ALIVE, OnEnd};
use super::outcome::{bare_json, event_stream, events, legacy_json, modern_json};
use super::post::{
    self, Accepted, LAST_EVENT, SESSION, VERSION, check_media, header_list, read_message,
};
use crate::call::{Call, MAX_EVENT, Reply};
use crate::client::Client;
use crate::ids::EventPlace;
use crate::outbox::Next;
use crate::session::entry::Entry;
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
    let accepted = check_media(request.headers())?;
    let (head, body) = request.into_parts();
    let message = read_message(&head.headers, body, site, &caller.person.principal).await?;
    match take(site, entry, &head.headers, accepted, message, caller)? {
        Taken::Done(response) => Ok(response),
        Taken::Opening(opening) => opening.await,
        Taken::Submitted(submitted, stream, asked) => {
            submitted.await;
            Ok(outcome(&stream, asked).await)
        }
    }
}

/// A message that was posted, and what is left to do for its response.
enum Taken<'a, S> {
    /// Nothing.
    Done(HttpResponse),
    /// A session is being opened. Few requests do that, and it needs much room.
    Opening(Pin<Box<dyn Future<Output = Result<HttpResponse, Refusal>> + Send + 'a>>),
    /// Its call is being submitted; the outcome comes on this stream.
    Submitted(S, Arc<Stream>, ResponseWanted),
}

/// What a request wants of its response.
enum ResponseWanted {
    /// That of a legacy client, who may go away and come back: its call goes on.
    Legacy { session: Arc<Session>, prefers_events: bool },
    /// That of a modern client, who cancels its call by going away.
    Modern { cancel: DropGuard, is_probe: bool },
    /// That of a legacy client without a session, who cancels its call by going away, too: it cannot come back.
    Bare { cancel: DropGuard },
}

/// Takes a message that was posted. This is no `async fn`: the message is not moved into a future.
fn take<'a>(
    site: &'a Arc<HttpSite>,
    entry: &'a Arc<Entry>,
    headers: &'a HeaderMap,
    client_takes: Accepted,
    message: Message,
    caller: &'a Caller,
) -> Result<Taken<'a, impl Future<Output = ()> + Send + use<'a>>, Refusal> {
    let id = post::request_id(&message);
    let with_id = |refusal: Refusal| refusal.with_id(id.clone());
    let version = only_text(headers, &VERSION).map_err(with_id)?;
    let era = post::era(&message, version);
    if era == Era::Legacy && !headers.contains_key(&SESSION) && !is_handshake(&message) {
        let revision = bare_revision(version, &message).map_err(with_id)?;
        if message.kind() != Kind::Request {
            return Ok(Taken::Done(accepted()));
        }
        let stream = Stream::new(0, id.unwrap_or_default(), Vec::new());
        if !client_takes.names_events {
            stream.outbox.take_whole();
        }
        let client = caller.bare_client(entry, revision);
        let (call, cancel) = call(entry, message, client, &stream, None);
        let submitted = site.sessions.submit(entry, Arrival::Bare, call);
        let asked = ResponseWanted::Bare { cancel: cancel.drop_guard() };
        return Ok(Taken::Submitted(submitted, stream, asked));
    }
    client_takes.check_events().map_err(with_id)?;
    if (era, message.kind()) == (Era::Modern, Kind::Request) {
        let headers = header_list(headers);
        post::check_modern(&headers, &message).map_err(with_id)?;
        let client = caller.modern_client(entry, &message);
        let is_probe = message.method() == method::DISCOVER;
        let stream = Stream::new(0, id.unwrap_or_default(), Vec::new());
        let (call, cancel) = call(entry, message, client, &stream, None);
        let asked = ResponseWanted::Modern { cancel: cancel.drop_guard(), is_probe };
        let submitted = site.sessions.submit(entry, Arrival::Alone(headers), call);
        return Ok(Taken::Submitted(submitted, stream, asked));
    }
    if era == Era::Modern {
        return Ok(Taken::Done(accepted()));
    }
    if is_handshake(&message) {
        return Ok(Taken::Opening(Box::pin(initialize(site, entry, message, caller))));
    }
    let session = find_session(site, entry, headers, caller).map_err(with_id)?;
    let client = caller.legacy_client(entry, &session);
    if message.kind() != Kind::Request {
        site.sessions.note(entry, &session, &client, &message);
        return Ok(Taken::Done(accepted()));
    }
    session.touch();
    let prefers_events = client_takes.prefers_events;
    let stream = session.new_stream(id.unwrap_or_default());
    let (call, _) = call(entry, message, client, &stream, Some(&session));
    let submitted = site.sessions.submit(entry, Arrival::InSession(Arc::clone(&session)), call);
    Ok(Taken::Submitted(submitted, stream, ResponseWanted::Legacy { session, prefers_events }))
}

fn is_handshake(message: &Message) -> bool {
    message.kind() == Kind::Request && message.method() == method::INITIALIZE
}

/// The revision in which a message without a session is answered: the one its header names, else the newest, for a client
/// that sent no `initialize` and names none is a script that reads what it gets.
fn bare_revision(header: Option<&str>, message: &Message) -> Result<Revision, Refusal> {
    if message.kind() == Kind::Answer {
        let text =
            "the header Mcp-Session-Id is missing: an answer belongs to a question of a session";
        return Err(Refusal::invalid(400, text));
    }
    match header.map(|version| (version, Revision::parse(version))) {
        None => Ok(Revision::NEWEST_LEGACY),
        // A notification, which this revision has no use for.
        Some((_, Some(revision))) if revision.era() == Era::Modern => Ok(Revision::NEWEST_LEGACY),
        Some((_, Some(revision))) => Ok(revision),
        Some((version, None)) => Err(unknown_version(version)),
    }
}

fn unknown_version(version: &str) -> Refusal {
    Refusal::invalid(400, format!("the protocol version {version:?} is not spoken here"))
}

/// A call whose outcome comes on this stream, and what cancels it.
fn call(
    entry: &Entry,
    request: Message,
    client: Arc<Client>,
    stream: &Stream,
    session: Option<&Session>,
) -> (Call, CancellationToken) {
    let questions = session.map(|session| Arc::clone(&session.questions));
    let reply = Reply::new(stream.request_id.clone(), Arc::clone(&stream.outbox), questions);
    let (cancel, clock) = (CancellationToken::new(), entry.back.clock(&request));
    (
        Call {
            request,
            client,
            cancel: cancel.clone(),
            clock,
            may_repeat: false,
            promise: None,
            reply,
        },
        cancel,
    )
}

/// The response to a request: JSON if its outcome comes first, else the events of its stream.
async fn outcome(stream: &Arc<Stream>, asked: ResponseWanted) -> HttpResponse {
    let prefers_events = matches!(asked, ResponseWanted::Legacy { prefers_events: true, .. });
    let first = loop {
        match tokio::time::timeout(KEEP_ALIVE, stream.outbox.next()).await {
            Ok(Next::End(Some(outcome)))
                if !prefers_events || outcome.answer_bytes() > MAX_EVENT =>
            {
                return match asked {
                    ResponseWanted::Legacy { .. } => legacy_json(outcome, &stream.request_id),
                    ResponseWanted::Modern { cancel, is_probe } => {
                        cancel.disarm();
                        modern_json(outcome, &stream.request_id, is_probe)
                    }
                    ResponseWanted::Bare { cancel } => {
                        cancel.disarm();
                        bare_json(outcome, &stream.request_id)
                    }
                };
            }
            Ok(end @ Next::End(_)) => break Some(end),
            // What comes before an outcome that is to go out by itself is dropped.
            next if stream.outbox.begin_events() => break next.ok(),
            _ => {}
        }
    };
    let options = match asked {
        ResponseWanted::Legacy { session, .. } => {
            session.keep_stream(stream);
            EventOptions {
                ids: Some(session.events.clone()),
                is_primed: session.revision >= Revision::V2025_11_25,
                cancel: None,
                on_end: None,
            }
        }
        ResponseWanted::Modern { cancel, .. } | ResponseWanted::Bare { cancel } => {
            let cancel = Some(cancel.disarm());
            EventOptions { ids: None, is_primed: false, cancel, on_end: None }
        }
    };
    events(stream, first, options)
}

async fn initialize(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Message,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let key_of = |session: &Arc<str>| caller.key(Some(session), &entry.back.server);
    let opened = site.sessions.open(entry, &request, &caller.person, key_of).await;
    let refused = |why| Refusal::of_call(200, &why).with_id(post::request_id(&request));
    let (session, result) = opened.map_err(refused)?;
    let id = String::from_utf8_lossy(request.raw(Slot::Id).unwrap_or_default());
    let mut response = json(200, &Bytes::from(result_answer(&id, &result)).into());
    let value = HeaderValue::from_str(&session.id).expect("a session id is plain ASCII");
    response.headers_mut().insert(&SESSION, value);
    Ok(response)
}

/// The session that the headers name.
fn find_session(
    site: &HttpSite,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Arc<Session>, Refusal> {
    let Some(id) = only_text(headers, &SESSION)? else {
        let text = "the header Mcp-Session-Id is missing: send `initialize` first and repeat the id it gives";
        return Err(Refusal::invalid(400, text));
    };
    if let Some(version) = only_text(headers, &VERSION)?
        && Revision::parse(version).is_none()
    {
        return Err(unknown_version(version));
    }
    let session = site.sessions.find(entry, id, &caller.person, SystemTime::now());
    session.map_err(|why| match &why {
        NoSession::Unknown => Refusal::new(404, code::UNKNOWN_SESSION, why.to_string()),
        NoSession::Busy(busy) => Refusal::new(503, busy.to_error().code, why.to_string()),
    })
}

fn get(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    refuse_modern(headers)?;
    if !Accepted::read(headers).events {
        return Err(Refusal::invalid(406, "Accept must list text/event-stream"));
    }
    let session = find_session(site, entry, headers, caller)?;
    session.touch();
    let last = match only_text(headers, &LAST_EVENT)? {
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
    let version = only_text(headers, &VERSION)?.and_then(Revision::parse);
    if version.map(Revision::era) == Some(Era::Modern) || !headers.contains_key(&SESSION) {
        let text = "only POST is answered here, but for legacy sessions (Mcp-Session-Id)";
        return Err(Refusal::not_allowed(text, "POST"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
