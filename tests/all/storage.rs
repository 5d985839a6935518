//! The jobs directory taken away, replaced, shut or cut off under a running bridge: it says so at once, and
//! works again as soon as the directory does, without a restart.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pontoon_tests::client::{Client, ERAS, Era, Response, Speaker};
use pontoon_tests::rig::{Rig, Server, remove_in_use, wait_until};
use serde_json::json;

use crate::{fixture, on_a_small_disk, plan};

const SOON: Duration = Duration::from_secs(20);

/// The folders of the bridge's own.
const OWN: [&str; 5] = [".sessions", ".instances", ".trash", ".journal", ".t"];

/// Every way in which a server keeps files.
fn servers() -> [Server; 3] {
    [fixture("stateless"), fixture("stateless").with("workspace", "session"), fixture("stateful")]
}

fn jobs(rig: &Rig) -> PathBuf {
    rig.directory().join("jobs")
}

/// A call that leaves a file, in a conversation of its own.
fn write(rig: &Rig, era: Era) -> Response {
    static CONVERSATIONS: AtomicUsize = AtomicUsize::new(0);
    let number = CONVERSATIONS.fetch_add(1, Ordering::Relaxed).to_string();
    let client = Client::new(era, &rig.endpoint("fixture"));
    let mut client = client.with_header("X-Session-Id", &number);
    let response = client.call(1, "write_file", json!({"name": "made.txt", "text": "x"}));
    client.end();
    response
}

/// Calls are served, and what they make is where it should be.
#[track_caller]
fn check_served(rig: &Rig) {
    for era in ERAS {
        let response = write(rig, era);
        let text = response.tool_text();
        assert_eq!(text.as_deref(), Some("wrote 1 bytes to made.txt"), "{}", response.text());
        let job = response.head.header("x-mcpo-job-id").unwrap();
        assert!(jobs(rig).join(job).join("files/made.txt").exists(), "{era:?}");
    }
}

