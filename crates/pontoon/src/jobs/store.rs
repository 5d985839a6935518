//! The store: everything on disk that jobs and sessions need, opened once.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use tracing::debug;
use uuid::Uuid;

use super::beneath::open_folder;
use super::changes::NewFiles;
use super::deferred::Deferred;
use super::disk::{Disk, DiskUsage, JobError};
use super::download::{self, Download, NotServed};
use super::holder::Bridge;
use super::instance::Instance;
use super::job::Job;
use super::journal::{self, EndedCall, Journal, JournalLine};
use super::node::touch;
use super::record::{METADATA, open_record};
use super::recover;
use super::root::{INSTANCES, Root, SCRATCH, StoreError, StoreFault};
use super::scratch::{self, Scratch, Scratches};
use super::shared::{SharedStore, StoreOptions, Unusable};
use super::sweep::{self, Swept};
use super::usage;
use super::workspace::{SessionWorkspace, WorkspaceCall};
use crate::lock::Lock;

/// The jobs directory. Clones are the same store.
#[derive(Debug, Clone)]
pub struct Store(pub(super) Arc<SharedStore>);

impl Store {
    /// Opens the jobs directory `root` for a bridge, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or when others could put things into it.
    pub fn open(root: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let root = Arc::new(Root::make(root, options.other_users)?);
        let instance = Instance::announce(&root)
            .map_err(|error| root.error(StoreFault::Folder(INSTANCES), error))?;
        let scratches = Scratches::make(&root)
            .map_err(|error| root.error(StoreFault::Folder(SCRATCH), error))?;
        Ok(Self::with(root, Some(instance), Some(scratches), options))
    }

    /// Opens a jobs directory to collect in it, beside the bridges that use it.
    ///
    /// # Errors
    ///
    /// When it is not there, or when others could put things into it.
    pub fn visit(root: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let root = Root::open(root, options.other_users)?;
        Ok(Self::with(Arc::new(root), None, None, options))
    }

    /// A store without a directory, for a bridge whose server leaves nothing: an application keeps its own files.
    /// What is asked of it fails.
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub fn nowhere() -> Result<Self, StoreError> {
        let root = Arc::new(Root::nowhere()?);
        Ok(Self::with(root, None, None, StoreOptions::default()))
    }

    /// What removes temporary files of children whose bridges were killed, in this directory and elsewhere.
    pub fn scratch_sweeper(&self) -> impl FnOnce() + Send + use<> {
        let root = Arc::clone(&self.0.root);
        move || {
            for (folder, error) in scratch::sweep(&root, SystemTime::now()) {
                tracing::debug!(folder = %folder.display(), %error, "not removed");
            }
        }
    }

    /// Lets children that run as other users pass through to their own directories from now on.
    ///
    /// # Errors
    ///
    /// When the modes of our directories cannot be changed.
    pub fn admit_other_users(&self) -> io::Result<()> {
        self.0.root.admit_other_users()?;
        self.0.scratches.iter().try_for_each(|scratches| scratches.admit_other_users())
    }

