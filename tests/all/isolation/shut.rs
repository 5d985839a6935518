//! A server with the bridge's own user takes the permissions of the bridge's directories away: the bridge,
//! which owns them, gives them back, and other people's calls go on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use pontoon_tests::client::Response;
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use super::systems::{unprivileged, with_bridge};
use super::{ADA, BEN, Headers, Place, attempt, outcomes};

const SHUT: &str = "the jobs directory was shut, perhaps by a server, and is open again";

/// A bridge without any rights before a server with the same.
fn rig(place: &Place, workspace: &str) -> Rig {
    let rude = place.rude(json!("basic")).with("mode", "stateless").with("workspace", workspace);
    let plan = place.plan([rude]).variable("MCPO_JOBS_DIR", "jobs");
    with_bridge(plan, unprivileged(place)).start()
}

fn shut(rig: &Rig, who: Headers<'_>, paths: &[&str]) -> Response {
    let acts: Vec<[&str; 2]> = paths.iter().map(|path| ["shut", path]).collect();
    let acts: Vec<&[&str]> = acts.iter().map(|act| act.as_slice()).collect();
    attempt(rig, who, &acts)
}

#[track_caller]
fn check_served(rig: &Rig, who: Headers<'_>) {
    assert_eq!(outcomes(&attempt(rig, who, &[&["list", "."]])), ["ok"]);
}

#[test]
fn a_directory_that_a_server_shut_is_opened_again() {
    for workspace in ["job", "session"] {
        let place = Place::new();
        let rig = rig(&place, workspace);
        let jobs = rig.directory().join("jobs");
        check_served(&rig, BEN);
        let own = [".sessions", ".instances", ".trash", ".journal", ".t"].map(|it| jobs.join(it));
        let bases = fs::read_dir(jobs.join(".t")).unwrap().map(|it| it.unwrap().path());
        // What is inside first: it cannot be reached afterwards.
        let all: Vec<_> = bases.chain(own).chain([jobs.clone()]).collect();
        for paths in [&all[all.len() - 1..], &all[..], &all[..1], &all[1..2], &all[5..6]] {
            let texts: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
            let response = shut(&rig, ADA, &texts);
            let is_told = response.status() == 200 || response.status() == 503;
            assert!(is_told, "{texts:?}: {}", response.text());
            check_served(&rig, BEN);
            check_served(&rig, ADA);
            assert_ne!(rig.health()["status"], "down");
            for path in paths {
                assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700, "{path:?}");
            }
        }
        let log = rig.log();
        assert_eq!(log.lines().filter(|line| line.contains(SHUT)).count(), 1, "{log}");
        rig.stop();
    }
}

/// Without a call between: a probe alone finds it shut, and opens it.
#[test]
fn a_probe_opens_a_directory_that_was_shut() {
    let place = Place::new();
    let rig = rig(&place, "job");
    let jobs = rig.directory().join("jobs");
    for mode in [0o000, 0o777] {
        fs::set_permissions(&jobs, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        // One look serves all that ask within a second.
        wait_until("it is opened, and for its owner only", Duration::from_secs(30), || {
            assert_eq!(rig.get("/ready").status(), 200);
            fs::metadata(&jobs).unwrap().mode() & 0o766 == 0o700
        });
        check_served(&rig, BEN);
    }
    rig.stop();
}

#[test]
fn a_chat_whose_server_shut_its_workspace_goes_on() {
    let place = Place::new();
    let rig = rig(&place, "session");
    for path in [".", ".."] {
        shut(&rig, ADA, &[path]);
        check_served(&rig, ADA);
    }
    rig.stop();
}
