//! The HTTP listener: connections, routes, bodies with a limit, time-outs.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, CONTENT_ENCODING, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use pontoon_wire::ErrorObject;
use pontoon_wire::error::code;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::admin::{self, LastLook};
use super::again::Again;
use super::auth::{Area, Auth};
use super::caller::Caller;
use super::downloads;
use super::framing::Framed;
use super::guard::Guard;
use super::identity::Identities;
use super::leave;
use super::origin::Origins;
use super::respond::{Answer, Why, empty, error, retry_after};
use super::sse::{self, Streams};
use super::streamable;
use crate::back::budget::Budget;
use crate::client::Principal;
use crate::held_bytes::{Full, HeldBytes, Hold, RETRY_SECONDS};
use crate::jobs::{Links, Store};
use crate::observe::health::Sight;
use crate::observe::metrics::{Limit, Metrics};
use crate::observe::refusals::RefusalNote;
use crate::observe::trace::{TRACEPARENT, Traces};
use crate::session::Sessions;
use crate::session::catalog::Entry;

/// How long the head of a request may take, and its body.
const HEAD_TIME: Duration = Duration::from_secs(10);
const BODY_TIME: Duration = Duration::from_secs(60);

/// Everything a request may need.
#[derive(Debug)]
pub struct Site {
    /// Clients and servers.
    pub sessions: Arc<Sessions>,
    /// The open streams of the older transport.
    pub streams: Streams,
    /// Which hosts and origins may be named.
    pub guard: Guard,
    /// The largest body taken.
    pub max_body: usize,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    /// When the bridge started.
    pub started: std::time::Instant,
    /// How many children live, the bridge's helper not counted.
    pub spawner: pontoon_supervise::Spawner,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// The keys that open the bridge.
    pub auth: Auth,
    /// How requests are identified.
    pub identities: Identities,
    /// Where clients reach us.
    pub origins: Origins,
    /// Where jobs are.
    pub store: Store,
    /// What a probe saw of where jobs are; held while one looks.
    pub looking: Arc<Mutex<LastLook>>,
    /// With less than this free, no new job is made.
    pub min_free_disk: u64,
    /// The addresses of files.
    pub links: Arc<Links>,
    /// How many children are kept.
    pub budget: Budget,
    /// Makes trace ids.
    pub traces: Traces,
    /// Fires when the bridge leaves: each answer is then the last on its connection.
    pub leaving: CancellationToken,
    /// The connections of proxies.
    pub proxied: TaskTracker,
}

/// Serves connections until the bridge leaves, then lets open ones finish.
pub async fn serve(listener: TcpListener, site: Arc<Site>) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(site.held.max_connections()));
    loop {
        let accepted = tokio::select! {
            () = site.leaving.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else { continue };
        let site = Arc::clone(&site);
        connections.spawn(async move {
            serve_connection(stream, peer, site).await;
            drop(permit);
        });
    }
    for (stream, peer) in leave::close(listener).await {
        connections.spawn(serve_connection(stream, peer, Arc::clone(&site)));
    }
    connections.close();
    connections.wait().await;
}

/// The next connection, when there is room for one. A passing failure is waited out.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no connection accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, site: Arc<Site>) {
    let is_proxy = site.identities.is_proxy(peer.ip());
    let _proxied = is_proxy.then(|| site.proxied.token());
    // Answers are small and awaited: they must not wait for company.
    drop(stream.set_nodelay(true));
    limit_silence(&stream);
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(traced(&site, request, peer.ip(), is_proxy).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(64 * 1024)
        .max_headers(64)
        .serve_connection(TokioIo::new(Framed::new(stream)), service);
    let mut connection = Again::new(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = leave::time_to_close(&site.leaving, is_proxy) => {
            connection.inner().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%peer, error = &error as &dyn std::error::Error, "connection ended");
    }
}

/// A client that takes nothing off its connection for this long is cut off.
#[cfg(target_os = "linux")]
fn limit_silence(stream: &TcpStream) {
    const LONGEST_MS: u32 = 60_000;
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, LONGEST_MS) {
        tracing::debug!(%error, "a client that reads nothing cannot be cut off");
    }
}

/// Elsewhere there is no such option, and the operating system's own patience holds.
#[cfg(not(target_os = "linux"))]
fn limit_silence(_stream: &TcpStream) {}