    fn with(
        root: Arc<Root>,
        instance: Option<Instance>,
        scratches: Option<Arc<Scratches>>,
        options: StoreOptions,
    ) -> Self {
        Self(Arc::new(SharedStore {
            root,
            scratches,
            journal: instance.as_ref().map(|instance| Journal::new(instance.id())),
            bridge: Bridge::new(instance.as_ref().map_or_else(Uuid::new_v4, Instance::id)),
            instance,
            last_sweep: Lock::default(),
            last_usage: Lock::default(),
            disk: Disk::new(options.min_free_bytes),
            deferred: Deferred::default(),
            options,
            jobs: Lock::default(),
            workspaces: Lock::default(),
            key: Lock::default(),
            is_faulty: AtomicBool::default(),
            told: Lock::default(),
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.root.path()
    }

    /// A secret that all bridges of this directory have, for the use with this label.
    ///
    /// # Errors
    ///
    /// When the key of the directory cannot be read or made.
    pub fn secret_for(&self, label: &str) -> io::Result<[u8; 32]> {
        Ok(self.0.key()?.secret_for(label))
    }

    /// A new job with an empty working directory.
    ///
    /// # Errors
    ///
    /// [`JobError::Full`] when there is no room for it; nothing is left of it then.
    pub fn new_job(&self) -> Result<Job, JobError> {
        self.0.twice(|| {
            self.0.disk.check(&self.0.root)?;
            Job::make(&self.0)
        })
    }

    /// A new folder for the temporary files of a child. It is never served.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn new_scratch(&self) -> io::Result<Scratch> {
        let scratches = self.0.scratches.as_ref();
        let scratches = scratches.ok_or_else(|| io::Error::other("a visitor has no children"))?;
        scratches.add().or_else(|error| match self.0.mend() {
            Ok(()) => scratches.add(),
            Err(_) => Err(error),
        })
    }

    /// Looks at the jobs directory: opens it anew if it was replaced, and puts back what is ours.
    ///
    /// # Errors
    ///
    /// When it cannot be used; each call would fail.
    pub fn mend(&self) -> Result<(), Unusable> {
        self.0.mend()
    }

    /// Where those folders are.
    pub fn scratch_place(&self) -> Option<&Path> {
        self.0.scratches.as_ref().map(|scratches| scratches.path())
    }

    /// The working directory of a session: the same value while anyone holds it.
    ///
    /// # Errors
    ///
    /// [`JobError::Full`] when there is no room for it.
    pub fn workspace(&self, server: &str, key: &str) -> Result<Arc<SessionWorkspace>, JobError> {
        self.0.twice(|| self.open_workspace(server, key))
    }

    fn open_workspace(&self, server: &str, key: &str) -> Result<Arc<SessionWorkspace>, JobError> {
        let explain = |error| self.0.disk.explain(&self.0.root, "open a session", error);
        let name = self.0.name_of(server, key).map_err(explain)?;
        // Held while it is opened, so that two callers do not get two; the sweep holds it
        // while it takes one away.
        let mut workspaces = self.0.workspaces();
        let workspace = match workspaces.get(&name) {
            Some(workspace) => workspace,
            None => {
                self.0.disk.check(&self.0.root)?;
                let changes = workspaces.changes(&name).unwrap_or_default();
                let made = SessionWorkspace::make(&self.0.root, &name, &changes, &self.0.bridge);
                let workspace = Arc::new(made.map_err(explain)?);
                workspaces.add(&workspace, &changes);
                workspace
            }
        };
        drop(workspaces);
        workspace.prepare().map_err(explain)?;
        Ok(workspace)
    }

    /// The files that a call finds new in its workspace, by [`WorkspaceCall::look`].
    ///
    /// # Errors
    ///
    /// When the workspace cannot be read.
    pub fn new_files(&self, call: &WorkspaceCall, hints: &[String]) -> Result<NewFiles, JobError> {
        let explain = |source| JobError::Io { what: "look for files", source };
        self.0.twice(|| call.look(hints).map_err(explain))
    }

    /// Says that this bridge ends: what its processes keep in memory is lost from now on, and told to
    /// those who come back for it.
    pub fn leave(&self) {
        self.0.bridge.leave();
        self.0.instance.iter().for_each(Instance::leave);
    }

    /// What stands for a job in the address of the newest version of a file of a session. It is good
    /// for this file only, for as long as the session's directory is there.
    ///
    /// # Errors
    ///
    /// When the key of the jobs directory cannot be read.
    pub fn newest(&self, workspace: &SessionWorkspace, path: &str) -> io::Result<String> {
        let name = workspace.name();
        Ok(format!("{name}{}", self.0.key()?.token_of(name, path)))
    }

    /// The file `name` (decoded, below `files/`) of the job with this id, opened for a download; or the
    /// newest version of one, by what [`Store::newest`] gave.
    ///
    /// # Errors
    ///
    /// [`NotServed`] for whatever reason: who asks must not learn what is there and what is not.
    pub fn open_file(&self, job: &str, name: &str) -> Result<Download, NotServed> {
        download::open(&self.0, job, name)
    }

    /// Removes what has expired and is in use by no bridge. See [`Swept`].
    pub fn sweep(&self, now: SystemTime) -> Swept {
        sweep::sweep(&self.0, now, Instant::now())
    }

    /// What a sweep would remove.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn expired(&self, now: SystemTime) -> io::Result<Swept> {
        sweep::find(&self.0, now)
    }

    /// Records jobs whose bridge ended in the middle of them as failed; gives how many.
    ///
    /// To be called once at the start, before the first job.
    pub fn recover(&self) -> usize {
        recover::recover(&self.0, SystemTime::now())
    }

    /// How much is there, as of half a minute ago at most.
    pub fn usage(&self) -> DiskUsage {
        usage::usage(&self.0)
    }

    /// Adds a call to the journal. True if [`Store::write_journal`] is to follow.
    pub fn journal(&self, call: &EndedCall<'_>) -> bool {
        self.0.journal.as_ref().is_some_and(|journal| journal.add(call))
    }

    /// Writes the calls that were added.
    pub fn write_journal(&self) {
        if let Some(journal) = &self.0.journal {
            journal.write(&self.0.root, self.0.options.expiry, SystemTime::now());
        }
    }

    /// The tool calls of all bridges of this directory, by when they began: those of `expiry` ago until now, or
    /// fewer if there were very many.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read.
    pub fn calls(&self) -> io::Result<Vec<JournalLine<'static>>> {
        journal::read(&self.0.root)
    }

    /// What is recorded of a job, a JSON text; `None` where there is no such job, or it has not ended yet.
    ///
    /// # Errors
    ///
    /// When the record cannot be read.
    pub fn record(&self, job: Uuid) -> io::Result<Option<Vec<u8>>> {
        let folder = match open_folder(self.0.root.fd(), job.to_string().as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder?,
        };
        let Some(mut file) = open_record(&folder, METADATA)? else { return Ok(None) };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(Some(text))
    }

    /// Tells every bridge that shares the directory which jobs and sessions are in use here, and
    /// writes the records that found no room before.
    pub fn heartbeat(&self) {
        if let Err(error) = self.0.mend() {
            debug!(%error, "this bridge has no heartbeat");
        }
        self.0.deferred.write(&self.0.root);
        let jobs: Vec<Uuid> = self.0.in_use().iter().copied().collect();
        for job in jobs {
            if let Err(error) = touch(&self.0.root.fd(), &job.to_string()) {
                debug!(%job, %error, "a job in use has no heartbeat");
            }
        }
        let workspaces = self.0.workspaces().in_use();
        for workspace in workspaces {
            if let Err(error) = workspace.touch() {
                debug!(%error, "a session in use has no heartbeat");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_directory_fails_and_makes_nothing() {
        let store = Store::nowhere().unwrap();
        assert!(store.new_job().is_err());
        assert!(store.new_scratch().is_err());
        assert!(store.workspace("app", "me").is_err());
        assert!(store.mend().is_err());
        assert!(store.open_file("job", "name").is_err());
        store.heartbeat();
    }
}
