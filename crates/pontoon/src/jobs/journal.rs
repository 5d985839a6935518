//! The journal: the one list of all tool calls, a line of JSON for each, in files that cannot grow for ever.
//!
//! A call on a kept process is short, and writing a line for each would be much of it: lines gather,
//! and are written together. Each bridge has files of its own; [`read`] brings those of all together.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::renameat;
use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use super::beneath::{create, names_in, open_folder};
use super::record::{CallStatus, open_record, text_of};
use super::root::{JOURNAL, Root};

/// How long one generation may be before the next begins; there are two.
const MAX_JOURNAL: u64 = 16 << 20;

/// How much may wait to be written; of what comes then, only the number is told.
const MAX_WAITING: usize = 1 << 20;

/// Most lines are shorter, so that one allocation holds them.
const USUAL_LINE: usize = 512;

/// What is kept of the memory of lines for the next ones.
const KEPT: usize = 64 << 10;

/// How much of an error or of a name is kept: clients choose some of them.
const MAX_TEXT: usize = 1024;

/// A call that is over.
#[derive(Debug, Clone)]
pub struct EndedCall<'a> {
    /// The server that was called.
    pub server: &'a str,
    /// The tool that was called.
    pub tool: &'a str,
    /// The user who called, as a front end names them.
    pub user: Option<&'a str>,
    /// The name of the API key that was shown.
    pub key: Option<&'a str>,
    /// Where the call came from.
    pub address: IpAddr,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Why it failed; `None` where it did not.
    pub error: Option<&'a str>,
    /// How it ended.
    pub status: CallStatus,
    /// Whether the result says that the tool failed.
    pub is_error: bool,
    /// The length of its parameters.
    pub bytes_in: usize,
    /// The length of its answer; 0 where the server gave none.
    pub bytes_out: usize,
    /// How many files it made.
    pub files: usize,
    /// Its job, if it has one.
    pub job: Option<Uuid>,
    /// By which the log tells its lines.
    pub trace: Option<String>,
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine<'a> {
    /// When the call began, in ISO 8601.
    pub began_at: Cow<'a, str>,
    /// How long it took.
    pub took_ms: u64,
    /// The server that was called.
    pub server_name: Cow<'a, str>,
    /// The tool that was called.
    pub tool: Cow<'a, str>,
    /// The user who called, as a front end names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Cow<'a, str>>,
    /// The name of the API key that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// Where the call came from.
    pub address: IpAddr,
    /// How it ended.
    pub status: CallStatus,
    /// Whether the result says that the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The length of its parameters. Bridges of older versions did not say.
    #[serde(default)]
    pub bytes_in: usize,
    /// The length of its answer; 0 where the server gave none.
    #[serde(default)]
    pub bytes_out: usize,
    /// How many files it made.
    #[serde(default)]
    pub files: usize,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    /// Its job, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Cow<'a, str>>,
    /// By which the log tells its lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Cow<'a, str>>,
}

impl<'a> EndedCall<'a> {
    /// A call of which nothing is known but these: it completed at once.
    pub fn new(server: &'a str, tool: &'a str, address: IpAddr, began: SystemTime) -> Self {
        Self {
            server,
            tool,
            user: None,
            key: None,
            address,
            began,
            took: Duration::ZERO,
            error: None,
            status: CallStatus::Completed,
            is_error: false,
            bytes_in: 0,
            bytes_out: 0,
            files: 0,
            job: None,
            trace: None,
        }
    }

    fn line(&self) -> JournalLine<'_> {
        JournalLine {
            began_at: text_of(self.began).into(),
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            server_name: self.server.into(),
            tool: shortened(self.tool),
            user: self.user.map(shortened),
            key: self.key.map(shortened),
            address: self.address,
            status: self.status,
            is_error: self.is_error,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            files: self.files,
            error: self.error.map(shortened),
            job_id: self.job.map(|job| job.to_string().into()),
            trace_id: self.trace.as_deref().map(Cow::Borrowed),
        }
    }
}

fn shortened(text: &str) -> Cow<'_, str> {
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or_default()].into()
}

/// The journal of this bridge.
#[derive(Debug)]
pub(super) struct Journal {
    owner: Uuid,
    waiting: Mutex<UnwrittenLines>,
    file: Mutex<JournalFile>,
}

#[derive(Debug, Default)]
struct UnwrittenLines {
    lines: Vec<u8>,
    lost: usize,
}

#[derive(Debug)]
enum JournalFile {
    /// Nothing was written yet.
    Unopened,
    Open {
        file: File,
        bytes: u64,
        since: SystemTime,
    },
    /// The last lines could not be written, and that was told.
    Broken,
}

