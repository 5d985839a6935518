//! The bridge as a whole: builds the parts, waits for a signal, and stops them in order.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pontoon_supervise::{Ladder, Spawner};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::back::Back;
use crate::config::Config;
use crate::front::guard::Guard;
use crate::front::http::{self, Site};
use crate::session::Sessions;
use crate::session::admit::Admission;
use crate::session::catalog::Entry;

/// How long open calls may go on after the first signal.
const GRACE: Duration = Duration::from_secs(30);

/// How often idle children and stale sessions are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// The bridge, listening.
#[derive(Debug)]
pub struct App {
    site: Arc<Site>,
    listeners: Vec<TcpListener>,
    spawner: Spawner,
    stop: CancellationToken,
}

/// Why the bridge could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: is another program using it?")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

impl App {
    /// Builds the bridge and begins to listen.
    ///
    /// # Errors
    ///
    /// [`ListenError`] when an address cannot be bound.
    pub async fn start(config: &Config, spawner: Spawner) -> Result<Self, ListenError> {
        let stop = CancellationToken::new();
        let mut listeners = Vec::new();
        for address in &config.listen {
            let bound = TcpListener::bind(address).await;
            listeners.push(bound.map_err(|source| ListenError { address: *address, source })?);
        }
        let entries = config.servers.iter().map(|server| {
            let back =
                Back::new(Arc::clone(server), spawner.clone(), config.max_message, stop.clone());
            Entry::new(Arc::new(back), config.state_dir.as_deref())
        });
        let sessions =
            Arc::new(Sessions::new(entries.collect(), Admission::new(config.max_concurrent)));
        let site = Arc::new(Site {
            sessions,
            guard: Guard::new(&config.listen, &config.allowed_hosts, &config.allowed_origins),
            max_body: config.max_body,
            started: Instant::now(),
            spawner: spawner.clone(),
        });
        Ok(Self { site, listeners, spawner, stop })
    }

    /// Where the bridge listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves until `stop`, then drains: no new calls, open ones finish, children stop.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let keepers = TaskTracker::new();
        let starts = Arc::new(Semaphore::new(start_limit()));
        for entry in self.site.sessions.entries.values() {
            let keeping = Arc::clone(entry).keep(Arc::clone(&starts));
            keepers.spawn(until(self.stop.clone(), keeping));
        }
        keepers.spawn(until(self.stop.clone(), sweep(Arc::clone(&self.site))));
        let fronts = TaskTracker::new();
        for listener in self.listeners {
            fronts.spawn(http::serve(listener, Arc::clone(&self.site), self.stop.clone()));
        }
        stop.await;
        tracing::info!(open_calls = self.site.sessions.tasks.len(), "stopping");
        self.stop.cancel();
        keepers.close();
        fronts.close();
        let sessions = &self.site.sessions;
        sessions.end_feeds();
        sessions.tasks.close();
        if tokio::time::timeout(GRACE, sessions.tasks.wait()).await.is_err() {
            tracing::warn!(open_calls = sessions.tasks.len(), "stopped waiting for open calls");
        }
        // Answers that are ready may still be on their way out.
        drop(tokio::time::timeout(Duration::from_secs(5), fronts.wait()).await);
        keepers.wait().await;
        sessions.entries.values().for_each(|entry| entry.back.drain());
        self.spawner.stop_all(&Ladder::default()).await;
        tracing::info!("stopped");
    }
}

/// How many servers may start at once to be learnt: each start is two processes.
fn start_limit() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get()).max(2)
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn sweep(site: Arc<Site>) {
    let mut interval = tokio::time::interval(SWEEP);
    loop {
        interval.tick().await;
        site.sessions.sweep();
    }
}

/// The catalogue entry of one server, for a command that uses it alone.
pub fn single(config: &Config, name: &str, spawner: &Spawner) -> Option<Entry> {
    let server = config.server(name)?;
    let back = Back::new(
        Arc::clone(server),
        spawner.clone(),
        config.max_message,
        CancellationToken::new(),
    );
    let state_dir: Option<&Path> = config.state_dir.as_deref();
    Some(Entry::new(Arc::new(back), state_dir))
}
