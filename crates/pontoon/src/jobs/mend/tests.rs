//! What becomes of a store whose directory is taken away or replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;

use super::*;
use crate::jobs::{Claim, EndedCall, Store, StoreOptions};

struct MendScene {
    place: TempDir,
    store: Store,
}

fn scene() -> MendScene {
    let place = tempfile::Builder::new().prefix("p").tempdir_in("/tmp").unwrap();
    let store = open(&place.path().join("jobs"));
    MendScene { place, store }
}

fn open(jobs: &Path) -> Store {
    Store::open(jobs, StoreOptions { min_free_bytes: 0, ..StoreOptions::default() }).unwrap()
}

impl MendScene {
    fn jobs(&self) -> PathBuf {
        self.place.path().join("jobs")
    }

    fn remove(&self) {
        fs::remove_dir_all(self.jobs()).unwrap();
    }
}

#[test]
fn the_key_of_a_directory_that_is_gone_is_put_back() {
    let scene = scene();
    let secret = scene.store.secret_for("a").unwrap();
    scene.remove();
    scene.store.mend().unwrap();
    assert_eq!(scene.store.secret_for("a").unwrap(), secret);
    fs::remove_file(scene.jobs().join(".key")).unwrap();
    scene.store.mend().unwrap();
    assert_eq!(open(&scene.jobs()).secret_for("a").unwrap(), secret, "another bridge finds it");
}

#[test]
fn another_directory_may_have_another_key_and_a_changed_file_counts_for_nothing() {
    let scene = scene();
    let secret = scene.store.secret_for("a").unwrap();
    fs::write(scene.jobs().join(".key"), [7; 32]).unwrap();
    scene.store.mend().unwrap();
    assert_eq!(scene.store.secret_for("a").unwrap(), secret);
    scene.remove();
    let other = open(&scene.jobs());
    let theirs = other.secret_for("a").unwrap();
    scene.store.mend().unwrap();
    assert_eq!(scene.store.secret_for("a").unwrap(), theirs);
}

#[test]
fn the_other_bridges_of_a_new_directory_know_this_one_by_its_old_id() {
    let scene = scene();
    let id = scene.store.0.instance.as_ref().unwrap().id();
    scene.remove();
    let other = open(&scene.jobs());
    scene.store.mend().unwrap();
    let others = crate::jobs::instance::others(&other.0.root, other.0.instance.as_ref()).unwrap();
    assert_eq!(others.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [id.to_string()]);
}

#[test]
fn what_processes_keep_is_told_as_lost_in_a_new_directory_too() {
    let scene = scene();
    let space = || scene.store.workspace("slides", "chat").unwrap();
    let Ok(Claim::Held(held)) = space().hold(true) else { panic!("not held") };
    scene.remove();
    drop(space());
    let other = open(&scene.jobs());
    let theirs = other.workspace("slides", "chat").unwrap();
    assert!(matches!(theirs.hold(false), Ok(Claim::Lost)));
    drop(held);
}

#[test]
fn the_journal_goes_on_in_a_new_directory() {
    let scene = scene();
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    let write = || {
        scene.store.journal(&EndedCall::new("slides", "t", address, SystemTime::UNIX_EPOCH));
        scene.store.write_journal();
    };
    write();
    scene.remove();
    write();
    scene.store.mend().unwrap();
    write();
    let files = fs::read_dir(scene.jobs().join(".journal")).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    assert_eq!(texts.map(|text| text.lines().count()).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_log_says_what_is_wrong_with_what_to_do() {
    let check = |errno: Errno, told: &str| {
        let error =
            StoreError::new(Path::new("/jobs"), StoreFault::ReadOnly, io::Error::from(errno));
        assert!(reason(&error).contains(told), "{}", reason(&error));
    };
    check(Errno::ROFS, "so that it can be written");
    check(Errno::IO, "mount its file system again");
    check(Errno::STALE, "mount its file system again");
    check(Errno::PERM, "with `chown` and `chmod u+rwx`");
}

#[test]
fn what_is_used_up_is_no_fault_of_the_directory() {
    let check = |errno: Errno, expected: bool| {
        let error = StoreError::new(Path::new("/jobs"), StoreFault::Open, io::Error::from(errno));
        assert_eq!(is_of_the_system(&error), expected, "{errno}");
    };
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT] {
        check(errno, true);
    }
    check(Errno::IO, false);
}

#[test]
fn who_has_state_is_said_in_a_new_directory_without_another_call() {
    let scene = scene();
    let space = scene.store.workspace("slides", "chat").unwrap();
    let idle = scene.store.workspace("slides", "idle").unwrap();
    let Claim::Held(_held) = space.hold(true).unwrap() else { panic!("it is free") };
    scene.remove();
    scene.store.mend().unwrap();
    assert!(space.files().with_file_name("holder").exists());
    assert!(!idle.files().exists(), "no process is there");
    let other = open(&scene.jobs());
    let theirs = other.workspace("slides", "chat").unwrap();
    assert!(matches!(theirs.hold(true).unwrap(), Claim::Lost));
}

#[test]
fn a_look_that_ended_half_way_is_finished_by_the_next() {
    let scene = scene();
    scene.store.secret_for("a").unwrap();
    let space = scene.store.workspace("slides", "chat").unwrap();
    let Claim::Held(_held) = space.hold(true).unwrap() else { panic!("it is free") };
    scene.remove();
    let theirs = open(&scene.jobs()).secret_for("a").unwrap();
    let instances = scene.jobs().join(INSTANCES);
    fs::remove_dir_all(&instances).unwrap();
    fs::write(&instances, "in the way").unwrap();
    scene.store.mend().unwrap_err();
    fs::remove_file(&instances).unwrap();
    scene.store.mend().unwrap();
    assert!(space.files().with_file_name("holder").exists());
    assert_eq!(scene.store.secret_for("a").unwrap(), theirs);
}
