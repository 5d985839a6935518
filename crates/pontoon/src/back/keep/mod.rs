//! Who gets which child next: those kept for conversations or for everybody, spares, head starts and suspended calls.
//!
//! A [`Demand`] comes in, a [`Lease`] goes out. Nothing here speaks to a server.

pub mod demand;
pub(crate) mod head_start;
pub mod kept;
pub mod kept_child;
pub(crate) mod kept_key;
pub mod lease;
pub(crate) mod shares;
pub mod spares;
pub(crate) mod start_pauses;
pub mod suspended;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::Era;
use tokio::sync::Semaphore;

use self::demand::{Demand, Use};
use self::head_start::HeadStarts;
use self::kept::KeptChildren;
use self::lease::Lease;
use self::spares::{Spares, WarmMemory};
use self::suspended::SuspendedCalls;
use self::table::KeptTable;
use super::child::launcher::Launcher;
use super::conversation::handshake::Opening;
use super::remote::live_app::LiveApp;
use crate::call::CallError;
use crate::client::Client;
use crate::clock::{Clock, now};
use crate::config::Mode;
use crate::ids::Ids;

/// What the servers share of what is kept.
#[derive(Debug, Clone)]
pub struct KeepLimits {
    /// The kept children of all servers.
    pub table: Arc<KeptTable>,
    /// How much memory spares may take in all.
    pub warm_memory: Arc<WarmMemory>,
    /// How many spares may start at once.
    pub spare_starts: Arc<Semaphore>,
    /// How long a call may wait for its turn.
    pub queue_wait: Duration,
    /// Makes the states of calls that wait.
    pub ids: Arc<Ids>,
}

/// The children of one server that are not at work, and whose they are.
#[derive(Debug)]
pub(crate) struct Keep {
    launcher: Arc<Launcher>,
    /// The application, if the server is one.
    pub(crate) app: Option<Arc<LiveApp>>,
    /// Whom a process is started for that serves every client.
    everyone: Client,
    pub(crate) kept: KeptChildren,
    pub(crate) spares: Arc<Spares>,
    pub(crate) head_starts: Arc<HeadStarts>,
    pub(crate) suspended: SuspendedCalls,
}

impl Keep {
    /// Nothing is kept yet.
    pub(crate) fn new(launcher: Arc<Launcher>, limits: &KeepLimits) -> Self {
        let head_starts = Arc::new(HeadStarts::new(Arc::clone(&launcher)));
        let (table, memory) = (Arc::clone(&limits.table), Arc::clone(&limits.warm_memory));
        let starts = Arc::clone(&limits.spare_starts);
        let (ids, name) = (Arc::clone(&limits.ids), launcher.server.name.clone());
        Self {
            everyone: Client::everyone(),
            kept: KeptChildren::new(
                Arc::clone(&launcher),
                Arc::clone(&head_starts),
                table,
                limits.queue_wait,
            ),
            spares: Arc::new(Spares::new(Arc::clone(&launcher), memory, starts)),
            head_starts,
            suspended: SuspendedCalls::new(ids, name),
            app: launcher.live_app().map(Arc::new),
            launcher,
        }
    }

    /// A child for this client, started if need be.
    pub(crate) async fn lease(self: &Arc<Self>, demand: &Demand<'_>) -> Result<Lease, CallError> {
        if let Some(app) = &self.app {
            return app.lease().await.map(Lease::App);
        }
        match self.launcher.server.mode {
            Mode::Shared { .. } => {
                // It hears nothing of the one whose call comes first.
                let demand = Demand { client: &self.everyone, ..*demand };
                if self.kept.find(demand.client, demand.child_era).is_none() {
                    // In a task of its own: others wait for it, too, if this client leaves.
                    let (keep, era) = (Arc::clone(self), demand.child_era);
                    drop(tokio::spawn(async move { keep.start_shared(era).await }).await);
                }
                self.kept.lease(&demand).await.map(Lease::Kept)
            }
            Mode::Stateful { .. } if demand.client.key.can_return() => {
                self.kept.lease(demand).await.map(Lease::Kept)
            }
            // A client that cannot be recognised again shares nothing, and keeps nothing.
            Mode::Stateless | Mode::Stateful { .. } => self.lease_own(demand).await,
        }
    }

    /// A child for one call alone.
    async fn lease_own(&self, demand: &Demand<'_>) -> Result<Lease, CallError> {
        let Demand { wanted_for, client, child_era, clock } = *demand;
        self.launcher.check_stopping()?;
        let opening = Opening::for_client(client, child_era);
        if wanted_for != Use::Again
            && let Some(spare) = self.spares.take(&opening)
        {
            self.launcher.begin(&spare, client);
            return Ok(Lease::Own(Box::new(spare)));
        }
        let ahead = match wanted_for {
            Use::Again => None,
            Use::Call | Use::Listen => self.head_starts.take(client).await,
        };
        let opened = self.head_starts.open(ahead, &opening, client, clock);
        if let Some(child) = Box::pin(opened).await {
            return Ok(Lease::Own(Box::new(child)));
        }
        let workspace = self.launcher.workspace_for(client).await?;
        let started = self.launcher.start_for(workspace, &opening, client, clock);
        let child = Box::pin(started).await?;
        self.spares.encourage();
        Ok(Lease::Own(Box::new(child)))
    }

    /// Starts the child that everybody will use, so that the first call finds it.
    pub(crate) async fn start_shared(&self, child_era: Era) {
        let (client, clock) = (&self.everyone, &Clock::new(self.launcher.server.timeout, now()));
        let demand = Demand { wanted_for: Use::Listen, client, child_era, clock };
        // Why there is none is in the log, and the next call tries again or hears it.
        if clock.bound(self.kept.lease(&demand)).await.is_none() {
            let error = clock.timed_out(self.launcher.server.name.as_str());
            tracing::error!(server = %self.launcher.server.name, %error, "no child");
            self.launcher.metrics.child_failed();
            self.kept.note_failed_start(child_era, &error.to_string());
        }
    }

    /// Lets go of what waited too long for a person, and of the places of what has ended.
    pub(crate) fn sweep(&self) {
        self.suspended.sweep();
        self.kept.reclaim();
        self.head_starts.sweep();
    }

    /// Lets go of everything.
    pub(crate) fn end(&self) {
        self.spares.end();
        self.head_starts.end();
        self.suspended.clear();
        self.kept.end_all();
    }
}

#[cfg(test)]
mod tests;
