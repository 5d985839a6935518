//! The bridge as a whole: builds the parts, waits for a signal, and stops them in order.

mod collector;
#[cfg(test)]
mod heal_modes;
#[cfg(test)]
mod healthy_forms;
mod live;
mod reload;
mod single;
#[cfg(test)]
pub(crate) mod test_bridge;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pontoon_supervise::{Ladder, Spawner};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::collector::Collector;
use crate::back::child::isolation::Impossible;
use crate::back::child::process::Starter;
use crate::back::{Back, Surroundings, open_store, start_limit};
use crate::config::{Config, Server};
use crate::front::leave::LINGER;
use crate::front::site::HttpSite;
use crate::front::tls::ServerTls;
use crate::front::{admin, http, status};
use crate::ids::Ids;
use crate::jobs::{Store, StoreError};
use crate::observe::log::Troubles;
use crate::observe::metrics::Metrics;
use crate::observe::running::StatusSocket;
use crate::observe::spans::Tracer;
use crate::pem_files::BadPemFile;
use crate::session::Entries;
use crate::session::entry::Entry;
use crate::session::turns::Turns;

pub use live::{AppRecords, LiveBridge};
pub use single::Single;

/// How long open calls may go on after the first signal.
const GRACE: Duration = Duration::from_secs(30);

/// How long each part of the end may take that should take no time: answers on their way out, tasks that were
/// told to stop, last words.
const LAST: Duration = Duration::from_secs(5);

/// How often stale sessions are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// How often the other bridges that share the jobs are told what is in use here.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The bridge, listening.
#[derive(Debug)]
pub struct App {
    site: Arc<HttpSite>,
    around: Surroundings,
    listeners: Vec<TcpListener>,
    state_dir: Option<PathBuf>,
    gc_interval: Duration,
    cleanup_interval: Duration,
    /// Which servers are learnt now.
    turns: Arc<Turns>,
    /// Sends spans, if requests are traced.
    collector: Option<Collector>,
    keepers: TaskTracker,
    stop: CancellationToken,
}

/// Why the bridge could not begin.
#[derive(Debug, thiserror::Error)]
pub enum BridgeStartError {
    /// An address cannot be had.
    #[error("cannot listen on {address}: {}", why_not(source.kind(), address.port()))]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The jobs directory cannot be used.
    #[error("the jobs directory cannot be used (MCPO_JOBS_DIR)")]
    Jobs(#[from] StoreError),
    /// There is no folder to work in.
    #[error("cannot make a folder for temporary files")]
    Scratch(#[source] io::Error),
    /// A server cannot be kept apart as its configuration asks.
    #[error(transparent)]
    Isolation(#[from] Impossible),
    /// There is no certificate to show.
    #[error("there is no TLS without its files (MCPO_TLS_CERT, MCPO_TLS_KEY)")]
    Tls(#[from] BadPemFile),
    /// There is no thread for the records of jobs.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What is in the way of listening, and what to do.
fn why_not(kind: io::ErrorKind, port: u16) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            "another program listens there: end it, or choose another port with --port or MCPO_LISTEN"
        }
        io::ErrorKind::PermissionDenied if port < 1024 => {
            "ports below 1024 need a right that this user does not have: choose another port with --port or MCPO_LISTEN, \
             or give the program CAP_NET_BIND_SERVICE (`AmbientCapabilities=` in systemd, or setcap)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: write one of its own, 127.0.0.1 for this machine alone, or 0.0.0.0 for all"
        }
        _ => "choose another address with --listen or MCPO_LISTEN",
    }
}

/// Why the bridge did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum Unorderly {
    /// The process that starts children has ended.
    #[error(
        "the helper process that starts servers has ended, and all servers with it; start the bridge again"
    )]
    SpawnerLost,
    /// Children could not be ended.
    #[error(
        "{living} processes of servers did not end; the helper process kills them as soon as it runs and sees that \
         the bridge is gone"
    )]
    ChildrenLeft {
        /// How many.
        living: usize,
    },
}

