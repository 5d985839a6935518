//! Calls and jobs in words, for people.

use std::fmt::Write as _;
use std::net::IpAddr;

use pontoon_supervise::plain_text;
use serde::Deserialize;
use unicode_width::UnicodeWidthStr;

use crate::jobs::{CallFacts, CallStatus, JournalLine};

/// A name longer than this would push all others away.
const LONGEST_NAME: usize = 32;

/// So much of what went wrong.
const LONGEST_ERROR: usize = 160;

/// The members of a job's record that people are shown.
#[derive(Debug, Deserialize)]
pub(super) struct RecordedJob {
    server_name: Option<String>,
    created_at: String,
    finished_at: String,
    status: CallStatus,
    #[serde(default)]
    is_error: bool,
    error: Option<String>,
    trace_id: Option<String>,
    exit: Option<String>,
    #[serde(default)]
    files: Vec<RecordedFile>,
    #[serde(flatten)]
    facts: CallFacts,
}

#[derive(Debug, Deserialize)]
pub(super) struct RecordedFile {
    path: String,
    size: u64,
}

const HEADS: [&str; 6] = ["BEGAN", "TOOK", "SERVER", "TOOL", "WHO", "ENDED"];

/// A line for each call, under what stands in it.
pub(super) fn listed(calls: &[JournalLine<'_>]) -> String {
    let rows: Vec<_> = calls.iter().map(row).collect();
    let all = || std::iter::once(HEADS.map(str::to_owned)).chain(rows.iter().cloned());
    // The last one may be as long as it likes.
    let widths: [usize; 5] =
        std::array::from_fn(|at| all().map(|row| row[at].width()).max().unwrap_or_default());
    let mut text = String::new();
    for row in all() {
        for (at, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths.get(at).map_or(0, |width| width - cell.width()));
            // Times stand to the right.
            let (before, behind) = if at == 1 { (&*space, "") } else { ("", &*space) };
            let end = if at + 1 < row.len() { "  " } else { "\n" };
            text.extend([before, cell, behind, end]);
        }
    }
    text
}

fn row(call: &JournalLine<'_>) -> [String; 6] {
    let files = match call.files {
        0 => String::new(),
        1 => ", 1 file".to_owned(),
        more => format!(", {more} files"),
    };
    let job = call.job_id.as_ref().map(|job| format!(", job {job}")).unwrap_or_default();
    let ended = format!("{}{files}{job}", how(call.status, call.is_error));
    let ended = match &call.error {
        Some(error) => format!("{ended}: {}", short(error, LONGEST_ERROR)),
        None => ended,
    };
    [
        // To the second, in the zone of all times of ours.
        call.began_at.split('.').next().unwrap_or_default().replace('T', " ") + "Z",
        took(call.took_ms),
        short(&call.server_name, LONGEST_NAME),
        short(&call.tool, LONGEST_NAME),
        who(call.user.as_deref(), call.key.as_deref(), Some(call.address)),
        ended,
    ]
}

/// All that is known of a job, but what was said in it.
///
/// A record of a bridge of an older version says less of its call than the journal does.
pub(super) fn shown(id: &str, job: &RecordedJob, call: Option<&JournalLine<'_>>) -> String {
    let facts = match (&job.facts, call) {
        (facts, Some(call)) if facts.tool.is_none() => &facts_of(call),
        (facts, _) => facts,
    };

    let mut text = format!("job {id}\n");
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            writeln!(text, "  {name:<9}{value}").expect("a string takes everything");
        }
    };
    add("server", job.server_name.as_deref().map(|name| short(name, LONGEST_NAME)));
    add("tool", facts.tool.as_deref().map(|tool| short(tool, LONGEST_NAME)));
    let name = who(facts.user.as_deref(), facts.key.as_deref(), facts.address);
    let from = |address: IpAddr| match (&facts.user, &facts.key) {
        (None, None) => name.clone(),
        _ => format!("{name} from {address}"),
    };
    add("who", facts.address.map(from));
    add("began", Some(plain_text(job.created_at.clone())));
    add("ended", Some(plain_text(job.finished_at.clone())));
    add("took", facts.duration_ms.map(took));
    let bytes = facts.bytes_in.zip(facts.bytes_out);
    add("bytes", bytes.map(|(to, from)| format!("{to} in, {from} out")));
    // The journal has more words for it.
    let status = call.map_or(job.status, |call| call.status);
    add("status", Some(how(status, job.is_error).to_owned()));
    add("error", job.error.as_deref().map(|why| short(why, LONGEST_ERROR)));
    add("process", job.exit.as_deref().map(|how| short(how, LONGEST_ERROR)));
    add("trace", job.trace_id.as_deref().map(|trace| short(trace, LONGEST_NAME)));
    for (at, RecordedFile { path, size }) in job.files.iter().enumerate() {
        let name = if at == 0 { "files" } else { "" };
        add(name, Some(format!("{} ({size} bytes)", plain_text(path.clone()))));
    }
    text
}

