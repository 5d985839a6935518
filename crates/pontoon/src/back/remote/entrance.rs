//! The entrance for applications that come by themselves: a WebSocket on this machine, for one application at a time.
//!
//! Any page in a browser can knock here, so a page has to be named beforehand, and every application has to show the token: as a
//! header, or beside the sub-protocol, for pages cannot set headers.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL,
};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::back::conversation::websocket::{Duplex, WebSocket};
use crate::clock::{now, since};
use crate::config::{AppEntrance, Host, Silence, TokenSource};
use crate::lock::Lock;

/// How long one that knocks may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long one that is sent away waits for that: as many as fit may try again at once, and no more.
const REFUSED: Duration = Duration::from_millis(200);

/// As many may knock at once.
const KNOCKING: usize = 64;

/// How often the log tells loudly of those who are sent away.
const LOUD: Duration = Duration::from_secs(60);

/// What a token is written behind that stands beside the sub-protocol.
const BEARER: &str = "bearer.";

/// Why there is no entrance.
#[derive(Debug, thiserror::Error)]
#[error("port {port} cannot be listened on")]
pub(crate) struct EntranceError {
    port: u16,
    source: io::Error,
}

/// An entrance at which applications are waited for.
#[derive(Debug)]
pub(crate) struct OpenEntrance {
    comers: mpsc::Receiver<WebSocketStream<Box<dyn Duplex>>>,
    /// Ends with this.
    _listening: JoinSet<()>,
}

/// Whom the entrance lets in.
#[derive(Debug)]
struct Doorkeeper {
    origins: Vec<String>,
    token: Option<TokenSource>,
    config: WebSocketConfig,
    /// There is room for one application.
    room: Arc<Semaphore>,
    comers: mpsc::Sender<WebSocketStream<Box<dyn Duplex>>>,
    /// When the log last told of one that was sent away.
    told: Lock<Option<Instant>>,
}

impl OpenEntrance {
    /// Begins to listen, on both families of addresses where there are two.
    pub(crate) async fn open(
        entrance: &AppEntrance,
        token: Option<TokenSource>,
        max_message: usize,
    ) -> Result<Self, EntranceError> {
        let port = entrance.port;
        let failed = |source| EntranceError { port, source };
        let bind = |address| TcpListener::bind(SocketAddr::new(address, port));
        let first = bind(IpAddr::V4(Ipv4Addr::LOCALHOST)).await.map_err(failed)?;
        let second = match bind(IpAddr::V6(Ipv6Addr::LOCALHOST)).await {
            // What one program has there is not left to another.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(failed(error)),
            second => second.ok(),
        };
        let (comers, receiver) = mpsc::channel(1);
        let config = WebSocketConfig::default()
            .read_buffer_size(8 * 1024)
            .write_buffer_size(0)
            .max_message_size(Some(max_message))
            .max_frame_size(Some(max_message));
        let keeper = Arc::new(Doorkeeper {
            origins: entrance.origins.clone(),
            token,
            config,
            room: Arc::new(Semaphore::new(1)),
            comers,
            told: Lock::default(),
        });
        let mut listening = JoinSet::new();
        for listener in [Some(first), second].into_iter().flatten() {
            listening.spawn(listen(listener, Arc::clone(&keeper)));
        }
        Ok(Self { comers: receiver, _listening: listening })
    }

    /// The next application that comes. Cancel safe: it waits in the queue.
    pub(crate) async fn next(&mut self, silence: Silence) -> WebSocket {
        match self.comers.recv().await {
            Some(stream) => WebSocket::new(stream, silence),
            None => std::future::pending().await,
        }
    }
}