impl App {
    /// Builds the bridge and begins to listen.
    ///
    /// # Errors
    ///
    /// [`BridgeStartError`] when an address cannot be bound, or the jobs directory cannot be used.
    pub async fn start(
        config: &Config,
        spawner: Spawner,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BridgeStartError> {
        let mut listeners = Vec::new();
        for address in &config.settings.listen {
            let bound = TcpListener::bind(address).await;
            let bound =
                bound.map_err(|source| BridgeStartError::Listen { address: *address, source })?;
            listeners.push(bound);
        }
        Self::build(config, listeners, Starter::Spawner(spawner), metrics)
    }

    /// Builds the bridge, with children from `starter`.
    fn build(
        config: &Config,
        listeners: Vec<TcpListener>,
        starter: Starter,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BridgeStartError> {
        let stop = CancellationToken::new();
        let tls = config.settings.tls();
        let tls = tls.map(|(certificate, key)| ServerTls::load(certificate, key)).transpose()?;
        let tls = tls.map(Arc::new);
        let store = open_store(config, &config.settings.jobs_dir)?;
        let ids = shared_ids(config, &store);
        let around = Surroundings::new(config, store, ids, starter, metrics);
        let mut around = around.map_err(BridgeStartError::Thread)?;
        let collector = config.settings.traces.as_ref().map(|settings| {
            let metrics = Arc::clone(&around.machine.metrics);
            let tracer = Tracer::new(settings.sampling, metrics);
            around.machine.tracer = Some(Arc::clone(&tracer));
            Collector::start(settings, tracer, &around)
        });
        let recovered = around.machine.store.recover();
        if recovered > 0 {
            tracing::warn!(jobs = recovered, "closed the jobs of a bridge that ended early");
        }
        let named = |server: &Arc<Server>| {
            let entry = entry(server, &around, config.settings.state_dir.as_deref(), &stop);
            (server.name.to_string(), entry)
        };
        let entries: Entries = config.servers.iter().map(named).collect();
        for entry in entries.values() {
            entry.back.check_isolation()?;
        }
        Ok(Self {
            site: Arc::new(HttpSite::new(config, entries, &around, tls)),
            around,
            listeners,
            state_dir: config.settings.state_dir.clone(),
            gc_interval: config.settings.gc_interval,
            cleanup_interval: config.settings.cleanup_interval,
            turns: Turns::new(start_limit()),
            collector,
            keepers: TaskTracker::new(),
            stop,
        })
    }

    /// Where the bridge listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// The certificate that it shows, if its connections are TLS.
    pub fn tls(&self) -> Option<Arc<ServerTls>> {
        self.site.tls.clone()
    }

    /// Tells how it is, to those who ask at this socket, as long as the process runs.
    pub fn tell_status(&self, socket: StatusSocket, troubles: Arc<Troubles>) {
        let site = Arc::clone(&self.site);
        tokio::spawn(status::serve(socket, move |_| {
            let (site, troubles) = (Arc::clone(&site), Arc::clone(&troubles));
            async move { admin::told(&site, &troubles).await }
        }));
    }

    /// Serves until `stop`, then drains: no new connections, open calls finish, children stop. Whenever
    /// a configuration comes, its servers are served from then on.
    ///
    /// # Errors
    ///
    /// [`Unorderly::SpawnerLost`] when the process that starts children has ended. Another one cannot be forked
    /// from a program with threads, and all children ended with it; so the bridge ends too, in order, for
    /// whatever started it to start it again. [`Unorderly::ChildrenLeft`] when children did not end in time.
    pub async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        mut changes: mpsc::Receiver<Config>,
    ) -> Result<(), Unorderly> {
        self.site.sessions.entries().values().for_each(|entry| self.keep(entry));
        self.keepers.spawn(until(self.stop.clone(), self.tidy()));
        let fronts = TaskTracker::new();
        for listener in std::mem::take(&mut self.listeners) {
            fronts.spawn(http::serve(listener, Arc::clone(&self.site)));
        }
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = self.site.starter.gone() => break,
                Some(config) = changes.recv() => self.reload(&config),
            }
        }
        let lost = self.site.starter.is_gone().then_some(Unorderly::SpawnerLost);
        if let Some(lost) = &lost {
            tracing::error!(error = lost as &dyn std::error::Error, "the bridge ends");
        }
        tracing::info!(open_calls = self.site.sessions.tasks.len(), "stopping");
        fronts.close();
        self.leave_proxies().await;
        self.stop.cancel();
        self.keepers.close();
        let sessions = &self.site.sessions;
        sessions.end_feeds();
        self.site.streams.end();
        sessions.tasks.close();
        if tokio::time::timeout(GRACE, sessions.tasks.wait()).await.is_err() {
            tracing::warn!(open_calls = sessions.tasks.len(), "stopped waiting for open calls");
        }
        // Answers that are ready may still be on their way out.
        drop(tokio::time::timeout(LAST, fronts.wait()).await);
        drop(tokio::time::timeout(LAST, self.keepers.wait()).await);
        let apps = TaskTracker::new();
        for entry in sessions.entries().values() {
            entry.back.drain();
            if let Some(app) = entry.back.app().cloned() {
                apps.spawn(async move { app.close().await });
            }
        }
        apps.close();
        apps.wait().await;
        // It gives up after its whole ladder. A spawner that was stopped does nothing before it goes on.
        self.site.starter.stop_all(&Ladder::default()).await;
        let living = self.site.starter.living();
        let left = (living > 0).then_some(Unorderly::ChildrenLeft { living });
        if let Some(left) = &left {
            tracing::error!(error = left as &dyn std::error::Error, "the bridge ends");
        }
        settle(&self.around).await;
        if let Some(collector) = self.collector.take() {
            collector.finish(LAST).await;
        }
        tracing::info!("stopped");
        lost.or(left).map_or(Ok(()), Err)
    }

    /// Says that this bridge leaves, and goes on until no proxy has a connection by which it may
    /// still send something.
    async fn leave_proxies(&self) {
        let HttpSite { leaving, proxied, sessions, streams, .. } = &*self.site;
        leaving.cancel();
        // Before a proxy tries another replica: that one waits for us then.
        self.around.machine.store.leave();
        sessions.end_feeds();
        streams.end();
        proxied.close();
        drop(tokio::time::timeout(LINGER, proxied.wait()).await);
    }

    /// Keeps the catalogue of a server, and processes or a connection ready for its calls, for as long as it is served.
    fn keep(&self, entry: &Arc<Entry>) {
        let stop = entry.back.stop.clone();
        let (site, announced) = (Arc::clone(&self.site), Arc::clone(entry));
        self.keepers.spawn(until(stop.clone(), async move {
            site.sessions.announce_withdrawals(&announced).await;
        }));
        if entry.back.app().is_some() {
            self.keepers.spawn(until(stop, Arc::clone(entry).keep_live()));
            return;
        }
        let learning = Arc::clone(entry).keep(Arc::clone(&self.turns));
        self.keepers.spawn(until(stop.clone(), learning));
        let entry = Arc::clone(entry);
        self.keepers.spawn(until(stop, async move {
            if let Some(catalog) = entry.ready().await {
                let era = catalog.child_era(pontoon_wire::Era::Modern);
                entry.back.keep_ready(era).await;
            }
        }));
    }

    /// Looks after everything that goes with time.
    fn tidy(&self) -> impl Future<Output = ()> + use<> {
        let (site, around) = (Arc::clone(&self.site), self.around.clone());
        let (gc_interval, cleanup_interval) = (self.gc_interval, self.cleanup_interval);
        async move {
            let mut sweep = tokio::time::interval(SWEEP);
            let mut heartbeat = tokio::time::interval(HEARTBEAT);
            let mut collect = tokio::time::interval(gc_interval);
            let mut cleanup = tokio::time::interval(cleanup_interval);
            loop {
                tokio::select! {
                    _ = sweep.tick() => {
                        site.sessions.sweep();
                        site.metrics.refusals.flush();
                    }
                    _ = cleanup.tick() => {
                        site.sessions.entries().values().for_each(|entry| entry.back.stop_idle());
                    }
                    _ = heartbeat.tick() => {
                        let store = around.machine.store.clone();
                        drop(tokio::task::spawn_blocking(move || store.heartbeat()).await);
                    }
                    _ = collect.tick() => {
                        let (store, metrics) = (around.machine.store.clone(), Arc::clone(&around.machine.metrics));
                        // A long pass must not hold up the heartbeat.
                        tokio::task::spawn_blocking(move || collect_garbage(&store, &metrics));
                    }
                }
            }
        }
    }

    /// What is counted, for whoever reads the configuration again.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.around.machine.metrics)
    }
}

