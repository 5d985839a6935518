//! Workspaces: where a child works, in a job made for one request, in the workspace of its conversation, or in a folder
//! that goes with it, and with temporary files of its own elsewhere.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pontoon_supervise::User;
use rustix::process::{getegid, geteuid};
use tokio_util::task::TaskTracker;

use crate::jobs::{
    Bounds, Held, Job, JobError, Scratch, SessionWorkspace, Snapshot, Store, Writer,
};
use crate::lock::Lock;

/// Where a child works.
#[derive(Debug, Clone)]
pub enum Workspace {
    /// In a job of its own.
    Job(Arc<OwnJob>),
    /// Where its conversation keeps its files.
    Session(Arc<SessionWorkspace>),
    /// In a folder that is no call's and no conversation's, and goes with it.
    Temporary(Arc<Temporary>),
}

/// A job that a child works in. Unless a call is recorded in it, it goes with the child, or with the
/// attempt to start one.
#[derive(Debug)]
pub struct OwnJob {
    /// The job.
    pub job: Arc<Job>,
    is_recorded: AtomicBool,
    /// Made with it, in one go: until a child takes it.
    temporary: Lock<Option<Temporary>>,
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
    writer: Writer,
    directory: PathBuf,
}

impl Temporary {
    /// The folder they are in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn give_to(&self, user: User) -> std::io::Result<()> {
        self.scratch.as_ref().map_or(Ok(()), |scratch| scratch.give_to(user.uid, user.gid))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Without a runtime the bridge ends, and may wait for the disk itself.
        let Some(scratch) = self.scratch.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let endings = self.endings.clone();
            // Most are empty, and go with the records. No record waits until the others are removed.
            self.writer.write(0, move || {
                if !scratch.remove_if_empty() {
                    endings.spawn_blocking_on(move || drop(scratch), &runtime);
                }
                Ok(())
            });
        }
    }
}

/// State that is held for a process that is still to start. It is let go of where that may wait for the disk.
#[derive(Debug)]
pub(crate) struct Reserved {
    held: Option<Held>,
    endings: TaskTracker,
}

impl Reserved {
    pub(crate) fn new(held: Option<Held>, endings: &TaskTracker) -> Self {
        Self { held, endings: endings.clone() }
    }

    /// The state, for the process that has started.
    pub(crate) fn take(mut self) -> Option<Held> {
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

/// Which directory a workspace was when it was looked at: it may be removed, and made again, behind a process that
/// works there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectoryId {
    device: u64,
    inode: u64,
}

impl Workspace {
    /// Which directory it is now; `None` if there is none.
    pub(crate) async fn directory_id(&self) -> Option<DirectoryId> {
        let directory = self.directory().to_owned();
        let looked = tokio::task::spawn_blocking(move || std::fs::metadata(directory));
        let there = looked.await.ok()?.ok()?;
        Some(DirectoryId { device: there.dev(), inode: there.ino() })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Job(own) => own.job.files(),
            Self::Session(space) => space.files(),
            Self::Temporary(folder) => folder.directory(),
        }
    }

    /// What `${MCPO_WORKDIR}` is; `None` where nothing that is written there is found again.
    pub fn told_directory(&self) -> Option<&Path> {
        match self {
            Self::Job(_) | Self::Session(_) => Some(self.directory()),
            Self::Temporary(_) => None,
        }
    }

    /// What `${MCPO_JOB_ID}` is; empty where there is none.
    pub fn name(&self) -> String {
        match self {
            Self::Job(own) => own.job.id().to_string(),
            Self::Session(space) => space.name().to_owned(),
            Self::Temporary(_) => String::new(),
        }
    }

