//! How much there is: for people who watch the disk.

use std::time::{Duration, Instant};

use super::beneath::names_in;
use super::disk::DiskUsage;
use super::download::is_job_name;
use super::shared::SharedStore;
use super::walk::{Bounds, walk};

/// How long a count is good for: so many times as long as it took, within these bounds. So looking
/// never costs more than a fiftieth of one core, and a small directory is told as it is.
const WORTH: u32 = 50;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Counting is not worth more than this.
const BOUNDS: Bounds = Bounds { entries: 200_000, depth: 24 };

pub(super) fn usage(store: &SharedStore) -> DiskUsage {
    let mut last = store.last_usage.lock();
    let began = Instant::now();
    let known = match *last {
        Some((until, usage)) if began < until => return with_room(store, usage),
        Some((_, usage)) => usage,
        None => DiskUsage::default(),
    };
    // One counts; whoever looks meanwhile sees what was known.
    *last = Some((began + LONGEST, known));
    drop(last);
    let usage = count(store);
    let fresh = (began.elapsed() * WORTH).clamp(SHORTEST, LONGEST);
    let mut last = store.last_usage.lock();
    *last = Some((Instant::now() + fresh, usage));
    usage
}

/// The same with what is left on the disk now, which costs nothing to see.
fn with_room(store: &SharedStore, usage: DiskUsage) -> DiskUsage {
    match store.disk.room(&store.root) {
        Ok(room) => {
            DiskUsage { free_bytes: room.free_bytes, total_bytes: room.total_bytes, ..usage }
        }
        Err(_) => usage,
    }
}

/// What cannot be read counts as nothing.
fn count(store: &SharedStore) -> DiskUsage {
    let mut usage = with_room(store, DiskUsage::default());
    let jobs = names_in(store.root.fd()).unwrap_or_default();
    usage.jobs = jobs.iter().filter(|name| is_job_name(name)).count();
    drop(walk(store.root.fd(), BOUNDS, |step| {
        usage.bytes += step.node.space;
        Ok(true)
    }));
    usage
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::jobs::{Store, StoreOptions};

    #[test]
    fn jobs_and_the_bytes_of_all_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
        let jobs = [store.new_job().unwrap(), store.new_job().unwrap()];
        let space = store.workspace("excel", "key").unwrap();
        fs::create_dir_all(jobs[0].files().join("a/b")).unwrap();
        fs::write(jobs[0].files().join("a/b/c"), vec![1; 100_000]).unwrap();
        fs::write(space.files().join("d"), vec![1; 50_000]).unwrap();
        let usage = store.usage();
        assert_eq!(usage.jobs, 2);
        assert!((150_000..1_000_000).contains(&usage.bytes), "{usage:?}");
        assert!(usage.free_bytes > 0 && usage.free_bytes <= usage.total_bytes, "{usage:?}");
        drop(jobs);
        assert_eq!(store.usage(), usage, "not counted again at once");
    }
}
