//! What the fronts share: everything that a request may need.

use std::sync::Arc;
use std::time::Instant;

use pontoon_supervise::Spawner;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::last_look::LastLook;
use super::mcp::sse_stream::SseStreams;
use super::who::entrance::Entrance;
use crate::back::keep::table::KeptTable;
use crate::held_bytes::HeldBytes;
use crate::jobs::{Links, Store};
use crate::observe::metrics::Metrics;
use crate::observe::trace::Traces;
use crate::session::Sessions;

/// Everything that a request may need.
#[derive(Debug)]
pub struct HttpSite {
    /// Clients and servers.
    pub sessions: Arc<Sessions>,
    /// The open streams of the older transport.
    pub streams: SseStreams,
    /// Who may come in, and as whom.
    pub entrance: Entrance,
    /// The largest body taken.
    pub max_body: usize,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    /// When the bridge started.
    pub started: Instant,
    /// How many children live, the bridge's helper not counted.
    pub spawner: Spawner,
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
