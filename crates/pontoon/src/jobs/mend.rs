//! The jobs directory after a fault: what is wrong with it, and all that is ours put back into it.
//!
//! It may be removed, replaced, shut by a child with our user, or lose its file system, all while calls
//! are made. A look costs a dozen system calls, so no call that works pays for one: a probe looks, the
//! heartbeat does, and a call that failed because of the directory, which is then tried once more.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::{error, info, warn};

use super::disk::{JobError, is_full};
use super::root::{INSTANCES, StoreError, StoreFault};
use super::shared::{MendLog, SharedStore, Unusable};

/// How often the log says that the directory was shut: a child may shut it again and again.
const TELL_EVERY: Duration = Duration::from_secs(60);

impl SharedStore {
    /// Looks at the directory, and mends what can be mended. An error is what is still wrong.
    pub(super) fn mend(&self) -> Result<(), Unusable> {
        // Held, so that two who look do not both put something back.
        let mut told = self.told.lock();
        let fault = match self.look(&mut told) {
            Err(error) if !is_of_the_system(&error) => Some(Unusable(reason(&error))),
            _ => None,
        };
        if told.fault != fault {
            match &fault {
                Some(fault) => {
                    error!(%fault, "the jobs directory cannot be used, and no call is made")
                }
                None => info!("the jobs directory can be used again"),
            }
            self.is_faulty.store(fault.is_some(), Ordering::Release);
            told.fault.clone_from(&fault);
        }
        fault.map_or(Ok(()), Err)
    }

    fn look(&self, told: &mut MendLog) -> Result<(), StoreError> {
        let root = &self.root;
        let directory = root.path().display();
        if let Err(why) = root.check_place() {
            root.renew()?;
            warn!(%directory, %why, "the jobs directory was opened anew, without what was in it");
            (told.is_key_due, told.is_held_due) = (true, true);
            self.disk.forget();
            self.journal.iter().for_each(|journal| journal.begin_anew());
        }
        let was_shut = root.restore()?;
        told.is_key_due &= !self.restore_key(told.is_key_due);
        if let Some(instance) = &self.instance {
            let failed = |fault| move |source: io::Error| root.error(fault, source);
            instance.restore(root).map_err(failed(StoreFault::Folder(INSTANCES)))?;
            instance.touch().map_err(failed(StoreFault::ReadOnly))?;
        }
        if let Some(scratches) = &self.scratches {
            let failed =
                |source| StoreError::new(scratches.path(), StoreFault::Temporary, Some(source));
            scratches.restore().map_err(failed)?;
        }
        if told.is_held_due {
            told.is_held_due = !self.restore_held(&mut told.unheld);
        }
        if was_shut && told.shut.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            warn!(%directory, "the jobs directory was shut, perhaps by a server, and is open again");
            told.shut = Some(Instant::now());
        }
        Ok(())
    }

    /// Says in a new directory which conversations have state in memory, so that its loss can be told there,
    /// too. False if that failed for one.
    fn restore_held(&self, told: &mut Option<Instant>) -> bool {
        let in_use = self.workspaces().in_use();
        let may_tell = told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        let mut is_whole = true;
        for space in in_use {
            if let Err(error) = space.restore_held() {
                is_whole = false;
                if may_tell {
                    let error = &error as &dyn std::error::Error;
                    warn!(session = space.name(), error, "what is lost here may not be told");
                    *told = Some(Instant::now());
                }
            }
        }
        is_whole
    }

    /// Puts the key back if it is gone. Another directory may have one of its own, which counts then as
    /// at a start; elsewhere a child may have written it. False if that failed.
    fn restore_key(&self, is_anew: bool) -> bool {
        let mut known = self.key.lock();
        let Some(key) = known.take() else { return true };
        let key = known.insert(key);
        let restored = key.restore(&self.root);
        let is_restored = restored.is_ok();
        match restored {
            Ok(there) if is_anew && !there.is_same(key) => {
                warn!("the jobs directory has another key: sessions begin with empty folders");
                *key = there;
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "the key of the jobs directory is not put back"),
        }
        is_restored
    }

    /// Does `work`, and once more if it failed and the directory can be used now.
    pub(super) fn twice<T>(&self, work: impl Fn() -> Result<T, JobError>) -> Result<T, JobError> {
        // What a probe found holds for calls as well, until it is mended.
        if self.is_faulty.load(Ordering::Acquire) && self.mend().is_err() {
            return Err(JobError::Unusable);
        }
        match work() {
            Err(JobError::Io { .. }) if self.mend().is_ok() => work(),
            done => done,
        }
    }
}

/// Whether something is used up, which is no fault of the directory: a full disk is told elsewhere.
fn is_of_the_system(error: &StoreError) -> bool {
    let used_up = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
    error.source.as_ref().is_some_and(|cause| {
        is_full(cause) || cause.raw_os_error().is_some_and(|code| used_up.contains(&code))
    })
}

/// What is wrong, and what to do.
fn reason(error: &StoreError) -> String {
    let Some(cause) = &error.source else { return error.to_string() };
    let errno = Errno::from_io_error(cause);
    let remedy = match errno {
        Some(Errno::ROFS) => ": mount its file system so that it can be written",
        Some(Errno::ACCESS | Errno::PERM) => {
            ": give it back to the user that the bridge runs as, with `chown` and `chmod u+rwx`"
        }
        Some(Errno::IO | Errno::STALE | Errno::NOTCONN | Errno::NODEV | Errno::NXIO) => {
            ": mount its file system again"
        }
        _ => "",
    };
    format!("{error}: {cause}{remedy}")
}

#[cfg(test)]
mod tests;
