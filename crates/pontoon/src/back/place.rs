//! Where a child works: in a job made for one request, or in the workspace of its conversation, and
//! with temporary files of its own elsewhere.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pontoon_supervise::User;
use rustix::process::{getegid, geteuid};
use tokio_util::task::TaskTracker;

use super::children::chain;
use super::{Back, Surroundings};
use crate::call::CallError;
use crate::client::{Client, Key, Person};
use crate::hex::hex;
use crate::jobs::{Bounds, Held, Job, JobError, Scratch, SessionSpace, Snapshot};
use crate::observe::metrics::Limit;

/// What a client hears, who cannot mend the jobs directory and may not know where it is.
pub(super) const WHAT_TO_DO: &str = "whoever runs the bridge finds in `/health` what to do";

/// Where a child works.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a job of its own.
    Job(Arc<OwnJob>),
    /// Where its conversation keeps its files.
    Space(Arc<SessionSpace>),
}

/// A job that a child works in. Unless a call is recorded in it, it goes with the child, or with the
/// attempt to start one.
#[derive(Debug)]
pub struct OwnJob {
    /// The job.
    pub job: Arc<Job>,
    is_recorded: AtomicBool,
    endings: TaskTracker,
}

impl Drop for OwnJob {
    fn drop(&mut self) {
        // Without a runtime the bridge is gone, and what is left is collected by the next one.
        if let (false, Ok(runtime)) = (self.is_kept(), tokio::runtime::Handle::try_current()) {
            let job = Arc::clone(&self.job);
            self.endings.spawn_blocking_on(move || job.discard(), &runtime);
        }
    }
}

impl OwnJob {
    /// Says that a call is recorded here, so that the job stays after its child.
    pub fn keep(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    /// Says that no call is recorded here after all, so that the job goes with its child.
    pub fn let_go(&self) {
        self.is_recorded.store(false, Ordering::Release);
    }

    /// Whether a call was recorded here.
    pub fn is_kept(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }
}

/// The temporary files of a child. They go with it, or with the attempt to start it.
#[derive(Debug)]
pub struct Temporary {
    /// Taken when this is dropped.
    scratch: Option<Arc<Scratch>>,
    endings: TaskTracker,
    directory: PathBuf,
}

impl Temporary {
    /// The folder they are in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Without a runtime the bridge ends, and may wait for the disk itself.
        let scratch = self.scratch.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.endings.spawn_blocking_on(move || drop(scratch), &runtime);
        }
    }
}

/// State that is held for a process that is still to start. It is let go of where that may wait for the disk.
#[derive(Debug)]
pub(super) struct Reserved {
    held: Option<Held>,
    endings: TaskTracker,
}

impl Reserved {
    pub(super) fn new(held: Option<Held>, endings: &TaskTracker) -> Self {
        Self { held, endings: endings.clone() }
    }

    /// The state, for the process that has started.
    pub(super) fn take(mut self) -> Option<Held> {
        self.held.take()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.endings.spawn_blocking_on(move || drop(held), &runtime);
        }
    }
}

/// Which directory a place was when it was looked at: it may be removed, and made again, behind a process that
/// works there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    device: u64,
    inode: u64,
}

impl Place {
    /// Which directory it is now; `None` if there is none.
    pub(super) async fn spot(&self) -> Option<Spot> {
        let directory = self.directory().to_owned();
        let looked = tokio::task::spawn_blocking(move || std::fs::metadata(directory));
        let there = looked.await.ok()?.ok()?;
        Some(Spot { device: there.dev(), inode: there.ino() })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Job(own) => own.job.files(),
            Self::Space(space) => space.files(),
        }
    }

    /// What `${MCPO_JOB_ID}` is.
    pub fn name(&self) -> String {
        match self {
            Self::Job(own) => own.job.id().to_string(),
            Self::Space(space) => space.name().to_owned(),
        }
    }

    /// Whom it has to belong to when its child runs as `user`, or as we do; `None` if it does.
    fn next_owner(&self, user: Option<User>) -> Option<User> {
        let ours = || User { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        match self {
            Self::Job(_) => user,
            // A child before may have been another user. A confined one of ours has no rights to
            // what is not its own, not even if we are root.
            Self::Space(_) => user.or_else(|| geteuid().is_root().then(ours)),
        }
    }

    /// Gives it to the user that the child runs as, or to us.
    fn give_to(&self, user: User) -> std::io::Result<()> {
        match self {
            Self::Job(own) => own.job.give_to(user.uid, user.gid),
            Self::Space(space) => space.give_to(user.uid, user.gid),
        }
    }

    /// Sees to it that a child that runs as `user`, or as we do, owns the place and its temporary
    /// files.
    pub(super) async fn hand_over(
        &self,
        user: Option<User>,
        temporary: &Temporary,
    ) -> std::io::Result<()> {
        let Some(owner) = self.next_owner(user) else { return Ok(()) };
        let (place, scratch) = (self.clone(), temporary.scratch.clone());
        let given = tokio::task::spawn_blocking(move || {
            scratch.map_or(Ok(()), |scratch| scratch.give_to(owner.uid, owner.gid))?;
            place.give_to(owner)
        });
        given.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }

    /// What lies there now, where that is not remembered elsewhere.
    pub async fn scan(&self) -> Option<Snapshot> {
        let Self::Job(own) = self else { return None };
        if let Some(nothing) = own.job.looks_new() {
            return Some(nothing.clone());
        }
        let job = Arc::clone(&own.job);
        let taken =
            tokio::task::spawn_blocking(move || Snapshot::take(job.files(), Bounds::default()));
        taken.await.ok()?.ok()
    }
}

