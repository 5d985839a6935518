//! The one line of each call of a tool that is over: as JSON for machines, as a short line for a person who watches.
//!
//! There may be tens of thousands a second, so they do not go the way of other lines, by an event with its fields: they
//! come many at once, from the thread that writes the records, and each is written out directly.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Level;
use uuid::Uuid;

use super::layer::LogLayer;
use super::line::{LogLine, Style};
use super::screen;
use crate::date::to_micros;
use crate::observe::redact::{Redactor, boundary};
use crate::observe::trace::TraceId;

/// What the line says besides its fields.
const MESSAGE: &str = "call";
const TARGET: &str = "pontoon::calls";

/// So much of an error is told here; the journal has more of it.
const MAX_ERROR: usize = 300;

/// Longer names are cut: clients choose some of them.
const MAX_NAME: usize = 256;

/// A call of a tool that is over.
#[derive(Debug, Clone)]
pub struct CallLine<'a> {
    /// When it was over.
    pub ended: SystemTime,
    /// The server that was called.
    pub server: &'a str,
    /// The tool that was called.
    pub tool: &'a str,
    /// The user who called, as a front end names them.
    pub user: Option<&'a str>,
    /// The name of the API key that was shown.
    pub key: Option<&'a str>,
    /// Where it came from.
    pub address: IpAddr,
    /// How it ended, in one word.
    pub status: &'static str,
    /// Whether the result says that the tool failed.
    pub is_error: bool,
    /// How long it took.
    pub took: Duration,
    /// The length of its parameters.
    pub bytes_in: usize,
    /// The length of its answer.
    pub bytes_out: usize,
    /// How many files it made.
    pub files: usize,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// Its job, if it has one.
    pub job: Option<Uuid>,
    /// By which the other lines of it are found.
    pub trace: Option<TraceId>,
}

/// The line in JSON. The names that every line has come first, as in other lines.
#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp: String,
    level: &'static str,
    message: &'static str,
    target: &'static str,
    #[serde(flatten)]
    fields: &'a CallFields<'a>,
}

/// The fields of the line, clean.
#[derive(Debug, Serialize)]
pub(super) struct CallFields<'a> {
    pub(super) server: Cow<'a, str>,
    pub(super) tool: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) address: IpAddr,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_error: bool,
    pub(super) duration_ms: f64,
    bytes_in: usize,
    bytes_out: usize,
    pub(super) files: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

impl<'a> CallFields<'a> {
    pub(super) fn of(call: &CallLine<'a>, redactor: &Redactor) -> Self {
        let clean = |text: &'a str, most: usize| -> Cow<'a, str> {
            let text = redactor.text(text);
            match text.len() > most {
                true => Cow::Owned(format!("{}…", &text[..boundary(&text, most)])),
                false => text,
            }
        };
        let name = |text| clean(text, MAX_NAME);
        Self {
            server: name(call.server),
            tool: name(call.tool),
            user: call.user.map(name),
            key: call.key.map(name),
            address: call.address,
            status: call.status,
            is_error: call.is_error,
            // To the microsecond.
            duration_ms: (call.took.as_secs_f64() * 1e6).round() / 1e3,
            bytes_in: call.bytes_in,
            bytes_out: call.bytes_out,
            files: call.files,
            error: call.error.map(|error| clean(error, MAX_ERROR)),
            job_id: call.job.map(|job| job.to_string()),
            trace_id: call.trace.map(|trace| trace.to_string()),
        }
    }

