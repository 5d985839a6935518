//! What variables and options set, while they are read; the servers are not among it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tracing::Level;

use super::address::AddressBlock;
use super::identity::IdentityHeaders;
use super::secret::{ApiKey, KeyName, Secret};

/// What variables and options set, as it is without them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) config_file: Option<PathBuf>,
    pub(super) hot_reload: bool,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    /// The one key that has no name.
    pub(super) api_key: Option<Secret>,
    pub(super) api_keys: Vec<ApiKey>,
    pub(super) strict_auth: bool,
    pub(super) trusted_proxies: Vec<AddressBlock>,
    pub(super) identity: IdentityHeaders,
    pub(super) owui_jwt_secret: Option<Secret>,
    pub(super) owui_jwt_max_age: Duration,
    pub(super) max_concurrent: usize,
    pub(super) queue_wait: Duration,
    pub(super) timeout: Duration,
    pub(super) max_body: usize,
    pub(super) max_message: usize,
    pub(super) memory_budget: Option<usize>,
    pub(super) stateful_enabled: bool,
    pub(super) idle: Duration,
    pub(super) per_address: usize,
    pub(super) per_client: usize,
    pub(super) max_total_processes: usize,
    pub(super) cleanup_interval: Duration,
    pub(super) warm_memory: u64,
    pub(super) jobs_dir: PathBuf,
    pub(super) base_url: String,
    pub(super) link_secret: Option<Secret>,
    pub(super) session_secret: Option<Secret>,
    pub(super) file_expiry: Duration,
    pub(super) gc_interval: Duration,
    pub(super) store_payloads: bool,
    pub(super) min_free_disk: u64,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) log_level: Level,
    pub(super) log_dir: Option<PathBuf>,
    /// The files that secrets were read from.
    pub(super) secret_files: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            config_file: None,
            hot_reload: false,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            api_key: None,
            api_keys: Vec::new(),
            strict_auth: false,
            trusted_proxies: Vec::new(),
            identity: IdentityHeaders::default(),
            owui_jwt_secret: None,
            owui_jwt_max_age: Duration::from_secs(3600),
            max_concurrent: cores * 4,
            queue_wait: Duration::ZERO,
            timeout: Duration::from_secs(300),
            max_body: 10 << 20,
            max_message: 64 << 20,
            memory_budget: None,
            stateful_enabled: true,
            idle: Duration::from_secs(1800),
            per_address: 1,
            per_client: 32,
            max_total_processes: 100,
            cleanup_interval: Duration::from_secs(300),
            warm_memory: 1 << 30,
            jobs_dir: PathBuf::from("/tmp/mcpo-jobs"),
            base_url: String::new(),
            link_secret: None,
            session_secret: None,
            file_expiry: Duration::from_secs(86_400),
            gc_interval: Duration::from_secs(3600),
            store_payloads: true,
            min_free_disk: 64 << 20,
            state_dir: None,
            log_level: Level::INFO,
            log_dir: None,
            secret_files: Vec::new(),
        }
    }
}

impl Settings {
    /// True if clients have a key to show.
    pub(super) fn has_key(&self) -> bool {
        self.api_key.is_some() || !self.api_keys.is_empty()
    }

    /// All keys, the one without a name first.
    pub(super) fn keys(&self) -> Vec<ApiKey> {
        let unnamed =
            self.api_key.iter().map(|key| ApiKey { name: KeyName::Unnamed, key: key.clone() });
        unnamed.chain(self.api_keys.iter().cloned()).collect()
    }
}
