//! What is collected, and what never is.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;
use crate::jobs::{EndedCall, Finished, Store, StoreOptions};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

struct SweepScene {
    place: tempfile::TempDir,
    store: Store,
    now: SystemTime,
}

fn scene() -> SweepScene {
    scene_after(Duration::ZERO)
}

/// A scene in which the sweep comes so long after all hearts have stopped: nobody can set back the
/// time that a heartbeat leaves.
fn scene_after(quiet: Duration) -> SweepScene {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
    SweepScene { place, store, now: SystemTime::now() + quiet }
}

impl SweepScene {
    fn root(&self) -> PathBuf {
        self.place.path().join("jobs")
    }

    /// A job that was begun `age` before the sweep and has ended `quiet` before it.
    fn job(&self, age: Duration, quiet: Duration) -> PathBuf {
        let folder = self.job_like(age, "completed");
        set_age(&folder, self.now - quiet);
        folder
    }

    /// A job that was begun `age` before the sweep.
    fn job_like(&self, age: Duration, status: &str) -> PathBuf {
        let folder = self.root().join(Uuid::new_v4().to_string());
        fs::create_dir_all(folder.join("files")).unwrap();
        fs::write(folder.join("files/a.txt"), "made").unwrap();
        let at = crate::jobs::record::text_of(self.now - age);
        let record =
            format!("{{\"server_name\":\"a\",\"created_at\":\"{at}\",\"status\":\"{status}\"}}");
        fs::write(folder.join("metadata.json"), record).unwrap();
        folder
    }

    fn under_way(&self) -> PathBuf {
        self.job_like(DAY + HOUR, "processing")
    }

    fn orphan(&self) -> PathBuf {
        let folder = self.root().join(Uuid::new_v4().to_string());
        fs::create_dir_all(folder.join("files")).unwrap();
        folder
    }

    fn session(&self) -> PathBuf {
        let folder = self.root().join(".sessions").join("ab".repeat(32));
        fs::create_dir_all(folder.join("files")).unwrap();
        folder
    }

    fn check(&self, folder: &Path, removed: bool) {
        let swept = self.store.sweep(self.now);
        assert_eq!(swept.failed, []);
        assert_eq!(fs::symlink_metadata(folder).is_err(), removed, "{}", folder.display());
        assert_eq!(swept.removed_jobs.len() + swept.removed_sessions.len(), usize::from(removed));
        assert_eq!(fs::read_dir(self.root().join(".trash")).unwrap().count(), 0);
    }
}

fn set_age(folder: &Path, at: SystemTime) {
    File::open(folder).unwrap().set_modified(at).unwrap();
}

#[test]
fn an_ended_job_goes_when_it_has_expired() {
    let scene = scene();
    scene.check(&scene.job(DAY - HOUR, HOUR), false);
    scene.check(&scene.job(DAY + HOUR, HOUR), true);
    scene.check(&scene.job(DAY + HOUR, Duration::from_secs(9)), false);
}

#[test]
fn a_job_under_way_goes_when_its_heart_has_stopped() {
    for (quiet, removed) in [(290, false), (310, true)] {
        let scene = scene_after(Duration::from_secs(quiet));
        scene.check(&scene.under_way(), removed);
    }
}

#[test]
fn a_job_without_a_record_goes_by_its_own_age() {
    for (quiet, removed) in [(DAY - HOUR, false), (DAY + HOUR, true)] {
        let scene = scene_after(quiet);
        scene.check(&scene.orphan(), removed);
    }
}

#[test]
fn a_session_goes_when_nobody_came_back_to_it() {
    for (quiet, removed) in [(DAY - HOUR, false), (DAY + HOUR, true)] {
        let scene = scene_after(quiet);
        scene.check(&scene.session(), removed);
    }
}

