//! Which bridge has a process that keeps the state of a session in memory, so that a loss can be told.
//!
//! `{jobs}/.sessions/{hash}/holder` names the bridge. It goes when the process is let go of in order, and
//! stays when the bridge ends with it. Whoever starts the next process then knows that state was
//! lost, at any replica, and says so once.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, unlinkat};
use tracing::warn;
use uuid::Uuid;

use super::beneath::{create, open_to_read};
use super::session_space::SessionSpace;

/// The name of the file.
const NAME: &str = "holder";

/// A bridge, as those who hold state for it know it.
#[derive(Debug)]
pub(super) struct Bridge {
    id: Uuid,
    is_leaving: AtomicBool,
}

impl Bridge {
    pub(super) fn new(id: Uuid) -> Arc<Self> {
        Arc::new(Self { id, is_leaving: AtomicBool::new(false) })
    }

    /// From now on what is let go of is lost.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }
}

/// Who holds state in one space.
#[derive(Debug)]
pub(super) struct Holders {
    bridge: Arc<Bridge>,
    count: Mutex<usize>,
}

impl Holders {
    pub(super) fn new(bridge: &Arc<Bridge>) -> Self {
        Self { bridge: Arc::clone(bridge), count: Mutex::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that a process keeps, until it is let go of in order.
#[derive(Debug)]
pub struct Held(Arc<SessionSpace>);

impl SessionSpace {
    /// Says that a process keeps state here from now on. `None` if a process of a bridge did that is
    /// not this one: what it kept is lost. That is said once; who asks again may go on.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn hold(self: &Arc<Self>) -> io::Result<Option<Held>> {
        let mut count = self.holders.lock();
        if *count == 0 {
            let folder = self.folder()?;
            let before = read(&folder)?;
            if before.is_some() {
                remove(&folder)?;
            }
            if before.is_some_and(|before| before != self.holders.bridge.id.to_string()) {
                return Ok(None);
            }
            let written = create(&folder, NAME).map_err(io::Error::from);
            let id = self.holders.bridge.id.to_string();
            if let Err(error) = written.and_then(|file| File::from(file).write_all(id.as_bytes())) {
                let error = &error as &dyn std::error::Error;
                warn!(
                    session = self.name(),
                    error, "if this bridge ends, nobody is told what was lost"
                );
            }
            self.changed();
        }
        *count += 1;
        Ok(Some(Held(Arc::clone(self))))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Self(space) = self;
        let mut count = space.holders.lock();
        *count -= 1;
        if *count > 0 || space.holders.bridge.is_leaving.load(Ordering::Acquire) {
            return;
        }
        let ours = space.holders.bridge.id.to_string();
        let removed = space.folder().and_then(|folder| match read(&folder)? {
            Some(holder) if holder == ours => remove(&folder),
            // The conversation went on at another replica.
            _ => Ok(()),
        });
        if let Err(error) = removed {
            let error = &error as &dyn std::error::Error;
            warn!(session = space.name(), error, "a loss may be told that was none");
        }
        space.changed();
    }
}

/// Who held state here last, and did not let go of it.
fn read(folder: &OwnedFd) -> io::Result<Option<String>> {
    let file = match open_to_read(folder, NAME.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    File::from(file).take(64).read_to_end(&mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn remove(folder: &OwnedFd) -> io::Result<()> {
    match unlinkat(folder, NAME, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::store::{Store, StoreOptions};
    use super::*;

    fn space(store: &Store) -> Arc<SessionSpace> {
        store.session_space("slides", "chat 1").unwrap()
    }

    fn store(place: &Path) -> Store {
        Store::open(
            &place.join("jobs"),
            StoreOptions { min_free_bytes: 0, ..StoreOptions::default() },
        )
        .unwrap()
    }

    #[test]
    fn what_was_let_go_of_in_order_is_no_loss() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let held = space(&first).hold().unwrap().expect("nobody had state before");
        let again = space(&first).hold().unwrap().expect("it is our own");
        drop(held);
        drop(again);
        assert!(space(&second).hold().unwrap().is_some());
    }

    #[test]
    fn what_ended_with_its_bridge_is_told_once() {
        let place = tempfile::tempdir().unwrap();
        let first = store(place.path());
        let held = space(&first).hold().unwrap();
        first.leave();
        drop((held, first));
        let second = store(place.path());
        assert!(space(&second).hold().unwrap().is_none());
        let held = space(&second).hold().unwrap().expect("it was told");
        assert!(space(&second).hold().unwrap().is_some());
        drop(held);
    }

    #[test]
    fn what_another_replica_keeps_is_left_to_it() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let one = space(&first).hold().unwrap();
        assert!(space(&second).hold().unwrap().is_none());
        let two = space(&second).hold().unwrap();
        drop(one);
        assert!(space(&first).hold().unwrap().is_none(), "the second one still keeps it");
        drop(two);
    }
}
