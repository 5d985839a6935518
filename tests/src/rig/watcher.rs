//! The watcher: walks the tree below the bridge again and again, and remembers whom it saw.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::processes::{self, Process};

/// Everyone who was below `root` at some time.
#[derive(Debug)]
pub(super) struct Watcher {
    root: u32,
    seen: Arc<Mutex<HashSet<Process>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(super) fn start(root: u32) -> Self {
        let seen = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    look(root, &seen);
                    thread::park_timeout(Duration::from_millis(100));
                }
            }
        });
        Self { root, seen, over, thread: Some(thread) }
    }

    pub(super) fn look(&self) {
        look(self.root, &self.seen);
    }

    pub(super) fn seen(&self) -> Vec<Process> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn look(root: u32, seen: &Mutex<HashSet<Process>>) {
    // State and parent change over a life; one entry per process is enough.
    let found = processes::below(&processes::all(), root);
    let found = found.into_iter().map(|it| Process { parent: 0, state: '?', ..it });
    seen.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
