//! The whole bridge in a test, without a process or a socket: the real parts, from the bytes of a connection to the
//! lines of a server, in one runtime whose clock may be stopped.
//!
//! [`TestBridge`] is built and run as the product is; its connections are in memory, and its servers are tasks.

mod client;
mod connection;
pub(crate) mod request;
mod script;
mod server;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::client::{LEGACY, TestClient};
pub(crate) use self::connection::{TestConnection, TestResponse};
use self::request::bare;
pub(crate) use self::script::{DEAF, END, ScriptedServer};
pub(crate) use self::server::ToolServer;
pub(crate) use self::socket::{TestSocket, masked};
use super::{App, Unorderly};
use crate::back::child::in_memory::InMemoryServers;
use crate::back::child::process::Starter;
use crate::back::pair::{config, server};
use crate::back::remote::tls::Tls;
use crate::config::{BridgeSettings, Config, Server};
use crate::front::http::{serve_secure, serve_stream};
use crate::front::site::HttpSite;
use crate::session::entry::Entry;

/// How many bytes are on their way from or to a client, at most.
const IN_FLIGHT: usize = 64 * 1024;

/// A bridge that runs, with one server, `demo`.
pub(crate) struct TestBridge {
    pub(crate) site: Arc<HttpSite>,
    pub(crate) servers: InMemoryServers,
    /// What it runs with.
    pub(crate) config: Config,
    changes: mpsc::Sender<Config>,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<Result<(), Unorderly>>,
    _folder: TempDir,
}

impl TestBridge {
    /// A bridge with children from `servers`, and with a configuration that `change` has changed.
    pub(crate) fn start(
        servers: InMemoryServers,
        change: impl FnOnce(&mut BridgeSettings, &mut Server),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), server("demo"));
        change(&mut config.settings, Arc::make_mut(&mut config.servers[0]));
        let starter = Starter::InMemory(servers.clone());
        let app = App::build(&config, Vec::new(), starter, Arc::default()).unwrap();
        let (changes, changed) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let site = Arc::clone(&app.site);
        // A bridge that is dropped is not stopped in order: it ends with its runtime.
        let running = tokio::spawn(app.run(
            async {
                if stopped.await.is_err() {
                    std::future::pending().await
                }
            },
            changed,
        ));
        Self { site, servers, config, changes, stop, running, _folder: folder }
    }

    /// Its server.
    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.site.sessions.entries()["demo"])
    }

    /// A new connection of a client on this machine.
    pub(crate) fn connect(&self) -> TestConnection {
        self.connect_from("127.0.0.1:40000")
    }

    /// The same from this address.
    pub(crate) fn connect_from(&self, peer: &str) -> TestConnection {
        let (ours, theirs) = tokio::io::duplex(IN_FLIGHT);
        let peer: SocketAddr = peer.parse().unwrap();
        tokio::spawn(serve_stream(theirs, peer, Arc::clone(&self.site)));
        TestConnection::new(ours)
    }

    /// A new connection over TLS, spoken by a task in between.
    pub(crate) fn connect_secure(&self) -> TestConnection {
        let (ours, mut between) = tokio::io::duplex(IN_FLIGHT);
        let wire = self.wire();
        tokio::spawn(async move {
            let mut secure = Tls::without_proof().open(wire, "localhost").await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut between, &mut secure).await);
        });
        TestConnection::new(ours)
    }

    /// A new connection to the address that speaks TLS, on which nothing was said.
    pub(crate) fn wire(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(IN_FLIGHT);
        let peer: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let tls = Arc::clone(self.site.tls.as_ref().unwrap());
        tokio::spawn(serve_secure(theirs, peer, tls, Arc::clone(&self.site)));
        ours
    }

    /// Waits until it has learnt what its server offers.
    pub(crate) async fn until_known(&self) {
        assert!(self.entry().ready().await.is_some());
    }

    /// Waits until no call is under way, no permit is taken, and no process is left.
    pub(crate) async fn until_quiet(&self) {
        self.servers.until_living(0).await;
        let (permits, kept_calls) = self.site.sessions.admission.usage();
        let open = self.entry().back.running();
        assert_eq!((open, permits.used, kept_calls.used), (0, 0, 0));
    }

    /// What is counted under this name, with its labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let page = self.connect().send(&bare("GET", "/metrics", &[])).await.body().await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    }

    /// Takes over another configuration, and goes on once that is done.
    pub(crate) async fn reload(&self, change: impl FnOnce(&mut Server)) {
        let (before, mut config) = (self.entry(), self.config.clone());
        change(Arc::make_mut(&mut config.servers[0]));
        self.changes.send(config).await.unwrap();
        while Arc::ptr_eq(&before, &self.entry()) {
            tokio::task::yield_now().await;
        }
    }

    /// Takes over a configuration without its server, and goes on once that is done.
    pub(crate) async fn remove_server(&self) {
        let config = Config { servers: Vec::new(), ..self.config.clone() };
        self.changes.send(config).await.unwrap();
        while !self.site.sessions.entries().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Stops it, as a signal does, and gives how it ended.
    pub(crate) async fn stop(self) -> Result<(), Unorderly> {
        self.stop.send(()).unwrap();
        self.running.await.unwrap()
    }
}
