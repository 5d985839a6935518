//! The machine that children run on: what the launchers of all servers share of processes, disk and memory.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::process::Starter;
use super::told::Hearers;
use super::workspace::blocking;
use crate::call::{CallBook, CallError};
use crate::config::Environment;
use crate::errors::chain;
use crate::held_bytes::HeldBytes;
use crate::jobs::{Job, JobError, Store, Writer};
use crate::observe::log::Secrets;
use crate::observe::messages::MessageRing;
use crate::observe::metrics::{Limit, Metrics};
use crate::observe::spans::Tracer;

/// What a client hears, who cannot mend the jobs directory and may not know where it is.
pub(crate) const WHAT_TO_DO: &str = "whoever runs the bridge finds in `/health` what to do";

/// What the launchers of all servers share.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Starts every child.
    pub starter: Starter,
    /// Where jobs and workspaces are.
    pub store: Store,
    /// Children on their way out, and what they leave to their jobs.
    pub endings: TaskTracker,
    /// Writes the records of jobs.
    pub writer: Writer,
    /// Tells of calls that are over.
    pub calls: Arc<CallBook>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// No child of a server is started while this many of its children will not end.
    pub max_stopping: usize,
    /// The largest message of a server.
    pub max_message: usize,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    /// What links to files begin with.
    pub base_url: Arc<str>,
    /// Who hears of failures.
    pub hearers: Hearers,
    /// Our own environment, of which children see a part.
    pub environment: Environment,
    /// What must never be logged or shown.
    pub secrets: Secrets,
    /// Where the messages of an application are noted.
    pub messages: Option<Arc<MessageRing>>,
    /// Makes the spans of calls, if they are traced.
    pub tracer: Option<Arc<Tracer>>,
    /// What is our own: jobs, state, logs and the configuration, by their real paths.
    pub private: Arc<[PathBuf]>,
}

impl Machine {
    /// A new job.
    pub(crate) async fn new_job(&self) -> Result<Arc<Job>, JobError> {
        let store = self.store.clone();
        blocking(move || store.new_job()).await.map(Arc::new)
    }

    /// What a client hears when its call has no workspace.
    pub(crate) fn no_workspace(&self, error: &JobError) -> CallError {
        self.tell(error, "so the call was not made")
    }

    /// What a client hears when what its call made cannot be kept.
    pub(crate) fn not_kept(&self, error: &JobError) -> CallError {
        self.tell(error, "so the files of this call cannot be fetched; the call itself was made")
    }

    fn tell(&self, error: &JobError, so: &str) -> CallError {
        let why = chain(error);
        tracing::error!(error = error as &dyn std::error::Error, "no room for what a call makes");
        match error {
            JobError::Full { .. } => {
                self.metrics.refused(Limit::Disk);
                CallError::DiskFull(format!(
                    "{why}, {so}: whoever runs the bridge has to make room"
                ))
            }
            JobError::Unusable => CallError::NoStorage(format!("{why}, {so}: {WHAT_TO_DO}")),
            JobError::Io { .. } => {
                self.mend_soon();
                CallError::NoStorage(format!("{why}, {so}: {WHAT_TO_DO}"))
            }
        }
    }

    /// Whether a workspace is gone, and another can be had.
    pub(crate) async fn is_gone(&self, directory: PathBuf) -> Result<bool, CallError> {
        let store = self.store.clone();
        let looked = tokio::task::spawn_blocking(move || match directory.exists() {
            true => Ok(false),
            false => store.mend().map(|()| true),
        });
        let looked = looked.await.unwrap_or(Ok(false));
        looked.map_err(|_| self.no_workspace(&JobError::Unusable))
    }

    /// Sees to the jobs directory, so that the next call finds it mended if it can be.
    fn mend_soon(&self) {
        let store = self.store.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // What is still wrong is logged by the store.
            self.endings.spawn_blocking_on(move || drop(store.mend()), &runtime);
        }
    }
}
