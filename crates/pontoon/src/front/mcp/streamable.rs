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
use pontoon_wire::error::code;
use pontoon_wire::{Era, Kind, Message, Revision, ScanError, Slot, method};
use tokio_util::sync::CancellationToken;

use super::super::body::{EventBody, EventOptions, KEEP_ALIVE, OnEnd};
use super::super::http::{Site, accepted, read_body};
use super::super::response::{
    Answer, empty, error, events, failed, json, not_allowed, retry_after, with_receipt,
};
use super::super::who::caller::Caller;
use super::post::{
    self, LAST_EVENT, Refusal, SESSION, VERSION, accepts, check_media, header_list, modern_status,
    only,
};
use crate::call::{Call, Outcome, Reply};
use crate::client::Client;
use crate::ids::EventPlace;
use crate::outbox::Next;
use crate::session::NoSession;
use crate::session::catalog::{Catalog, Entry};
use crate::session::legacy::Session;
use crate::session::stream::{Stream, outcome_text};

/// Answers a request to `/mcp/{server}`.
pub async fn handle(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Answer {
    let answered = match *request.method() {
        Method::POST => post(site, entry, request, caller).await,
        Method::GET => get(site, entry, request.headers(), caller),
        Method::DELETE => delete(site, entry, request.headers(), caller),
        _ => Ok(not_allowed("POST, GET and DELETE are answered here", "POST, GET, DELETE")),
    };
    answered.unwrap_or_else(|Refused { refusal, id }| match refusal.status {
        405 => not_allowed(&refusal.error.message, "POST"),
        status => error(status, &refusal.error, id.as_deref()),
    })
}

/// A refusal, and the id of the request it answers.
struct Refused {
    refusal: Refusal,
    id: Option<Bytes>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, id: None }
    }
}

