//! The records of a job: `metadata.json` and the files beside it, each written whole or not at all.
//!
//! They lie beside `files/`, where the child cannot reach them with a link or a name of its own.
//! A record is written when the call is over: a job without one still runs, or was cut off. There is no
//! fsync: after a loss of power a record may be missing, and the job then counts as one that was cut off.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::beneath::open_to_read;
use super::disk::is_full;
use super::node::FileNode;
use super::snapshot::Made;
use crate::plain_file::write_whole;

pub(super) const METADATA: &str = "metadata.json";
pub(super) const REQUEST: &str = "request.json";
pub(super) const RESPONSE: &str = "response.json";
pub(super) const LOG: &str = "server.log";

/// How far into a record its first members are looked for.
const HEAD_BYTES: u64 = 1 << 20;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// It is under way: so bridges of older versions began a record.
    Processing,
    /// The server gave a result.
    Completed,
    /// The server answered with an error, or not at all.
    Failed,
    /// The server did not answer in time. The record of a job says `failed`.
    TimedOut,
    /// It may have been made: the connection to an application was lost with the call under way.
    Unknown,
    /// The client no longer wanted the answer, or went away. The record of a job says `failed`.
    Cancelled,
    /// It was not made: a limit was reached, its arguments do not fit, or there is no room.
    Refused,
}

impl CallStatus {
    /// The word for it, in the journal and in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

/// Who called what, and how much that was: the same in the journal, in the log and in the record of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// The tool that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The user who called, as a front end names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The name of the API key that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where the call came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The length of its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<usize>,
    /// The length of its answer; 0 where the server gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<usize>,
}

/// What is written to `metadata.json`, besides the payloads.
///
/// The members that collecting looks at come first: it does not read on behind them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct JobRecord {
    pub(super) job_id: String,
    pub(super) server_name: Option<String>,
    #[serde(serialize_with = "as_text")]
    pub(super) created_at: SystemTime,
    pub(super) status: CallStatus,
    #[serde(serialize_with = "as_text")]
    pub(super) finished_at: SystemTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Whether the result says that the tool failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<String>,
    pub(super) files: Vec<Made>,
    #[serde(flatten)]
    pub(super) facts: CallFacts,
}

/// The payloads of a job that are in memory, the response in the pieces it is in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Payloads<'a> {
    pub(super) request: Option<&'a [u8]>,
    pub(super) response: Option<&'a [&'a [u8]]>,
}

fn as_text<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text_of(*time))
}

/// A time in ISO 8601.
pub(super) fn text_of(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(with_date(time)).to_string()
}

/// The nearest time with a date that can be written: from 1970, and with a year of four digits.
/// A clock may be off, and a child may give its files any time.
pub(super) fn with_date(time: SystemTime) -> SystemTime {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    UNIX_EPOCH + time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST)
}

impl JobRecord {
    /// The record of a call that failed.
    pub(super) fn failed(job_id: String, began: SystemTime, ended: SystemTime, why: &str) -> Self {
        Self {
            job_id,
            server_name: None,
            created_at: began,
            status: CallStatus::Failed,
            finished_at: ended,
            error: Some(why.to_owned()),
            is_error: false,
            trace_id: None,
            exit: None,
            files: Vec::new(),
            facts: CallFacts::default(),
        }
    }

    /// Writes `metadata.json` into the job's directory, with the payloads that lie beside it. Where
    /// there is no room for them they are left out, and in the end given up: how a call ended is
    /// worth more than what it said.
    pub(super) fn write(&self, folder: &OwnedFd) -> io::Result<()> {
        self.write_with(folder, Payloads::default())
    }

    /// The same with payloads that were just written, so that they need not be read again.
    pub(super) fn write_with(&self, folder: &OwnedFd, known: Payloads<'_>) -> io::Result<()> {
        let bare = || write_whole(folder, METADATA, |file| self.write_bare(file));
        match write_whole(folder, METADATA, |file| self.write_to(folder, known, file)) {
            Err(error) if is_full(&error) => bare().or_else(|_| {
                for payload in [RESPONSE, REQUEST] {
                    let _gone = unlinkat(folder, payload, AtFlags::empty());
                }
                bare()
            }),
            written => written,
        }
    }

    fn write_bare(&self, file: &mut BufWriter<File>) -> io::Result<()> {
        file.write_all(&serde_json::to_vec(self)?)?;
        file.write_all(b"\n")
    }

