//! The status: how everything is at one moment, collected for each look at it.
//!
//! `/health`, `/ready` and the gauges of `/metrics` are made from it. It is plain data, so no lock is
//! held while it is read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::processes::{OwnUse, TreeUse};

/// Everything at one moment.
#[derive(Debug, Clone, Default)]
pub struct BridgeStatus {
    /// The servers of the configuration.
    pub servers: Vec<ServerStatus>,
    /// Processes that start or work for one request each.
    pub permits: LimitUse,
    /// Calls on children that are kept for clients.
    pub kept_calls: LimitUse,
    /// Children that are kept for clients.
    pub kept_children: LimitUse,
    /// Bytes that are held for clients.
    pub held_bytes: LimitUse,
    /// Calls that wait for their turn.
    pub waiting_calls: usize,
    /// Sessions with clients.
    pub sessions: usize,
    /// WebSockets of clients.
    pub websockets: usize,
    /// The jobs directory, if there is one.
    pub disk: Option<DiskStatus>,
    /// Why the jobs directory cannot be used, and what to do.
    pub jobs_fault: Option<String>,
    /// Why the certificate in its files is not the one that is shown.
    pub tls_fault: Option<String>,
    /// Every child that lives, also those on their way out.
    pub living_children: usize,
    /// How long the bridge has run.
    pub uptime: Duration,
    /// Whether the process that starts children has ended.
    pub is_spawner_gone: bool,
    /// Whether the bridge is about to stop.
    pub is_stopping: bool,
    /// What is worth knowing and no fault.
    pub note: Option<String>,
    /// What this process and the children use, if that was looked at and can be seen.
    pub processes: Option<ProcessStatus>,
}

/// What this process uses, and the children of each server.
#[derive(Debug, Clone, Default)]
pub struct ProcessStatus {
    /// This process.
    pub own: OwnUse,
    /// The children of each server: those that live, and how long these and all before them have computed.
    pub children: BTreeMap<String, TreeUse>,
}

/// One server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it can be used.
    pub state: ServerState,
    /// Calls under way.
    pub running: usize,
    /// `stateless`, `stateful` or `shared`.
    pub mode: &'static str,
    /// Its children that are kept for clients.
    pub children: Vec<ChildStatus>,
    /// Its children of any kind, spares included.
    pub living: usize,
    /// Children that were started ahead.
    pub spares: usize,
    /// How often each heal was needed, by code.
    pub heals: Vec<(&'static str, u64)>,
    /// The isolation that was reached: `basic`, `confined` or `user`; `none` of what is no process of ours.
    pub isolation: &'static str,
    /// Calls of tools that are over, and how many of them failed.
    pub calls: (u64, u64),
    /// The eras that it speaks, as far as is known.
    pub eras: Vec<&'static str>,
}

/// Whether a server can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It is being started for the first time.
    Learning,
    /// It can.
    Ready,
    /// It cannot, and this is why.
    Failed(String),
    /// It can, as far as is known: it is learnt with the values of the first person who asks, for
    /// without any it does not start, for this reason.
    Waiting(String),
    /// It is an application that is not there now, for this reason. It is looked for.
    Away(String),
}

impl ServerState {
    /// Every name a state can have.
    pub const NAMES: [&str; 5] = ["learning", "ready", "failed", "waiting", "away"];

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Ready => "ready",
            Self::Failed(_) => "failed",
            Self::Waiting(_) => "waiting",
            Self::Away(_) => "away",
        }
    }
}

/// One child that is kept for a client.
#[derive(Debug, Clone)]
pub struct ChildStatus {
    /// How long it has lived.
    pub age: Duration,
    /// How long ago it was last used.
    pub idle: Duration,
}

/// How much of a limit is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// What is in use.
    pub used: usize,
    /// What there is.
    pub limit: usize,
}

impl LimitUse {
    /// Whether more than four fifths are in use.
    pub fn is_high(self) -> bool {
        self.used.saturating_mul(5) > self.limit.saturating_mul(4)
    }
}

/// The jobs directory and the disk below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskStatus {
    /// Jobs that are kept.
    pub jobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that are free for us.
    pub free: u64,
    /// Bytes in all; 0 before the first look.
    pub total: u64,
    /// With less than this free, no new job is taken.
    pub min_free: u64,
}

impl DiskStatus {
    /// How full it is, in whole percent.
    pub fn used_percent(&self) -> u64 {
        let used = u128::from(self.total.saturating_sub(self.free));
        u64::try_from((used * 100).checked_div(u128::from(self.total)).unwrap_or(0)).unwrap_or(100)
    }

    /// Whether more than four fifths are in use.
    pub fn is_high(&self) -> bool {
        u128::from(self.total.saturating_sub(self.free)) * 5 > u128::from(self.total) * 4
    }

    /// Whether new jobs are refused.
    pub fn is_full(&self) -> bool {
        self.total > 0 && self.free < self.min_free
    }
}
