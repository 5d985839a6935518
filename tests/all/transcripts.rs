//! Plays every file of `tests/transcripts`, and sees that each heal has one.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pontoon_tests::transcript::{Transcript, play};

use crate::binaries;

/// The heals that have to be shown.
const HEALS: [&str; 19] = [
    "h01", "h02", "h03", "h04", "h08", "h09", "h10", "h11", "h12", "h13", "h14", "h16", "h17",
    "h19", "h20", "h21", "h22", "h27", "h28",
];

fn files() -> BTreeMap<String, PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// Plays one transcript; what went wrong, if anything did.
fn failure(name: &str, path: &Path) -> Option<String> {
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
fn play_those(chosen: impl Fn(&str) -> bool) {
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
                    if let Some(failure) = failure(name, path) {
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
    play_those(|name| name.starts_with(['h', 's']) && name[1..3].parse::<u8>().is_ok());
}

#[test]
fn conversations_go_as_written() {
    play_those(|name| name[1..3].parse::<u8>().is_err());
}

#[test]
fn every_heal_has_a_transcript() {
    let files = files();
    for heal in HEALS {
        assert!(files.keys().any(|name| name.starts_with(heal)), "no transcript shows {heal}");
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
