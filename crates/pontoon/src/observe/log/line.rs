//! One line of the log: as JSON for machines, as text for people.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::Level;

use crate::date::to_micros;

/// Names that each line has; a field with such a name steps aside.
const OWN: [&str; 4] = ["timestamp", "level", "message", "target"];

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// All of it as one JSON object.
    Json,
    /// For people, with all of it.
    Text { has_colour: bool },
    /// For a person at a terminal: the same, and calls that are over in short.
    Screen { has_colour: bool },
}

impl Style {
    pub(super) fn render(self, line: &LogLine) -> String {
        match self {
            Self::Json => line.to_json(),
            Self::Text { has_colour } | Self::Screen { has_colour } => line.to_text(has_colour),
        }
    }
}

/// What one line says. Every text in it is clean already.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    pub(super) target: String,
    pub(super) message: String,
    pub(super) fields: Map<String, Value>,
}

impl LogLine {
    fn to_json(&self) -> String {
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), to_micros(self.time).into());
        line.insert("level".to_owned(), level(self.level).into());
        line.insert("message".to_owned(), self.message.as_str().into());
        line.insert("target".to_owned(), self.target.as_str().into());
        for (name, value) in &self.fields {
            let aside = if OWN.contains(&name.as_str()) { "field_" } else { "" };
            line.insert(format!("{aside}{name}"), value.clone());
        }
        Value::Object(line).to_string()
    }

    fn to_text(&self, has_colour: bool) -> String {
        let (paint, dim, plain) = match has_colour {
            true => (colour(self.level), "\u{1b}[2m", "\u{1b}[0m"),
            false => ("", "", ""),
        };
        let (time, level) = (to_micros(self.time), level(self.level));
        let mut line = format!("{dim}{time}{plain} {paint}{level:>7}{plain} ");
        self.write_words(&mut line, dim, plain);
        line
    }

    /// The message and its fields.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        self.write_words(&mut words, "", "");
        words
    }

    fn write_words(&self, line: &mut String, dim: &str, plain: &str) {
        line.push_str(&self.message);
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(text) if is_word(text) => text.clone(),
                value => value.to_string(),
            };
            write!(line, " {dim}{name}={plain}{value}").expect("a string takes everything");
        }
    }
}

/// Text that needs no quotes.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '=' | '\\'))
}

/// The names that people who read logs know from Python.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG => "DEBUG",
        Level::TRACE => "TRACE",
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        _ => "\u{1b}[34m",
    }
}

/// The line that says how many were lost.
pub(super) fn lost(count: u64) -> LogLine {
    LogLine {
        time: SystemTime::now(),
        level: Level::WARN,
        target: module_path!().to_owned(),
        message: "log lines were lost: they came faster than they could be written".to_owned(),
        fields: Map::from_iter([("lost".to_owned(), count.into())]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn check(fields: &Value, json: &str, text: &str) {
        let line = LogLine {
            time: UNIX_EPOCH + Duration::from_micros(1_000_042),
            level: Level::WARN,
            target: "t".to_owned(),
            message: "no child".to_owned(),
            fields: fields.as_object().unwrap().clone(),
        };
        assert_eq!(line.to_json(), json);
        assert_eq!(line.to_text(false), text);
        let painted = line.to_text(true);
        assert!(painted.contains("\u{1b}[33mWARNING\u{1b}[0m no child"), "{painted:?}");
    }

    #[test]
    fn a_line_has_what_machines_and_people_look_for() {
        check(
            &json!({"server": "a", "pid": 7, "why": "say \"no\""}),
            r#"{"timestamp":"1970-01-01T00:00:01.000042Z","level":"WARNING","message":"no child","target":"t","server":"a","pid":7,"why":"say \"no\""}"#,
            r#"1970-01-01T00:00:01.000042Z WARNING no child server=a pid=7 why="say \"no\"""#,
        );
    }

    #[test]
    fn a_field_cannot_take_the_place_of_what_each_line_has() {
        check(
            &json!({"level": "INFO", "timestamp": ""}),
            r#"{"timestamp":"1970-01-01T00:00:01.000042Z","level":"WARNING","message":"no child","target":"t","field_level":"INFO","field_timestamp":""}"#,
            r#"1970-01-01T00:00:01.000042Z WARNING no child level=INFO timestamp="""#,
        );
    }
}