    /// The line as it stands in one place.
    fn render(&self, ended: SystemTime, style: Style, columns: usize) -> String {
        match style {
            Style::Json => {
                let (level, timestamp) = ("INFO", to_micros(ended));
                let line =
                    JsonLine { timestamp, level, message: MESSAGE, target: TARGET, fields: self };
                serde_json::to_string(&line).unwrap_or_default()
            }
            Style::Text { .. } => {
                let fields = match serde_json::to_value(self) {
                    Ok(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                let (target, message) = (TARGET.to_owned(), MESSAGE.to_owned());
                style.render(&LogLine { time: ended, level: Level::INFO, target, message, fields })
            }
            Style::Screen { has_colour } => screen::line(ended, self, columns, has_colour),
        }
    }
}

/// Logs calls that are over, where there is a log that wants them.
pub fn tell_calls<'a>(calls: impl Iterator<Item = CallLine<'a>>) {
    let mut calls = Some(calls);
    tracing::dispatcher::get_default(|subscriber| {
        if let (Some(layer), Some(calls)) = (subscriber.downcast_ref::<LogLayer>(), calls.take()) {
            layer.tell_calls(calls);
        }
    });
}

impl LogLayer {
    fn tell_calls<'a>(&self, calls: impl Iterator<Item = CallLine<'a>>) {
        let wanting = self.sinks.iter().filter(|sink| sink.level >= Level::INFO);
        let mut wanting: Vec<_> = wanting.map(|sink| (sink, Vec::new())).collect();
        if wanting.is_empty() {
            return;
        }
        let (redactor, columns) = (self.secrets.redactor(), screen::columns());
        for call in calls {
            let fields = CallFields::of(&call, &redactor);
            for (sink, lines) in &mut wanting {
                lines.push(fields.render(call.ended, sink.style, columns));
            }
        }
        drop(redactor);
        wanting.into_iter().for_each(|(sink, lines)| sink.queue.push_all(lines));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;
    use std::time::UNIX_EPOCH;

    use super::*;

    /// A call that worked, with all that may be known of one.
    pub(in crate::observe::log) fn call() -> CallLine<'static> {
        CallLine {
            ended: UNIX_EPOCH + Duration::from_secs(3661),
            server: "slides",
            tool: "make_report",
            user: Some("ada"),
            key: Some("front"),
            address: Ipv4Addr::LOCALHOST.into(),
            status: "completed",
            is_error: false,
            took: Duration::from_nanos(12_345_678),
            bytes_in: 17,
            bytes_out: 90,
            files: 2,
            error: None,
            job: Some(Uuid::nil()),
            trace: Some(TraceId(0xaf7)),
        }
    }

    fn check(call: &CallLine<'_>, style: Style, expected: &str) {
        let redactor = Redactor::new([b"hunter2" as &[u8]]);
        let fields = CallFields::of(call, &redactor);
        assert_eq!(fields.render(call.ended, style, 80), expected);
    }

    #[test]
    fn a_call_is_a_line_for_machines_and_one_for_a_file_that_people_read() {
        check(
            &call(),
            Style::Json,
            "{\"timestamp\":\"1970-01-01T01:01:01.000000Z\",\"level\":\"INFO\",\"message\":\"call\",\
             \"target\":\"pontoon::calls\",\"server\":\"slides\",\"tool\":\"make_report\",\"user\":\"ada\",\
             \"key\":\"front\",\"address\":\"127.0.0.1\",\"status\":\"completed\",\"duration_ms\":12.346,\
             \"bytes_in\":17,\"bytes_out\":90,\"files\":2,\"job_id\":\"00000000-0000-0000-0000-000000000000\",\
             \"trace_id\":\"00000000000000000000000000000af7\"}",
        );
        let nobody = CallLine { user: None, key: None, job: None, trace: None, ..call() };
        check(
            &CallLine { status: "failed", error: Some("it ended early"), ..nobody },
            Style::Text { has_colour: false },
            "1970-01-01T01:01:01.000000Z    INFO call server=slides tool=make_report address=127.0.0.1 \
             status=failed duration_ms=12.346 bytes_in=17 bytes_out=90 files=2 error=\"it ended early\"",
        );
    }

    #[test]
    fn what_others_chose_is_clean_and_short() {
        let (long, tool) = ("é".repeat(400), "a\nb\u{1b}[31m\u{202e}hunter2");
        let call = CallLine { tool, user: Some(&long), error: Some(&long), ..call() };
        let fields = CallFields::of(&call, &Redactor::new([b"hunter2" as &[u8]]));
        assert_eq!(fields.tool, "a b[hidden]");
        let [user, error] = [&fields.user, &fields.error].map(|text| text.as_ref().unwrap().len());
        assert_eq!((user, error), (MAX_NAME + "…".len(), MAX_ERROR + "…".len()));
    }
}
