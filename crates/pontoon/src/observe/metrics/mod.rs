//! Metrics: everything that is counted, once each, as the text that Prometheus reads.
//!
//! One [`Metrics`] is handed down; whoever serves a server's calls holds its [`ServerMetrics`].
//! Counting is a few atomic additions. What comes and goes is not counted along: it is read from
//! the [`BridgeStatus`](super::status::BridgeStatus) when somebody looks.

mod histogram;
mod outcome;
mod render;
mod server;
mod text;
mod tool;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, RwLock};

pub use histogram::{Counter, Histogram};
pub use outcome::{CallEnding, RequestKind};
pub use server::ServerMetrics;
pub use text::CONTENT_TYPE;
pub use tool::ToolMetrics;

use super::processes::{Processes, own_use};
use super::refusals::Refusals;
use super::status::ProcessStatus;
use crate::lock::{Lock, unpoisoned};
use outcome::labels;

/// More addresses than this are counted together: anyone may come with a new one.
const MAX_ADDRESSES: usize = 1000;

labels! {
    /// A limit that can refuse a request.
    Limit {
        /// `MCPO_MAX_CONCURRENT`.
        Concurrent = "concurrent",
        /// One user's share of what may run at once.
        Share = "share",
        /// Calls on kept children in all.
        KeptCalls = "kept_calls",
        /// Calls on one kept child.
        InFlight = "in_flight",
        /// Calls that a server has not read yet.
        Unread = "unread",
        /// Children of one server that are on their way out.
        Leaving = "leaving",
        /// `MCPO_STATEFUL_MAX_TOTAL_PROCESSES`.
        TotalProcesses = "total_processes",
        /// `max_processes_per_client`.
        ProcessesPerClient = "processes_per_client",
        /// Calls that wait for a person.
        Waiting = "waiting",
        /// Calls of which only the API key without a name is known.
        Identity = "identity",
        /// Sessions in all.
        Sessions = "sessions",
        /// Streams of the older transport.
        Streams = "streams",
        /// WebSockets, in all and of one client.
        WebSockets = "websockets",
        /// `MCPO_MAX_BODY`.
        Body = "body",
        /// `MCPO_MEMORY_BUDGET`.
        Memory = "memory",
        /// `MCPO_MAX_MESSAGE`.
        Message = "message",
        /// The room on the disk, and `MCPO_MIN_FREE_DISK`.
        Disk = "disk",
        /// Records that are still to be written.
        Records = "records",
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    servers: Lock<BTreeMap<String, Arc<ServerMetrics>>>,
    addresses: RwLock<HashMap<IpAddr, Counter>>,
    other_addresses: Counter,
    refused: [Counter; Limit::ALL.len()],
    /// What was refused of late, for the log.
    pub refusals: Arc<Refusals>,
    /// Jobs that were begun.
    pub jobs: Counter,
    /// Files that were fetched.
    pub downloads: Counter,
    /// Bytes of them that were sent.
    pub download_bytes: Counter,
    /// Passes over the jobs directory.
    pub sweeps: Counter,
    /// Jobs that they removed.
    pub swept_jobs: Counter,
    /// What they could not remove.
    pub sweep_errors: Counter,
    /// Log lines that found no room.
    pub log_lines_dropped: Counter,
    /// Spans that did not reach the collector.
    pub spans_dropped: Counter,
    reloads: Counter,
    failed_reloads: Counter,
}

impl Metrics {
    /// The numbers of one server, made when it is first named.
    pub fn server(&self, name: &str) -> Arc<ServerMetrics> {
        let mut servers = self.servers.lock();
        match servers.get(name) {
            Some(server) => Arc::clone(server),
            None => {
                let server = Arc::new(ServerMetrics::new(name, &self.refusals));
                servers.insert(name.to_owned(), Arc::clone(&server));
                server
            }
        }
    }

    /// A request came from this client.
    pub fn request_from(&self, address: IpAddr) {
        let address = address.to_canonical();
        let addresses = unpoisoned(self.addresses.read());
        if let Some(counter) = addresses.get(&address) {
            return counter.bump();
        }
        let is_full = addresses.len() >= MAX_ADDRESSES;
        drop(addresses);
        if is_full {
            return self.other_addresses.bump();
        }
        let mut addresses = unpoisoned(self.addresses.write());
        match addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&address) {
            true => self.other_addresses.bump(),
            false => addresses.entry(address).or_default().bump(),
        }
    }

    /// A request was refused because of this limit.
    pub fn refused(&self, limit: Limit) {
        self.refused[limit as usize].bump();
    }

    /// A pass over the jobs directory ended.
    pub fn swept(&self, removed: u64, errors: u64) {
        self.sweeps.bump();
        self.swept_jobs.add(removed);
        self.sweep_errors.add(errors);
    }

    /// The configuration was read again, and taken over or not.
    pub fn reloaded(&self, is_taken: bool) {
        if is_taken { &self.reloads } else { &self.failed_reloads }.bump();
    }

    /// What this process and the children of each server use, where that can be seen. Blocks for as long as the
    /// machine has processes.
    pub fn look_at_processes(&self) -> Option<ProcessStatus> {
        let own = own_use()?;
        let servers: Vec<_> = self.servers.lock().values().cloned().collect();
        // Before the look: what ends after this is missing now, and not counted twice.
        let before: Vec<_> = servers.iter().map(|server| server.children.begin_look()).collect();
        let all = Processes::look();
        let used = servers.iter().zip(before).map(|(server, (computed, living))| {
            (server.name.clone(), server.children.end_look(computed, all.trees(living)))
        });
        Some(ProcessStatus { own, children: used.collect() })
    }
}

#[cfg(test)]
mod tests;
