//! What holds of a job over its life.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;
use crate::jobs::log::MAX_LOG;
use crate::jobs::{Store, StoreOptions};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn store(store_payloads: bool) -> (Store, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let options = StoreOptions { store_payloads, ..StoreOptions::default() };
    (Store::open(&place.path().join("jobs"), options).unwrap(), place)
}

fn call<'a>(request: &'a [u8], response: Option<&'a [&'a [u8]]>) -> Finished<'a> {
    let ended = now() + Duration::from_secs(2);
    Finished { response, ..Finished::new("slides", request, now(), ended) }
}

fn record(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

fn folder(job: &Job) -> PathBuf {
    job.files().parent().unwrap().to_owned()
}

/// What the records say after `work` on a job.
fn check(store_payloads: bool, work: impl FnOnce(&Job), expected: Value) {
    let (store, _place) = store(store_payloads);
    let job = store.new_job().unwrap();
    work(&job);
    let mut expected = expected;
    expected["job_id"] = json!(job.id().to_string());
    let folder = folder(&job);
    drop(job);
    let found: Value = serde_json::from_str(&record(&folder, "metadata.json")).unwrap();
    assert_eq!(found, expected);
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let (name, mode) = (entry.file_name(), entry.metadata().unwrap().mode() & 0o777);
        assert_eq!(mode, if name == "files" { 0o700 } else { 0o600 }, "{name:?}");
        assert!(!name.to_str().unwrap().starts_with('.'), "{name:?} was left");
    }
}

#[test]
fn a_new_job_is_two_directories() {
    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    assert!(job.files().is_absolute());
    let entries: Vec<_> =
        fs::read_dir(folder(&job)).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(entries, ["files"]);
    assert_eq!(fs::read_dir(job.files()).unwrap().count(), 0);
    assert_eq!(fs::metadata(folder(&job)).unwrap().mode() & 0o777, 0o700);
    assert_eq!(job.id().get_version_num(), 4);
}

#[test]
fn a_call_that_was_answered_is_completed() {
    let work = |job: &Job| {
        let made = [Made::new("a.txt".to_owned(), 3)];
        let pieces: [&[u8]; 2] = [b"{\"result\":", b"[1,2]}"];
        let trace = Some("0af7".to_owned());
        let call = call(b"{\"id\":1}", Some(&pieces));
        job.finish(&Finished { files: &made, is_error: true, trace, ..call }).unwrap();
        assert_eq!(record(&folder(job), "request.json"), "{\"id\":1}");
        assert_eq!(record(&folder(job), "response.json"), "{\"result\":[1,2]}");
    };
    let expected = json!({
        "server_name": "slides", "created_at": "2027-01-15T08:00:00.000Z", "status": "completed",
        "finished_at": "2027-01-15T08:00:02.000Z", "is_error": true, "trace_id": "0af7",
        "files": [{"path": "a.txt", "size": 3, "mime": "text/plain; charset=utf-8"}],
        "request": {"id": 1}, "response": {"result": [1, 2]},
    });
    check(true, work, expected);
}

#[test]
fn payloads_are_not_kept_where_they_should_not() {
    let work = |job: &Job| {
        let error = Some("the server said no");
        let answer: [&[u8]; 1] = [b"{\"secret\":2}"];
        job.finish(&Finished { error, ..call(b"{\"secret\":1}", Some(&answer)) }).unwrap();
        assert!(!folder(job).join("request.json").exists());
        assert!(!folder(job).join("response.json").exists());
    };
    let expected = json!({
        "server_name": "slides", "created_at": "2027-01-15T08:00:00.000Z", "status": "failed",
        "finished_at": "2027-01-15T08:00:02.000Z", "error": "the server said no", "files": [],
    });
    check(false, work, expected);
}

#[test]
fn what_the_end_of_the_child_adds_is_recorded_before_the_ending_and_after_it() {
    let made = |path: &str, size| Made::new(path.to_owned(), size);
    let told = [made("a.txt", 3), made("b.txt", 3)];
    let last = || vec![made("a.txt", 3), made("b.txt", 4), made("c.txt", 5)];
    let finish = |job: &Job| {
        let call = Finished { error: Some("gone"), files: &told, ..call(b"{}", None) };
        job.finish(&call).unwrap();
    };
    let exit = || Some("was killed by signal 9".to_owned());
    let before = |job: &Job| {
        job.note_exit(exit(), last());
        finish(job);
    };
    let after = |job: &Job| {
        finish(job);
        job.note_exit(exit(), last());
    };
    let file = |path: &str, size: u64| json!({"path": path, "size": size, "mime": "text/plain; charset=utf-8"});
    let expected = json!({
        "server_name": "slides", "created_at": "2027-01-15T08:00:00.000Z", "status": "failed", "request": {},
        "finished_at": "2027-01-15T08:00:02.000Z", "error": "gone", "exit": "was killed by signal 9",
        "files": [file("a.txt", 3), file("b.txt", 4), file("c.txt", 5)],
    });
    check(true, before, expected.clone());
    check(true, after, expected);
}