/// Answers a request inside its trace, and tells the trace.
async fn traced(
    site: &Arc<Site>,
    request: Request<Incoming>,
    peer: IpAddr,
    is_proxy: bool,
) -> Answer {
    let parents = request.headers().get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes);
    let trace = site.traces.of(parents);
    let mut answer = logged(site, request, peer).instrument(trace.span()).await;
    if let Ok(value) = HeaderValue::from_str(&trace.header()) {
        answer.headers_mut().insert(TRACEPARENT, value);
    }
    // A stream that a proxy hears may still be open when the bridge leaves, and then its connection must
    // not be used again: that has to be said now.
    if site.leaving.is_cancelled() || (is_proxy && answer.body().is_stream()) {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Answers a request, and logs that it did: what for, but neither names of files nor anything else
/// that people choose.
async fn logged(site: &Arc<Site>, request: Request<Incoming>, peer: IpAddr) -> Answer {
    let began = std::time::Instant::now();
    let area = match request.uri().path().split('/').nth(1) {
        Some("mcp") => "mcp",
        Some("sse") => "sse",
        Some("files") => "files",
        Some("health" | "ready" | "metrics") => "admin",
        _ => "elsewhere",
    };
    let method = request.method().clone();
    let answer = handle(site, request, peer).await;
    let status = answer.status().as_u16();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(%method, area, status, took_ms, "request answered");
    answer
}

async fn handle(site: &Arc<Site>, request: Request<Incoming>, peer: IpAddr) -> Answer {
    let path = request.uri().path().to_owned();
    let segments: Vec<_> = path.split('/').skip(1).collect();
    let ["mcp" | "sse", rest @ ..] = segments.as_slice() else {
        return match turned_away(site, request.headers()) {
            Some(refusal) => refusal,
            None => elsewhere(site, request, &path, &segments).await,
        };
    };
    let Some(refusal) = turned_away(site, request.headers()) else {
        return mcp(site, request, &segments, peer).await;
    };
    let server = rest.first().copied().unwrap_or_default();
    let from = site.identities.address(request.headers(), peer);
    heard(site, server, "unknown", from, refusal)
}

/// Answers a request to a server; one that is refused is logged.
async fn mcp(
    site: &Arc<Site>,
    request: Request<Incoming>,
    segments: &[&str],
    peer: IpAddr,
) -> Answer {
    let from = |headers: &HeaderMap| site.identities.address(headers, peer);
    let &[transport, server, ref rest @ ..] = segments else {
        let refusal = not_there(request.uri().path());
        return heard(site, "", "unknown", from(request.headers()), refusal);
    };
    let (entry, caller) = match caller(site, server, request.headers(), peer) {
        Ok(found) => found,
        Err((who, refusal)) => {
            return heard(site, server, &who, from(request.headers()), *refusal);
        }
    };
    let answer = match (transport, rest) {
        ("mcp", []) => streamable::handle(site, &entry, request, &caller).await,
        ("sse", []) => sse::open(site, &entry, &request, &caller),
        ("sse", ["messages"]) => sse::message(site, &entry, request, &caller).await,
        _ => not_there(request.uri().path()),
    };
    // Its words cost something, and few answers are refusals.
    match answer.extensions().get::<Why>() {
        Some(_) => {
            let who = caller.person.principal.words();
            heard(site, server, &who, caller.identity.address, answer)
        }
        None => answer,
    }
}

/// Logs why a request was refused, if it was.
fn heard(site: &Site, server: &str, who: &str, from: IpAddr, answer: Answer) -> Answer {
    if let Some(Why { status, code, text }) = answer.extensions().get::<Why>() {
        let (status, code) = (*status, *code);
        let refusal = RefusalNote { status, code, server, who: &who, from, why: text };
        site.metrics.refusals.tell(&refusal);
    }
    answer
}

/// The answer to a request that is wrong wherever it goes.
fn turned_away(site: &Site, headers: &HeaderMap) -> Option<Answer> {
    let (status, why) = site.guard.check(headers).err()?;
    Some(error(status, &ErrorObject::new(code::INVALID_REQUEST, why), None))
}

/// Answers a request that is not for a server.
async fn elsewhere(
    site: &Arc<Site>,
    request: Request<Incoming>,
    path: &str,
    segments: &[&str],
) -> Answer {
    match segments {
        ["files", ..] => download(site, request).await,
        ["health" | "ready" | "metrics"] if request.method() != Method::GET => {
            super::respond::not_allowed("only GET is answered here", "GET")
        }
        ["health"] => match site.auth.check(request.headers(), Area::Health) {
            Ok(None) if site.auth.is_on() => admin::health(site, Sight::Status).await,
            Ok(_) => admin::health(site, Sight::Whole).await,
            Err(denied) => denied.plain(),
        },
        ["ready"] => admin::ready(site).await,
        ["metrics"] => match site.auth.check(request.headers(), Area::Metrics) {
            Ok(_) => admin::metrics(site).await,
            Err(denied) => denied.plain(),
        },
        _ => not_there(path),
    }
}

fn not_there(path: &str) -> Answer {
    let text = format!("nothing is served at {path:?}: MCP servers are at /mcp/NAME");
    error(404, &ErrorObject::new(code::INVALID_REQUEST, text), None)
}

/// Answers a request for a file.
async fn download(site: &Arc<Site>, request: Request<Incoming>) -> Answer {
    let area = Area::Files { is_signed: site.links.is_signed() };
    if let Err(denied) = site.auth.check(request.headers(), area) {
        return denied.plain();
    }
    let (store, links) = (site.store.clone(), Arc::clone(&site.links));
    let answer = downloads::handle(request, move |link| {
        let is_good = links.check(&link.job, &link.path, link.query.as_deref(), SystemTime::now());
        is_good.then(|| store.open_file(&link.job, &link.path).ok()).flatten()
    });
    let answer = answer.await;
    if answer.status().is_success() {
        site.metrics.downloads.bump();
        site.metrics.download_bytes.add(answer.body().size_hint().exact().unwrap_or_default());
    }
    answer
}

/// The server that a request is for, and who makes it; or who that is as far as it is known, and the
/// answer that refuses it.
fn caller(
    site: &Site,
    server: &str,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Result<(Arc<Entry>, Caller), (String, Box<Answer>)> {
    let pass = site.auth.check(headers, Area::Tool);
    let pass = pass.map_err(|denied| ("unknown".to_owned(), Box::new(denied.mcp())))?;
    let key = pass.map(|pass| pass.key);
    let who = || key.map_or_else(|| "unknown".to_owned(), |key| format!("key {key}"));
    let identity = site.identities.identify(headers, peer, key).map_err(|(status, why)| {
        let code = if status == 401 { code::UNAUTHORIZED } else { code::INVALID_REQUEST };
        (who(), Box::new(error(status, &ErrorObject::new(code, why), None)))
    })?;
    site.metrics.request_from(identity.address);
    let entry = site.sessions.entries().get(server).cloned();
    let entry = entry.ok_or_else(|| (who(), Box::new(unknown_server(site, server))))?;
    let origin = site.origins.of(headers, site.identities.is_trusted(peer));
    // Without a key of ours, people are told apart by what they show there.
    let ours = pass.map_or(&["authorization"][..], |pass| pass.headers);
    let caller = Caller::new(identity, headers, ours, origin, &entry.back.server);
    Ok((entry, caller))
}

fn unknown_server(site: &Site, name: &str) -> Answer {
    let entries = site.sessions.entries();
    let mut names: Vec<_> = entries.keys().map(String::as_str).collect();
    names.sort_unstable();
    let text = format!("there is no server {name:?}; there are: {}", names.join(", "));
    error(404, &ErrorObject::new(code::INVALID_REQUEST, text), None)
}

/// The whole body, and what counts it; or the response that refuses it.
pub async fn read_body(
    request: Request<Incoming>,
    site: &Site,
    client: &Principal,
) -> Result<(BytesMut, Hold), Answer> {
    let max_body = site.max_body;
    let refuse = |status, text: String| {
        let mut answer = error(status, &ErrorObject::new(code::INVALID_REQUEST, text), None);
        // What is left of the body is not worth reading.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    };
    let too_large = || {
        site.metrics.refused(Limit::Body);
        refuse(413, format!("the body is larger than {max_body} bytes (MCPO_MAX_BODY)"))
    };
    if request.headers().contains_key(CONTENT_ENCODING) {
        return Err(refuse(415, "send the body as it is, without Content-Encoding".to_owned()));
    }
    let hint = request.body().size_hint();
    if hint.lower() > max_body as u64 {
        return Err(too_large());
    }
    let no_room = |full: Full| {
        site.metrics.refused(Limit::Memory);
        let text = format!("busy: {full}, try again in {RETRY_SECONDS} s");
        retry_after(refuse(full.status(), text), Some(RETRY_SECONDS))
    };
    if site.held.has_its_share(client) {
        return Err(no_room(Full::Share));
    }
    let mut hold = site.held.hold(Some(client));
    let mut body = request.into_body();
    let mut whole = BytesMut::new();
    let reading = async {
        while !body.is_end_stream()
            && let Some(frame) = body.frame().await
        {
            let Ok(frame) = frame else {
                return Err(refuse(400, "the body broke off".to_owned()));
            };
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > max_body {
                return Err(too_large());
            }
            let announced = usize::try_from(hint.lower()).unwrap_or(usize::MAX);
            make_room(&mut whole, data.len(), announced, &mut hold).map_err(no_room)?;
            match data.try_into_mut() {
                // The usual case: the whole body in one piece, taken without a copy.
                Ok(data) if whole.is_empty() => whole = data,
                Ok(data) => whole.extend_from_slice(&data),
                Err(data) => whole.extend_from_slice(&data),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIME, reading).await {
        Ok(Ok(())) => Ok((whole, hold)),
        Ok(Err(answer)) => Err(answer),
        Err(_) => Err(refuse(408, "the body took too long".to_owned())),
    }
}

/// Room for more of a body: as it comes, and never more than twice of what has come, whatever was announced.
fn make_room(
    whole: &mut BytesMut,
    more: usize,
    announced: usize,
    hold: &mut Hold,
) -> Result<(), Full> {
    let needed = whole.len() + more;
    if whole.is_empty() || needed <= whole.capacity() {
        return hold.grow_to(needed);
    }
    let size = (2 * whole.len()).min(announced).max(needed);
    hold.grow_to(size)?;
    whole.reserve(size - whole.len());
    Ok(())
}

/// A response without a body, for a message that wants no answer.
pub fn accepted() -> Answer {
    empty(202)
}