fn how(status: CallStatus, is_error: bool) -> &'static str {
    match (status, is_error) {
        (CallStatus::Processing, _) => "under way",
        (CallStatus::Failed, _) => "failed",
        (CallStatus::TimedOut, _) => "timed out",
        (CallStatus::Unknown, _) => "outcome unknown",
        (CallStatus::Cancelled, _) => "cancelled",
        (CallStatus::Refused, _) => "refused",
        (CallStatus::Completed, true) => "the tool failed",
        (CallStatus::Completed, false) => "completed",
    }
}

/// The user and the name of the key; the address where neither is known.
fn who(user: Option<&str>, key: Option<&str>, address: Option<IpAddr>) -> String {
    let name = |name: &str| short(name, LONGEST_NAME);
    match (user, key) {
        (Some(user), Some(key)) => format!("{} ({})", name(user), name(key)),
        (Some(one), None) | (None, Some(one)) => name(one),
        (None, None) => address.map(|address| address.to_string()).unwrap_or_default(),
    }
}

/// What the journal says of a call.
fn facts_of(call: &JournalLine<'_>) -> CallFacts {
    CallFacts {
        tool: Some(call.tool.to_string()),
        user: call.user.as_deref().map(str::to_owned),
        key: call.key.as_deref().map(str::to_owned),
        address: Some(call.address),
        duration_ms: Some(call.took_ms),
        bytes_in: Some(call.bytes_in),
        bytes_out: Some(call.bytes_out),
    }
}

fn took(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{millis} ms"),
        _ => format!("{} s", millis / 1000),
    }
}

/// A text of others in one line of at most this many letters.
fn short(text: &str, most: usize) -> String {
    let text = plain_text(text.to_owned());
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::call;
    use super::*;

    #[test]
    fn calls_stand_in_columns() {
        let failed = JournalLine {
            took_ms: 61_234,
            tool: "ツール\u{1b}[31m".into(),
            user: None,
            key: None,
            status: CallStatus::Failed,
            error: Some("it ended\nearly".into()),
            job_id: None,
            files: 0,
            ..call()
        };
        let said = JournalLine { is_error: true, user: None, job_id: None, files: 1, ..call() };
        let expected = "\
BEGAN                  TOOK  SERVER  TOOL         WHO          ENDED
2026-11-19 20:31:05Z  12 ms  slides  make_report  ada (front)  completed, 2 files, job 3f6c
2026-11-19 20:31:05Z   61 s  slides  ツール       127.0.0.1    failed: it ended early
2026-11-19 20:31:05Z  12 ms  slides  make_report  front        the tool failed, 1 file
";
        assert_eq!(listed(&[call(), failed, said]), expected);
    }

    #[test]
    fn a_job_is_shown_with_its_files_and_who_called() {
        let record = r#"{"job_id":"3f6c","server_name":"slides","created_at":"2026-11-19T20:31:05.123Z",
            "status":"completed","finished_at":"2026-11-19T20:31:05.135Z","trace_id":"0af7","exit":"exited with code 0",
            "files":[{"path":"a.md","size":3,"mime":"text/markdown"},{"path":"b/c.txt","size":0,"mime":"text/plain"}],
            "request":{"method":"tools/call"},"response":{}}"#;
        let job = serde_json::from_str(record).unwrap();
        let expected = "\
job 3f6c
  server   slides
  tool     make_report
  who      ada (front) from 127.0.0.1
  began    2026-11-19T20:31:05.123Z
  ended    2026-11-19T20:31:05.135Z
  took     12 ms
  bytes    17 in, 90 out
  status   completed
  process  exited with code 0
  trace    0af7
  files    a.md (3 bytes)
           b/c.txt (0 bytes)
";
        assert_eq!(shown("3f6c", &job, Some(&call())), expected);
        let whole = expected;
        let nobody = JournalLine { user: None, key: None, ..call() };
        assert!(shown("3f6c", &job, Some(&nobody)).contains("\n  who      127.0.0.1\n"));
        let of_call = ["  tool ", "  who ", "  took ", "  bytes "];
        let is_kept = |line: &&str| !of_call.iter().any(|it| line.starts_with(it));
        let expected: Vec<_> = expected.lines().filter(is_kept).collect();
        assert_eq!(shown("3f6c", &job, None).lines().collect::<Vec<_>>(), expected);
        // The record says by itself who called, so that it is known when the journal is gone.
        let facts = ",\"tool\":\"make_report\",\"user\":\"ada\",\"key\":\"front\",\"address\":\"127.0.0.1\",\
                     \"duration_ms\":12,\"bytes_in\":17,\"bytes_out\":90}";
        let record = record.strip_suffix('}').unwrap().to_owned() + facts;
        let job = serde_json::from_str(&record).unwrap();
        assert_eq!(shown("3f6c", &job, None), whole);
    }
}
