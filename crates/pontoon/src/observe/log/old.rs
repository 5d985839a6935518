//! The log files of instances that are gone: the newest stay, the rest is removed, so that a
//! directory which every new container writes into does not grow for ever.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// How many instances that are gone, and how many bytes of them, may be read about.
const MAX_GONE: usize = 30;
const MAX_GONE_BYTES: u64 = 512 << 20;

/// Entries of the directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// A log file of another instance.
#[derive(Debug)]
struct OldLog {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// Removes what instances left that are gone, but for the newest. `own` is never touched.
pub(super) fn remove_old(folder: &Path, own: &str) {
    let is_gone = |name: &str| name != own && !is_held(&folder.join(name));
    let instances = instances(folder).into_iter().filter(|(name, _)| is_gone(name));
    let mut gone: Vec<_> = instances.map(|(_, files)| files).collect();
    gone.sort_by_key(|files| Reverse(files.iter().map(|file| file.modified).max()));
    let mut bytes = 0;
    for (at, files) in gone.iter().enumerate() {
        bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        if at >= MAX_GONE || bytes > MAX_GONE_BYTES {
            files.iter().for_each(|file| drop(fs::remove_file(&file.path)));
        }
    }
}

/// The log files of each instance, by the name of its newest file.
fn instances(folder: &Path) -> BTreeMap<String, Vec<OldLog>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for entry in fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten() {
        let name = entry.file_name();
        let Some(instance) = name.to_str().and_then(instance) else { continue };
        let Some(facts) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
        let modified = facts.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let old = OldLog { path: entry.path(), bytes: facts.len(), modified };
        all.entry(instance.to_owned()).or_default().push(old);
    }
    all
}

/// The newest file of the instance that this file is of: `pontoon-a-1.log` for `pontoon-a-1.log.3`.
pub(super) fn instance(name: &str) -> Option<&str> {
    let end = name.strip_prefix("pontoon-")?.rfind(".log")? + "pontoon-".len() + ".log".len();
    let (instance, generation) = name.split_at(end);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    (generation.is_empty() || generation.strip_prefix('.').is_some_and(is_number))
        .then_some(instance)
}

/// Whether an instance that lives writes this file.
fn is_held(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        return path.symlink_metadata().is_ok();
    };
    // Shared, and given back at once: an instance that starts meanwhile only takes its second name.
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    /// Files by name, each newer than the one before; `held` are locked. What is left of them.
    fn check(files: &[String], held: &[&str], own: &str, expected: usize, stays: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let mut locks = Vec::new();
        for (at, name) in files.iter().enumerate() {
            let file = File::create(folder.path().join(name)).unwrap();
            let age = Duration::from_secs(at as u64);
            file.set_modified(SystemTime::UNIX_EPOCH + age).unwrap();
            if held.contains(&name.as_str()) {
                flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
                locks.push(file);
            }
        }
        remove_old(folder.path(), own);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), expected);
        stays.iter().for_each(|name| assert!(folder.path().join(name).exists(), "{name}"));
    }

    #[test]
    fn only_the_newest_of_those_that_are_gone_stay() {
        let mut files: Vec<_> = (0..40).map(|n| format!("pontoon-h-{n}.log")).collect();
        files.insert(0, "pontoon-h-0.log.1".to_owned());
        let held = ["pontoon-h-1.log"];
        let stays = ["pontoon-h-1.log", "pontoon-h-2.log", "pontoon-h-10.log", "pontoon-h-39.log"];
        check(&files, &held, "pontoon-h-2.log", 2 + MAX_GONE, &stays);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let mut files: Vec<_> = (0..40).map(|n| format!("other-{n}.log")).collect();
        files.extend((0..40).map(|n| format!("pontoon-h-{n}.log.gz")));
        check(&files, &[], "pontoon-h-1.log", 80, &[]);
    }

    #[test]
    fn old_generations_of_one_that_lives_stay() {
        let mut files: Vec<_> = (1..5).map(|n| format!("pontoon-h-1.log.{n}")).collect();
        files.push("pontoon-h-1.log".to_owned());
        files.extend((2..40).map(|n| format!("pontoon-h-{n}.log")));
        check(&files, &["pontoon-h-1.log"], "own", 5 + MAX_GONE, &["pontoon-h-1.log.4"]);
    }
}
