//! Which bridge has a process that keeps the state of a session in memory.
//!
//! `{jobs}/.sessions/{hash}/holder` names the bridge. It goes when the process is let go of in order, and
//! stays when the bridge ends with it. Whoever starts the next process then knows that state was
//! lost, at any replica, and says so once.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use uuid::Uuid;

use super::record::open_record;
use super::remove::remove_tree;
use super::trash::PATIENCE;
use crate::lock::Lock;
use crate::plain_file::write_whole;

/// The name of the file.
pub(super) const NAME: &str = "holder";

/// What is in it after a loss was told.
pub(super) const TOLD: &str = "told";

/// A bridge, as those who hold state for it know it.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) id: String,
    is_leaving: AtomicBool,
}

impl Bridge {
    pub(super) fn new(id: Uuid) -> Arc<Self> {
        Arc::new(Self { id: id.to_string(), is_leaving: AtomicBool::new(false) })
    }

    /// From now on what is let go of is lost.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }
}

/// Who holds state in one workspace.
#[derive(Debug)]
pub(super) struct Holders {
    pub(super) bridge: Arc<Bridge>,
    count: Lock<usize>,
}

impl Holders {
    pub(super) fn new(bridge: &Arc<Bridge>) -> Self {
        Self { bridge: Arc::clone(bridge), count: Lock::default() }
    }

    /// How many processes keep state there.
    pub(super) fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock()
    }
}

/// Who held state here last, and did not let go of it.
pub(super) fn read(folder: &OwnedFd) -> io::Result<Option<String>> {
    // What is no file was not written by a bridge.
    let Some(file) = open_record(folder, NAME)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(64).read_to_end(&mut text)?;
    Ok((!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned()))
}

pub(super) fn remove(folder: &OwnedFd) -> io::Result<()> {
    remove_tree(folder, NAME, Instant::now() + PATIENCE)
}

/// Says who holds state here.
pub(super) fn write(folder: &OwnedFd, holder: &str) -> io::Result<()> {
    // Whole at once: another replica that finds it empty would think that nothing is kept.
    let write = |file: &mut BufWriter<File>| file.write_all(holder.as_bytes());
    write_whole(folder, NAME, write).or_else(|_| {
        // A child with our user may have put a folder there.
        remove(folder)?;
        write_whole(folder, NAME, write)
    })
}