#[test]
fn a_time_that_a_child_set_ends_no_life_and_prolongs_none() {
    let makers: [fn(&SweepScene) -> PathBuf; 3] =
        [SweepScene::under_way, SweepScene::orphan, SweepScene::session];
    for make in makers {
        for (quiet, removed) in [(HOUR / 60, false), (DAY + HOUR, true)] {
            let scene = scene_after(quiet);
            for odd in [SystemTime::UNIX_EPOCH, scene.now + 365 * DAY] {
                let folder = make(&scene);
                set_age(&folder, odd);
                scene.check(&folder, removed);
            }
        }
    }
    let scene = scene_after(DAY + HOUR);
    let ended = scene.job(DAY + HOUR, HOUR);
    set_age(&ended, scene.now + 365 * DAY);
    scene.check(&ended, true);
}

#[test]
fn what_is_in_use_here_stays_whatever_its_age() {
    let scene = scene_after(2 * DAY);
    let job = scene.store.new_job().unwrap();
    let space = scene.store.workspace("excel", "key").unwrap();
    job.finish(&Finished::new("excel", b"{}", scene.now - DAY - DAY, scene.now)).unwrap();
    let [job_folder, session_folder] =
        [job.files(), space.files()].map(|it| it.parent().unwrap().to_owned());
    for folder in [&job_folder, &session_folder] {
        scene.check(folder, false);
        set_age(folder, SystemTime::UNIX_EPOCH);
    }
    scene.store.heartbeat();
    for folder in [&job_folder, &session_folder] {
        let beat = fs::metadata(folder).unwrap().modified().unwrap();
        assert!(beat.elapsed().unwrap() < HOUR, "its heart beats");
    }
    drop((job, space));
    let swept = scene.store.sweep(scene.now);
    assert_eq!((swept.removed_jobs.len(), swept.removed_sessions.len()), (1, 1), "{swept:?}");
}

#[test]
fn what_another_bridge_uses_stays() {
    let scene = scene();
    let options = StoreOptions { expiry: Duration::ZERO, ..StoreOptions::default() };
    let other = Store::open(&scene.root(), options).unwrap();
    let (job, space) = (other.new_job().unwrap(), other.workspace("a", "b").unwrap());
    other.heartbeat();
    let visitor = Store::visit(
        &scene.root(),
        StoreOptions { expiry: Duration::ZERO, ..StoreOptions::default() },
    );
    for store in [&scene.store, &visitor.unwrap()] {
        assert_eq!(store.sweep(scene.now + Duration::from_secs(60)), Swept::default());
    }
    assert!(job.files().exists() && space.files().exists());
}

#[test]
fn a_bridge_whose_heart_is_not_heard_keeps_what_it_may_use() {
    let scene = scene_after(DAY + HOUR);
    let other = Store::open(&scene.root(), StoreOptions::default()).unwrap();
    let (under_way, ended) = (scene.under_way(), scene.job(DAY + HOUR, HOUR));
    let session = scene.session();
    let lock = scene
        .root()
        .join(".instances")
        .join(format!("{}.lock", other.0.instance.as_ref().unwrap().id()));
    scene.check(&ended, true);
    assert!(under_way.exists() && session.exists());
    set_age(&lock, scene.now);
    scene.store.sweep(scene.now);
    assert!(!under_way.exists() && !session.exists());
}

#[test]
fn nothing_goes_when_the_clock_was_set() {
    let scene = scene();
    let start = Instant::now();
    let sweep = |wall: SystemTime, clock: Duration| sweep(&scene.store.0, wall, start + clock);
    assert!(!sweep(scene.now, Duration::ZERO).clock_jumped);
    let folder = scene.job(HOUR, HOUR);
    let far = scene.now + 365 * DAY;
    let swept = sweep(far, HOUR);
    assert_eq!((swept.clock_jumped, folder.exists()), (true, true));
    let back = sweep(scene.now + HOUR * 2, HOUR * 2);
    assert_eq!((back.clock_jumped, folder.exists()), (true, true), "set back is set, too");
    assert!(!sweep(scene.now + HOUR * 3, HOUR * 3).clock_jumped);
    assert!(folder.exists());
    assert_eq!(sweep(scene.now + HOUR * 30, HOUR * 30).removed_jobs.len(), 1);
}

#[test]
fn what_comes_from_the_future_stays() {
    let mut scene = scene();
    let folder = scene.job(Duration::ZERO, Duration::ZERO);
    let orphan = scene.orphan();
    scene.now -= 365 * DAY;
    scene.check(&folder, false);
    assert!(orphan.exists());
}