    fn write_to(
        &self,
        folder: &OwnedFd,
        known: Payloads<'_>,
        file: &mut BufWriter<File>,
    ) -> io::Result<()> {
        let head = serde_json::to_vec(self)?;
        file.write_all(head.strip_suffix(b"}").unwrap_or(&head))?;
        let request = known.request.as_ref().map(std::slice::from_ref);
        for (member, name, known) in
            [("request", REQUEST, request), ("response", RESPONSE, known.response)]
        {
            if let Some(pieces) = known {
                write!(file, ",\"{member}\":")?;
                pieces.iter().try_for_each(|piece| file.write_all(piece))?;
            } else if let Some(mut payload) = open_record(folder, name)? {
                write!(file, ",\"{member}\":")?;
                io::copy(&mut payload, file)?;
            }
        }
        file.write_all(b"}\n")
    }
}

/// A record to be read; `None` where there is none or where it is no plain file.
pub(super) fn open_record(folder: impl AsFd, name: &str) -> io::Result<Option<File>> {
    let file = match open_to_read(folder, name.as_bytes()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let is_plain = FileNode::of(&file)?.is_plain_file();
    Ok(is_plain.then(|| File::from(file)))
}

/// The first members of a `metadata.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) server_name: Option<String>,
    pub(super) created_at: SystemTime,
    pub(super) status: CallStatus,
}

impl Head {
    /// What the `metadata.json` of a job's directory says; `None` where it says nothing of use.
    pub(super) fn read(folder: impl AsFd) -> io::Result<Option<Self>> {
        let Some(file) = open_record(folder, METADATA)? else { return Ok(None) };
        Ok(Self::parse(file.take(HEAD_BYTES)))
    }

    fn parse(text: impl Read) -> Option<Self> {
        let mut members = Members::default();
        let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(text));
        // An error ends the reading early, also where all was found.
        drop((&mut members).deserialize(&mut deserializer));
        Some(Self {
            server_name: members.server_name?,
            created_at: members.created_at?,
            status: members.status?,
        })
    }
}

#[derive(Default)]
struct Members {
    server_name: Option<Option<String>>,
    created_at: Option<SystemTime>,
    status: Option<CallStatus>,
}

impl<'de> DeserializeSeed<'de> for &mut Members {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Members {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the record of a job")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "server_name" => self.server_name = Some(map.next_value()?),
                "created_at" => {
                    let text = map.next_value::<String>()?;
                    self.created_at = humantime::parse_rfc3339(&text).ok();
                }
                "status" => self.status = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
            if self.server_name.is_some() && self.created_at.is_some() && self.status.is_some() {
                return Err(A::Error::custom("all was found"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<CallStatus>) {
        let found = Head::parse(text.as_bytes());
        assert_eq!(found.map(|head| head.status), expected, "{text}");
    }

    #[test]
    fn the_first_members_are_found_in_any_order() {
        let at = "\"created_at\":\"2026-11-15T12:00:00Z\"";
        check(
            &format!("{{\"server_name\":\"a\",{at},\"status\":\"failed\"}}"),
            Some(CallStatus::Failed),
        );
        check(
            &format!("{{\"x\":[1,{{}}],\"status\":\"processing\",{at},\"server_name\":null}}"),
            Some(CallStatus::Processing),
        );
    }

    #[test]
    fn what_follows_them_is_not_read() {
        let head = "{\"server_name\":\"a\",\"created_at\":\"2026-11-15T12:00:00Z\",\"status\":\"completed\"";
        check(&format!("{head},\"request\":{{\"half"), Some(CallStatus::Completed));
    }

    #[test]
    fn a_record_that_says_nothing_of_use_is_none() {
        for text in ["", "{", "[]", "{}", "\0", "{\"status\":\"completed\"}", "{\"status\":5}"] {
            check(text, None);
        }
        check("{\"server_name\":\"a\",\"created_at\":\"soon\",\"status\":\"failed\"}", None);
        check(&"[".repeat(100_000), None);
    }

    #[test]
    fn a_time_is_written_as_it_is_read() {
        let began = UNIX_EPOCH + Duration::from_millis(1_800_000_000_123);
        let record = JobRecord::failed(String::new(), began, began, "why");
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains("\"created_at\":\"2027-01-15T08:00:00.123Z\""), "{text}");
        assert_eq!(Head::parse(text.as_bytes()).unwrap().created_at, record.created_at);
    }

    #[test]
    fn a_time_without_a_date_gets_the_nearest() {
        let second = Duration::from_secs(1);
        assert_eq!(text_of(UNIX_EPOCH - second), "1970-01-01T00:00:00.000Z");
        assert_eq!(text_of(UNIX_EPOCH + second * 4_000_000_000 * 100), "9999-12-31T23:59:59.000Z");
    }
}
