//! The journal: one line for each call that left no job, in a file that cannot grow for ever.
//!
//! A call on a kept process is short, and writing a line for each would be much of it: lines gather,
//! and are written together.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::renameat;
use serde::Serialize;
use tracing::warn;
use uuid::Uuid;

use super::beneath::create;
use super::record::{Status, text_of};
use super::root::{JOURNAL, Root};

/// How long one generation may be before the next begins; there are two.
const MAX_JOURNAL: u64 = 4 << 20;

/// How much may wait to be written; of what comes then, only the number is told.
const MAX_WAITING: usize = 1 << 20;

/// How much of an error is kept.
const MAX_ERROR: usize = 1024;

/// A call that left no job.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// The server that was called.
    pub server: &'a str,
    /// The tool that was called.
    pub tool: &'a str,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Why it failed; `None` where it did not.
    pub error: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    began_at: String,
    server_name: &'a str,
    tool: &'a str,
    status: Status,
    took_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Entry<'_> {
    fn line(&self) -> Vec<u8> {
        let error = self.error.map(|error| {
            let end = (0..=error.len().min(MAX_ERROR)).rev().find(|&at| error.is_char_boundary(at));
            &error[..end.unwrap_or_default()]
        });
        let line = Line {
            began_at: text_of(self.began),
            server_name: self.server,
            tool: self.tool,
            status: if error.is_some() { Status::Failed } else { Status::Completed },
            took_ms: self.took.as_millis(),
            error,
        };
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The journal of this bridge.
#[derive(Debug)]
pub(super) struct Journal {
    owner: Uuid,
    waiting: Mutex<Waiting>,
    state: Mutex<State>,
}

/// Lines that are not written yet.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    lost: usize,
}

#[derive(Debug)]
enum State {
    /// Nothing was written yet.
    New,
    Open {
        file: File,
        bytes: u64,
    },
    /// The last line could not be written, and that was told.
    Broken,
}

impl Journal {
    pub(super) fn new(owner: Uuid) -> Self {
        Self { owner, waiting: Mutex::default(), state: Mutex::new(State::New) }
    }

    /// Lets the next line begin a file, because the last one is in a directory that is not ours any more.
    pub(super) fn begin_anew(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::New;
    }

    /// Adds a line to those that wait. True if it is the first, so that somebody has to write them.
    pub(super) fn add(&self, entry: &Entry<'_>) -> bool {
        let line = entry.line();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = waiting.lines.is_empty();
        match waiting.lines.len() + line.len() <= MAX_WAITING {
            true => waiting.lines.extend_from_slice(&line),
            false => waiting.lost += 1,
        }
        is_first
    }

    /// Writes what waits.
    pub(super) fn write(&self, root: &Root) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Waiting { lines, lost } =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if lost > 0 {
            warn!(lost, "the disk does not keep up with the journal, and lines are lost");
        }
        if let Err(error) = self.append(root, &mut state, &lines) {
            if !matches!(*state, State::Broken) {
                warn!(error = &error as &dyn std::error::Error, "the journal cannot be written");
            }
            *state = State::Broken;
        }
    }

    fn append(&self, root: &Root, state: &mut State, lines: &[u8]) -> io::Result<()> {
        let is_long = matches!(state, State::Open { bytes, .. } if *bytes >= MAX_JOURNAL);
        if is_long || !matches!(state, State::Open { .. }) {
            let folder = root.folder(JOURNAL)?;
            let name = format!("{}.jsonl", self.owner);
            match renameat(&folder, &name, &folder, format!("{}.1.jsonl", self.owner)) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            *state = State::Open { file: File::from(create(&folder, &name)?), bytes: 0 };
        }
        if let State::Open { file, bytes } = state {
            file.write_all(lines)?;
            *bytes += lines.len() as u64;
        }
        Ok(())
    }
}

/// Whose journal has this name.
pub(super) fn owner_of(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".jsonl")?;
    Some(name.strip_suffix(".1").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::UNIX_EPOCH;

    use super::*;

    /// Writes `count` calls, and gives what is in the files by their size.
    fn check(count: usize, error: Option<&str>, files: usize) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let journal = Journal::new(Uuid::new_v4());
        let entry = Entry {
            server: "slides",
            tool: "ツール",
            began: UNIX_EPOCH,
            took: Duration::from_millis(7),
            error,
        };
        for number in 0..count {
            assert_eq!(journal.add(&entry), number % 100 == 0);
            if number % 100 == 99 || number == count - 1 {
                journal.write(&root);
            }
        }
        let found = fs::read_dir(place.path().join("jobs/.journal")).unwrap();
        let found: Vec<_> =
            found.map(|it| fs::read_to_string(it.unwrap().path()).unwrap()).collect();
        assert_eq!(found.len(), files);
        found
    }

    #[test]
    fn a_call_is_a_line() {
        let line = "{\"began_at\":\"1970-01-01T00:00:00.000Z\",\"server_name\":\"slides\",\
                    \"tool\":\"ツール\",\"status\":\"completed\",\"took_ms\":7}\n";
        assert_eq!(check(2, None, 1), [line.repeat(2)]);
    }

    #[test]
    fn a_journal_has_two_generations_and_no_more() {
        let error = "é\n".repeat(10_000);
        for text in check(12_000, Some(&error), 2) {
            assert!(text.len() <= MAX_JOURNAL as usize + 400 * MAX_ERROR);
            assert!(
                text.lines().all(|line| line.starts_with("{\"began_at\"") && line.ends_with("\"}"))
            );
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let journal = Journal::new(Uuid::new_v4());
        let error = "x".repeat(1000);
        let entry = Entry {
            server: "slides",
            tool: "t",
            began: UNIX_EPOCH,
            took: Duration::ZERO,
            error: Some(&error),
        };
        let firsts = (0..2000).filter(|_| journal.add(&entry)).count();
        assert_eq!(firsts, 1);
        journal.write(&root);
        assert!(journal.add(&entry), "there is room again");
        let file = place.path().join("jobs/.journal").join(format!("{}.jsonl", journal.owner));
        let size = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
        assert!((MAX_WAITING / 2..=MAX_WAITING).contains(&size), "{size}");
    }

    #[test]
    fn a_journal_has_an_owner() {
        assert_eq!(owner_of("abc.jsonl"), Some("abc"));
        assert_eq!(owner_of("abc.1.jsonl"), Some("abc"));
        assert_eq!(owner_of("abc"), None);
    }
}