    /// Whom it has to belong to when its child runs as `user`, or as we do; `None` if it does.
    fn next_owner(&self, user: Option<User>) -> Option<User> {
        let ours = || User { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        match self {
            Self::Job(_) | Self::Temporary(_) => user,
            // A child before may have been another user. A confined one of ours has no rights to
            // what is not its own, not even if we are root.
            Self::Session(_) => user.or_else(|| geteuid().is_root().then(ours)),
        }
    }

    /// Gives it to the user that the child runs as, or to us.
    fn give_to(&self, user: User) -> std::io::Result<()> {
        match self {
            Self::Job(own) => own.job.give_to(user.uid, user.gid),
            Self::Session(space) => space.give_to(user.uid, user.gid),
            Self::Temporary(folder) => folder.give_to(user),
        }
    }

    /// Sees to it that a child that runs as `user`, or as we do, owns the place and its temporary
    /// files.
    pub(crate) async fn hand_over(
        &self,
        user: Option<User>,
        temporary: &Temporary,
    ) -> std::io::Result<()> {
        let Some(owner) = self.next_owner(user) else { return Ok(()) };
        let (workspace, scratch) = (self.clone(), temporary.scratch.clone());
        let given = tokio::task::spawn_blocking(move || {
            scratch.map_or(Ok(()), |scratch| scratch.give_to(owner.uid, owner.gid))?;
            workspace.give_to(owner)
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

impl OwnJob {
    /// A new job for a child. It is made where that may wait for the disk.
    pub(crate) async fn make(
        store: &Store,
        endings: &TaskTracker,
        writer: &Writer,
    ) -> Result<Self, JobError> {
        let (store, endings, writer) = (store.clone(), endings.clone(), writer.clone());
        // Made whole on that thread, so that it goes again if its caller is gone by then.
        blocking(move || {
            let (job, is_recorded) = (Arc::new(store.new_job()?), AtomicBool::new(false));
            // One that cannot be made is tried again for the child, which then says why.
            let temporary = Lock::new(Temporary::make_here(&store, &endings, &writer).ok());
            Ok(Self { job, is_recorded, temporary, endings })
        })
        .await
    }
}

impl Temporary {
    /// A folder for the temporary files of a child that works here.
    pub(crate) async fn for_child_in(
        workspace: &Workspace,
        store: &Store,
        endings: &TaskTracker,
        writer: &Writer,
    ) -> std::io::Result<Self> {
        let made = match workspace {
            Workspace::Job(own) => own.temporary.lock().take(),
            Workspace::Session(_) | Workspace::Temporary(_) => None,
        };
        match made {
            Some(made) => Ok(made),
            None => Self::make(store, endings, writer).await,
        }
    }

    /// A folder for temporary files. It is made where that may wait for the disk.
    pub(crate) async fn make(
        store: &Store,
        endings: &TaskTracker,
        writer: &Writer,
    ) -> std::io::Result<Self> {
        let (store, endings, writer) = (store.clone(), endings.clone(), writer.clone());
        let made = tokio::task::spawn_blocking(move || Self::make_here(&store, &endings, &writer));
        made.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }

    /// The same on this thread, which may wait for the disk.
    fn make_here(store: &Store, endings: &TaskTracker, writer: &Writer) -> std::io::Result<Self> {
        let scratch = store.new_scratch()?;
        let (endings, writer) = (endings.clone(), writer.clone());
        let directory = scratch.path().to_owned();
        Ok(Self { scratch: Some(Arc::new(scratch)), endings, writer, directory })
    }
}

/// Does what blocks on the disk, on a thread that may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<T, JobError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| {
        Err(JobError::Io { what: "do anything", source: std::io::Error::other(panic) })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::jobs::StoreOptions;

    fn store(folder: &Path) -> Store {
        let options = StoreOptions {
            expiry: Duration::from_secs(60),
            store_payloads: true,
            min_free_bytes: 0,
            other_users: false,
        };
        Store::open(folder, options).unwrap()
    }

    #[tokio::test]
    async fn a_job_goes_with_its_child_unless_a_call_is_recorded_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (store, endings) = (store(folder.path()), TaskTracker::new());
        let writer = Writer::start().unwrap();
        let unused = OwnJob::make(&store, &endings, &writer).await.unwrap();
        let recorded = OwnJob::make(&store, &endings, &writer).await.unwrap();
        recorded.keep();
        let kept = Arc::clone(&recorded.job);
        let [empty, full] =
            [(); 2].map(|()| Temporary::make_here(&store, &endings, &writer).unwrap());
        std::fs::write(full.directory().join("left"), "").unwrap();
        let paths = [
            unused.job.files().to_owned(),
            empty.directory().to_owned(),
            full.directory().to_owned(),
            recorded.job.files().to_owned(),
        ];
        assert!(paths.iter().all(|path| path.is_dir()));
        drop((unused, empty, full, recorded));
        writer.flush().await;
        endings.close();
        endings.wait().await;
        assert_eq!(paths.map(|path| path.is_dir()), [false, false, false, true]);
        drop(kept);
    }

    #[tokio::test]
    async fn a_folder_that_was_made_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let space = store.workspace("demo", "ada").unwrap();
        let workspace = Workspace::Session(space);
        let before = workspace.directory_id().await;
        assert!(before.is_some());
        assert_eq!(workspace.directory_id().await, before);
        let path = workspace.directory().to_owned();
        std::fs::rename(&path, path.with_file_name("moved")).unwrap();
        assert_eq!(workspace.directory_id().await, None);
        std::fs::create_dir(&path).unwrap();
        assert_ne!(workspace.directory_id().await, before);
    }
}
