//! The one line of each call of a tool that is over: as JSON for machines, as a short line for a person who watches.
//!
//! There may be tens of thousands a second, so they do not go the way of other lines, by an event with its fields: they
//! come many at once, from the thread that writes the records, and each is written out directly.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Level;

use super::call_line::{CallFields, CallLine};
use super::layer::LogLayer;
use super::line::{LogLine, Style};
use super::screen;
use crate::date::to_micros;

/// What the line says besides its fields.
const MESSAGE: &str = "call";
const TARGET: &str = "pontoon::calls";

/// The room that most lines find enough.
const USUAL_LINE: usize = 512;

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

/// The line as it stands in one place.
fn render(call: &CallFields<'_>, ended: SystemTime, style: Style, columns: usize) -> String {
    match style {
        Style::Json => {
            let (level, timestamp) = ("INFO", to_micros(ended));
            let line =
                JsonLine { timestamp, level, message: MESSAGE, target: TARGET, fields: call };
            let mut text = Vec::with_capacity(USUAL_LINE);
            drop(serde_json::to_writer(&mut text, &line));
            String::from_utf8(text).unwrap_or_default()
        }
        Style::Text { .. } => {
            let fields = match serde_json::to_value(call) {
                Ok(Value::Object(fields)) => fields,
                _ => Map::new(),
            };
            let (target, message) = (TARGET.to_owned(), MESSAGE.to_owned());
            style.render(&LogLine { time: ended, level: Level::INFO, target, message, fields })
        }
        Style::Screen { has_colour } => screen::line(ended, call, columns, has_colour),
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
                lines.push(render(&fields, call.ended, sink.style, columns));
            }
        }
        drop(redactor);
        wanting.into_iter().for_each(|(sink, lines)| sink.queue.push_all(lines));
    }
}

#[cfg(test)]
mod tests {
    use super::super::call_line::tests::call;
    use super::*;
    use crate::observe::redact::Redactor;

    fn check(call: &CallLine<'_>, style: Style, expected: &str) {
        let redactor = Redactor::new([b"hunter2" as &[u8]]);
        let fields = CallFields::of(call, &redactor);
        assert_eq!(render(&fields, call.ended, style, 80), expected);
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
}