impl Journal {
    pub(super) fn new(owner: Uuid) -> Self {
        Self { owner, waiting: Mutex::default(), file: Mutex::new(JournalFile::Unopened) }
    }

    /// Lets the next line begin a file, because the last one is in a directory that is not ours any more.
    pub(super) fn begin_anew(&self) {
        *self.file() = JournalFile::Unopened;
    }

    /// Adds a line to those that wait. True if it is the first, so that somebody has to write them.
    pub(super) fn add(&self, call: &EndedCall<'_>) -> bool {
        let mut line = Vec::with_capacity(USUAL_LINE);
        // A line of texts and numbers is always JSON.
        drop(serde_json::to_writer(&mut line, &call.line()));
        line.push(b'\n');
        let mut waiting = self.waiting();
        let is_first = waiting.lines.is_empty();
        match waiting.lines.len() + line.len() <= MAX_WAITING {
            true => waiting.lines.extend_from_slice(&line),
            false => waiting.lost += 1,
        }
        is_first
    }

    /// Writes what waits. A file that was begun this long before `now` is followed by the next.
    pub(super) fn write(&self, root: &Root, longest: Duration, now: SystemTime) {
        let mut file = self.file();
        let UnwrittenLines { mut lines, lost } = std::mem::take(&mut *self.waiting());
        if lost > 0 {
            warn!(lost, "the disk does not keep up with the journal, and lines are lost");
        }
        let is_full = match &*file {
            JournalFile::Open { bytes, since, .. } => {
                *bytes >= MAX_JOURNAL || now.duration_since(*since).is_ok_and(|age| age >= longest)
            }
            JournalFile::Unopened | JournalFile::Broken => true,
        };
        let written = match is_full {
            true => self.next_file(root, now).and_then(|next| {
                *file = next;
                file.append(&lines)
            }),
            false => file.append(&lines),
        };
        if let Err(error) = written {
            if !matches!(*file, JournalFile::Broken) {
                warn!(error = &error as &dyn std::error::Error, "the journal cannot be written");
            }
            *file = JournalFile::Broken;
        }
        lines.clear();
        let mut waiting = self.waiting();
        if waiting.lines.capacity() == 0 && lines.capacity() <= KEPT {
            waiting.lines = lines;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, UnwrittenLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_file(&self, root: &Root, since: SystemTime) -> io::Result<JournalFile> {
        let folder = root.folder(JOURNAL)?;
        let name = format!("{}.jsonl", self.owner);
        match renameat(&folder, &name, &folder, format!("{}.1.jsonl", self.owner)) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(JournalFile::Open { file: File::from(create(&folder, &name)?), bytes: 0, since })
    }

    fn file(&self) -> MutexGuard<'_, JournalFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalFile {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Self::Open { file, bytes, .. } = self {
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

/// Whether this is the older of a bridge's two files, to which nothing is added any more.
pub(super) fn is_older(name: &str) -> bool {
    name.ends_with(".1.jsonl")
}

/// The calls in the journals of all bridges, by when they began. A line that is not whole is left out: its
/// bridge may just be writing it.
pub(super) fn read(root: &Root) -> io::Result<Vec<JournalLine<'static>>> {
    let folder = match open_folder(root.fd(), JOURNAL.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        folder => folder?,
    };
    let mut found = Vec::new();
    for name in names_in(&folder)?.iter().filter(|name| owner_of(name).is_some()) {
        // Another bridge may have collected it.
        let Some(file) = open_record(&folder, name)? else { continue };
        for line in BufReader::new(file).split(b'\n') {
            found.extend(serde_json::from_slice::<JournalLine<'static>>(&line?).ok());
        }
    }
    // Their texts have one length and one zone.
    found.sort_by(|a, b| a.began_at.cmp(&b.began_at));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn call(error: Option<&str>) -> EndedCall<'_> {
        let call = EndedCall::new("slides", "ツール", Ipv4Addr::LOCALHOST.into(), UNIX_EPOCH);
        let status = if error.is_some() { CallStatus::Failed } else { CallStatus::Completed };
        EndedCall { took: Duration::from_millis(7), error, status, ..call }
    }

    fn place() -> (Root, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        (Root::make(&place.path().join("jobs"), false).unwrap(), place)
    }

    /// Writes `count` calls, and gives what is in the files.
    fn check(count: usize, error: Option<&str>, files: usize) -> Vec<String> {
        let (root, place) = place();
        let journal = Journal::new(Uuid::new_v4());
        for number in 0..count {
            assert_eq!(journal.add(&call(error)), number % 100 == 0);
            if number % 100 == 99 || number == count - 1 {
                journal.write(&root, DAY, UNIX_EPOCH);
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
        let line = "{\"began_at\":\"1970-01-01T00:00:00.000Z\",\"took_ms\":7,\
                    \"server_name\":\"slides\",\"tool\":\"ツール\",\"address\":\"127.0.0.1\",\
                    \"status\":\"completed\",\"bytes_in\":0,\"bytes_out\":0,\"files\":0}\n";
        assert_eq!(check(2, None, 1), [line.repeat(2)]);
    }

    #[test]
    fn what_was_written_is_read_back_from_the_journals_of_all_bridges() {
        let (root, place) = place();
        let (ours, theirs) = (Journal::new(Uuid::new_v4()), Journal::new(Uuid::new_v4()));
        let job = Uuid::new_v4();
        let whole = EndedCall {
            user: Some("ada"),
            key: Some("front"),
            began: UNIX_EPOCH + Duration::from_millis(1500),
            error: Some("no\nroom"),
            status: CallStatus::TimedOut,
            is_error: true,
            bytes_in: 17,
            bytes_out: 90,
            files: 2,
            job: Some(job),
            trace: Some("0af7".to_owned()),
            ..call(None)
        };
        ours.add(&whole);
        ours.write(&root, DAY, UNIX_EPOCH);
        theirs.add(&call(None));
        theirs.write(&root, DAY, UNIX_EPOCH);
        let file = place.path().join("jobs/.journal").join(format!("{}.jsonl", theirs.owner));
        assert_eq!(fs::metadata(&file).unwrap().permissions(), Permissions::from_mode(0o100_600));
        let half = fs::read_to_string(&file).unwrap() + "{\"began_at\":\"19";
        fs::write(&file, half).unwrap();
        let first = call(None);
        let expected = [
            first.line(),
            JournalLine {
                began_at: "1970-01-01T00:00:01.500Z".into(),
                took_ms: 7,
                server_name: "slides".into(),
                tool: "ツール".into(),
                user: Some("ada".into()),
                key: Some("front".into()),
                address: Ipv4Addr::LOCALHOST.into(),
                status: CallStatus::TimedOut,
                is_error: true,
                bytes_in: 17,
                bytes_out: 90,
                files: 2,
                error: Some("no\nroom".into()),
                job_id: Some(job.to_string().into()),
                trace_id: Some("0af7".into()),
            },
        ];
        assert_eq!(read(&root).unwrap(), expected);
    }

    #[test]
    fn a_journal_has_two_generations_and_no_more() {
        let error = "é\n".repeat(10_000);
        for text in check(48_000, Some(&error), 2) {
            assert!(text.len() <= MAX_JOURNAL as usize + 400 * MAX_TEXT);
            assert!(
                text.lines().all(|line| line.starts_with("{\"began_at\"") && line.ends_with("\"}"))
            );
        }
    }

    #[test]
    fn a_generation_ends_when_its_first_lines_have_expired() {
        let (root, place) = place();
        let journal = Journal::new(Uuid::new_v4());
        let write_at = |now: SystemTime| {
            journal.add(&call(None));
            journal.write(&root, DAY, now);
            fs::read_dir(place.path().join("jobs/.journal")).unwrap().count()
        };
        assert_eq!(write_at(UNIX_EPOCH), 1);
        assert_eq!(write_at(UNIX_EPOCH + DAY / 2), 1);
        assert_eq!(write_at(UNIX_EPOCH + DAY), 2);
        assert_eq!(read(&root).unwrap().len(), 3);
        assert_eq!(write_at(UNIX_EPOCH + DAY * 2), 2);
        assert_eq!(read(&root).unwrap().len(), 2, "the oldest went");
    }

    #[test]
    fn what_waits_is_bounded() {
        let (root, place) = place();
        let journal = Journal::new(Uuid::new_v4());
        let error = "x".repeat(1000);
        let firsts = (0..2000).filter(|_| journal.add(&call(Some(&error)))).count();
        assert_eq!(firsts, 1);
        journal.write(&root, DAY, UNIX_EPOCH);
        assert!(journal.add(&call(Some(&error))), "there is room again");
        let file = place.path().join("jobs/.journal").join(format!("{}.jsonl", journal.owner));
        let size = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
        assert!((MAX_WAITING / 2..=MAX_WAITING).contains(&size), "{size}");
    }

    #[test]
    fn where_no_call_was_made_there_is_none_and_nothing_is_made() {
        let (root, place) = place();
        fs::remove_dir(place.path().join("jobs/.journal")).unwrap();
        assert_eq!(read(&root).unwrap(), []);
        assert!(!place.path().join("jobs/.journal").exists());
    }

    #[test]
    fn a_journal_has_an_owner() {
        assert_eq!(owner_of("abc.jsonl"), Some("abc"));
        assert_eq!(owner_of("abc.1.jsonl"), Some("abc"));
        assert_eq!(owner_of("abc"), None);
    }
}
