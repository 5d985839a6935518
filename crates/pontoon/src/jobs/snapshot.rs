//! What files are in a workspace, and which of them a call made: one look before, one after.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, open, utimensat};
use rustix::process::geteuid;
use serde::Serialize;

use super::beneath::open_to_read;
use super::names::{MAX_PATH, is_name, is_served, media_type};
use super::node::FileNode;
use super::walk::{Bounds, walk};

/// Two changes closer together may leave the same time, and the clock of a file system may be so much
/// behind ours.
const GRAIN: Duration = Duration::from_millis(100);

/// A file that a call made or changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Made {
    /// Where it is below `files/`, with `/` between.
    pub path: String,
    /// Its size in bytes when it was found.
    pub size: u64,
    /// Its media type, by its name.
    pub mime: &'static str,
}

impl Made {
    pub(super) fn new(path: String, size: u64) -> Self {
        let mime = media_type(&path);
        Self { path, size, mime }
    }
}

/// The files of a workspace at one moment.
///
/// Only plain files that can be served are in it: no links, no second names of a file (hard
/// links), nothing hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    files: HashMap<String, Stamp>,
    has_folders: bool,
    /// How long the names of the files are together.
    path_bytes: usize,
    /// How many things were seen that cannot be served: links, devices, names with a dot in front.
    left_out: usize,
    /// Whether all of the workspace was seen within the bounds.
    is_whole: bool,
    /// When it was begun, by our clock. Long ago where there was no look at all.
    began: SystemTime,
    /// The directory as it was, where nothing can come without changing it.
    settled: Option<FileNode>,
}

/// What differs when a file was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    size: u64,
    inode: u64,
    modified: SystemTime,
    // A program may set the other time back, to that of an archive for instance.
    changed: SystemTime,
    owner: u32,
}

impl Stamp {
    /// Whether the file was not written in between. Another owner means that we gave it to the user a child
    /// runs as, which changes the one time alone.
    fn is_same_file(&self, other: &Self) -> bool {
        let is_given = self.owner != other.owner;
        (self.size, self.inode, self.modified) == (other.size, other.inode, other.modified)
            && (is_given || self.changed == other.changed)
    }
}

/// Nothing was looked at.
impl Default for Snapshot {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            has_folders: false,
            path_bytes: 0,
            left_out: 0,
            is_whole: false,
            began: UNIX_EPOCH,
            settled: None,
        }
    }
}

impl Snapshot {
    /// What is in `directory` now.
    ///
    /// # Errors
    ///
    /// When the directory itself cannot be read; what vanishes in it is just not there.
    pub fn take(directory: &Path, bounds: Bounds) -> io::Result<Self> {
        Self::of(open_directory(directory)?, bounds)
    }

    /// What is in `directory` now and was not `before`, with the files that `hints` name, new or not.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::take`].
    pub fn made_in(
        directory: &Path,
        bounds: Bounds,
        before: &Self,
        hints: &[String],
    ) -> io::Result<Vec<Made>> {
        let directory = open_directory(directory)?;
        let now = Self::of(&directory, bounds)?;
        let mut made = now.made_since(before);
        add_hints(&mut made, hints, |hint| now.find_in(&directory, hint));
        Ok(made)
    }

