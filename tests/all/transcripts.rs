//! Plays every file of `tests/transcripts`, and sees that each heal has one.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pontoon_tests::rig::Binaries;
use pontoon_tests::transcript::{Transcript, play, play_over_websocket};
use pontoon_wire::heal::Heal;

use crate::binaries;

/// Violations of servers over HTTP, which are not reached from here: the doctor's own client has the tests of it.
const OF_HTTP: Heal = Heal::H29;

fn files() -> BTreeMap<String, PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// How a transcript is played.
type Play = fn(&Transcript, &Binaries) -> Result<(), String>;

/// Plays one transcript; what went wrong, if anything did.
fn failure(name: &str, path: &Path, play: Play) -> Option<String> {
    let text = fs::read_to_string(path).unwrap();
    let played = Transcript::parse(&text).and_then(|transcript| {
        catch_unwind(AssertUnwindSafe(|| play(&transcript, &binaries()))).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            Err(said.unwrap_or_else(|| String::from("it panicked")))
        })
    });
    played.err().map(|what| format!("transcripts/{name}.txt, {what}"))
}

/// Plays every transcript whose name passes, some at once: most of their time is waiting.
fn play_those(play: Play, chosen: impl Fn(&str) -> bool) {
    let files: Vec<_> = files().into_iter().filter(|(name, _)| chosen(name)).collect();
    assert!(!files.is_empty(), "there is nothing to play");
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, path)) =
                    files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    if let Some(failure) = failure(name, path, play) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {} failed:\n{}", files.len(), failures.join("\n\n"));
}

#[test]
fn what_servers_get_wrong_is_put_right() {
    play_those(play, |name| name.starts_with(['h', 's']) && name[1..3].parse::<u8>().is_ok());
}

#[test]
fn conversations_go_as_written() {
    play_those(play, |name| name[1..3].parse::<u8>().is_err());
}

/// Those that make no sense over a WebSocket, and why.
const OF_PROCESSES: &[(&str, &str)] = &[
    ("cancelled-call", "a process that ends"),
    ("elicitation", "who has one connection with others cannot be asked"),
    ("h03-joined", "which call a log line belongs to, where others have the connection, too"),
    ("h03-unended", "a frame has an end"),
    ("h04-cr", "lines, which frames are not"),
    ("h05-content-length", "`Content-Length` in place of lines"),
    ("h05-found-out", "`Content-Length` in place of lines"),
    ("h05-frames-only", "`Content-Length` in place of lines"),
    ("h07-buffered", "an end that flushes a buffer"),
    ("h11-null-id-error", "an error that names no request, where others have the connection, too"),
    ("h21-double-initialize", "a process that ends"),
    ("h21-heal-off", "a client is greeted before an application is there"),
    ("h21-heal-warn", "a client is greeted before an application is there"),
    ("h27-deaf", "a process that ends"),
    ("h27-slow-exit", "a process that ends"),
    ("h28-die-after-one", "a process that ends"),
    ("modern-timeout", "a status, where the outcome of an application is told in a result"),
    ("session-life", "a process that ends"),
];

#[test]
fn what_applications_on_a_websocket_get_wrong_is_put_right() {
    play_those(play_over_websocket, |name| {
        !OF_PROCESSES.iter().any(|(skipped, _)| *skipped == name)
    });
}

#[test]
fn what_is_not_played_over_a_websocket_is_there() {
    let files = files();
    for (name, why) in OF_PROCESSES {
        assert!(files.contains_key(*name), "there is no {name}, which is left out for {why}");
    }
}

#[test]
fn every_heal_has_a_transcript() {
    let shown: String = files()
        .values()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    for heal in Heal::ALL.iter().filter(|heal| **heal != OF_HTTP) {
        let code = heal.code();
        let is_named = |name: &String| name.starts_with(&code.to_lowercase());
        assert!(files().keys().any(is_named), "no transcript is about {code}");
        assert!(shown.contains(&format!("\n= healed {code}\n")), "no transcript shows {code}");
    }
}

#[test]
fn every_transcript_can_be_read_and_is_played() {
    for (name, path) in files() {
        assert!(name.len() > 3 && path.extension().is_some_and(|it| it == "txt"), "{path:?}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{name} does not say why");
        Transcript::parse(&text).unwrap_or_else(|what| panic!("{name}: {what}"));
    }
}