impl Back {
    /// A place for a child of this client.
    pub(super) async fn place_for(&self, client: &Client) -> Result<Place, CallError> {
        let place = match self.keeps_files_of(&client.key) {
            true => self.space_of(&client.key, &client.person).await.map(Place::Space),
            false => self.own_place().await,
        };
        place.map_err(|error| self.around.no_place(&error))
    }

    /// Whether a conversation finds its files again.
    pub(super) fn keeps_files_of(&self, key: &Key) -> bool {
        self.server.has_sessions() && key.can_return()
    }

    /// Where a conversation of this person keeps its files.
    pub(super) async fn space_of(
        &self,
        key: &Key,
        person: &Person,
    ) -> Result<Arc<SessionSpace>, JobError> {
        let (store, server) = (self.around.store.clone(), self.server.name.to_string());
        let mut name = key.to_string();
        // Several people may have one address. What tells their processes apart tells their files.
        if let (true, Some(hash)) = (key.is_shared(), self.person_hash(person)) {
            name += &hex(&hash);
        }
        blocking(move || store.session_space(&server, &name)).await
    }

    /// A place for a child that belongs to nobody yet.
    pub(super) async fn own_place(&self) -> Result<Place, JobError> {
        let (store, endings) = (self.around.store.clone(), self.around.endings.clone());
        // Made whole on that thread, so that it goes again if nobody waits for it any more.
        let made = blocking(move || {
            let (job, is_recorded) = (Arc::new(store.new_job()?), AtomicBool::new(false));
            Ok(OwnJob { job, is_recorded, endings })
        });
        Ok(Place::Job(Arc::new(made.await?)))
    }
}

impl Surroundings {
    /// A folder for the temporary files of a child.
    pub(super) async fn new_temporary(&self) -> std::io::Result<Temporary> {
        let (store, endings) = (self.store.clone(), self.endings.clone());
        let made = tokio::task::spawn_blocking(move || {
            let scratch = store.new_scratch()?;
            let directory = scratch.path().to_owned();
            Ok(Temporary { scratch: Some(Arc::new(scratch)), endings, directory })
        });
        made.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }

    /// A new job.
    pub(super) async fn new_job(&self) -> Result<Arc<Job>, JobError> {
        let store = self.store.clone();
        blocking(move || store.new_job()).await.map(Arc::new)
    }

    /// What a client hears when its call has no place to work in.
    pub(super) fn no_place(&self, error: &JobError) -> CallError {
        self.tell(error, "so the call was not made")
    }

    /// What a client hears when what its call made cannot be kept.
    pub(super) fn not_kept(&self, error: &JobError) -> CallError {
        self.tell(error, "so the files of this call cannot be fetched; the call itself was made")
    }

    fn tell(&self, error: &JobError, so: &str) -> CallError {
        let why = chain(error);
        tracing::warn!(error = error as &dyn std::error::Error, "no room for what a call makes");
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

    /// Whether a place is gone, and another can be had.
    pub(super) async fn is_gone(&self, directory: PathBuf) -> Result<bool, CallError> {
        let store = self.store.clone();
        let looked = tokio::task::spawn_blocking(move || match directory.exists() {
            true => Ok(false),
            false => store.mend().map(|()| true),
        });
        let looked = looked.await.unwrap_or(Ok(false));
        looked.map_err(|_| self.no_place(&JobError::Unusable))
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

/// Does what blocks on the disk, on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<T, JobError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| {
        Err(JobError::Io { what: "do anything", source: std::io::Error::other(panic) })
    })
}