    /// What is in a directory of ours that was just made, and that no other process knows: nothing. Its time is set back, so that
    /// whatever comes next changes it.
    pub(super) fn of_new(parent: impl AsFd, name: &str) -> io::Result<Self> {
        let mut node = FileNode::at(&parent, name)?;
        // Whole seconds, which every file system keeps.
        let made = node.modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let set_back = made.saturating_sub(1);
        node.modified = UNIX_EPOCH + Duration::from_secs(set_back);
        let last_modification =
            Timespec { tv_sec: set_back.try_into().unwrap_or_default(), tv_nsec: 0 };
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
        let times = Timestamps { last_access, last_modification };
        utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self { is_whole: true, settled: Some(node), ..Self::default() })
    }

    /// Whether one look at `directory`, which it was taken of, shows that there is nothing new;
    /// `false` may mean either.
    pub fn is_surely_current(&self, directory: &Path) -> bool {
        let Some(settled) = &self.settled else { return false };
        // Whose it is may have changed meanwhile.
        FileNode::at(rustix::fs::CWD, directory)
            .is_ok_and(|now| now.is_same(settled) && now.modified == settled.modified)
    }

    /// The same of an open directory.
    pub(super) fn of(directory: impl AsFd, bounds: Bounds) -> io::Result<Self> {
        let now = SystemTime::now();
        let mut snapshot = Self { began: now, ..Self::default() };
        let before = FileNode::of(&directory)?;
        // What is not theirs, no download gives out.
        let owners = [geteuid().as_raw(), before.owner];
        snapshot.is_whole = walk(directory, bounds, |step| {
            let path = std::str::from_utf8(step.path).ok().filter(|path| path.len() <= MAX_PATH);
            let name = std::str::from_utf8(step.name).ok().filter(|name| is_name(name));
            let node = step.node;
            match (path, name) {
                (Some(_), Some(_)) if node.is_folder() => {
                    snapshot.has_folders = true;
                    return Ok(true);
                }
                (Some(path), Some(_)) if node.is_plain_file() && owners.contains(&node.owner) => {
                    let stamp = Stamp {
                        size: node.size,
                        inode: node.inode,
                        modified: node.modified,
                        changed: node.changed,
                        owner: node.owner,
                    };
                    snapshot.path_bytes += path.len();
                    snapshot.files.insert(path.to_owned(), stamp);
                }
                _ => snapshot.left_out += 1,
            }
            Ok(false)
        })?;
        let is_old = now.duration_since(before.modified).is_ok_and(|age| age > GRAIN);
        snapshot.settled = (is_old && snapshot.is_empty()).then_some(before);
        Ok(snapshot)
    }

    /// The files that are new or changed since `before`, by name.
    pub fn made_since(&self, before: &Self) -> Vec<Made> {
        let is_made = |path: &str, stamp: &Stamp| match before.files.get(path) {
            Some(known) => !known.is_same_file(stamp),
            // One that `before` did not come to may have been there long before.
            None => before.is_whole || !before.is_later_than(stamp.changed),
        };
        let made = self.files.iter().filter(|(path, stamp)| is_made(path, stamp));
        let mut made: Vec<Made> =
            made.map(|(path, stamp)| Made::new(path.clone(), stamp.size)).collect();
        made.sort_unstable();
        made
    }

    /// Whether it was begun when this time had surely passed.
    fn is_later_than(&self, time: SystemTime) -> bool {
        self.began.duration_since(time).is_ok_and(|age| age > GRAIN)
    }

    /// The file of this name, if it was there.
    pub fn find(&self, path: &str) -> Option<Made> {
        self.files.get(path).map(|stamp| Made::new(path.to_owned(), stamp.size))
    }

    /// The file of this name in `directory`, which this was taken of. Where the look did not come to
    /// all, one that it did not see is looked at by itself: somebody knows that it is there.
    pub(super) fn find_in(&self, directory: impl AsFd, path: &str) -> Option<Made> {
        if self.is_whole || self.files.contains_key(path) || !is_served(path) {
            return self.find(path);
        }
        let owners = [geteuid().as_raw(), FileNode::of(&directory).ok()?.owner];
        let node = FileNode::of(open_to_read(&directory, path.as_bytes()).ok()?).ok()?;
        let is_servable = node.is_plain_file() && owners.contains(&node.owner);
        is_servable.then(|| Made::new(path.to_owned(), node.size))
    }

    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        self.files.len() * size_of::<(String, Stamp)>() + self.path_bytes
    }

    /// Whether there is nothing at all, so that anything new changes the directory itself.
    fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.has_folders && self.left_out == 0 && self.is_whole
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Adds the files that were hinted at and exist.
pub(super) fn add_hints(
    made: &mut Vec<Made>,
    hints: &[String],
    find: impl Fn(&str) -> Option<Made>,
) {
    for hint in hints {
        if !made.iter().any(|known| known.path == *hint) {
            made.extend(find(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// What counts as made when `work` is done in a folder that holds `kept`.
    fn check(work: impl Fn(&Path), made: &[&str], left_out: usize) {
        let place = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - Duration::from_secs(60);
        for name in ["kept", "written", "replaced"] {
            fs::write(place.path().join(name), "old").unwrap();
            File::options()
                .write(true)
                .open(place.path().join(name))
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        let before = Snapshot::take(place.path(), Bounds::default()).unwrap();
        work(place.path());
        let after = Snapshot::take(place.path(), Bounds::default()).unwrap();
        let found = after.made_since(&before);
        assert_eq!(found.iter().map(|made| made.path.as_str()).collect::<Vec<_>>(), made);
        assert_eq!(after.left_out, left_out);
        assert!(after.is_whole);
    }

    #[test]
    fn nothing_done_is_nothing_made() {
        check(|_| {}, &[], 0);
        check(|place| drop(fs::read(place.join("kept"))), &[], 0);
        check(|place| fs::remove_file(place.join("kept")).unwrap(), &[], 0);
    }

    #[test]
    fn new_and_changed_files_are_made() {
        let work = |place: &Path| {
            fs::create_dir_all(place.join("a/b")).unwrap();
            fs::write(place.join("a/b/売上.xlsx"), "").unwrap();
            fs::write(place.join("written"), "new").unwrap();
            fs::write(place.join("other"), "old").unwrap();
            fs::rename(place.join("other"), place.join("replaced")).unwrap();
        };
        check(work, &["a/b/売上.xlsx", "replaced", "written"], 0);
    }

    #[test]
    fn a_change_is_seen_though_its_time_was_set_back() {
        let work = |place: &Path| {
            let time = fs::metadata(place.join("written")).unwrap().modified().unwrap();
            fs::write(place.join("written"), "new").unwrap();
            let file = File::options().write(true).open(place.join("written")).unwrap();
            file.set_modified(time).unwrap();
        };
        check(work, &["written"], 0);
    }

    #[test]
    fn what_cannot_be_served_is_left_out_and_counted() {
        let work = |place: &Path| {
            fs::write(place.join(".hidden"), "").unwrap();
            fs::create_dir(place.join(".git")).unwrap();
            fs::write(place.join(".git/config"), "").unwrap();
            fs::write(place.join("line\nbreak"), "").unwrap();
            fs::write(place.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "").unwrap();
            symlink("/etc/passwd", place.join("link")).unwrap();
            symlink("/etc", place.join("folder")).unwrap();
        };
        check(work, &[], 6);
        // Both names of a file that has two.
        check(|place| fs::hard_link(place.join("kept"), place.join("hard")).unwrap(), &[], 2);
    }

    #[test]
    fn whatever_comes_into_a_new_folder_is_seen_at_once() {
        let works: [fn(&Path); 3] = [
            |place| fs::write(place.join("file"), "").unwrap(),
            |place| fs::create_dir(place.join("folder")).unwrap(),
            |place| symlink("/etc", place.join("link")).unwrap(),
        ];
        for work in works {
            let place = tempfile::tempdir().unwrap();
            let new = Snapshot::of_new(rustix::fs::CWD, place.path().to_str().unwrap()).unwrap();
            assert!(new.is_surely_current(place.path()));
            work(place.path());
            assert!(!new.is_surely_current(place.path()));
        }
    }

    #[test]
    fn a_look_has_bounds() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..20 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let look = |entries, depth| {
            let snapshot = Snapshot::take(place.path(), Bounds { entries, depth }).unwrap();
            (snapshot.files.len(), snapshot.is_whole)
        };
        assert_eq!(look(20, 1), (20, true));
        assert_eq!(look(19, 1), (19, false));
        fs::create_dir_all(place.path().join("a/b/c")).unwrap();
        fs::write(place.path().join("a/b/c/file"), "").unwrap();
        assert_eq!(look(100, 3), (20, false));
        assert_eq!(look(100, 4), (21, true));
    }

    #[test]
    fn what_a_look_did_not_come_to_is_not_made_by_whoever_looks_next() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..20 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let look = |entries| {
            let bounds = Bounds { entries, ..Bounds::default() };
            Snapshot::take(place.path(), bounds).unwrap()
        };
        let mut before = look(10);
        assert_eq!(look(100).made_since(&before).len(), 10, "this young, nobody can tell");
        // As if all had been there for long.
        before.began += Duration::from_secs(1);
        assert_eq!(look(100).made_since(&before), []);
        // A change, to a file that was seen or not, and a new file.
        before.began -= Duration::from_secs(1);
        let seen = before.files.keys().next().unwrap().clone();
        let unseen = (0..20).map(|it| it.to_string()).find(|it| before.find(it).is_none()).unwrap();
        for name in [&seen, &unseen, "new"] {
            fs::write(place.path().join(name), "x").unwrap();
        }
        let made = look(100).made_since(&before);
        assert!([&seen, &unseen, "new"].iter().all(|it| made.iter().any(|made| made.path == **it)));
        assert_eq!(look(100).made_since(&Snapshot::default()).len(), 21, "all is new to nobody");
    }

    #[test]
    fn a_file_that_somebody_knows_is_found_though_the_look_did_not_come_to_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/.b")).unwrap();
        for name in ["a/known", "a/.b/hidden", "linked", "other"] {
            fs::write(place.path().join(name), "1234").unwrap();
        }
        symlink("a/known", place.path().join("link")).unwrap();
        symlink("a", place.path().join("folder")).unwrap();
        fs::hard_link(place.path().join("linked"), place.path().join("second")).unwrap();
        let directory = File::open(place.path()).unwrap();
        let look = |entries, depth| Snapshot::of(&directory, Bounds { entries, depth }).unwrap();
        let found = |look: &Snapshot, path: &str| {
            look.find_in(&directory, path).map(|made| (made.path, made.size))
        };
        let partial = look(0, 16);
        assert_eq!(found(&partial, "a/known"), Some(("a/known".to_owned(), 4)));
        let bad =
            ["link", "folder/known", "second", "a", "a/.b/hidden", "../etc", "/etc/passwd", ""];
        for path in bad {
            assert_eq!(found(&partial, path), None, "{path}");
        }
        let whole = look(100, 16);
        fs::write(place.path().join("later"), "").unwrap();
        assert_eq!(found(&whole, "later"), None, "a look at all has seen all");
        assert!(found(&whole, "a/known").is_some());
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_looked_into() {
        let place = tempfile::tempdir().unwrap();
        symlink("/etc", place.path().join("etc")).unwrap();
        assert!(Snapshot::take(&place.path().join("etc"), Bounds::default()).is_err());
    }
}