#[test]
fn what_is_not_ours_is_not_touched() {
    let scene = scene_after(10 * DAY);
    let id = Uuid::new_v4();
    let names = [
        "report.docx".to_owned(),
        "folder".to_owned(),
        id.to_string().to_uppercase(),
        id.simple().to_string(),
        ".hidden".to_owned(),
        Uuid::nil().to_string(),
        ".sessions/short".to_owned(),
        ".trash/mine".to_owned(),
    ];
    for name in &names {
        fs::create_dir(scene.root().join(name)).unwrap();
    }
    assert_eq!(scene.store.sweep(scene.now), Swept::default());
    for name in &names {
        assert!(scene.root().join(name).exists(), "{name}");
    }
}

#[test]
fn a_link_with_the_name_of_a_job_goes_alone() {
    let scene = scene_after(DAY + HOUR);
    let canary = scene.place.path().join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "").unwrap();
    let link = scene.root().join(Uuid::new_v4().to_string());
    symlink(&canary, &link).unwrap();
    scene.check(&link, true);
    assert!(canary.join("file").exists());
}

#[test]
fn records_that_cannot_be_read_do_not_stop_the_sweep() {
    let scene = scene_after(DAY + HOUR);
    let folder = scene.job(DAY + HOUR, HOUR);
    let record = folder.join("metadata.json");
    fs::remove_file(&record).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &record, rustix::fs::Mode::RUSR).unwrap();
    scene.check(&folder, true);
}

#[test]
fn what_was_only_moved_aside_goes_with_the_next_sweep() {
    let scene = scene();
    let left = scene.root().join(".trash").join(Uuid::new_v4().to_string());
    fs::create_dir_all(left.join("a/b")).unwrap();
    assert_eq!(scene.store.sweep(scene.now), Swept::default());
    assert!(!left.exists());
}

#[test]
fn a_swapped_directory_is_not_swept() {
    let scene = scene();
    let folder = scene.job(DAY + HOUR, HOUR);
    let moved = scene.place.path().join("moved");
    fs::rename(scene.root(), &moved).unwrap();
    fs::create_dir(scene.root()).unwrap();
    let swept = scene.store.sweep(scene.now);
    assert_eq!(swept.failed.len(), 1, "{swept:?}");
    assert!(moved.join(folder.file_name().unwrap()).exists());
}

#[test]
fn journals_go_when_they_have_expired_and_no_bridge_writes_to_them() {
    let scene = scene();
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    assert!(scene.store.journal(&EndedCall::new("a", "b", address, scene.now)));
    scene.store.write_journal();
    let ours = scene.store.0.instance.as_ref().unwrap().id();
    let older = scene.root().join(".journal").join(format!("{ours}.1.jsonl"));
    fs::write(&older, "").unwrap();
    let stale = scene.root().join(".journal").join(format!("{}.jsonl", Uuid::new_v4()));
    fs::write(&stale, "").unwrap();
    let journal = || fs::read_dir(scene.root().join(".journal")).unwrap().count();
    scene.store.sweep(scene.now);
    assert_eq!(journal(), 3, "not before they expire");
    scene.store.0.last_sweep.lock().take();
    scene.store.sweep(scene.now + DAY + HOUR);
    assert_eq!(journal(), 1);
    assert!(!stale.exists() && !older.exists());
}

#[test]
fn bridges_that_sweep_at_once_remove_everything_once() {
    let scene = scene();
    for _ in 0..200 {
        scene.job(DAY + HOUR, HOUR);
    }
    let stores: Vec<Store> =
        (0..4).map(|_| Store::visit(&scene.root(), StoreOptions::default()).unwrap()).collect();
    let swept: Vec<Swept> = std::thread::scope(|scope| {
        let threads: Vec<_> = stores.iter().map(|it| scope.spawn(|| it.sweep(scene.now))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(swept.iter().all(|swept| swept.failed.is_empty()), "{swept:?}");
    assert_eq!(swept.iter().map(|swept| swept.removed_jobs.len()).sum::<usize>(), 200);
    assert_eq!(
        names_in(scene.store.0.root.fd()).unwrap().iter().filter(|it| is_job_name(it)).count(),
        0
    );
}

/// What was moved aside may have to be put back, so others leave it alone until that is decided.
#[test]
fn the_trash_is_not_emptied_while_somebody_decides() {
    let scene = scene();
    let other = Store::visit(&scene.root(), StoreOptions::default()).unwrap();
    let aside = scene.root().join(".trash").join(Uuid::new_v4().to_string());
    fs::create_dir(&aside).unwrap();
    let held = trash::hold(&scene.store.0.root).unwrap();
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            empty_trash(&other.0, &mut Swept::default());
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err(), "nobody waited");
        assert!(aside.exists());
        drop(held);
        is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    });
    assert!(!aside.exists());
}

