//! The deprecated HTTP+SSE transport (2024-11-05), for clients that have nothing newer.
//!
//! `GET /sse/{server}` opens a stream, whose first event says where to post messages; each is taken
//! with 202, and its answer comes on the stream. The session ends when the stream does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Incoming;
use hyper::{Method, Request};
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Kind, Message, Slot, method};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::super::body::OnEnd;
use super::super::http::{Site, accepted, read_body};
use super::super::response::{Answer, error, failed, not_allowed, sse};
use super::super::who::caller::Caller;
use super::post::{accepts, check_content};
use super::sse_stream::{SseBody, SseStream};
use super::streamable::{legacy_client, unreadable};
use crate::call::{Call, CallError, Reply};
use crate::client::Person;
use crate::observe::metrics::Limit;
use crate::session::catalog::Entry;

/// Streams in all, and of one client.
const MAX_STREAMS: usize = 1024;
const MAX_PER_CLIENT: usize = 64;

/// The streams that are open.
#[derive(Debug, Default)]
pub struct Streams {
    table: Mutex<HashMap<String, Arc<SseStream>>>,
}

impl Streams {
    /// A new stream, if there is room for one.
    fn open(&self, entry: &Entry, person: &Person) -> Result<Arc<SseStream>, CallError> {
        let mut table = self.lock();
        let own = table.values().filter(|stream| stream.principal == person.principal).count();
        let what = match (table.len(), own) {
            (MAX_STREAMS.., _) => format!("all {MAX_STREAMS} streams are in use"),
            (_, MAX_PER_CLIENT..) => {
                format!("all {MAX_PER_CLIENT} streams of this client are open")
            }
            _ => {
                let stream = Arc::new(SseStream::new(&entry.back.server.name, person));
                table.insert(stream.id.clone(), Arc::clone(&stream));
                return Ok(stream);
            }
        };
        Err(CallError::Busy { what, retry_after_seconds: 10 })
    }

    /// The stream of this name, if it is one of this server's and of this person's.
    fn find(&self, entry: &Entry, id: &str, person: &Person) -> Option<Arc<SseStream>> {
        let stream = self.lock().get(id).cloned()?;
        let is_theirs = stream.server == entry.back.server.name && stream.principal.lets_in(person);
        is_theirs.then_some(stream)
    }

    /// Lets all of them end with the answers that are under way.
    pub fn end(&self) {
        self.lock().values().for_each(|stream| stream.end());
    }

    fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<SseStream>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a request to `/sse/{server}`.
pub fn open(
    site: &Arc<Site>,
    entry: &Entry,
    request: &Request<Incoming>,
    caller: &Caller,
) -> Answer {
    if request.method() != Method::GET {
        let text = "GET opens a stream here; a client that posts finds MCP at /mcp/NAME";
        return not_allowed(text, "GET");
    }
    if !accepts(request.headers(), "text/event-stream") {
        let text = "Accept must list text/event-stream";
        return error(406, &ErrorObject::new(code::INVALID_REQUEST, text), None);
    }
    let stream = match site.streams.open(entry, &caller.person) {
        Ok(stream) => stream,
        Err(why) => {
            site.metrics.refused(Limit::Streams);
            return failed(why.status(), &why, None);
        }
    };
    let endpoint = format!("/sse/{}/messages?session={}", entry.back.server.name, stream.id);
    let on_end = {
        let (site, stream) = (Arc::clone(site), Arc::clone(&stream));
        OnEnd(Box::new(move || {
            site.streams.remove(&stream.id);
            if let Some(session) = stream.close() {
                site.sessions.close(&session);
            }
        }))
    };
    sse(SseBody::new(stream, &endpoint, on_end))
}

/// Answers a request to `/sse/{server}/messages`.
pub async fn message(
    site: &Arc<Site>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Answer {
    if request.method() != Method::POST {
        return not_allowed("messages are posted here", "POST");
    }
    let query = request.uri().query().unwrap_or_default();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("session=")).unwrap_or_default();
    let Some(stream) = site.streams.find(entry, id, &caller.person) else {
        let text = "the stream is unknown or has ended: open it again with GET /sse/NAME";
        return error(404, &ErrorObject::new(code::UNKNOWN_SESSION, text), None);
    };
    if let Err(refusal) = check_content(request.headers()) {
        return error(refusal.status, &refusal.error, None);
    }
    let (body, hold) = match read_body(request, site, &caller.person.principal).await {
        Ok(read) => read,
        Err(answer) => return answer,
    };
    let message = match Message::parse(body) {
        Ok(message) => hold.ride_with(message),
        Err(why) => {
            let refusal = unreadable(why);
            return error(refusal.status, &refusal.error, None);
        }
    };
    let id = message.copy(Slot::Id).filter(|id| id.as_ref() != b"null");
    if let Err(wrong) = message.check_envelope() {
        let why = ErrorObject::new(code::INVALID_REQUEST, wrong.to_string());
        return error(400, &why, id.as_deref());
    }
    if message.kind() != Kind::Request {
        if let Some(session) = stream.session() {
            let client = legacy_client(entry, &session, caller);
            site.sessions.note(entry, &session, &client, &message);
        }
        return accepted();
    }
    let id = id.unwrap_or_default();
    let outbox = match stream.begin(id.clone()) {
        Ok(outbox) => outbox,
        Err(why) => {
            if matches!(why, CallError::Busy { .. }) {
                site.metrics.refused(Limit::Streams);
            }
            return failed(why.status(), &why, Some(&id));
        }
    };
    let session = stream.session();
    let questions = session.as_ref().map(|session| Arc::clone(&session.questions));
    let reply = Reply::new(id, outbox, questions);
    let client = session.as_ref().map(|session| legacy_client(entry, session, caller));
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
        let clock = entry.back.clock(&message);
        let catalog = match site.sessions.known(&entry, &message, &client, &clock).await {
            Ok(catalog) => catalog,
            Err(why) => return reply.fail(why),
        };
        let cancel = CancellationToken::new();
        let call = Call { request: message, client, cancel, clock, reply };
        stream.while_open(|| site.sessions.submit(&entry, &catalog, Some(session), call));
    };
    tasks.spawn(answering.in_current_span());
    accepted()
}

async fn initialize(
    site: &Site,
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
