//! The jobs directory from outside: `pontoon gc`, a disk that is full, and a mount in a job.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use pontoon::jobs::{Finished, JobError, Store, StoreOptions, is_full};
use pontoon_tests::rig::bridge_command;
use serde_json::Value;

use crate::binaries;

const DAY: Duration = Duration::from_secs(86_400);

/// Runs `pontoon gc` on the jobs directory in this place.
fn gc(place: &Path, arguments: &[&str]) -> Output {
    let mut command = bridge_command(&binaries().pontoon, place);
    command.env("MCPO_JOBS_DIR", place.join("jobs")).arg("gc").args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// An ended job that was begun `age` ago.
fn job(store: &Store, age: Duration) -> PathBuf {
    let (job, now) = (store.new_job().unwrap(), SystemTime::now());
    job.finish(&Finished::new("demo", b"{}", now - age, now)).unwrap();
    let folder = job.files().parent().unwrap().to_owned();
    drop(job);
    File::open(&folder).unwrap().set_modified(now - age).unwrap();
    folder
}

fn open(place: &Path) -> Store {
    let options = StoreOptions { min_free_bytes: 0, ..StoreOptions::default() };
    Store::open(&place.join("jobs"), options).unwrap()
}

#[test]
fn gc_removes_what_expired_beside_a_running_bridge() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path());
    let (old, new) = (job(&store, 2 * DAY), job(&store, DAY / 2));
    let used = store.new_job().unwrap();
    let name = old.file_name().unwrap().to_str().unwrap();

    let dry = gc(place.path(), &["--dry-run"]);
    assert!(dry.status.success(), "{}", text(&dry));
    assert!(text(&dry).contains(&format!("would remove job {name}")), "{}", text(&dry));
    assert!(old.exists(), "nothing was to be removed");

    let report = gc(place.path(), &["--json"]);
    assert!(report.status.success(), "{}", text(&report));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["removed_jobs"], serde_json::json!([name]));
    assert_eq!(report["failed"], serde_json::json!([]));
    assert!(!old.exists() && new.exists() && used.files().exists());

    let again = gc(place.path(), &[]);
    assert!(again.status.success() && text(&again).is_empty(), "{}", text(&again));
    let again = gc(place.path(), &["--verbose"]);
    assert!(again.status.success() && text(&again).contains("removed 0 jobs"), "{}", text(&again));
}

#[test]
fn gc_says_what_is_wrong_with_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let absent = gc(place.path(), &[]);
    assert_eq!(absent.status.code(), Some(1), "it was named, so it should be there");
    assert!(text(&absent).contains("nothing was removed"), "{}", text(&absent));
    assert!(!place.path().join("jobs").exists(), "looking makes nothing");
    std::os::unix::fs::symlink("elsewhere", place.path().join("jobs")).unwrap();
    let link = gc(place.path(), &[]);
    assert_eq!(link.status.code(), Some(1));
    assert!(text(&link).contains("is a symbolic link"), "{}", text(&link));
}

/// Runs one of the tests below on a small file system of its own, which ends with it.
#[allow(clippy::disallowed_methods, reason = "a test of ours that needs a mount of its own")]
fn check(test: &str) {
    let place = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m,nr_inodes=120 none \"$1\" || exit 77; \
                  cd \"$1\" && exec \"$2\" --exact \"$3\" --ignored";
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(place.path());
    let output = command.arg(own).arg(format!("jobs::{test}")).output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(text(&output).contains("1 passed"), "{}", text(&output));
        }
        Ok(output) if output.status.code() == Some(101) => panic!("{}", text(&output)),
        refused => println!("skipped: no file system can be mounted here: {refused:?}"),
    }
}

#[test]
fn a_full_disk_leaves_nothing_half_made() {
    check("on_a_full_disk");
}

