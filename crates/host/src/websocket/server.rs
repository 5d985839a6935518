//! A server of tools over WebSocket, on threads of its own: it listens on the loopback, lets clients in, and stops in order.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::announcement::Announcement;
use super::connection::{self, Service};
use super::entrance::Entrance;
use super::handshake::{OPENING, open};
use super::options::{WebSocketError, WebSocketOptions};
use crate::tools::{Tools, Toolset};

/// How many connections may be in the middle of their opening, which needs no token.
const MAX_OPENINGS: usize = 64;

/// How long connections may take to end in order when the server stops: their last calls, last words, and a moment more.
const STOPPING: Duration = Duration::from_secs(4);

/// How often a port is looked for that is free by both IPv4 and IPv6.
const TRIES: usize = 16;

/// Tools served over WebSocket on this machine, until it is dropped. Clients such as `pontoon connect` may come and go.
///
/// It brings its own threads, so that an application needs no runtime and may do on its own thread what it likes. Tools
/// that must run there are made by a [`Pump`](crate::Pump). Clients hear of tools that are added to a
/// [`Toolset`] or removed from it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pontoon_host::{Tool, Toolset, WebSocketOptions, WebSocketServer};
///
/// let hello = Tool::new("hello", |(), _| async { "Hello!" }).description("Says hello.");
/// let tools = Toolset::new().with(hello)?;
/// let server = WebSocketServer::start("my-app", &[tools], WebSocketOptions::default())?;
/// println!("{} {}", server.url(), server.token().unwrap_or_default());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WebSocketServer {
    port: u16,
    token: Option<String>,
    announcement: Option<Announcement>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl WebSocketServer {
    /// Serves these tools under this name.
    ///
    /// # Errors
    ///
    /// [`WebSocketError`] when two toolsets have a tool of the same name, an option makes no sense, the port is taken, or
    /// the file with the address cannot be written.
    pub fn start(
        name: &str,
        toolsets: &[Toolset],
        options: WebSocketOptions,
    ) -> Result<Self, WebSocketError> {
        let tools = Tools::new(toolsets)?;
        let token = options.token.settle()?;
        let entrance = Entrance::new(token.clone(), &options.origins)?;
        let bind_failed = |source| WebSocketError::Bind { port: options.port, source };
        let (port, listeners) = listen(options.port).map_err(bind_failed)?;
        // A tool that blocks where it should not has one of these threads, and others the other. Clients are served by a
        // third, which no tool can stop.
        let for_tools = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("pontoon-tools")
            .enable_all()
            .build()
            .map_err(WebSocketError::Thread)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(WebSocketError::Thread)?;
        let stop = CancellationToken::new();
        let service = Service {
            name: name.into(),
            tools,
            stop: stop.clone(),
            runtime: for_tools.handle().clone(),
        };
        let reception = Reception::new(service, entrance, options.max_clients);
        let mut server = Self { port, token, announcement: None, stop, thread: None };
        let thread = std::thread::Builder::new().name("pontoon-host".to_owned());
        let thread = thread.spawn(move || reception.run(&runtime, for_tools, listeners));
        server.thread = Some(thread.map_err(WebSocketError::Thread)?);
        let (url, token) = (server.url(), server.token.as_deref());
        server.announcement = Announcement::make(options.announce, name, &url, token)?;
        Ok(server)
    }

    /// Its address, such as `ws://127.0.0.1:7400/`.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/", self.port)
    }

    /// Its port, on 127.0.0.1 and, where there is IPv6, on ::1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What clients have to show, if anything: for the user's eyes, not for a log.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The file that tells where it is, if there is one.
    pub fn announcement(&self) -> Option<&Path> {
        self.announcement.as_ref().map(Announcement::path)
    }

    /// Stops it, as dropping does: no more clients come in, open calls have a second to end, and clients are told. Then
    /// the port is free.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.announcement = None;
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_)) = ended {
            tracing::error!("the threads of the WebSocket ended in a panic");
        }
    }
}

/// What the threads of a server do.
pub(super) struct Reception {
    service: Service,
    entrance: Entrance,
    openings: Arc<Semaphore>,
    clients: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Reception {
    fn new(service: Service, entrance: Entrance, max_clients: usize) -> Arc<Self> {
        let clients = Arc::new(Semaphore::new(max_clients.clamp(1, Semaphore::MAX_PERMITS)));
        let openings = Arc::new(Semaphore::new(MAX_OPENINGS));
        Arc::new(Self { service, entrance, openings, clients, tasks: TaskTracker::new() })
    }

    #[cfg(test)]
    pub(super) fn for_test(tools: &Toolset) -> Arc<Self> {
        let tools = Tools::new(std::slice::from_ref(tools)).unwrap();
        let (stop, runtime) = (CancellationToken::new(), tokio::runtime::Handle::current());
        let service = Service { name: "tested".into(), tools, stop, runtime };
        Self::new(service, Entrance::new(None, &[]).unwrap(), 1)
    }

    fn run(self: Arc<Self>, runtime: &Runtime, for_tools: Runtime, listeners: Vec<StdListener>) {
        runtime.block_on(async {
            for listener in listeners {
                match TcpListener::from_std(listener) {
                    Ok(listener) => drop(self.tasks.spawn(Arc::clone(&self).accept(listener))),
                    Err(error) => tracing::error!(%error, "a port cannot be listened on"),
                }
            }
            self.service.stop.cancelled().await;
            self.tasks.close();
            let _ = tokio::time::timeout(STOPPING, self.tasks.wait()).await;
        });
        // A blocking tool may still run: it is not waited for.
        for_tools.shutdown_background();
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            tokio::select! {
                () = self.service.stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => match Arc::clone(&self.openings).try_acquire_owned() {
                        Ok(opening) => drop(self.tasks.spawn(Arc::clone(&self).serve(stream, opening))),
                        Err(_) => tracing::warn!("a connection was cut off: {MAX_OPENINGS} others are being opened"),
                    },
                    // Out of descriptors, perhaps: others are given time to let some go.
                    Err(error) => {
                        tracing::warn!(%error, "a client could not connect");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, opening: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        // Changes are counted before the client can ask for the list, so that it misses none.
        let changes = self.service.tools.changes();
        let opened = open(stream, &self.entrance, &self.clients);
        let opened = tokio::select! {
            () = self.service.stop.cancelled() => return,
            opened = tokio::time::timeout(OPENING, opened) => opened,
        };
        drop(opening);
        match opened {
            Ok(Ok((socket, _place))) => {
                connection::serve(socket, self.service.clone(), changes).await;
            }
            Ok(Err(error)) => tracing::warn!(%error, "a client was not let in"),
            Err(_) => tracing::warn!("a client took too long to connect"),
        }
    }
}

/// Listens on 127.0.0.1 and, where there is IPv6, on ::1, at the same port.
fn listen(port: u16) -> io::Result<(u16, Vec<StdListener>)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..if port == 0 { TRIES } else { 1 } {
        let first = bind((Ipv4Addr::LOCALHOST, port).into())?;
        let chosen = first.local_addr()?.port();
        match bind((Ipv6Addr::LOCALHOST, chosen).into()) {
            Ok(second) => return Ok((chosen, vec![first, second])),
            // Then another program has it: clients of `localhost` would find that one.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(_) => return Ok((chosen, vec![first])),
        }
    }
    Err(last)
}

fn bind(address: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
