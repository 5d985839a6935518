//! A session's space: a working directory that outlives one call.
//!
//! A fresh process finds the files of the call before in it. Which files a call made is found by
//! comparing with the look before. Of calls at the same time nobody can tell whose a file is, so each
//! is told all that came while it was open.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_NOW, chmodat, utimensat};
use tracing::warn;

use super::beneath::{make_folder, open_folder, open_up};
use super::deliver::give;
use super::holder::{Bridge, Holders};
use super::instance;
use super::job::FILES;
use super::log;
use super::looks::{Found, Looks, take_found};
use super::node::Node;
use super::record::text_of;
use super::root::{Root, SESSIONS};
use super::snapshot::{Made, add_hints};

/// Now, for a file's times.
pub(super) const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
};

/// The working directory of one session key of one server. In use until it is dropped.
#[derive(Debug)]
pub struct SessionSpace {
    root: Arc<Root>,
    name: String,
    files: PathBuf,
    looks: Arc<Looks>,
    /// Which processes keep state in memory for it.
    pub(super) holders: Holders,
    /// Held by whoever writes `server.log`.
    log: Mutex<()>,
}

/// A call that is open in a space.
#[derive(Debug)]
pub struct Visit {
    space: Arc<SessionSpace>,
    found: Arc<Found>,
}

/// Whether this is the name of a session's directory.
pub(super) fn is_space_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl SessionSpace {
    /// The space with this name, made if it is missing, and what is remembered of it.
    pub(super) fn make(
        root: &Arc<Root>,
        name: &str,
        looks: &Arc<Looks>,
        bridge: &Arc<Bridge>,
    ) -> io::Result<Self> {
        let space = Self {
            root: Arc::clone(root),
            name: name.to_owned(),
            files: root.path().join(SESSIONS).join(name).join(FILES),
            looks: Arc::clone(looks),
            holders: Holders::new(bridge),
            log: Mutex::default(),
        };
        looks.resume(space.time());
        make_folders(root, name)?;
        looks.set_mark(space.time());
        Ok(space)
    }

    /// The time of its directory.
    fn time(&self) -> Option<SystemTime> {
        let sessions = self.root.folder(SESSIONS).ok()?;
        Node::at(&sessions, self.name.as_str()).ok().map(|node| node.modified)
    }

    /// The absolute path of the child's working directory.
    pub fn files(&self) -> &Path {
        &self.files
    }

    /// Its name, which tells nobody whose it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins a call.
    pub fn visit(self: &Arc<Self>) -> Visit {
        Visit { space: Arc::clone(self), found: self.looks.begin() }
    }

    /// Gives the space to the user its child runs as, with the files that are in it.
    ///
    /// # Errors
    ///
    /// When we may not: only the superuser can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let files = self.open()?;
        // A call that is under way there must not find its files seen already.
        if Node::of(&files)?.owner == uid {
            return Ok(());
        }
        // The gift itself is no change that a call made.
        self.looks.look_after(&files, || give(&files, uid, gid))
    }

    /// Makes it ready for a child: it is there, and what lies in it before the first call is known.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let files = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.restore(),
            opened => opened?,
        };
        // Since it was made, children of other users may have come.
        open_passage(&self.root, &self.root.folder(SESSIONS)?, &self.name)?;
        self.looks.look_first(&files)
    }

    /// Makes the directory again, which somebody removed while it was in use. Whose it is is settled
    /// when the next child starts; one that runs has lost it for good.
    fn restore(&self) -> io::Result<()> {
        warn!(
            session = self.name,
            "the directory of a session is gone; it goes on with an empty one"
        );
        make_folders(&self.root, &self.name)?;
        self.hold_again()?;
        self.looks.set_mark(self.time());
        self.looks.look_anew(&self.open()?)
    }

    /// Writes what a child said on its standard error, and how it ended, behind what others of this
    /// session said before it.
    pub fn write_log(&self, lines: &[String], how: &str, now: SystemTime) {
        let end = format!("[{}: the process {how}]", text_of(now));
        let lines = [lines, &[end]].concat();
        // Two that end at once would each lose what the other wrote.
        let _alone = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.folder().and_then(|folder| log::append(&folder, &lines)) {
            let error = &error as &dyn std::error::Error;
            warn!(session = self.name, error, "what the child said is not recorded");
        }
        self.changed();
    }

    /// The directory that has ours beside the child's own.
    pub(super) fn folder(&self) -> io::Result<OwnedFd> {
        open_folder(self.root.folder(SESSIONS)?, self.name.as_bytes())
    }

    /// Whether the bridge with this id is about to end.
    pub(super) fn is_leaving(&self, bridge: &str) -> bool {
        instance::is_leaving(&self.root, bridge)
    }

    /// Notes that we changed something in it: no other bridge did.
    pub(super) fn changed(&self) {
        self.looks.set_mark(self.time());
    }

    /// Keeps every bridge from collecting it.
    pub(super) fn touch(&self) -> io::Result<()> {
        touch(&self.root.folder(SESSIONS)?, &self.name)?;
        self.looks.set_mark(self.time());
        Ok(())
    }

    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let sessions = self.root.folder(SESSIONS)?;
        match open_folder(&sessions, format!("{}/{FILES}", self.name).as_bytes()) {
            // A child that shuts its own directory shuts out its conversation, not only itself.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up(open_up(&sessions, self.name.as_bytes())?, FILES.as_bytes())
            }
            opened => opened,
        }
    }
}

