//! The log read back: the lines of one request, out of the files of all instances.
//!
//! A file may be turned over or end in half a line while it is read: what is no line is left out, and one that was read
//! twice is told once.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::SystemTime;

use pontoon_supervise::plain_text;
use serde_json::{Map, Value};
use tracing::Level;

use super::line::{LogLine, Style};
use super::old::instance;

/// More of one file is not read: the bridge ends its own long before.
const MAX_FILE: u64 = 64 << 20;

/// By what lines are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SoughtLines {
    /// Those of this trace.
    Trace(String),
    /// Those of this job, and of the request that it is of.
    Job(String),
}

/// A line of a log file.
#[derive(Debug)]
pub struct FoundLine {
    /// As it stands in the file.
    pub raw: String,
    members: Map<String, Value>,
    time: String,
}

/// The lines that are sought, in order of time.
///
/// # Errors
///
/// When the folder or a log file in it cannot be read.
pub fn find_lines(folder: &Path, sought: &SoughtLines) -> io::Result<Vec<FoundLine>> {
    let mut found = match sought {
        SoughtLines::Trace(trace) => scan(folder, "trace_id", &[trace])?,
        SoughtLines::Job(job) => {
            // A line before the job was made has the trace alone.
            let of_job = scan(folder, "job_id", &[job])?;
            let mut traces: Vec<_> =
                of_job.iter().filter_map(|line| line.text("trace_id")).collect();
            traces.sort_unstable();
            traces.dedup();
            let mut all = scan(folder, "trace_id", &traces)?;
            all.extend(of_job);
            all
        }
    };
    found.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.raw.cmp(&b.raw)));
    found.dedup_by(|a, b| a.raw == b.raw);
    Ok(found)
}

/// The lines that have one of these values in this field.
fn scan(folder: &Path, field: &str, values: &[impl AsRef<str>]) -> io::Result<Vec<FoundLine>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| instance(name).is_some());
        // No link is followed.
        if !is_ours || !entry.metadata().is_ok_and(|it| Metadata::is_file(&it)) {
            continue;
        }
        let file = match File::open(entry.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for raw in BufReader::new(file.take(MAX_FILE)).split(b'\n') {
            let raw = raw?;
            let may_be = |value: &str| memchr::memmem::find(&raw, value.as_bytes()).is_some();
            if !values.iter().any(|value| may_be(value.as_ref())) {
                continue;
            }
            let line = FoundLine::parse(raw);
            let has = |line: &FoundLine| {
                line.text(field).is_some_and(|it| values.iter().any(|value| value.as_ref() == it))
            };
            found.extend(line.filter(has));
        }
    }
    Ok(found)
}

impl FoundLine {
    fn parse(raw: Vec<u8>) -> Option<Self> {
        let raw = String::from_utf8(raw).ok()?;
        let members: Map<String, Value> = serde_json::from_str(&raw).ok()?;
        let time = members.get("timestamp")?.as_str()?.to_owned();
        Some(Self { raw, members, time })
    }

    fn text(&self, field: &str) -> Option<String> {
        self.members.get(field)?.as_str().map(str::to_owned)
    }

    /// The line for people.
    pub fn for_people(&self, has_colour: bool) -> String {
        let mut fields = self.members.clone();
        fields.values_mut().for_each(|value| {
            if let Value::String(text) = value {
                *text = plain_text(std::mem::take(text));
            }
        });
        let mut own = |name: &str| match fields.shift_remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (time, level) = (own("timestamp"), own("level"));
        let (message, target) = (own("message"), own("target"));
        let line = LogLine {
            time: humantime::parse_rfc3339(&time).unwrap_or(SystemTime::UNIX_EPOCH),
            level: match &*level {
                "ERROR" => Level::ERROR,
                "WARNING" => Level::WARN,
                "DEBUG" => Level::DEBUG,
                "TRACE" => Level::TRACE,
                _ => Level::INFO,
            },
            target,
            message,
            fields,
        };
        Style::Text { has_colour }.render(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const JOB: &str = "3f6c0b1e-8f0a-4c59-9a34-0d2f6f2f7a11";

    fn line(second: u32, level: &str, message: &str, more: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-11-19T20:00:{second:02}.000000Z\",\"level\":\"{level}\",\
             \"message\":\"{message}\",\"target\":\"t\",\"server\":\"demo\"{more}}}\n"
        )
    }

    /// Two instances, one of which has an older file, and what is no log of ours.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let traced = format!(",\"trace_id\":\"{TRACE}\"");
        let of_job = format!(",\"job_id\":\"{JOB}\"{traced}");
        let other = ",\"trace_id\":\"0bf7651916cd43dd8448eb211c80319c\"";
        let first = line(1, "WARNING", "first", &traced);
        let files = [
            ("pontoon-a-1.log", line(3, "INFO", "third", &of_job) + &line(4, "INFO", "no", other)),
            (
                "pontoon-a-1.log.1",
                first.clone() + &line(0, "INFO", "about", &format!(",\"why\":\"{TRACE}\"")),
            ),
            // It was turned over while it was read.
            ("pontoon-a-1.log.2", first),
            (
                "pontoon-b-2.log",
                line(2, "ERROR", "second", &traced) + "{\"trace_id\":\"0af7651916cd43dd",
            ),
            ("notes.log", line(0, "INFO", "no", &traced)),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("pontoon-c-3.log")).unwrap();
        folder
    }

    #[test]
    fn the_lines_of_a_trace_are_found_in_all_files_and_stand_in_order() {
        let folder = folder();
        for sought in [SoughtLines::Trace(TRACE.to_owned()), SoughtLines::Job(JOB.to_owned())] {
            let lines = find_lines(folder.path(), &sought).unwrap();
            let told: Vec<_> = lines.iter().map(|it| it.text("message").unwrap()).collect();
            assert_eq!(told, ["first", "second", "third"], "{sought:?}");
            let text = lines[1].for_people(false);
            let expected =
                format!("2026-11-19T20:00:02.000000Z   ERROR second server=demo trace_id={TRACE}");
            assert_eq!(text, expected);
            assert!(lines[1].for_people(true).contains("\u{1b}[31m"));
        }
        let none = SoughtLines::Trace("1".repeat(32));
        assert!(find_lines(folder.path(), &none).unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let sought = SoughtLines::Trace(TRACE.to_owned());
        assert!(find_lines(Path::new("/nowhere/at/all"), &sought).is_err());
    }
}
