//! Waiting for what happens in other processes, which can only be looked for.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `condition` holds.
///
/// # Panics
///
/// When it does not within `deadline`.
#[track_caller]
pub fn wait_until(what: &str, deadline: Duration, condition: impl FnMut() -> bool) {
    assert!(holds_within(deadline, condition), "waited {deadline:?} in vain: {what}");
}

/// Removes a directory in which a bridge may be writing just now.
///
/// # Panics
///
/// When it does not become empty.
#[track_caller]
pub fn remove_in_use(directory: &Path) {
    let soon = Duration::from_secs(10);
    wait_until("it is removed", soon, || {
        std::fs::remove_dir_all(directory).is_ok() || !directory.exists()
    });
}

/// Whether `condition` comes to hold within `deadline`.
pub fn holds_within(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        // The one place of the tests that sleeps.
        thread::sleep(Duration::from_millis(5));
    }
}
