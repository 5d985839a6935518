//! What the log says of a call of a tool that is over, and the same clean and short.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use uuid::Uuid;

use crate::observe::redact::{Redactor, boundary};
use crate::observe::trace::TraceId;

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
