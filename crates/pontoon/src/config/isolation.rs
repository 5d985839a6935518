//! What a process of a server is kept from, and what it may use.
//!
//! This says what the user wants; the `supervise` crate knows what the system can give. The keys are in `keys.rs`.

use std::path::PathBuf;
use std::time::Duration;

/// What a process of a server is kept from, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// How far it is kept apart.
    pub level: Level,
    /// Whether it reaches the network.
    pub network: Network,
    /// Whether less than this will do where the system cannot give it.
    pub best_effort: bool,
    /// How much memory the process and what it starts may use together.
    pub memory_bytes: Option<u64>,
    /// How many processes there may be at once.
    pub processes: Option<u64>,
    /// How long one process may compute.
    pub cpu: Option<Duration>,
    /// How large a file may become.
    pub file_size_bytes: Option<u64>,
    /// How many files may be open at once.
    pub open_files: Option<u64>,
    /// How long the process may live.
    pub run_time: Option<Duration>,
    /// More absolute paths that a confined process may read.
    pub read: Vec<PathBuf>,
    /// More absolute paths that a confined process may write.
    pub write: Vec<PathBuf>,
}

/// How far a process is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Guarded against accidents; it has our own rights.
    #[default]
    Basic,
    /// It writes to its workspace only, and reads little more than the system.
    Confined,
    /// Confined, and each session has a user of the system for itself.
    User,
}

/// Whether a process reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// It does.
    #[default]
    Open,
    /// It does not.
    None,
}
