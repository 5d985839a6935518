//! A session's workspace: a working directory that outlives one call.
//!
//! A fresh process finds the files of the call before in it. Which files a call made is found by
//! comparing with what was told before (`changes`). Of calls at the same time it cannot be said whose a
//! file is, so each is told all that came while it was open.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, chmodat};
use tracing::warn;

use super::beneath::{make_folder, open_folder, open_up};
use super::changes::{Changes, NewFiles, WorkspaceLook};
use super::deliver::give;
use super::holder::{self, Bridge, Holders};
use super::instance;
use super::log;
use super::node::{FileNode, touch};
use super::record::text_of;
use super::root::{FILES, Root, SESSIONS};
use super::snapshot::add_hints;

/// The working directory of one session key of one server. In use until it is dropped.
#[derive(Debug)]
pub struct SessionWorkspace {
    root: Arc<Root>,
    name: String,
    files: PathBuf,
    changes: Arc<Changes>,
    /// Which processes keep state in memory for it.
    pub(super) holders: Holders,
    /// Held by whoever writes `server.log`.
    log: Mutex<()>,
}

/// A call that is open in a workspace.
#[derive(Debug)]
pub struct WorkspaceCall {
    workspace: Arc<SessionWorkspace>,
    /// What was told when it began.
    told: Arc<WorkspaceLook>,
}

