//! After an unclean end: jobs that nobody will finish any more are recorded as failed.

use std::io;
use std::time::SystemTime;

use tracing::{info, warn};
use uuid::Uuid;

use super::beneath::{names_in, open_folder};
use super::download::is_job_name;
use super::instance::{QUIET, others};
use super::node::FileNode;
use super::record::{CallStatus, Head, JobRecord};
use super::shared::SharedStore;

/// What is known of such a job. Records are written a little behind the answer, so its client may
/// have had one.
const ERROR: &str = "the bridge ended before it recorded how this call ended";

/// Records every job as failed that has not ended and belongs to no bridge that is alive.
///
/// With other bridges alive, those are the jobs without a heartbeat. Gives how many there were.
pub(super) fn recover(store: &SharedStore, now: SystemTime) -> usize {
    let others = others(&store.root, store.instance.as_ref());
    // Who cannot tell whether others are alive assumes it.
    let alone = others.is_ok_and(|others| others.is_empty());
    let names = match names_in(store.root.fd()) {
        Ok(names) => names,
        Err(error) => {
            warn!(%error, "the jobs directory cannot be read");
            return 0;
        }
    };
    let mut recovered = 0;
    for name in names.iter().filter(|name| is_job_name(name)) {
        match recover_job(store, name, alone, now) {
            Ok(false) => {}
            Ok(true) => {
                info!(job_id = name, "a job that was under way is recorded as failed");
                recovered += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(job_id = name, %error, "a job that was under way is not recorded"),
        }
    }
    recovered
}

fn recover_job(store: &SharedStore, name: &str, alone: bool, now: SystemTime) -> io::Result<bool> {
    if Uuid::try_parse(name).is_ok_and(|id| store.in_use().contains(&id)) {
        return Ok(false);
    }
    let folder = open_folder(store.root.fd(), name.as_bytes())?;
    let touched = FileNode::of(&folder)?.touched(now);
    let is_quiet = now.duration_since(touched).is_ok_and(|age| age >= QUIET);
    if !alone && !is_quiet {
        return Ok(false);
    }
    let head = Head::read(&folder)?;
    if head.as_ref().is_some_and(|head| head.status != CallStatus::Processing) {
        return Ok(false);
    }
    let (server_name, began) =
        head.map_or((None, touched), |head| (head.server_name, head.created_at));
    let record = JobRecord { server_name, ..JobRecord::failed(name.to_owned(), began, now, ERROR) };
    let written = record.write(&folder);
    store.deferred.settle(&record, &written);
    written.map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::jobs::{Finished, Store, StoreOptions};

    fn open(place: &Path) -> Store {
        Store::open(&place.join("jobs"), StoreOptions::default()).unwrap()
    }

    /// Leaves one job of each kind behind, as a process that was killed does.
    fn leave(place: &Path) -> [std::path::PathBuf; 4] {
        let store = open(place);
        let jobs = [0, 1, 2, 3].map(|_| store.new_job().unwrap());
        let now = SystemTime::now();
        let folder = |at: usize| jobs[at].files().parent().unwrap().to_owned();
        // As bridges of older versions began a record.
        fs::write(folder(1).join("request.json"), "{\"id\":7}").unwrap();
        let begun = "{\"server_name\":\"slides\",\"created_at\":\"2026-11-15T12:00:00Z\",\
                     \"status\":\"processing\"}";
        fs::write(folder(1).join("metadata.json"), begun).unwrap();
        jobs[2].finish(&Finished::new("slides", b"{}", now, now)).unwrap();
        fs::write(jobs[3].files().parent().unwrap().join("metadata.json"), "{\"job_id\":").unwrap();
        let folders = jobs.each_ref().map(|job| job.files().parent().unwrap().to_owned());
        let copy = place.join("killed");
        fs::create_dir(&copy).unwrap();
        // Their owner would tidy up when it is dropped here, unlike one that is killed.
        let moved = folders.each_ref().map(|folder| copy.join(folder.file_name().unwrap()));
        for (folder, moved) in folders.iter().zip(&moved) {
            fs::rename(folder, moved).unwrap();
        }
        drop(jobs);
        drop(store);
        for (folder, moved) in folders.iter().zip(&moved) {
            fs::rename(moved, folder).unwrap();
        }
        folders
    }

    fn check(folder: &Path, expected: &str) {
        let text = fs::read_to_string(folder.join("metadata.json")).unwrap_or_default();
        assert!(text.contains(expected), "{expected} is not in {text:?}");
    }

    #[test]
    fn what_was_under_way_has_failed_when_nobody_else_is_alive() {
        let place = tempfile::tempdir().unwrap();
        let [fresh, begun, ended, broken] = leave(place.path());
        let store = open(place.path());
        let ours = store.new_job().unwrap();
        assert_eq!(store.recover(), 3);
        for folder in [&fresh, &begun, &broken] {
            check(folder, "\"status\":\"failed\"");
            check(folder, ERROR);
        }
        check(&begun, "\"server_name\":\"slides\"");
        check(&begun, "\"request\":{\"id\":7}");
        check(&ended, "\"status\":\"completed\"");
        assert!(!ours.files().parent().unwrap().join("metadata.json").exists(), "ours goes on");
        assert_eq!(store.recover(), 0, "once is enough");
    }

    #[test]
    fn what_another_bridge_keeps_fresh_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let [fresh, begun, _, broken] = leave(place.path());
        let other = open(place.path());
        let store = open(place.path());
        assert_eq!(store.recover(), 0);
        check(&begun, "\"status\":\"processing\"");
        let past = SystemTime::now() - QUIET - QUIET;
        fs::File::open(&begun).unwrap().set_modified(past).unwrap();
        assert_eq!(store.recover(), 0, "a child can set that time");
        fs::remove_dir_all(&fresh).unwrap();
        assert_eq!(recover(&store.0, SystemTime::now() + QUIET), 2);
        for folder in [&begun, &broken] {
            check(folder, "\"status\":\"failed\"");
        }
        drop(other);
    }

    #[test]
    fn without_other_bridges_nothing_needs_to_be_quiet() {
        let place = tempfile::tempdir().unwrap();
        let [_, begun, ..] = leave(place.path());
        let other = open(place.path());
        let store = open(place.path());
        assert_eq!(store.recover(), 0);
        drop(other);
        assert_eq!(store.recover(), 3);
        check(&begun, "\"status\":\"failed\"");
    }
}