/// The probes say that nothing works, and why; calls are refused without a path of this machine.
#[track_caller]
fn check_down(rig: &Rig, told: &str) {
    let response = rig.get("/health");
    let health = response.answer();
    assert_eq!((response.status(), &health["status"]), (503, &json!("down")), "{health}");
    let reasons = health["reasons"].to_string();
    assert!(reasons.contains(told), "{reasons}");
    let ready = rig.get("/ready");
    assert_eq!(ready.status(), 503);
    let reason = ready.answer()["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("the jobs directory cannot be used"), "{reason}");
    for era in ERAS {
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let response = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(response.told_status(), 503, "{}", response.text());
        let said = response.text();
        assert!(said.contains("whoever runs the bridge"), "{said}");
        assert!(!said.contains(rig.directory().to_str().unwrap()), "{said}");
        client.end();
    }
}

#[track_caller]
fn check_well(rig: &Rig) {
    let health = rig.health();
    assert_ne!(health["status"], "down", "{health}");
    let ready = rig.get("/ready");
    assert_eq!(ready.status(), 200, "{}", ready.text());
}

/// All that is the bridge's own is in its directory, the lock of the bridge and the same key included.
#[track_caller]
fn check_own(rig: &Rig, key: &[u8]) {
    let jobs = jobs(rig);
    for name in OWN {
        assert!(jobs.join(name).is_dir(), "{name}");
    }
    assert_eq!(fs::read_dir(jobs.join(".instances")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(jobs.join(".t")).unwrap().count(), 1);
    assert_eq!(fs::read(jobs.join(".key")).unwrap(), key);
}

fn key(rig: &Rig) -> Vec<u8> {
    fs::read(jobs(rig).join(".key")).unwrap()
}

fn count(rig: &Rig, text: &str) -> usize {
    rig.log().lines().filter(|line| line.contains(text)).count()
}

const ANEW: &str = "the jobs directory was opened anew";

#[test]
fn a_directory_that_was_removed_is_made_again_by_the_next_call() {
    for server in servers() {
        let rig = plan([server]).start();
        check_served(&rig);
        let key = key(&rig);
        remove_in_use(&jobs(&rig));
        check_served(&rig);
        check_own(&rig, &key);
        check_well(&rig);
        assert_eq!(count(&rig, ANEW), 1, "{}", rig.log());
        rig.stop();
    }
}

#[test]
fn a_directory_that_was_removed_is_made_again_by_a_probe() {
    let rig = plan([fixture("stateless")]).start();
    let key = key(&rig);
    remove_in_use(&jobs(&rig));
    check_well(&rig);
    check_own(&rig, &key);
    check_served(&rig);
    rig.stop();
}

#[test]
fn a_directory_that_was_replaced_is_used_from_the_next_call_on() {
    for server in servers() {
        let rig = plan([server]).start();
        check_served(&rig);
        let key = key(&rig);
        fs::rename(jobs(&rig), rig.directory().join("old")).unwrap();
        fs::create_dir(jobs(&rig)).unwrap();
        check_served(&rig);
        check_own(&rig, &key);
        assert_eq!(fs::metadata(jobs(&rig)).unwrap().mode() & 0o777, 0o711);
        // The bridge may make it again meanwhile.
        wait_until("the old one is back", SOON, || {
            remove_in_use(&jobs(&rig));
            fs::rename(rig.directory().join("old"), jobs(&rig)).is_ok()
        });
        check_served(&rig);
        check_own(&rig, &key);
        rig.stop();
    }
}

/// Each has to be put right by a person; the first call after that is served.
#[test]
fn what_cannot_be_mended_is_down_at_once_and_served_at_once_when_it_is() {
    let rig = plan([fixture("stateless")]).start();
    let key = key(&rig);
    let (jobs, aside) = (jobs(&rig), rig.directory().join("aside"));
    fs::rename(&jobs, &aside).unwrap();
    fs::write(&jobs, "").unwrap();
    check_down(&rig, "is not a directory; move what is there away");
    fs::remove_file(&jobs).unwrap();
    symlink(&aside, &jobs).unwrap();
    check_down(&rig, "is a symbolic link");
    fs::remove_file(&jobs).unwrap();
    fs::create_dir(&jobs).unwrap();
    fs::set_permissions(&jobs, fs::Permissions::from_mode(0o777)).unwrap();
    check_down(&rig, "may be written by everybody (mode 777); run `chmod o-w");
    fs::remove_dir(&jobs).unwrap();
    fs::rename(&aside, &jobs).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&jobs, Some(12345), None).unwrap();
        check_down(&rig, "belongs to user 12345, but this runs as user 0; run `chown 0");
        std::os::unix::fs::chown(&jobs, Some(0), None).unwrap();
    } else {
        println!("skipped: only the superuser can give a directory away");
    }
    check_served(&rig);
    check_own(&rig, &key);
    check_well(&rig);
    assert!(count(&rig, "the jobs directory can be used again") >= 1, "{}", rig.log());
    rig.stop();
}

/// A file system that is not mounted any more leaves another directory above: nothing is made there.
#[test]
fn a_directory_gone_with_the_one_above_it_is_not_made_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let (above, aside) = (place.path().join("disk"), place.path().join("aside"));
    fs::create_dir(&above).unwrap();
    let jobs = above.join("jobs");
    let rig = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", jobs.to_str().unwrap())
        .variable("MCPO_GC_INTERVAL", "1")
        .start();
    for prepare in [|_: &Path| {}, |above: &Path| fs::create_dir(above).unwrap()] {
        fs::rename(&above, &aside).unwrap();
        prepare(&above);
        check_down(
            &rig,
            "is gone with the one above it; mount its file system again, or run `mkdir -p",
        );
        assert!(!jobs.exists());
        let _ = fs::remove_dir(&above);
        fs::rename(&aside, &above).unwrap();
        check_well(&rig);
        assert_eq!(write(&rig, Era::Modern).status(), 200);
    }
    // As told.
    remove_in_use(&above);
    check_down(&rig, "mkdir -p");
    fs::create_dir_all(&jobs).unwrap();
    assert_eq!(write(&rig, Era::Modern).status(), 200);
    check_well(&rig);
    rig.stop();
}