/// Whether this is the name of a session's directory.
pub(super) fn is_workspace_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl SessionWorkspace {
    /// The workspace with this name, made if it is missing, and what is remembered of it.
    pub(super) fn make(
        root: &Arc<Root>,
        name: &str,
        changes: &Arc<Changes>,
        bridge: &Arc<Bridge>,
    ) -> io::Result<Self> {
        let workspace = Self {
            root: Arc::clone(root),
            name: name.to_owned(),
            files: root.path().join(SESSIONS).join(name).join(FILES),
            changes: Arc::clone(changes),
            holders: Holders::new(bridge),
            log: Mutex::default(),
        };
        changes.resume(workspace.time());
        make_folders(root, name)?;
        changes.set_mark(workspace.time());
        Ok(workspace)
    }

    /// The time of its directory.
    fn time(&self) -> Option<SystemTime> {
        let sessions = self.root.folder(SESSIONS).ok()?;
        FileNode::at(&sessions, self.name.as_str()).ok().map(|node| node.modified)
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
    pub fn begin_call(self: &Arc<Self>) -> WorkspaceCall {
        WorkspaceCall { workspace: Arc::clone(self), told: self.changes.told() }
    }

    /// Gives the workspace to the user its child runs as, with the files that are in it.
    ///
    /// # Errors
    ///
    /// When we may not: only the superuser can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let files = self.open()?;
        match FileNode::of(&files)?.owner == uid {
            true => Ok(()),
            false => give(&files, uid, gid),
        }
    }

    /// Makes it ready for a child: it is there, and what lies in it before the first call is known.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let files = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.restore(),
            opened => opened?,
        };
        // Since it was made, children of other users may have come.
        open_passage(&self.root, &self.root.folder(SESSIONS)?, &self.name)?;
        self.changes.look_first(&files)
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
        self.changes.set_mark(self.time());
        self.changes.look_anew(&self.open()?)
    }

    /// Says once more that processes keep state here, in a directory that was made again.
    pub(super) fn hold_again(&self) -> io::Result<()> {
        let count = self.holders.lock();
        let folder = self.folder()?;
        if *count > 0 && holder::read(&folder)?.is_none() {
            self.write_holder(&folder, &self.holders.bridge.id);
        }
        Ok(())
    }

    /// Says who holds state here.
    pub(super) fn write_holder(&self, folder: &OwnedFd, holder: &str) {
        if let Err(error) = holder::write(folder, holder) {
            let error = &error as &dyn std::error::Error;
            warn!(session = self.name, error, "what is lost here may not be told, or twice");
        }
        self.changed();
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
        self.changes.set_mark(self.time());
    }

    /// Keeps every bridge from collecting it.
    pub(super) fn touch(&self) -> io::Result<()> {
        touch(&self.root.folder(SESSIONS)?, &self.name)?;
        self.changes.set_mark(self.time());
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

impl WorkspaceCall {
    /// The workspace.
    pub fn workspace(&self) -> &SessionWorkspace {
        &self.workspace
    }

    /// The files that are new or changed since those that were told when the call began, with those that
    /// `hints` name, new or not. If the directory was removed there are none, and it is made again for the
    /// next child.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn look(&self, hints: &[String]) -> io::Result<NewFiles> {
        let workspace = &self.workspace;
        let files = match workspace.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                workspace.restore()?;
                return Ok(NewFiles::new(Vec::new(), workspace.changes.told(), &workspace.changes));
            }
            opened => opened?,
        };
        let look = workspace.changes.look(&files)?;
        let mut made = look.snapshot.made_since(&self.told.snapshot);
        add_hints(&mut made, hints, |hint| look.snapshot.find_in(&files, hint));
        Ok(NewFiles::new(made, look, &workspace.changes))
    }

    /// Whether one look at the directory shows that there is nothing new; `false` may mean either.
    pub fn is_surely_idle(&self) -> bool {
        self.told.snapshot.is_surely_current(&self.workspace.files)
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
        let there = FileNode::at(&sessions, name);
        if there.is_ok_and(|there| FileNode::of(&space).is_ok_and(|space| space.is_same(&there))) {
            return Ok(());
        }
    }
    Err(io::Error::other("the session's directory is removed again and again"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::jobs::{Bounds, Made, Snapshot, Store, StoreOptions};

    fn store() -> (Store, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        (Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap(), place)
    }

    /// What a call that does `work` in the space is seen to have made.
    fn check(space: &Arc<SessionWorkspace>, work: impl Fn(&Path), expected: &[&str]) {
        let call = space.begin_call();
        work(space.files());
        look(&call, expected).delivered();
    }

    /// What the call finds now, which is this.
    fn look(call: &WorkspaceCall, expected: &[&str]) -> NewFiles {
        let found = call.look(&[]).unwrap();
        assert_eq!(found.made.iter().map(|made| made.path.as_str()).collect::<Vec<_>>(), expected);
        found
    }

    #[test]
    fn each_call_made_what_is_new_since_the_last() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        check(&space, |_| {}, &[]);
        check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        check(&space, |files| fs::write(files.join("b"), "1").unwrap(), &["b"]);
        check(&space, |files| fs::write(files.join("a"), "22").unwrap(), &["a"]);
        check(&space, |_| {}, &[]);
        drop(space);
        let space = store.workspace("excel", "user 1").unwrap();
        assert!(space.files().join("a").exists(), "a later process sees the files");
        check(&space, |_| {}, &[]);
    }

    #[test]
    fn calls_at_the_same_time_each_hear_of_all_that_came_meanwhile() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        let write = |name: &str, text: &str| fs::write(space.files().join(name), text).unwrap();
        let slow = space.begin_call();
        write("a", "1");
        let given_up = space.begin_call();
        drop(look(&given_up, &["a"]));
        assert!(!slow.is_surely_idle(), "what the other found is its own, too");
        write("b", "1");
        write("a", "22");
        drop(given_up);
        check(&space, |_| {}, &["a", "b"]);
        let found = look(&slow, &["a", "b"]);
        assert_eq!(found.made[0].size, 2, "each once, as it was last");
        found.delivered();
        check(&space, |_| {}, &[]);
    }

    #[test]
    fn what_was_not_delivered_is_new_once_more() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        check(&space, |files| fs::write(files.join("a"), "1").unwrap(), &["a"]);
        let failed = space.begin_call();
        fs::write(space.files().join("a"), "22").unwrap();
        drop(look(&failed, &["a"]));
        check(&space, |files| fs::write(files.join("b"), "1").unwrap(), &["a", "b"]);
        check(&space, |_| {}, &[]);
    }

    #[test]
    fn a_file_is_told_to_a_call_at_least_whichever_is_delivered_last() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        let write = |name: &str| fs::write(space.files().join(name), "1").unwrap();
        for is_later_delivered in [true, false] {
            let calls = [space.begin_call(), space.begin_call()];
            write("a");
            let earlier = look(&calls[0], &["a"]);
            write("b");
            let later = look(&calls[1], &["a", "b"]);
            if is_later_delivered {
                later.delivered();
            }
            earlier.delivered();
            check(&space, |_| {}, if is_later_delivered { &[] } else { &["b"] });
            for name in ["a", "b"] {
                fs::remove_file(space.files().join(name)).unwrap();
            }
        }
    }

    #[test]
    fn files_of_a_folder_that_was_moved_or_shown_are_new() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        let make = |folder: &'static str| {
            move |files: &Path| {
                fs::create_dir(files.join(folder)).unwrap();
                fs::write(files.join(folder).join("file"), "1").unwrap();
            }
        };
        let rename = |from: &'static str, to: &'static str| {
            move |files: &Path| fs::rename(files.join(from), files.join(to)).unwrap()
        };
        check(&space, make("a"), &["a/file"]);
        check(&space, rename("a", "b"), &["b/file"]);
        check(&space, make(".hidden"), &[]);
        check(&space, rename(".hidden", "shown"), &["shown/file"]);
    }

    #[test]
    fn what_a_given_up_call_left_is_told_to_the_next() {
        let (store, _place) = store();
        let open = || store.workspace("excel", "user 1").unwrap();
        check(&open(), |files| fs::write(files.join("told"), "1").unwrap(), &["told"]);
        let space = open();
        let given_up = space.begin_call();
        fs::write(space.files().join("left"), "1").unwrap();
        drop((given_up, space));
        store.heartbeat();
        check(&open(), |files| fs::write(files.join("new"), "1").unwrap(), &["left", "new"]);
        // And so is what a call could not deliver.
        let space = open();
        let call = space.begin_call();
        fs::write(space.files().join("new"), "22").unwrap();
        drop((look(&call, &["new"]), call, space));
        check(&open(), |_| {}, &["new"]);
        check(&open(), |_| {}, &[]);
    }

    #[test]
    fn what_another_bridge_told_is_not_told_again() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().join("jobs");
        let store = || Store::open(&at, StoreOptions::default()).unwrap();
        let (ours, theirs) = (store(), store());
        let open = |store: &Store| store.workspace("excel", "user 1").unwrap();
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
    fn a_hint_leads_to_a_file_that_is_behind_the_bound_of_a_look() {
        let (store, _place) = store();
        let bounds = Bounds { entries: 20, ..Bounds::default() };
        let (root, changes) = (&store.0.root, Arc::new(Changes::within(bounds)));
        let bridge = Bridge::new(uuid::Uuid::nil());
        let space = SessionWorkspace::make(root, &"a".repeat(64), &changes, &bridge).unwrap();
        let space = Arc::new(space);
        fs::create_dir(space.files().join("out")).unwrap();
        fs::write(space.files().join("out/known"), "1").unwrap();
        // Folders come after what lies beside them.
        for number in 0..20 {
            fs::write(space.files().join(number.to_string()), "").unwrap();
        }
        let found = space.begin_call().look(&[]).unwrap();
        assert!(!found.made.is_empty());
        found.delivered();
        check(&space, |_| {}, &[]);
        let hints = ["out/known".to_owned(), "out/unknown".to_owned()];
        let check_hint = |made: Vec<Made>| assert_eq!(made, [Made::new(hints[0].clone(), 1)]);
        check_hint(space.begin_call().look(&hints).unwrap().made);
        let before = Snapshot::take(space.files(), bounds).unwrap();
        check_hint(Snapshot::made_in(space.files(), bounds, &before, &hints).unwrap());
    }

    #[test]
    fn a_key_has_one_space_and_no_other_key_has_it() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        assert!(Arc::ptr_eq(&space, &store.workspace("excel", "user 1").unwrap()));
        for (server, key) in
            [("excel", "user 2"), ("exceluser", " 1"), ("word", "user 1"), ("excel", "")]
        {
            assert_ne!(store.workspace(server, key).unwrap().files(), space.files());
        }
        let name = space.files().parent().unwrap().file_name().unwrap().to_str().unwrap();
        assert!(is_workspace_name(name), "{name}");
        assert!(
            !is_workspace_name(&name.to_uppercase())
                && !is_workspace_name("..")
                && !is_workspace_name("")
        );
    }

    #[test]
    fn a_space_that_vanished_is_made_again() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
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
            let again = store.workspace("excel", "user 1").unwrap();
            assert!(Arc::ptr_eq(&space, &again) && again.files().is_dir());
        }
    }

    #[test]
    fn an_empty_space_is_surely_idle_until_something_comes() {
        let (store, _place) = store();
        let space = store.workspace("excel", "user 1").unwrap();
        let is_idle = || space.begin_call().is_surely_idle();
        assert!(!is_idle(), "it is too young to be sure");
        let age = || {
            let past = SystemTime::now() - Duration::from_secs(1);
            fs::File::open(space.files()).unwrap().set_modified(past).unwrap();
            space.begin_call().look(&[]).unwrap().delivered();
        };
        age();
        assert!(is_idle());
        let open = space.begin_call();
        fs::write(space.files().join("a"), "").unwrap();
        assert!(!is_idle() && !open.is_surely_idle());
        age();
        assert!(!is_idle(), "a file may be written without its folder");
        fs::remove_file(space.files().join("a")).unwrap();
        fs::create_dir(space.files().join("folder")).unwrap();
        age();
        assert!(!is_idle());
    }
}
