//! What was seen in a session's space, and which of its calls hears of what.
//!
//! A look at a large workspace takes long, and whoever looks holds the last look meanwhile. Calls begin
//! and end on threads that serve everybody, so they take a lock of their own, under which nothing is
//! read from the disk and nothing large is copied.
//!
//! All this outlives the space's use by one call: see [`super::spaces`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::snapshot::{Made, Snapshot};
use super::walk::Bounds;

/// What was seen in a space.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The look after the last call; none yet in a space that was just opened. Only threads that may
    /// wait for the disk wait for it.
    last: Mutex<Option<Snapshot>>,
    open: Mutex<Open>,
    bounds: Bounds,
    /// The time that we last left on the space's directory.
    mark: Mutex<Option<SystemTime>>,
}

/// What changes while others look.
#[derive(Debug, Default)]
struct Open {
    calls: Vec<Arc<Found>>,
    /// Files that were seen, but that nobody was told of.
    untold: BTreeSet<String>,
}

/// What was seen to have come since a call began, by path.
pub(super) type Found = Mutex<BTreeMap<String, Made>>;

impl Looks {
    /// Begins a call.
    pub(super) fn begin(&self) -> Arc<Found> {
        let found = Arc::default();
        lock(&self.open).calls.push(Arc::clone(&found));
        found
    }

    /// Ends a call.
    pub(super) fn end(&self, call: &Arc<Found>) {
        lock(&self.open).calls.retain(|open| !Arc::ptr_eq(open, call));
    }

    /// Takes the space up again, whose directory has this time. If that is not the one we left there,
    /// another bridge has used it or it is a new one, and what was seen before is out of date.
    pub(super) fn resume(&self, found: Option<SystemTime>) {
        if *lock(&self.mark) != found {
            *lock(&self.last) = None;
            lock(&self.open).untold.clear();
        }
    }

    /// Notes the time that our own use left on the space's directory.
    pub(super) fn set_mark(&self, left: Option<SystemTime>) {
        *lock(&self.mark) = left;
    }

    /// Looks, unless somebody has.
    pub(super) fn look_first(&self, files: &OwnedFd) -> io::Result<()> {
        let mut last = lock(&self.last);
        if last.is_none() {
            *last = Some(Snapshot::of(files, self.bounds)?);
        }
        Ok(())
    }

    /// Looks, and takes all that is there as seen.
    pub(super) fn look_anew(&self, files: &OwnedFd) -> io::Result<()> {
        *lock(&self.last) = Some(Snapshot::of(files, self.bounds)?);
        Ok(())
    }

    /// Lets `change` change the files, and looks. What nobody was told of until now stays untold.
    pub(super) fn look_after(
        &self,
        files: &OwnedFd,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut last = lock(&self.last);
        let untold = match &*last {
            Some(last) => Snapshot::of(files, self.bounds)?.made_since(last),
            None => Vec::new(),
        };
        change()?;
        *last = Some(Snapshot::of(files, self.bounds)?);
        self.unsee(&untold);
        Ok(())
    }

    /// Looks, and tells every open call what is new.
    pub(super) fn look(&self, files: &OwnedFd) -> io::Result<()> {
        let mut last = lock(&self.last);
        let look = Snapshot::of(files, self.bounds)?;
        // Whoever began meanwhile may have made some of it.
        let (calls, untold) = {
            let mut open = lock(&self.open);
            (open.calls.clone(), std::mem::take(&mut open.untold))
        };
        let mut made = look.made_since(&last.take().unwrap_or_default());
        made.extend(untold.iter().filter_map(|path| look.find_in(files, path)));
        *last = Some(look);
        for call in calls {
            lock(&call).extend(made.iter().map(|made| (made.path.clone(), made.clone())));
        }
        Ok(())
    }

    /// A file that was there at the last look, or that this did not come to.
    pub(super) fn find(&self, files: &OwnedFd, path: &str) -> Option<Made> {
        lock(&self.last).as_ref().and_then(|look| look.find_in(files, path))
    }

    /// Lets these files count as new once more, because nobody was told of them.
    pub(super) fn unsee(&self, made: &[Made]) {
        lock(&self.open).untold.extend(made.iter().map(|made| made.path.clone()));
    }

    /// Whether one look at the directory shows that there is nothing new for this call; `false` may
    /// mean either.
    pub(super) fn is_surely_idle(&self, call: &Found, directory: &Path) -> bool {
        // Whoever holds these is looking just now, which may take long; who asks here must not wait.
        let (Ok(last), Ok(found)) = (self.last.try_lock(), call.try_lock()) else { return false };
        found.is_empty() && last.as_ref().is_some_and(|look| look.is_surely_current(directory))
    }

    /// About how many bytes it takes in memory, while nobody uses it.
    pub(super) fn weight(&self) -> usize {
        let untold = lock(&self.open).untold.iter().map(String::len).sum::<usize>();
        let last = self.last.try_lock().ok();
        let last = last.and_then(|last| last.as_ref().map(Snapshot::weight)).unwrap_or_default();
        size_of::<Self>() + untold + last
    }

    /// Looks that do not go as far as they might.
    #[cfg(test)]
    pub(super) fn within(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// As while somebody looks.
    #[cfg(test)]
    pub(super) fn looking(&self) -> MutexGuard<'_, Option<Snapshot>> {
        lock(&self.last)
    }
}

/// What `call` has found until now.
pub(super) fn take_found(call: &Found) -> Vec<Made> {
    std::mem::take(&mut *lock(call)).into_values().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
