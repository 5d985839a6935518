//! The HTTP listener: connections and their limits, and which request goes where.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::admin;
use super::cors::PageAccess;
use super::files::downloads;
use super::framing::Framed;
use super::leave;
use super::mcp::{sse, streamable};
use super::refusal::Refusal;
use super::repoll::Repoll;
use super::response::HttpResponse;
use super::rest::{self, RestPlace, server_page, without_root};
use super::site::HttpSite;
use super::tls::ServerTls;
use super::websocket;
use super::websocket::upgrade::{Offered, WebSocketOpening};
use super::who::auth::{Area, Denied};
use super::who::caller::Caller;
use super::who::entrance::Entrance;
use crate::lock::Lock;
use crate::observe::health::Sight;
use crate::observe::trace::{TRACEPARENT, TRACESTATE, Trace};
use crate::session::entry::Entry;

/// How large the head of a request may be, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Serves connections until the bridge leaves, then lets open ones finish.
pub async fn serve(listener: TcpListener, site: Arc<HttpSite>) {
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

async fn serve_connection(stream: TcpStream, peer: SocketAddr, site: Arc<HttpSite>) {
    // Answers are small and awaited: they must not wait for company.
    drop(stream.set_nodelay(true));
    limit_silence(&stream);
    match &site.tls {
        None => serve_stream(stream, peer, site).await,
        // A connection without TLS keeps no room for what that needs.
        Some(tls) => Box::pin(serve_secure(stream, peer, Arc::clone(tls), site)).await,
    }
}

/// Serves one connection that is to be TLS.
pub(crate) async fn serve_secure<S>(
    stream: S,
    peer: SocketAddr,
    tls: Arc<ServerTls>,
    site: Arc<HttpSite>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // A proxy in its handshake has something to send.
    let is_proxy = site.entrance.identities.is_trusted(peer.ip());
    let _proxied = is_proxy.then(|| site.proxied.token());
    match tls.open(stream).await {
        Ok(stream) => serve_stream(stream, peer, site).await,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(%peer, error, "a connection to the TLS address is closed");
        }
    }
}