#[test]
#[ignore = "run by the test above on a small disk"]
fn on_a_full_disk() {
    let place = std::env::current_dir().unwrap();
    let store = open(&place);
    let job = store.new_job().unwrap();
    let kept = job.put("a.bin", &vec![1; 500_000]).unwrap();

    // Bytes run out: in a file of ours, in a copy, and in a record.
    let full = job.put("b.bin", &vec![1; 800_000]).unwrap_err();
    assert!(matches!(full, JobError::Full { .. }), "{full:?}");
    let space = store.workspace("demo", "key").unwrap();
    fs::write(space.files().join("c.bin"), vec![1; 300_000]).unwrap();
    let made = space.begin_call().look(&[]).unwrap().made;
    let full = job.adopt(&space, &made).unwrap_err();
    assert!(matches!(full, JobError::Full { .. }), "{full:?}");
    let (now, answer) = (SystemTime::now(), vec![b' '; 800_000]);
    let pieces: [&[u8]; 2] = [&answer, b"{}"];
    let call = Finished::new("demo", b"{}", now, now);
    let call = Finished { response: Some(&pieces), files: &[kept], ..call };
    let error = job.finish(&call).unwrap_err();
    assert!(is_full(&error), "{error:?}");
    let folder = job.files().parent().unwrap().to_owned();
    let names = |folder: &Path| {
        let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(job.files()), ["a.bin"], "no half of a file is left");
    assert_eq!(names(&folder), ["files", "metadata.json", "request.json"]);

    // Names run out: in the middle of making a job.
    let mut jobs = Vec::new();
    let full = loop {
        match store.new_job() {
            Ok(job) => jobs.push(job),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, JobError::Full { .. }), "{full:?}");
    let in_root = names(&place.join("jobs")).iter().filter(|name| !name.starts_with('.')).count();
    assert_eq!(in_root, jobs.len() + 1, "no half of a job is left");
    jobs.into_iter().for_each(|job| job.discard());
    // What was moved aside meanwhile takes room, too.
    store.sweep(SystemTime::now());

    // With room again all goes on, and the ending that could not be written is told.
    fs::remove_file(space.files().join("c.bin")).unwrap();
    fs::remove_file(job.files().join("a.bin")).unwrap();
    store.new_job().unwrap();
    drop(job);
    let record = fs::read_to_string(folder.join("metadata.json")).unwrap();
    assert!(record.contains("\"status\":\"completed\""), "{record}");

    // A file takes what was written in it, in its copy too, and not what it says it has.
    File::create(space.files().join("sparse.bin")).unwrap().set_len(1 << 30).unwrap();
    let job = store.new_job().unwrap();
    let adopted = job.adopt(&space, &space.begin_call().look(&[]).unwrap().made).unwrap();
    assert_eq!(adopted.made.iter().map(|made| made.size).collect::<Vec<_>>(), [1 << 30]);
}

#[test]
fn a_mount_in_a_job_is_neither_served_nor_emptied() {
    check("with_a_mount");
}

#[test]
#[ignore = "run by the test above in a mount namespace of its own"]
#[allow(clippy::disallowed_methods, reason = "there is no other way to mount here")]
fn with_a_mount() {
    let place = std::env::current_dir().unwrap();
    let store = open(&place);
    let folder = job(&store, 2 * DAY);
    let (canary, inside) = (place.join("canary"), folder.join("files/deep/mount"));
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "alive").unwrap();
    let mount = |arguments: &[&Path]| {
        let mut command = Command::new("mount");
        assert!(command.arg("--bind").args(arguments).status().unwrap().success());
    };
    mount(&[&canary, &inside]);
    let id = folder.file_name().unwrap().to_str().unwrap();
    assert!(inside.join("file").exists());
    assert!(store.open_file(id, "deep/mount/file").is_err());

    let swept = store.sweep(SystemTime::now());
    assert_eq!(swept.failed.len(), 2, "{swept:?}");
    assert_eq!(fs::read_to_string(canary.join("file")).unwrap(), "alive");
    let left = fs::read_dir(place.join("jobs/.trash")).unwrap().next().unwrap().unwrap().path();
    let mounted = find_mount(&left).unwrap();
    assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
    let swept = store.sweep(SystemTime::now());
    assert_eq!(swept.failed, [], "it is tried again");
    assert!(!left.exists() && canary.join("file").exists());
}

/// The folder in which the canary shows, wherever it was moved to.
fn find_mount(folder: &Path) -> Option<PathBuf> {
    if folder.join("file").exists() {
        return Some(folder.to_owned());
    }
    let inner = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    inner.filter(|path| path.is_dir()).find_map(|path| find_mount(&path))
}
