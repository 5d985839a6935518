//! What every part of the store works with: the open directory, and what this process has in use.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use super::deferred::Deferred;
use super::disk::{Disk, DiskUsage};
use super::holder::Bridge;
use super::instance::Instance;
use super::journal::Journal;
use super::key::StoreKey;
use super::root::Root;
use super::scratch::Scratches;
use super::workspaces::Workspaces;
use crate::lock::Lock;

/// How a store is run.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// How long a job is kept.
    pub expiry: Duration,
    /// Whether requests and answers are kept.
    pub store_payloads: bool,
    /// Below this much room on the disk nothing new is begun.
    pub min_free_bytes: u64,
    /// Whether children run as other users, who have to pass through to their own directories.
    pub other_users: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            expiry: Duration::from_secs(86_400),
            store_payloads: true,
            min_free_bytes: 64 << 20,
            other_users: false,
        }
    }
}

/// What the parts of a store share.
#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) root: Arc<Root>,
    pub(super) options: StoreOptions,
    pub(super) disk: Disk,
    /// That this bridge is alive, for the others; `None` in a visitor.
    pub(super) instance: Option<Instance>,
    /// Temporary files of children; `None` in a visitor.
    pub(super) scratches: Option<Arc<Scratches>>,
    /// The same, for those who keep state in memory.
    pub(super) bridge: Arc<Bridge>,
    /// When the last sweep was, by the wall and by the clock that nobody sets.
    pub(super) last_sweep: Lock<Option<(SystemTime, Instant)>>,
    pub(super) last_usage: Lock<Option<(Instant, DiskUsage)>>,
    /// Records that found no room.
    pub(super) deferred: Deferred,
    pub(super) journal: Option<Journal>,
    pub(super) jobs: Lock<HashSet<Uuid>>,
    pub(super) workspaces: Lock<Workspaces>,
    /// What names the workspaces, once one was asked for.
    pub(super) key: Lock<Option<StoreKey>>,
    /// Whether the last look at the directory found that it cannot be used.
    pub(super) is_faulty: AtomicBool,
    /// What the log has said of that.
    pub(super) told: Lock<MendLog>,
}

impl SharedStore {
    /// The jobs that this process uses.
    pub(super) fn in_use(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.jobs.lock()
    }

    /// The sessions' workspaces.
    pub(super) fn workspaces(&self) -> MutexGuard<'_, Workspaces> {
        self.workspaces.lock()
    }

    /// The name of a session's workspace: a key may hold an address or a user's name.
    pub(super) fn name_of(&self, server: &str, key: &str) -> io::Result<String> {
        Ok(self.key()?.name_of(server, key))
    }

    /// What names the workspaces, and opens the newest version of their files.
    pub(super) fn key(&self) -> io::Result<StoreKey> {
        let mut known = self.key.lock();
        let secret = match known.take() {
            Some(secret) => secret,
            None => StoreKey::of(&self.root)?,
        };
        Ok(known.insert(secret).clone())
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        // The last chance of those that found no room.
        self.deferred.write(&self.root);
    }
}

/// Why the jobs directory cannot be used just now, and what to do about it. It names paths, so it is for
/// the operator alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(super) String);

/// What the log has said of it, and what is still to be done in a new directory, which a look that ended half
/// way leaves to the next.
#[derive(Debug, Default)]
pub(super) struct MendLog {
    pub(super) fault: Option<Unusable>,
    pub(super) shut: Option<Instant>,
    pub(super) unheld: Option<Instant>,
    /// The key of the new directory was not read yet.
    pub(super) is_key_due: bool,
    /// It does not say yet of every conversation that it has state in memory.
    pub(super) is_held_due: bool,
}
