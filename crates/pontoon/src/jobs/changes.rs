//! What of a session's workspace was told, and so which files are new to a call.
//!
//! A call compares what is there with what was told when it began. What it saw counts as told only once its
//! files are delivered, so what a call left that failed, was cancelled or found no room is new to the next.
//!
//! Looking at a large workspace takes long. Nobody waits for it: a look holds no lock.
//!
//! All this outlives the use of the workspace by one call: see `workspaces`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::snapshot::{Made, Snapshot};
use super::walk::Bounds;

/// What was told of a workspace.
#[derive(Debug, Default)]
pub(super) struct Changes {
    told: Mutex<LastTold>,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct LastTold {
    /// The latest look of which all was told; none yet in a workspace that was just opened.
    look: Option<Arc<WorkspaceLook>>,
    /// How many looks were begun.
    looks: u64,
    /// The time that we last left on the workspace's directory.
    mark: Option<SystemTime>,
}

/// What a workspace held at one moment.
#[derive(Debug, Default)]
pub(super) struct WorkspaceLook {
    /// When it was begun, among the others.
    turn: u64,
    pub(super) snapshot: Snapshot,
}

/// The files that are new to a call. They are new to others too, until they are delivered.
#[derive(Debug)]
pub struct NewFiles {
    /// The files.
    pub made: Vec<Made>,
    look: Arc<WorkspaceLook>,
    changes: Arc<Changes>,
}

impl NewFiles {
    pub(super) fn new(made: Vec<Made>, look: Arc<WorkspaceLook>, changes: &Arc<Changes>) -> Self {
        Self { made, look, changes: Arc::clone(changes) }
    }

    /// Says that the call is told of them. To those that begin from now on they are not new.
    pub fn delivered(self) {
        let mut told = self.changes.lock();
        // A look that began later has seen all of this one, and was told.
        if told.look.as_ref().is_none_or(|known| known.turn < self.look.turn) {
            told.look = Some(self.look);
        }
    }
}

impl Changes {
    /// What a call that begins now need not be told of.
    pub(super) fn told(&self) -> Arc<WorkspaceLook> {
        self.lock().look.clone().unwrap_or_default()
    }

    /// Looks at the workspace.
    pub(super) fn look(&self, files: &OwnedFd) -> io::Result<Arc<WorkspaceLook>> {
        let turn = {
            let mut told = self.lock();
            told.looks += 1;
            told.looks
        };
        Ok(Arc::new(WorkspaceLook { turn, snapshot: Snapshot::of(files, self.bounds)? }))
    }

    /// Takes all that is there for told, unless something was told before.
    pub(super) fn look_first(&self, files: &OwnedFd) -> io::Result<()> {
        if self.lock().look.is_none() {
            let look = self.look(files)?;
            // Another that looked first may have a child at work by now.
            self.lock().look.get_or_insert(look);
        }
        Ok(())
    }

    /// Takes all that is there for told.
    pub(super) fn look_anew(&self, files: &OwnedFd) -> io::Result<()> {
        let look = self.look(files)?;
        self.lock().look = Some(look);
        Ok(())
    }

    /// Takes the workspace up again, whose directory has this time. If that is not the one we left there,
    /// another bridge has used it or it is a new one, and what we know of it is out of date.
    pub(super) fn resume(&self, found: Option<SystemTime>) {
        let mut told = self.lock();
        if told.mark != found {
            told.look = None;
        }
    }

    /// Notes the time that our own use left on the workspace's directory.
    pub(super) fn set_mark(&self, left: Option<SystemTime>) {
        self.lock().mark = left;
    }

    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.lock().look.as_ref().map_or(0, |look| look.snapshot.weight())
    }

    fn lock(&self) -> MutexGuard<'_, LastTold> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks that do not go as far as they might.
    #[cfg(test)]
    pub(super) fn within(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }
}
