//! What the backs of all servers share, built from the configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pontoon_supervise::{memory_limit, processors};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::child::isolation::real;
use super::child::machine::Machine;
use super::child::process::Starter;
use super::child::told::Hearers;
use super::keep::KeepLimits;
use super::keep::spares::WarmMemory;
use super::keep::table::KeptTable;
use crate::call::CallBook;
use crate::config::{Config, ConfigSource, SMALLEST_BUDGET};
use crate::held_bytes::{Budget, HeldBytes};
use crate::ids::Ids;
use crate::jobs::{Links, Store, StoreError, StoreOptions, Writer};
use crate::observe::log::Secrets;
use crate::observe::metrics::Metrics;

/// What the backs of all servers share.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// What children run on.
    pub machine: Machine,
    /// What is kept, and how much of it may be.
    pub keep: KeepLimits,
    /// The addresses of files.
    pub links: Arc<Links>,
    /// How long files are kept.
    pub file_expiry: Duration,
}

impl Surroundings {
    /// What this configuration says of them, with their jobs in `store`.
    ///
    /// # Errors
    ///
    /// What the system says when it gives no thread for the records of jobs.
    pub fn new(
        config: &Config,
        store: Store,
        ids: Ids,
        starter: Starter,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let secret = config.settings.link_secret.as_ref().map(|secret| secret.expose());
        let writer = Writer::start()?;
        let machine = Machine {
            starter,
            private: private_places(config, store.path(), store.scratch_place()),
            calls: CallBook::new(store.clone(), writer.clone()),
            store,
            metrics,
            endings: TaskTracker::new(),
            writer,
            // Each call leaves a child that takes its time to end, and on a busy machine longer.
            max_stopping: (2 * config.settings.max_concurrent).max(64),
            max_message: config.settings.max_message,
            held: HeldBytes::new(memory_budget(config)),
            base_url: config.settings.base_url.as_str().into(),
            hearers: Hearers::Clients,
            environment: config.environment.clone(),
            secrets: Secrets::default(),
            messages: None,
            tracer: None,
        };
        let keep = KeepLimits {
            table: KeptTable::new(config.settings.max_total_processes),
            warm_memory: WarmMemory::new(config.settings.warm_memory),
            spare_starts: Arc::new(Semaphore::new(2 * start_limit())),
            queue_wait: config.settings.queue_wait,
            ids: Arc::new(ids),
        };
        Ok(Self {
            machine,
            keep,
            links: Arc::new(
                Links::new(&config.settings.base_url, secret, config.settings.file_expiry)
                    .below(&config.settings.rest.root_path),
            ),
            file_expiry: config.settings.file_expiry,
        })
    }
}

/// Opens the jobs of a bridge with this configuration.
///
/// # Errors
///
/// [`StoreError`] when the directory cannot be used.
pub fn open_store(config: &Config, jobs_dir: &Path) -> Result<Store, StoreError> {
    let options = StoreOptions {
        expiry: config.settings.file_expiry,
        store_payloads: config.settings.store_payloads,
        min_free_bytes: config.settings.min_free_disk,
        other_users: config.has_own_users(),
    };
    Store::open(jobs_dir, options)
}

/// How many bytes may be held for clients: what the configuration says, else a quarter of what we may use.
fn memory_budget(config: &Config) -> Budget {
    static A_QUARTER: LazyLock<usize> = LazyLock::new(|| {
        let limit = memory_limit().unwrap_or(1 << 30) / 4;
        usize::try_from(limit).unwrap_or(usize::MAX).max(SMALLEST_BUDGET)
    });
    config.settings.memory_budget.map_or(Budget::Later(&A_QUARTER), Budget::Bytes)
}

/// What no child is to read, wherever it lies.
fn private_places(config: &Config, jobs_dir: &Path, scratch: Option<&Path>) -> Arc<[PathBuf]> {
    let file = match &config.source {
        ConfigSource::File(path) => Some(path.as_path()),
        ConfigSource::Demo { .. } | ConfigSource::CommandLine => None,
    };
    let (state, logs) = (config.settings.state_dir.as_deref(), config.settings.log_dir.as_deref());
    let folders = [Some(jobs_dir), scratch, state, logs];
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let secrets = config.settings.secret_files.iter().map(PathBuf::as_path);
    let places = folders.into_iter().chain([file]).flatten().chain(secrets);
    places.map(|path| real(&absolute(path))).collect()
}

/// How many servers may start at once to be learnt.
pub fn start_limit() -> usize {
    processors().max(2)
}
