//! The HTTP listener: connections, routes, bodies with a limit, time-outs.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, CONTENT_ENCODING, HeaderValue, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use pontoon_wire::ErrorObject;
use pontoon_wire::error::code;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::again::Again;
use super::guard::Guard;
use super::health::health;
use super::respond::{Answer, empty, error};
use super::streamable;
use crate::session::Sessions;

/// Connections at once.
const MAX_CONNECTIONS: usize = 10_000;

/// How long the head of a request may take, and its body.
const HEAD_TIME: Duration = Duration::from_secs(10);
const BODY_TIME: Duration = Duration::from_secs(60);

/// Everything a request may need.
#[derive(Debug)]
pub struct Site {
    /// Clients and servers.
    pub sessions: Arc<Sessions>,
    /// Which hosts and origins may be named.
    pub guard: Guard,
    /// The largest body taken.
    pub max_body: usize,
    /// When the bridge started.
    pub started: std::time::Instant,
    /// How many children live, the bridge's helper not counted.
    pub spawner: pontoon_supervise::Spawner,
}

/// Serves connections until `stop`, then lets open ones finish.
pub async fn serve(listener: TcpListener, site: Arc<Site>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else { continue };
        let (site, stop) = (Arc::clone(&site), stop.clone());
        connections.spawn(async move {
            serve_connection(stream, peer, site, stop).await;
            drop(permit);
        });
    }
    drop(listener);
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

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    site: Arc<Site>,
    stop: CancellationToken,
) {
    // Answers are small and awaited: they must not wait for company.
    drop(stream.set_nodelay(true));
    limit_silence(&stream);
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(handle(&site, request, peer.ip()).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(64 * 1024)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = Again::new(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
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

async fn handle(site: &Arc<Site>, request: Request<Incoming>, peer: IpAddr) -> Answer {
    if let Err((status, why)) = site.guard.check(request.headers()) {
        return error(status, &ErrorObject::new(code::INVALID_REQUEST, why), None);
    }
    if is_ambiguous(request.headers()) {
        let text = "say once how long the body is: by `Content-Length`, or by `Transfer-Encoding: chunked`";
        let mut answer = error(400, &ErrorObject::new(code::INVALID_REQUEST, text), None);
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return answer;
    }
    let path = request.uri().path().to_owned();
    match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
        ["mcp", server] => match site.sessions.entries.get(*server) {
            Some(entry) => streamable::handle(site, entry, request, peer).await,
            None => unknown_server(site, server),
        },
        ["health"] if request.method() == Method::GET => health(site),
        ["health"] => super::respond::not_allowed("only GET is answered here", "GET"),
        _ => {
            let text = format!("nothing is served at {path:?}: MCP servers are at /mcp/NAME");
            error(404, &ErrorObject::new(code::INVALID_REQUEST, text), None)
        }
    }
}

/// Whether a proxy before us may believe that the body ends elsewhere.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return false };
    !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
        || codings.next().is_some()
        || headers.contains_key(hyper::header::CONTENT_LENGTH)
}

fn unknown_server(site: &Site, name: &str) -> Answer {
    let mut names: Vec<_> = site.sessions.entries.keys().map(String::as_str).collect();
    names.sort_unstable();
    let text = format!("there is no server {name:?}; there are: {}", names.join(", "));
    error(404, &ErrorObject::new(code::INVALID_REQUEST, text), None)
}

/// The whole body, or the response that refuses it.
pub async fn read_body(request: Request<Incoming>, max_body: usize) -> Result<BytesMut, Answer> {
    let refuse = |status, text: String| {
        let mut answer = error(status, &ErrorObject::new(code::INVALID_REQUEST, text), None);
        // What is left of the body is not worth reading.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    };
    let too_large =
        || refuse(413, format!("the body is larger than {max_body} bytes (MCPO_MAX_BODY)"));
    if request.headers().contains_key(CONTENT_ENCODING) {
        return Err(refuse(415, "send the body as it is, without Content-Encoding".to_owned()));
    }
    let hint = request.body().size_hint();
    if hint.lower() > max_body as u64 {
        return Err(too_large());
    }
    let mut body = request.into_body();
    let mut whole = BytesMut::with_capacity(usize::try_from(hint.lower()).unwrap_or(0));
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
        Ok(Ok(())) => Ok(whole),
        Ok(Err(answer)) => Err(answer),
        Err(_) => Err(refuse(408, "the body took too long".to_owned())),
    }
}

/// A response without a body, for a message that wants no answer.
pub fn accepted() -> Answer {
    empty(202)
}