/// A child that is still there swaps folders for links to somebody else's while they are removed.
#[test]
fn a_link_swapped_in_during_the_sweep_is_not_followed() {
    let scene = scene();
    let canary = scene.place.path().join("canary");
    fs::create_dir_all(canary.join("deep")).unwrap();
    for name in ["one", "two", "deep/three"] {
        fs::write(canary.join(name), "alive").unwrap();
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    let mut removed = 0;
    let trash = scene.root().join(".trash");
    let swap = || {
        while !is_over() {
            for entry in fs::read_dir(&trash).unwrap().flatten() {
                for path in [entry.path().join("files"), entry.path().join("files/inner")] {
                    // Each of these fails when the sweep was faster.
                    if fs::rename(&path, path.with_extension("moved")).is_ok() {
                        drop(symlink(&canary, &path));
                        drop(fs::create_dir(path.with_extension("more")));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(swap);
        scope.spawn(swap);
        // Three seconds, and on a busy machine as many more as some of them need to be removed.
        let (enough, too_long) = [3, 60].map(|it| Instant::now() + Duration::from_secs(it)).into();
        while Instant::now() < enough || (removed <= 10 && Instant::now() < too_long) {
            let folder = scene.job(DAY + HOUR, HOUR);
            for inner in 0..20 {
                fs::create_dir_all(folder.join(format!("files/inner/{inner}/x"))).unwrap();
            }
            set_age(&folder, scene.now - HOUR);
            removed += scene.store.sweep(scene.now).removed_jobs.len();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(removed > 10, "only {removed} were removed");
    for name in ["one", "two", "deep/three"] {
        assert_eq!(fs::read_to_string(canary.join(name)).unwrap(), "alive", "{name}");
    }
    scene.store.sweep(scene.now);
    assert_eq!(fs::read_dir(scene.root().join(".trash")).unwrap().count(), 0);
}

#[test]
fn a_session_that_another_bridge_takes_up_during_the_sweep_is_put_back() {
    let scene = scene();
    let other = Store::open(&scene.root(), StoreOptions::default()).unwrap();
    let space = other.workspace("excel", "key").unwrap();
    fs::write(space.files().join("book.xlsx"), "kept").unwrap();
    let folder = space.files().parent().unwrap().to_owned();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let sessions = scene.store.0.root.folder(SESSIONS).unwrap();
    let look = || age_of(&scene.store.0, SweptKind::Session, &sessions, name, scene.now).unwrap();
    set_age(&folder, scene.now - HOUR);
    let seen = look().unwrap();
    // It was found expired, and then the other one used it.
    other.heartbeat();
    assert_ne!(look().unwrap().mark, seen.mark);
    assert!(!take_away(&scene.store.0, SweptKind::Session, name, seen).unwrap());
    assert_eq!(fs::read_to_string(space.files().join("book.xlsx")).unwrap(), "kept");
}

#[test]
fn halves_that_a_killed_bridge_left_beside_a_session_go() {
    let scene = scene();
    let space = scene.store.workspace("excel", "key").unwrap();
    let half = space.files().with_file_name(format!(".holder.{}", Uuid::new_v4().simple()));
    fs::write(&half, "").unwrap();
    scene.store.sweep(SystemTime::now());
    assert!(half.exists(), "it may be in the making");
    let old = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(&half).unwrap().set_modified(old).unwrap();
    scene.store.sweep(SystemTime::now());
    assert!(!half.exists() && space.files().is_dir());
}