impl Visit {
    /// The space.
    pub fn space(&self) -> &SessionSpace {
        &self.space
    }

    /// The files that are new or changed since this was asked last, or since the call began, with
    /// those that `hints` name, new or not. If somebody removed the directory there are none, and it
    /// is made again for the next child.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn made(&self, hints: &[String]) -> io::Result<Vec<Made>> {
        let files = match self.space.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.space.restore()?;
                return Ok(Vec::new());
            }
            opened => opened?,
        };
        self.space.looks.look(&files)?;
        let mut made = take_found(&self.found);
        add_hints(&mut made, hints, |hint| self.space.looks.find(&files, hint));
        Ok(made)
    }

    /// Lets these files count as new once more, because nobody was told of them.
    pub fn unsee(&self, made: &[Made]) {
        self.space.looks.unsee(made);
    }

    /// Whether one look at the directory shows that there is nothing new; `false` may mean either.
    pub fn is_surely_idle(&self) -> bool {
        self.space.looks.is_surely_idle(&self.found, &self.space.files)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.space.looks.end(&self.found);
    }
}

/// Lets children of other users pass, where there are any.
fn open_passage(root: &Root, sessions: &OwnedFd, name: &str) -> io::Result<()> {
    let passage = root.passage();
    if passage != Mode::RWXU {
        // Our own mask may have taken these away.
        chmodat(sessions, name, passage, AtFlags::empty())?;
    }
    Ok(())
}

/// Makes the directories of a session that are missing.
fn make_folders(root: &Root, name: &str) -> io::Result<()> {
    // Another bridge may just be collecting it: then it is made anew.
    for _ in 0..3 {
        let sessions = root.folder(SESSIONS)?;
        let space = make_folder(&sessions, name, root.passage())?;
        touch(&sessions, name)?;
        open_passage(root, &sessions, name)?;
        make_folder(&space, FILES, Mode::RWXU)?;
        let there = Node::at(&sessions, name);
        if there.is_ok_and(|there| Node::of(&space).is_ok_and(|space| space.is_same(&there))) {
            return Ok(());
        }
    }
    Err(io::Error::other("the session's directory is removed again and again"))
}