/// Serves one connection, whatever carries it.
pub(crate) async fn serve_stream<S>(stream: S, peer: SocketAddr, site: Arc<HttpSite>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let is_proxy = site.entrance.identities.is_trusted(peer.ip());
    let _proxied = is_proxy.then(|| site.proxied.token());
    let opening = Lock::new(None);
    let service = service_fn(|request| {
        let (site, opening) = (Arc::clone(&site), &opening);
        async move {
            let mut response = traced(&site, request, peer.ip(), is_proxy).await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                *opening.lock() = response.extensions_mut().remove::<WebSocketOpening>();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Framed::new(stream)), service)
        .with_upgrades();
    let mut connection = Repoll::new(connection);
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
    // It is the same connection still, with its place among all, and its end is waited for.
    let opening = opening.lock().take();
    if let Some(mut opening) = opening
        && let Ok(upgraded) = (&mut opening.upgrade).await
        && let Ok(parts) = upgraded.downcast::<TokioIo<Framed<S>>>()
        && let Some(stream) = parts.io.into_inner().into_inner()
    {
        Box::pin(websocket::serve(opening, stream, &parts.read_buf, &site)).await;
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

/// Answers a request inside its trace, and tells the trace and the log: what for, but neither names of files nor
/// anything else that people choose.
async fn traced(
    site: &Arc<HttpSite>,
    request: Request<Incoming>,
    peer: IpAddr,
    is_proxy: bool,
) -> HttpResponse {
    let began = Instant::now();
    let parents = request.headers().get_all(&TRACEPARENT).iter().map(HeaderValue::as_bytes);
    let state = request.headers().get(&TRACESTATE).and_then(|it| it.to_str().ok());
    let trace = site.traces.of(parents);
    // A state without a right parent belongs to no trace that goes on here.
    let trace = if trace.parent.is_some() { trace.with_state(state) } else { trace };
    let area = match request.uri().path().split('/').nth(1) {
        Some("mcp") => "mcp",
        Some("sse") => "sse",
        Some("ws") => "ws",
        Some("mcpo") => "mcpo",
        Some("files") => "files",
        Some("health" | "ready" | "metrics") => "admin",
        _ => "elsewhere",
    };
    let method = request.method().clone();
    let guard = &site.entrance.guard;
    let access = PageAccess::of(guard, request.headers());
    let answering = async {
        let response = match access.preflight(guard, &request) {
            Some(response) => response,
            None => handle(site, request, peer, trace.clone()).await,
        };
        let status = response.status().as_u16();
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(%method, area, status, took_ms, "request answered");
        response
    };
    let mut response = answering.instrument(trace.span()).await;
    if let Ok(value) = HeaderValue::try_from(trace.header()) {
        response.headers_mut().insert(&TRACEPARENT, value);
    }
    access.tell(response.headers_mut());
    // A stream that a proxy hears may still be open when the bridge leaves, and then its connection must
    // not be used again: that has to be said now.
    if site.leaving.is_cancelled() || (is_proxy && response.body().is_stream()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Answers a request: one to a server here, and where it is refused, that is logged.
async fn handle(
    site: &Arc<HttpSite>,
    mut request: Request<Incoming>,
    peer: IpAddr,
    trace: Trace,
) -> HttpResponse {
    let rest = &site.rest;
    let path = without_root(request.uri().path(), &rest.root_path).to_owned();
    let segments: Vec<_> = path.split('/').skip(1).collect();
    let is_mcp = matches!(segments.as_slice(), ["mcp" | "sse" | "ws", _] | ["sse", _, "messages"]);
    let place = match is_mcp {
        true => None,
        false => RestPlace::of(request.method(), &path, rest, &site.sessions.entries()),
    };
    if let Some(place) = place {
        return Box::pin(rest::handle(site, &place, request, peer, trace)).await;
    }
    if !matches!(segments.as_slice(), ["mcp" | "sse" | "ws", ..]) {
        let answered = Box::pin(elsewhere(site, request, &path, &segments, peer)).await;
        return answered.unwrap_or_else(Refusal::into_detail);
    }
    if let ["mcp", server] = segments[..]
        && server_page::is_browser(&request)
    {
        let page = server_page::answer(site, &request, server, peer);
        return page.unwrap_or_else(Refusal::into_detail);
    }
    let server = segments.get(1).copied().unwrap_or_default();
    let refuse = |refusal: Refusal, from| {
        refusal.log(&site.metrics.refusals, server, from);
        refusal.into_response()
    };
    // Before anything looks at the headers: a key may be among them where only we look for one.
    let offered = match segments[0] {
        "ws" => Offered::take(request.headers_mut()),
        _ => Ok(Offered::default()),
    };
    let found = offered.and_then(|offered| {
        let found = caller(site, request.headers(), &path, &segments, peer, trace)?;
        Ok((offered, found))
    });
    let (offered, (entry, caller)) = match found {
        Ok(found) => found,
        Err(refusal) => {
            return refuse(refusal, site.entrance.identities.address(request.headers(), peer));
        }
    };
    let answered = match segments.as_slice() {
        ["mcp", _] => streamable::handle(site, &entry, request, &caller).await,
        ["sse", _] => sse::open(site, &entry, &request, &caller),
        ["sse", _, "messages"] => Box::pin(sse::message(site, &entry, request, &caller)).await,
        ["ws", _] => websocket::upgrade::open(site, &entry, request, &offered, &caller),
        _ => Err(not_there(&path)),
    };
    answered.unwrap_or_else(|refusal| {
        // These words cost something, and few requests are refused.
        let refusal = refusal.asked_by(caller.person.principal.words());
        refuse(refusal, caller.identity.address)
    })
}

/// The server that a request is for, and who makes it.
fn caller(
    site: &HttpSite,
    headers: &HeaderMap,
    path: &str,
    segments: &[&str],
    peer: IpAddr,
    trace: Trace,
) -> Result<(Arc<Entry>, Caller), Refusal> {
    site.entrance.guard.check(headers)?;
    let &[_, server, ..] = segments else { return Err(not_there(path)) };
    let visitor = site.entrance.visitor(headers, peer, Area::Tool, Denied::mcp)?;
    site.metrics.request_from(visitor.identity.address);
    let entry = site.sessions.entries().get(server).cloned();
    let entry = entry.ok_or_else(|| site.unknown_server(server).asked_by(visitor.words()))?;
    let caller = site.entrance.caller(visitor, headers, peer, trace, &entry.back.server);
    Ok((entry, caller))
}

/// Answers a request that is not for a server.
async fn elsewhere(
    site: &Arc<HttpSite>,
    request: Request<Incoming>,
    path: &str,
    segments: &[&str],
    peer: IpAddr,
) -> Result<HttpResponse, Refusal> {
    let Entrance { guard, auth, .. } = &site.entrance;
    guard.check(request.headers())?;
    match segments {
        ["files", ..] => downloads::handle(site, request, path).await,
        ["health" | "ready" | "metrics"] if request.method() != Method::GET => {
            Err(Refusal::not_allowed("only GET is answered here", "GET"))
        }
        ["health"] => {
            let pass = auth.check(request.headers(), Area::Health).map_err(Denied::plain)?;
            let sight = match pass {
                None if auth.is_on() => Sight::Status,
                _ => Sight::Whole,
            };
            Ok(admin::health(site, sight).await)
        }
        ["ready"] => Ok(admin::ready(site).await),
        ["metrics"] => {
            auth.check(request.headers(), Area::Metrics).map_err(Denied::plain)?;
            Ok(admin::metrics(site).await)
        }
        _ => match Box::pin(rest::front_door(site, &request, segments, peer)).await? {
            Some(response) => Ok(response),
            None => {
                // With strict keys, a request without a key must not hear which paths exist.
                auth.check(request.headers(), Area::Document).map_err(Denied::plain)?;
                tracing::debug!(path, "nothing is served there");
                Err(Refusal::plain(404, "Not Found"))
            }
        },
    }
}

fn not_there(path: &str) -> Refusal {
    let text = format!("nothing is served at {path:?}: MCP servers are at /mcp/NAME");
    Refusal::invalid(404, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the future that answers a request.
    fn size_of_answer<F>(
        _: impl Fn(&'static Arc<HttpSite>, Request<Incoming>, IpAddr, bool) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// It is moved for every request, so rare roads are boxed, and no message lies in it.
    #[test]
    fn the_future_of_a_request_is_small() {
        let size = size_of_answer(traced);
        assert!(size < 5000, "{size} bytes");
    }

    use crate::app::test_bridge::request::{bare, modern};
    use crate::app::test_bridge::{TestBridge, ToolServer};
    use pontoon_wire::Era;

    fn bridge() -> TestBridge {
        TestBridge::start(ToolServer::new(Era::Legacy).servers(), |_, _| {})
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_its_head_is_let_go_after_ten_seconds() {
        let bridge = bridge();
        let mut connection = bridge.connect();
        let began = tokio::time::Instant::now();
        connection.write("POST /mcp/demo HTTP/1.1\r\nhost: 127.0.0.1\r\n").await;
        connection.until_closed().await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_goes_nowhere_is_told_where_it_may_go() {
        let bridge = bridge();
        for (method, path, status, says) in [
            ("POST", "/mcp/other", 404, "there is no server \\\"other\\\"; there are: demo"),
            ("GET", "/nothing", 404, "{\"detail\":\"Not Found\"}"),
            ("GET", "/", 200, "/mcp/demo"),
            ("GET", "/mcp/demo/more", 404, "MCP servers are at /mcp/NAME"),
            ("PUT", "/mcp/demo", 405, "POST, GET and DELETE are answered here"),
            ("POST", "/health", 405, "only GET is answered here"),
        ] {
            let response = bridge.connect().send(&bare(method, path, &[])).await;
            assert_eq!(response.status, status, "{method} {path}");
            let body = response.body().await;
            assert!(body.contains(says), "{method} {path}: {body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_follow_each_other_on_one_connection_each_in_a_trace() {
        let bridge = bridge();
        let mut connection = bridge.connect();
        for _ in 0..3 {
            let response = connection.send(&modern(1, "tools/list", "")).await;
            assert_eq!((response.status, response.header("connection")), (200, None));
            let trace = response.header("traceparent").expect("a trace").to_owned();
            assert_eq!((trace.len(), &trace[..3]), (55, "00-"));
            connection = response.next().await;
        }
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let response = connection.send(&bare("GET", "/ready", &[("traceparent", parent)])).await;
        assert_eq!(response.header("traceparent").map(|it| &it[..36]), Some(&parent[..36]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bridge_that_leaves_answers_what_is_open_and_closes() {
        let bridge = bridge();
        let idle = bridge.connect().send(&bare("GET", "/ready", &[])).await.next().await;
        let mut open = bridge.connect();
        open.write("POST /mcp/demo HTTP/1.1\r\n").await;
        let call = modern(1, "tools/call", "\"name\":\"wait\",\"arguments\":{\"seconds\":9}");
        let mut calling = bridge.connect();
        calling.write(&call).await;
        while bridge.entry().back.running() == 0 {
            tokio::task::yield_now().await;
        }
        let stopping = tokio::spawn(bridge.stop());
        idle.until_closed().await;
        open.until_closed().await;
        let last = calling.begin().await;
        assert_eq!((last.status, last.header("connection")), (200, Some("close")));
        assert!(last.body().await.contains("\"by\""));
        assert!(stopping.await.unwrap().is_ok());
    }
}