#[test]
fn a_call_is_recorded_once() {
    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    let metadata = folder(&job).join("metadata.json");
    job.finish(&call(b"{}", None)).unwrap();
    fs::remove_file(&metadata).unwrap();
    job.finish(&call(b"{}", None)).unwrap();
    job.note_exit(None, Vec::new());
    assert!(!metadata.exists(), "there is nothing to add");
}

#[test]
fn a_job_in_which_no_call_was_recorded_is_removed_with_its_owner() {
    let (store, place) = store(true);
    drop(store.new_job().unwrap());
    let job = store.new_job().unwrap();
    fs::write(job.files().join("left by a spare"), "").unwrap();
    drop(job);
    let job = store.new_job().unwrap();
    job.finish(&call(b"{}", None)).unwrap();
    job.discard();
    for entry in fs::read_dir(place.path().join("jobs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with('.'), "{name} was left");
    }
}

#[test]
fn a_child_cannot_have_records_written_through_links() {
    let (store, place) = store(true);
    let canary = place.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    let job = store.new_job().unwrap();
    for name in ["metadata.json", "request.json", "response.json", "server.log"] {
        symlink(&canary, folder(&job).join(name)).unwrap();
    }
    job.write_log(&["line".to_owned()]);
    job.finish(&call(b"{}", Some(&[b"{}"]))).unwrap();
    symlink(&canary, job.files().join("a.txt")).unwrap();
    assert_eq!(job.put("a.txt", b"bytes").unwrap().path, "a (2).txt");
    assert_eq!(record(place.path(), "canary"), "untouched");
    fs::rename(folder(&job), place.path().join("moved")).unwrap();
    symlink(place.path(), folder(&job)).unwrap();
    job.note_exit(Some("exited".to_owned()), Vec::new());
    let other = store.new_job().unwrap();
    fs::rename(folder(&other), place.path().join("moved, too")).unwrap();
    symlink(place.path(), folder(&other)).unwrap();
    assert!(other.finish(&call(b"{}", None)).is_err());
    assert!(!place.path().join("metadata.json").exists());
}

#[test]
fn a_log_is_bounded_and_harmless() {
    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    job.write_log(&["\u{1b}[31mred\tand\rbell\u{7}".to_owned()]);
    assert_eq!(record(&folder(&job), "server.log"), "\\u{1b}[31mred\tand\\rbell\\u{7}\n");
    let lines: Vec<String> = (0..100_000).map(|number| format!("line {number}")).collect();
    job.write_log(&lines);
    let log = record(&folder(&job), "server.log");
    assert!(log.len() < MAX_LOG + 100 && log.ends_with("line 99999\n"), "{} bytes", log.len());
    assert!(log.starts_with('['), "it says that lines are left out");
    job.write_log(&["x".repeat(MAX_LOG + 1)]);
    assert_eq!(record(&folder(&job), "server.log"), "[1 lines before these are left out]\n");
}

#[test]
fn files_put_into_a_job_get_names_of_their_own() {
    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    let names = ["売上.pdf", "売上.pdf", "../../metadata.json", ".tmp", "a/b\\c.txt", ""];
    let put: Vec<_> = names.iter().map(|name| job.put(name, b"1234").unwrap()).collect();
    let paths: Vec<_> = put.iter().map(|made| made.path.as_str()).collect();
    assert_eq!(paths, ["売上.pdf", "売上 (2).pdf", "metadata.json", "tmp", "c.txt", "file"]);
    assert_eq!((put[0].size, put[0].mime), (4, "application/pdf"));
    for made in &put {
        assert!(store.open_file(&job.id().to_string(), &made.path).is_ok(), "{}", made.path);
    }
}

#[test]
fn what_a_session_made_is_copied_into_the_job() {
    let (store, place) = store(true);
    let space = store.workspace("excel", "user 1").unwrap();
    fs::create_dir_all(space.files().join("年次/deep")).unwrap();
    fs::write(space.files().join("年次/deep/売上.xlsx"), "one").unwrap();
    fs::write(space.files().join("b.txt"), vec![7; 3 << 20]).unwrap();
    let mut made = space.begin_call().look(&[]).unwrap().made;
    made.push(Made::new("gone.txt".to_owned(), 1));
    made.push(Made::new("../../../x".to_owned(), 1));
    symlink(place.path(), space.files().join("link")).unwrap();
    made.push(Made::new("link".to_owned(), 1));
    let job = store.new_job().unwrap();
    let adopted = job.adopt(&space, &made).unwrap();
    assert_eq!(adopted.too_large, []);
    let paths: Vec<_> = adopted.made.iter().map(|made| (made.path.as_str(), made.size)).collect();
    assert_eq!(paths, [("b.txt", 3 << 20), ("年次/deep/売上.xlsx", 3)]);
    // Links given out before do not change with the next call.
    fs::write(space.files().join("年次/deep/売上.xlsx"), "two").unwrap();
    assert_eq!(fs::read(job.files().join("年次/deep/売上.xlsx")).unwrap(), b"one");
    assert_eq!(fs::read(job.files().join("b.txt")).unwrap(), vec![7; 3 << 20]);
}

/// The modes of a child's directory and of those that lead to it.
fn modes(files: &Path) -> Vec<u32> {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let root = |path: &&Path| path.file_name().is_some_and(|name| name != "jobs");
    let mut modes: Vec<u32> = files.ancestors().take_while(root).map(mode).collect();
    modes.push(mode(files.ancestors().find(|path| path.ends_with("jobs")).unwrap()));
    modes
}

#[test]
fn other_users_may_come_later() {
    let (store, _place) = store(true);
    let (old_job, space) = (store.new_job().unwrap(), store.workspace("a", "key").unwrap());
    assert_eq!(modes(old_job.files()), [0o700, 0o700, 0o700]);
    assert_eq!(modes(space.files()), [0o700, 0o700, 0o700, 0o700]);
    store.admit_other_users().unwrap();
    let job = store.new_job().unwrap();
    assert_eq!(modes(job.files()), [0o700, 0o711, 0o711]);
    assert_eq!(modes(old_job.files()), [0o700, 0o700, 0o711], "those of our own user stay closed");
    for key in ["key", "another"] {
        let taken = store.workspace("a", key).unwrap();
        assert_eq!(modes(taken.files()), [0o700, 0o711, 0o711, 0o711]);
    }
}

#[test]
fn children_of_other_users_reach_their_own_files_only() {
    let place = tempfile::tempdir().unwrap();
    let options = StoreOptions { other_users: true, ..StoreOptions::default() };
    let store = Store::open(&place.path().join("jobs"), options).unwrap();
    let job = store.new_job().unwrap();
    let space = store.workspace("excel", "key").unwrap();
    assert_eq!(modes(job.files()), [0o700, 0o711, 0o711]);
    assert_eq!(modes(space.files()), [0o700, 0o711, 0o711, 0o711]);
    let scratch = store.new_scratch().unwrap();
    assert_eq!(modes(scratch.path())[..2], [0o700, 0o711]);
    if rustix::process::geteuid().is_root() {
        fs::write(space.files().join("a.txt"), "").unwrap();
        fs::hard_link(space.files().join("a.txt"), place.path().join("second")).unwrap();
        fs::write(space.files().join("b.txt"), "").unwrap();
        symlink("/etc/hostname", space.files().join("link")).unwrap();
        space.begin_call().look(&[]).unwrap().delivered();
        fs::write(space.files().join("untold"), "").unwrap();
        job.give_to(12345, 12346).unwrap();
        space.give_to(12345, 12346).unwrap();
        let owner = |path: PathBuf| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!(owner(job.files().to_owned()), 12345);
        let owners = ["", "b.txt", "a.txt", "link"].map(|name| owner(space.files().join(name)));
        assert_eq!(owners, [12345, 12345, 0, 0]);
        assert_eq!(fs::metadata(space.files()).unwrap().gid(), 12346);
        let made = space.begin_call().look(&[]).unwrap().made;
        assert_eq!(
            made,
            [Made::new("untold".to_owned(), 0)],
            "a gift is no change, and tells nobody"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_record_gets_its_name_only_when_it_is_whole() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    let folder = job.files().parent().unwrap();
    inotify::add_watch(&watch, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO).unwrap();
    job.finish(&call(b"{}", Some(&[b"{}"]))).unwrap();
    let (mut made, mut named) = (Vec::new(), Vec::new());
    let mut space = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut space);
    while let Ok(event) = events.next() {
        let name = event.file_name().unwrap().to_string_lossy().into_owned();
        match event.events().contains(ReadFlags::MOVED_TO) {
            true => named.push(name),
            false => made.push(name),
        }
    }
    named.sort();
    assert_eq!(named, ["metadata.json", "request.json", "response.json"], "each once");
    assert!(made.iter().all(|name| name.starts_with('.')), "{made:?}");
}

#[test]
fn a_file_is_kept_though_the_child_removed_its_directory() {
    let (store, _place) = store(true);
    let job = store.new_job().unwrap();
    fs::remove_dir_all(job.files()).unwrap();
    assert_eq!(job.put("a.txt", b"bytes").unwrap().path, "a.txt");
    assert_eq!(fs::read(job.files().join("a.txt")).unwrap(), b"bytes");
}
