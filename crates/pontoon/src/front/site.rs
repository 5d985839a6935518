//! What the fronts share: everything that a request may need.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::last_look::LastLook;
use super::mcp::sse_stream::SseStreams;
use super::refusal::Refusal;
use super::rest::KeptDocuments;
use super::tls::ServerTls;
use super::who::entrance::Entrance;
use crate::back::Surroundings;
use crate::back::child::process::Starter;
use crate::back::keep::table::KeptTable;
use crate::config::{Config, RestSettings};
use crate::held_bytes::HeldBytes;
use crate::jobs::{Links, Store};
use crate::observe::metrics::Metrics;
use crate::observe::trace::Traces;
use crate::permits::Permits;
use crate::session::admit::Admission;
use crate::session::{Entries, Sessions};

/// Everything that a request may need.
#[derive(Debug)]
pub struct HttpSite {
    /// Clients and servers.
    pub sessions: Arc<Sessions>,
    /// The open streams of the older transport.
    pub streams: SseStreams,
    /// The open WebSockets. Some connections are left for requests.
    pub websockets: Arc<Permits>,
    /// The certificate that is shown, if connections are TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Who may come in, and as whom.
    pub entrance: Entrance,
    /// Where REST is, and what its documents say.
    pub rest: RestSettings,
    /// The documents that were written of it.
    pub documents: KeptDocuments,
    /// The largest body taken.
    pub max_body: usize,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    /// When the bridge started.
    pub started: Instant,
    /// What starts children, and how many live.
    pub starter: Starter,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// Where jobs are.
    pub store: Store,
    /// What a probe saw of where jobs are; held while one looks.
    pub looking: Arc<Mutex<LastLook>>,
    /// With less than this free, no new job is made.
    pub min_free_disk: u64,
    /// The addresses of files.
    pub links: Arc<Links>,
    /// How many children are kept.
    pub kept: Arc<KeptTable>,
    /// Makes trace ids.
    pub traces: Traces,
    /// Fires when the bridge leaves: each answer is then the last on its connection.
    pub leaving: CancellationToken,
    /// The connections of proxies.
    pub proxied: TaskTracker,
}

impl HttpSite {
    /// The refusal of a request for a server that is not there.
    pub fn unknown_server(&self, name: &str) -> Refusal {
        let entries = self.sessions.entries();
        let mut names: Vec<_> = entries.keys().map(String::as_str).collect();
        names.sort_unstable();
        let text = format!("there is no server {name:?}; there are: {}", names.join(", "));
        Refusal::invalid(404, text)
    }

    /// The site of a bridge with this configuration, these servers, and what they share.
    pub fn new(
        config: &Config,
        entries: Entries,
        around: &Surroundings,
        tls: Option<Arc<ServerTls>>,
    ) -> Self {
        let Surroundings { machine, keep, links, .. } = around;
        let (settings, metrics) = (&config.settings, &machine.metrics);
        let admission =
            Admission::new(settings.max_concurrent, settings.queue_wait, Arc::clone(metrics));
        let (held, ids) = (Arc::clone(&machine.held), Arc::clone(&keep.ids));
        let sessions = Sessions::new(entries, admission, held, ids, config.ways_to_say_who());
        Self {
            sessions: Arc::new(sessions),
            streams: SseStreams::default(),
            websockets: Permits::new(machine.held.max_connections() / 4 * 3),
            tls,
            entrance: Entrance::new(settings),
            rest: settings.rest.clone(),
            documents: KeptDocuments::default(),
            max_body: settings.max_body,
            held: Arc::clone(&machine.held),
            started: Instant::now(),
            starter: machine.starter.clone(),
            metrics: Arc::clone(metrics),
            store: machine.store.clone(),
            looking: Arc::default(),
            min_free_disk: settings.min_free_disk,
            links: Arc::clone(links),
            kept: Arc::clone(&keep.table),
            traces: Traces::default(),
            leaving: CancellationToken::new(),
            proxied: TaskTracker::new(),
        }
    }
}