async fn listen(listener: TcpListener, keeper: Arc<Doorkeeper>) {
    let (mut visits, mut oldest) = (JoinSet::new(), VecDeque::new());
    loop {
        while visits.try_join_next().is_some() {}
        oldest.retain(|visit: &AbortHandle| !visit.is_finished());
        match listener.accept().await {
            Ok((stream, _)) => {
                // Those who only stand there must not keep an application out.
                if oldest.len() >= KNOCKING {
                    oldest.pop_front().into_iter().for_each(|visit| visit.abort());
                }
                let keeper = Arc::clone(&keeper);
                // Before the task begins: it may be ended before that.
                let mut word = LastWord::over(&stream);
                oldest.push_back(visits.spawn(async move {
                    let received = keeper.receive(stream, &mut word);
                    if tokio::time::timeout(PATIENCE, received).await.is_err() {
                        word.say(TOO_SLOW);
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "an application could not come");
                tokio::time::sleep(REFUSED).await;
            }
        }
    }
}

impl Doorkeeper {
    async fn receive(&self, stream: TcpStream, word: &mut LastWord) {
        drop(stream.set_nodelay(true));
        let place = Arc::<Lock<Option<OwnedSemaphorePermit>>>::default();
        let guest: Box<dyn Duplex> = Box::new(Guest { stream, _place: Arc::clone(&place) });
        #[expect(clippy::result_large_err, reason = "the library wants it so")]
        let look = |request: &Request, response: Response| self.look(request, response);
        let opened = accept_hdr_async_with_config(guest, look, Some(self.config)).await;
        match opened {
            Ok(mut socket) => {
                word.leave_it();
                // Only one that was let in takes up room.
                if let Ok(room) = Arc::clone(&self.room).try_acquire_owned() {
                    *place.lock() = Some(room);
                    return drop(self.comers.send(socket).await);
                }
                // A page can read the code of a close, and nothing else.
                let reason = "another application is here".into();
                let close = CloseFrame { code: CloseCode::Again, reason };
                tracing::warn!("an application was sent away, for another one is here");
                drop(socket.close(Some(close)).await);
                tokio::time::sleep(REFUSED).await;
            }
            Err(error) => {
                tracing::debug!(%error, "one that knocked was not let in");
                match error {
                    // It has its answer.
                    Error::Http(_) => word.leave_it(),
                    _ => word.say(NO_WEBSOCKET),
                }
                tokio::time::sleep(REFUSED).await;
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "the library wants it so")]
    fn look(&self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        let headers = request.headers();
        if let Err((status, why)) = self.check(headers) {
            self.tell(why);
            let mut refusal = ErrorResponse::new(Some(format!("{why}\n")));
            *refusal.status_mut() = status;
            return Err(refusal);
        }
        if protocols(headers).any(|protocol| protocol == "mcp") {
            let chosen = HeaderValue::from_static("mcp");
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, chosen);
        }
        Ok(response)
    }

    /// Logs why one was sent away: loudly now and then, for pages can knock without an end.
    fn tell(&self, why: &str) {
        let mut told = self.told.lock();
        match told.is_some_and(|told| since(told) < LOUD) {
            true => tracing::debug!(why, "one that knocked was sent away"),
            false => {
                *told = Some(now());
                tracing::warn!(why, "one that knocked was sent away");
            }
        }
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let host = text(headers, HOST).and_then(|host| Host::parse(host, Some(80)));
        // A name of another machine that leads here is a page's trick to look like one of ours.
        if !host.is_some_and(|host| host.is_loopback()) {
            return Err((StatusCode::FORBIDDEN, "the Host is not this machine: use 127.0.0.1"));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| self.origins.iter().any(|it| it.as_bytes() == origin.as_bytes())) {
            let why = "this page may not come: name it with --allow-origin";
            return Err((StatusCode::FORBIDDEN, why));
        }
        let Some(token) = &self.token else { return Ok(()) };
        let Some(token) = token.known() else {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, "the token cannot be read"));
        };
        let header = text(headers, AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let beside = protocols(headers).find_map(|protocol| protocol.strip_prefix(BEARER));
        match header.or(beside) {
            Some(shown) if bool::from(shown.as_bytes().ct_eq(token.expose())) => Ok(()),
            Some(_) => Err((StatusCode::FORBIDDEN, "the token is a wrong one")),
            None => {
                let why = "a token is needed: as `Authorization: Bearer TOKEN`, or as the sub-protocol \
                     `bearer.TOKEN` beside `mcp`";
                Err((StatusCode::UNAUTHORIZED, why))
            }
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The sub-protocols that are offered.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).map(str::trim)
}

/// What one hears that says nothing, or not enough.
const TOO_SLOW: (&str, &str) =
    ("408 Request Timeout", "the opening of the WebSocket took longer than two seconds");

/// What one hears that wants something else.
const NO_WEBSOCKET: (&str, &str) = (
    "400 Bad Request",
    "an application opens a WebSocket here, as pontoon connect --listen waits for; nothing else is served",
);

/// What one hears that has to make room.
const TOO_MANY: (&str, &str) =
    ("503 Service Unavailable", "too many connections wait to be let in: try again");

/// What one hears that is sent away before its request could be answered, by HTTP.
struct LastWord(Option<Socket>);

impl LastWord {
    fn over(stream: &TcpStream) -> Self {
        Self(SockRef::from(stream).try_clone().ok())
    }

    /// The other side has its answer.
    fn leave_it(&mut self) {
        self.0 = None;
    }

    fn say(&mut self, (status, why): (&str, &str)) {
        let Some(socket) = self.0.take() else { return };
        let length = why.len() + 1;
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
        );
        // One that does not take it goes without.
        drop(socket.send(response.as_bytes()));
        drop(socket.shutdown(std::net::Shutdown::Write));
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.say(TOO_MANY);
    }
}

/// The connection of an application, which takes up the room until it is closed.
#[derive(Debug)]
struct Guest {
    stream: TcpStream,
    _place: Arc<Lock<Option<OwnedSemaphorePermit>>>,
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