fn collect_garbage(store: &Store, metrics: &Metrics) {
    let swept = store.sweep(SystemTime::now());
    let removed = swept.removed_jobs.len() + swept.removed_sessions.len();
    metrics.swept(removed as u64, swept.failed.len() as u64);
}

/// What makes the ids that clients bring back: by the secret of the configuration, else by one that all
/// bridges of the jobs directory have.
fn shared_ids(config: &Config, store: &Store) -> Ids {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let place = format!("{node} {:?}", config.settings.listen);
    let now = SystemTime::now();
    if let Some(secret) = &config.settings.session_secret {
        return Ids::new(secret.expose(), &place, now);
    }
    match store.secret_for("pontoon session secret 1") {
        Ok(secret) => Ids::new(&secret, &place, now),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "no key in the jobs directory: sessions end with this bridge");
            Ids::new(Uuid::new_v4().as_bytes(), &place, now)
        }
    }
}

/// Waits until the last children have left their last words to their jobs.
async fn settle(around: &Surroundings) {
    around.machine.endings.close();
    drop(tokio::time::timeout(LAST, around.machine.endings.wait()).await);
    drop(tokio::time::timeout(LAST, around.machine.writer.flush()).await);
    // Temporary files that the writer left to others, because they take their time.
    drop(tokio::time::timeout(LAST, around.machine.endings.wait()).await);
}

fn entry(
    server: &Arc<Server>,
    around: &Surroundings,
    state_dir: Option<&Path>,
    stop: &CancellationToken,
) -> Arc<Entry> {
    let back = Back::new(Arc::clone(server), around.clone(), stop.clone());
    Arc::new(Entry::new(Arc::new(back), state_dir))
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}