async fn post(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<Answer, Refused> {
    check_media(request.headers())?;
    let headers = request.headers().clone();
    let (body, hold) = match read_body(request, site, &caller.person.principal).await {
        Ok(read) => read,
        Err(answer) => return Ok(answer),
    };
    let message = hold.ride_with(Message::parse(body).map_err(unreadable)?);
    let id = message.copy(Slot::Id).filter(|id| id.as_ref() != b"null");
    let with_id = |refusal| Refused { refusal, id: id.clone() };
    message
        .check_envelope()
        .map_err(|wrong| with_id(Refusal::new(400, code::INVALID_REQUEST, wrong.to_string())))?;
    let version = only(&headers, VERSION).map_err(with_id)?;
    match (post::era(&message, version), message.kind()) {
        (Era::Modern, Kind::Request) => {
            post::check_modern(&headers, &message).map_err(with_id)?;
            Ok(modern_request(site, entry, &headers, message, caller).await?)
        }
        (Era::Modern, _) => Ok(accepted()),
        (Era::Legacy, Kind::Request) if message.method() == method::INITIALIZE => {
            Ok(initialize(site, entry, &message, caller).await)
        }
        (Era::Legacy, kind) => {
            let session = find_session(site, entry, &headers, caller).map_err(with_id)?;
            let client = legacy_client(entry, &session, caller);
            if kind == Kind::Request {
                let prefers_events = post::prefers_events(&headers);
                let answer = legacy_request(site, entry, session, client, message, prefers_events);
                return Ok(answer.await);
            }
            site.sessions.note(entry, &session, &client, &message);
            Ok(accepted())
        }
    }
}

/// What to say to a body that is no message.
pub(super) fn unreadable(error: ScanError) -> Refusal {
    let code = match error {
        ScanError::Batch | ScanError::NotObject | ScanError::Duplicate { .. } => {
            code::INVALID_REQUEST
        }
        _ => code::PARSE,
    };
    Refusal::new(400, code, error.to_string())
}

/// The client of a legacy session, as this request shows it.
pub(super) fn legacy_client(entry: &Entry, session: &Session, caller: &Caller) -> Arc<Client> {
    let key = caller.key(Some(&session.id), &entry.back.server);
    session.client(key, Arc::clone(&caller.person))
}

async fn initialize(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    request: &Message,
    caller: &Caller,
) -> Answer {
    let id = request.raw(Slot::Id);
    let key_of = |session: &Arc<str>| caller.key(Some(session), &entry.back.server);
    match site.sessions.open(entry, request, &caller.person, key_of).await {
        Ok((session, result)) => {
            let id = String::from_utf8_lossy(id.unwrap_or_default());
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
            let mut answer = json(200, &Bytes::from(text).into());
            let value = HeaderValue::from_str(&session.id).expect("a session id is plain ASCII");
            answer.headers_mut().insert(SESSION, value);
            answer
        }
        Err(why) => failed(200, &why, id),
    }
}

/// The session that the headers name.
fn find_session(
    site: &Site,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Arc<Session>, Refusal> {
    let Some(id) = only(headers, SESSION)? else {
        let text = "the header Mcp-Session-Id is missing: send `initialize` first and repeat the id it gives";
        return Err(Refusal::new(400, code::INVALID_REQUEST, text));
    };
    if let Some(version) = only(headers, VERSION)?
        && Revision::parse(version).is_none()
    {
        let text = format!("the protocol version {version:?} is not spoken here");
        return Err(Refusal::new(400, code::INVALID_REQUEST, text));
    }
    let session = site.sessions.find(entry, id, &caller.person, SystemTime::now());
    session.map_err(|why| match &why {
        NoSession::Unknown => Refusal::new(404, code::UNKNOWN_SESSION, why.to_string()),
        NoSession::Busy(busy) => Refusal::new(503, busy.to_error().code, why.to_string()),
    })
}

async fn legacy_request(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    session: Arc<Session>,
    client: Arc<Client>,
    request: Message,
    prefers_events: bool,
) -> Answer {
    session.touch();
    let id = request.copy(Slot::Id).unwrap_or_default();
    let clock = entry.back.clock(&request);
    let catalog = match site.sessions.known(entry, &request, &client, &clock).await {
        Ok(catalog) => catalog,
        Err(why) => return failed(200, &why, Some(&id)),
    };
    let stream = session.new_stream(id.clone());
    let reply = Reply::new(id, Arc::clone(&stream.outbox), Some(Arc::clone(&session.questions)));
    let call = Call { request, client, cancel: CancellationToken::new(), clock, reply };
    site.sessions.submit(entry, &catalog, Some(Arc::clone(&session)), call);
    // A client that goes away now does not cancel: its call goes on, and it may come back.
    let can_poll = session.revision >= Revision::V2025_11_25;
    let first = match tokio::time::timeout(KEEP_ALIVE, stream.outbox.next()).await {
        Ok(Next::End(Some(outcome))) if !prefers_events => {
            let (receipt, seconds) = (outcome.receipt(), outcome.retry_after_seconds());
            let answer = json(200, &outcome_text(outcome, &stream.request_id));
            return with_receipt(retry_after(answer, seconds), receipt);
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
    event_response(&stream, first, options)
}

async fn modern_request(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    request: Message,
    caller: &Caller,
) -> Result<Answer, Refused> {
    let id = request.copy(Slot::Id).unwrap_or_default();
    let is_probe = request.method() == method::DISCOVER;
    let clock = entry.back.clock(&request);
    let client = modern_client(entry, &request, caller);
    // No permit is held for a client that goes away meanwhile.
    let catalog = match site.sessions.known(entry, &request, &client, &clock).await {
        Ok(catalog) => catalog,
        Err(why) => return Ok(modern_json(Outcome::Failed(why, None), &id, is_probe)),
    };
    check_params(&catalog, headers, &request)?;
    let stream = Stream::new(0, id.clone(), Vec::new());
    let reply = Reply::new(id, Arc::clone(&stream.outbox), None);
    let cancel = CancellationToken::new();
    // Whoever goes away, from now on, cancels.
    let guard = cancel.clone().drop_guard();
    let call = Call { client, request, cancel: cancel.clone(), clock, reply };
    site.sessions.submit(entry, &catalog, None, call);
    let first = match tokio::time::timeout(KEEP_ALIVE, stream.outbox.next()).await {
        Ok(Next::End(Some(outcome))) => {
            guard.disarm();
            return Ok(modern_json(outcome, &stream.request_id, is_probe));
        }
        Ok(next) => Some(next),
        Err(_) => None,
    };
    guard.disarm();
    let options = EventOptions { ids: None, is_primed: false, cancel: Some(cancel), on_end: None };
    Ok(event_response(&stream, first, options))
}

/// Whether headers that repeat arguments of a tool say the same as the arguments.
fn check_params(catalog: &Catalog, headers: &HeaderMap, request: &Message) -> Result<(), Refused> {
    if request.method() != method::CALL_TOOL {
        return Ok(());
    }
    let Some(rules) = catalog.rules.get(request.string(Slot::Name).unwrap_or_default().as_ref())
    else {
        return Ok(());
    };
    rules.check(&header_list(headers), request.raw(Slot::Arguments)).map_err(|mismatch| Refused {
        refusal: Refusal::new(400, code::HEADER_MISMATCH, mismatch.to_string()),
        id: request.copy(Slot::Id),
    })
}

fn modern_client(entry: &Entry, request: &Message, caller: &Caller) -> Arc<Client> {
    // Copied, because a child that is kept for this client remembers them longer than the request.
    let copy = |slot| request.raw(slot).map(Bytes::copy_from_slice);
    Arc::new(Client {
        revision: Revision::NEWEST_MODERN,
        capabilities: copy(Slot::MetaCapabilities).unwrap_or_default(),
        info: copy(Slot::MetaClientInfo)
            .filter(|info| info.first() == Some(&b'{'))
            .unwrap_or_else(crate::back::children::own_info),
        log_level: copy(Slot::MetaLogLevel).filter(|level| level.first() == Some(&b'"')),
        key: caller.key(None, &entry.back.server),
        person: Arc::clone(&caller.person),
        feed: None,
        subscriptions: Vec::new(),
    })
}

/// The response to a modern request whose outcome came before anything else.
fn modern_json(outcome: Outcome, id: &Bytes, is_probe: bool) -> Answer {
    let (status, seconds) = match &outcome {
        Outcome::Answer(_, code, _) => (modern_status(*code), None),
        // A client that probes takes a server error as the end; a client error lets it fall back.
        Outcome::Failed(..) if is_probe => (400, None),
        Outcome::Failed(why, _) => (why.status(), why.retry_after_seconds()),
    };
    let receipt = outcome.receipt();
    with_receipt(retry_after(json(status, &outcome_text(outcome, id)), seconds), receipt)
}

/// A stream of events, beginning with what was taken from it already.
fn event_response(stream: &Arc<Stream>, first: Option<Next>, options: EventOptions) -> Answer {
    match stream.connect(None) {
        Ok(mut connection) => {
            let first = first.map(|first| connection.take(first));
            events(EventBody::new(connection, first, options))
        }
        Err(_) => empty(500),
    }
}

fn get(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Answer, Refused> {
    refuse_modern(headers)?;
    if !accepts(headers, "text/event-stream") {
        return Err(
            Refusal::new(406, code::INVALID_REQUEST, "Accept must list text/event-stream").into()
        );
    }
    let session = find_session(site, entry, headers, caller)?;
    session.touch();
    let last = match only(headers, LAST_EVENT)? {
        Some(id) => last_event(&session, id)?,
        None => None,
    };
    let number = last.map_or(0, |(stream, _)| stream);
    let Some(stream) = session.stream(number) else {
        return Err(Refusal::new(
            404,
            code::INVALID_REQUEST,
            "the stream of Last-Event-ID is not kept",
        )
        .into());
    };
    let on_end = match number {
        0 => Some(claim_feed(&session)?),
        _ => None,
    };
    let connection = stream
        .connect(last.map(|(_, event)| event))
        .map_err(|late| Refusal::new(404, code::INVALID_REQUEST, late.to_string()))?;
    let is_primed = session.revision >= Revision::V2025_11_25 && last.is_none();
    let ids = Some(session.events.clone());
    let options = EventOptions { ids, is_primed, cancel: None, on_end };
    Ok(events(EventBody::new(connection, None, options)))
}

/// The session's own stream has one connection at a time.
fn claim_feed(session: &Arc<Session>) -> Result<OnEnd, Refusal> {
    if session.is_fed.swap(true, Ordering::AcqRel) {
        let text = "this session has an open GET stream already";
        return Err(Refusal::new(409, code::INVALID_REQUEST, text));
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
            Err(Refusal::new(400, code::INVALID_REQUEST, text))
        }
        None => {
            let text = format!("Last-Event-ID {id:?} is none of this session");
            Err(Refusal::new(400, code::INVALID_REQUEST, text))
        }
    }
}

fn delete(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Answer, Refused> {
    refuse_modern(headers)?;
    let session = find_session(site, entry, headers, caller)?;
    site.sessions.close(&session);
    Ok(empty(200))
}

/// The modern era has neither `GET` nor `DELETE`.
fn refuse_modern(headers: &HeaderMap) -> Result<(), Refusal> {
    let version = only(headers, VERSION)?.and_then(Revision::parse);
    if version.map(Revision::era) == Some(Era::Modern) || !headers.contains_key(SESSION) {
        let text = "only POST is answered here, but for legacy sessions (Mcp-Session-Id)";
        return Err(Refusal::new(405, code::INVALID_REQUEST, text));
    }
    Ok(())
}
