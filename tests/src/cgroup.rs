//! A cgroup with a limit on memory, for a bridge and all that it starts.
//!
//! Only the superuser can make one, and not everywhere. Elsewhere [`MemoryCgroup::make`] says so and
//! gives nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A cgroup with a limit, and one without inside of it, where programs are to run: as a service has
/// one in the slice that limits it. Both are removed when it is dropped.
#[derive(Debug)]
pub struct MemoryCgroup {
    limited: PathBuf,
    inner: PathBuf,
}

/// The names that the two versions have for the limit.
const LIMITS: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

impl MemoryCgroup {
    /// A cgroup of so many bytes; `None` where we may not make one, which is told.
    pub fn make(bytes: u64) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pontoon-test-{}-{count}", std::process::id());
        let made = places().into_iter().find_map(|place| Self::make_in(&place.join(&name), bytes));
        if made.is_none() {
            #[expect(clippy::print_stderr, reason = "whoever runs the tests should know")]
            {
                eprintln!("skipped: no cgroup with a limit on memory can be made here; be root");
            }
        }
        made
    }

    fn make_in(limited: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir(limited).ok()?;
        // Removes what there is if it does not work out.
        let made = Self { limited: limited.to_owned(), inner: limited.join("inner") };
        let limit = LIMITS.iter().map(|name| limited.join(name)).find(|path| path.exists())?;
        fs::write(limit, bytes.to_string()).ok()?;
        fs::create_dir(&made.inner).ok()?;
        Some(made)
    }

    /// The cgroup in which programs are to run.
    pub fn inner(&self) -> &Path {
        &self.inner
    }

    /// The one that has the limit.
    pub fn limited(&self) -> &Path {
        &self.limited
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be there for a moment.
        for cgroup in [&self.inner, &self.limited] {
            let is_gone = || !cgroup.exists() || fs::remove_dir(cgroup).is_ok();
            crate::rig::holds_within(std::time::Duration::from_secs(5), is_gone);
        }
    }
}

/// Where one may be made: in version 1 inside our own cgroup; in version 2 beside it, because one that has
/// processes gives no limits to those inside.
fn places() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = |kind: &str| {
        let of_kind = |line: &str| {
            let (_, rest) = line.split_once(':')?;
            let (kinds, path) = rest.split_once(':')?;
            let path = path.trim_start_matches('/').to_owned();
            kinds.split(',').any(|it| it == kind).then_some(path)
        };
        own.lines().find_map(of_kind)
    };
    let root = Path::new("/sys/fs/cgroup");
    let one = path("memory").map(|path| root.join("memory").join(path));
    let two = path("").map(|path| root.join(path));
    let beside = two.as_deref().and_then(Path::parent).filter(|it| it.starts_with(root));
    one.iter().cloned().chain(beside.map(Path::to_owned)).chain(two.clone()).collect()
}