#[test]
fn a_call_that_loses_its_directory_fails_honestly_or_not_at_all() {
    for server in servers() {
        let rig = plan([server]).start();
        for era in ERAS {
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            let open = client.send_call(1, "wait", json!({"ms": 1000}));
            rig.wait_for_gauge("running", 1);
            remove_in_use(&jobs(&rig));
            let response = open.begin().unwrap().finish().unwrap().0;
            let is_answered = response.tool_text().as_deref() == Some("waited 1000 ms");
            assert!(is_answered || response.told_status() == 503, "{}", response.text());
            let response = client.call(2, "echo", json!({"text": "x"}));
            assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
            client.end();
            check_served(&rig);
        }
        rig.stop();
    }
}

#[test]
fn the_state_of_a_kept_process_survives_the_loss_of_its_directory() {
    let rig = plan([fixture("stateful")]).start();
    for (era, conversation) in ERAS.into_iter().zip(["one", "two"]) {
        let client = Client::new(era, &rig.endpoint("fixture"));
        let mut client = client.with_header("X-Session-Id", conversation);
        let pid = client.call(1, "pid", json!({})).tool_text().unwrap();
        remove_in_use(&jobs(&rig));
        let response = client.call(2, "pid", json!({}));
        assert_eq!(response.tool_text(), Some(pid), "{}", response.text());
        client.end();
    }
    check_served(&rig);
    rig.stop();
}

#[test]
fn a_file_system_that_is_read_only_is_told_and_used_again() {
    on_a_small_disk("storage::read_only");
}

#[test]
#[ignore = "run by the test above on a small disk"]
#[allow(clippy::disallowed_methods, reason = "a mount of the test's own")]
fn read_only() {
    let place = std::env::current_dir().unwrap();
    let rig = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", place.join("jobs").to_str().unwrap())
        .variable("MCPO_MIN_FREE_DISK", "0")
        .start();
    let run = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        assert!(command.args(args).arg(place.join("jobs")).status().unwrap().success());
    };
    for _ in 0..2 {
        run("mount", &["-t", "tmpfs", "-o", "ro,mode=700", "none"]);
        check_down(&rig, "cannot be written: Read-only file system (os error 30): mount its file");
        run("umount", &["--lazy"]);
        assert_eq!(write(&rig, Era::Modern).status(), 200);
        check_well(&rig);
    }
    rig.stop();
}

#[test]
fn a_file_system_that_is_unmounted_is_told_and_used_again() {
    on_a_small_disk("storage::unmounted");
}

#[test]
#[ignore = "run by the test above on a small disk"]
#[allow(clippy::disallowed_methods, reason = "a mount of the test's own")]
fn unmounted() {
    let jobs = std::env::current_dir().unwrap().join("jobs");
    fs::create_dir(&jobs).unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        assert!(command.args(args).arg(&jobs).status().unwrap().success());
    };
    let mount = || run("mount", &["-t", "tmpfs", "-o", "mode=700", "none"]);
    mount();
    let rig = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", jobs.to_str().unwrap())
        .variable("MCPO_MIN_FREE_DISK", "0")
        .start();
    assert_eq!(write(&rig, Era::Modern).status(), 200);
    run("umount", &["--lazy"]);
    check_down(&rig, "is not mounted any more; mount it again");
    assert_eq!(fs::read_dir(&jobs).unwrap().count(), 0, "nothing is put below it");
    mount();
    check_well(&rig);
    assert_eq!(write(&rig, Era::Modern).status(), 200);
    rig.stop();
}