/// Sets a directory's time to now: the heartbeat.
pub(super) fn touch(folder: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(utimensat(folder, name, &NOW, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{fs, thread};

    use super::*;
    use crate::jobs::{Bounds, Snapshot, Store, StoreOptions};

    fn store() -> (Store, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        (Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap(), place)
    }

    /// What a call that does `work` in the space is seen to have made.
    fn check(space: &Arc<SessionSpace>, work: impl Fn(&Path), expected: &[&str]) {
        let visit = space.visit();
        work(space.files());
        assert_made(&visit, expected);
    }

    fn assert_made(visit: &Visit, expected: &[&str]) {
        let made = visit.made(&[]).unwrap();
        assert_eq!(made.iter().map(|made| made.path.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_call_made_what_is_new_since_the_last() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        check(&space, |_| {}, &[]);
        check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        check(&space, |files| fs::write(files.join("b"), "1").unwrap(), &["b"]);
        check(&space, |files| fs::write(files.join("a"), "22").unwrap(), &["a"]);
        check(&space, |_| {}, &[]);
        drop(space);
        let space = store.session_space("excel", "user 1").unwrap();
        assert!(space.files().join("a").exists(), "a later process sees the files");
        check(&space, |_| {}, &[]);
    }

    #[test]
    fn calls_at_the_same_time_each_hear_of_all_that_came_meanwhile() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        let write = |name: &str, text: &str| fs::write(space.files().join(name), text).unwrap();
        let slow = space.visit();
        write("a", "1");
        let given_up = space.visit();
        assert_made(&given_up, &["a"]);
        assert!(!slow.is_surely_idle(), "what the other found is its own, too");
        write("b", "1");
        write("a", "22");
        drop(given_up);
        check(&space, |_| {}, &["a", "b"]);
        assert_eq!(slow.made(&[]).unwrap()[0].size, 2, "each once, as it was last");
        assert_made(&slow, &[]);
    }

    #[test]
    fn what_nobody_was_told_of_is_new_once_more() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        space.visit().unsee(&[Made::new("a".to_owned(), 1)]);
        check(&space, |files| fs::write(files.join("b"), "1").unwrap(), &["a", "b"]);
        check(&space, |_| {}, &[]);
    }

    #[test]
    fn what_a_given_up_call_left_is_told_to_the_next() {
        let (store, _place) = store();
        let open = || store.session_space("excel", "user 1").unwrap();
        check(&open(), |files| fs::write(files.join("told"), "1").unwrap(), &["told"]);
        let space = open();
        let given_up = space.visit();
        fs::write(space.files().join("left"), "1").unwrap();
        drop((given_up, space));
        store.heartbeat();
        check(&open(), |files| fs::write(files.join("new"), "1").unwrap(), &["left", "new"]);
        // And so is what a call could not deliver.
        let space = open();
        let visit = space.visit();
        visit.unsee(&[Made::new("new".to_owned(), 1)]);
        drop((visit, space));
        check(&open(), |_| {}, &["new"]);
        check(&open(), |_| {}, &[]);
    }

    #[test]
    fn what_another_bridge_told_is_not_told_again() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("jobs");
        let store = || Store::open(&at, StoreOptions::default()).unwrap();
        let (ours, theirs) = (store(), store());
        let open = |store: &Store| store.session_space("excel", "user 1").unwrap();
        check(&open(&ours), |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        let time = open(&theirs).time();
        // The clock of the files may take some milliseconds to its next step.
        while open(&theirs).time() == time {}
        check(&open(&theirs), |files| fs::write(files.join("b"), "1").unwrap(), &["b"]);
        check(&open(&ours), |files| fs::write(files.join("c"), "1").unwrap(), &["c"]);
        // Nor is anything told twice because we ourselves say that it is in use.
        let space = open(&ours);
        ours.heartbeat();
        drop(space);
        check(&open(&ours), |_| {}, &[]);
    }

    #[test]
    fn calls_begin_and_end_while_another_looks() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        let looking = space.looks.looking();
        let (done, is_done) = mpsc::channel();
        let other = Arc::clone(&space);
        // As on a thread that serves all clients.
        thread::spawn(move || {
            let visit = other.visit();
            visit.unsee(&[Made::new("a".to_owned(), 1)]);
            let is_idle = visit.is_surely_idle();
            drop(visit);
            done.send(is_idle).unwrap();
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(false), "nobody waits");
        drop(looking);
    }

    #[test]
    fn a_hint_leads_to_a_file_that_is_behind_the_bound_of_a_look() {
        let (store, _place) = store();
        let bounds = Bounds { entries: 20, ..Bounds::default() };
        let (root, looks) = (&store.0.root, Arc::new(Looks::within(bounds)));
        let bridge = Bridge::new(uuid::Uuid::nil());
        let space = SessionSpace::make(root, &"a".repeat(64), &looks, &bridge).unwrap();
        let space = Arc::new(space);
        fs::create_dir(space.files().join("out")).unwrap();
        fs::write(space.files().join("out/known"), "1").unwrap();
        // Folders come after what lies beside them.
        for number in 0..20 {
            fs::write(space.files().join(number.to_string()), "").unwrap();
        }
        let visit = space.visit();
        assert!(!visit.made(&[]).unwrap().is_empty());
        assert_made(&visit, &[]);
        let hints = ["out/known".to_owned(), "out/unknown".to_owned()];
        let check = |made: Vec<Made>| assert_eq!(made, [Made::new(hints[0].clone(), 1)]);
        check(visit.made(&hints).unwrap());
        let before = Snapshot::take(space.files(), bounds).unwrap();
        check(Snapshot::made_in(space.files(), bounds, &before, &hints).unwrap());
    }

    #[test]
    fn a_key_has_one_space_and_no_other_key_has_it() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        assert!(Arc::ptr_eq(&space, &store.session_space("excel", "user 1").unwrap()));
        for (server, key) in
            [("excel", "user 2"), ("exceluser", " 1"), ("word", "user 1"), ("excel", "")]
        {
            assert_ne!(store.session_space(server, key).unwrap().files(), space.files());
        }
        let name = space.files().parent().unwrap().file_name().unwrap().to_str().unwrap();
        assert!(is_space_name(name), "{name}");
        assert!(!is_space_name(&name.to_uppercase()) && !is_space_name("..") && !is_space_name(""));
    }

    #[test]
    fn a_space_that_vanished_is_made_again() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        let removals: [fn(&Path); 2] = [
            |files| fs::remove_dir_all(files.parent().unwrap()).unwrap(),
            |files| fs::remove_dir_all(files).unwrap(),
        ];
        for remove in removals {
            check(&space, remove, &[]);
            assert!(space.files().is_dir(), "there is a place for the next child");
            check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
            remove(space.files());
            let again = store.session_space("excel", "user 1").unwrap();
            assert!(Arc::ptr_eq(&space, &again) && again.files().is_dir());
        }
    }

    #[test]
    fn an_empty_space_is_surely_idle_until_something_comes() {
        let (store, _place) = store();
        let space = store.session_space("excel", "user 1").unwrap();
        let visit = space.visit();
        assert!(!visit.is_surely_idle(), "it is too young to be sure");
        let age = || {
            let past = SystemTime::now() - Duration::from_secs(1);
            fs::File::open(space.files()).unwrap().set_modified(past).unwrap();
            visit.made(&[]).unwrap();
        };
        age();
        assert!(visit.is_surely_idle());
        fs::write(space.files().join("a"), "").unwrap();
        assert!(!visit.is_surely_idle());
        age();
        assert!(!visit.is_surely_idle(), "a file may be written without its folder");
        fs::remove_file(space.files().join("a")).unwrap();
        fs::create_dir(space.files().join("folder")).unwrap();
        age();
        assert!(!visit.is_surely_idle());
    }
}
