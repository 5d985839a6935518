//! What the CLI says, one JSON object a line. It says more with each version: what is not known is passed over.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{Metadata, Response};

/// The part of a line that says what kind it is.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    /// Of requests, and of the withdrawal of one.
    #[serde(default)]
    pub(super) request_id: Option<String>,
    #[serde(borrow, default)]
    pub(super) request: Option<&'a RawValue>,
}

/// A request of the CLI's: `mcp_message` and `can_use_tool` are those we know.
#[derive(Deserialize)]
pub(super) struct ControlRequest<'a> {
    #[serde(default)]
    pub(super) subtype: String,
    #[serde(default)]
    pub(super) server_name: Option<String>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
}

/// What happens in a request, as it happens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The CLI runs, and has the tools.
    Started(Started),
    /// A piece of text, as the model writes it.
    TextDelta(String),
    /// A piece of the model's thinking.
    ThinkingDelta(String),
    /// A whole text of the model's; its pieces came before.
    Text(String),
    /// The model uses a tool.
    ToolUse {
        /// The id of this use.
        id: String,
        /// The name of the tool: `mcp__SERVER__TOOL` for those of a server.
        name: String,
        /// The arguments.
        input: Value,
    },
    /// What came of a use of a tool.
    ToolResult {
        /// The id of the use.
        id: String,
        /// Whether the tool failed.
        is_error: bool,
        /// A text, or a list of content blocks.
        content: Value,
    },
    /// The Messages API failed, and the CLI tries again.
    Retry(Value),
    /// The request is done. It is the last event.
    Done(Box<(Response, Metadata)>),
}

/// How the CLI runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Started {
    /// The session.
    pub session_id: String,
    /// The version of the CLI, if it says so.
    pub version: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// All tools the model has.
    pub tools: Vec<String>,
    /// The MCP servers and their status: `connected`, `failed`, `pending`.
    pub servers: Vec<(String, String)>,
}

impl Started {
    /// From `system/init`.
    pub(super) fn from_init(init: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let list = |name: &str| init[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let server = |server: &Value| {
            (text(&server["name"]).unwrap_or_default(), text(&server["status"]).unwrap_or_default())
        };
        Self {
            session_id: text(&init["session_id"]).unwrap_or_default(),
            version: text(&init["claude_code_version"]),
            model: text(&init["model"]),
            tools: list("tools").iter().filter_map(text).collect(),
            servers: list("mcp_servers").iter().map(server).collect(),
        }
    }
}

/// A message of the CLI's.
#[derive(Debug, Clone)]
pub(super) enum CliMessage {
    Started(Started),
    /// Events of a turn; none for messages that say nothing we tell.
    Events(Vec<Event>),
    Result(Value),
    Unknown,
}

impl CliMessage {
    pub(super) fn read(message: &Value) -> Self {
        let subtype = message["subtype"].as_str().unwrap_or_default();
        // What an agent of the model's own does is a part of the tool use that started it.
        let is_of_agent = message["parent_tool_use_id"].is_string();
        let events = |events| Self::Events(if is_of_agent { Vec::new() } else { events });
        match (message["type"].as_str().unwrap_or_default(), subtype) {
            ("system", "init") => Self::Started(Started::from_init(message)),
            ("system", "api_retry") => Self::Events(vec![Event::Retry(message.clone())]),
            ("stream_event", _) => events(delta(&message["event"]["delta"]).into_iter().collect()),
            ("assistant", _) => events(blocks(message).filter_map(said).collect()),
            ("user", _) => events(blocks(message).filter_map(tool_result).collect()),
            ("result", _) => Self::Result(message.clone()),
            _ => Self::Unknown,
        }
    }
}

fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message["message"]["content"].as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn delta(delta: &Value) -> Option<Event> {
    match delta["type"].as_str()? {
        "text_delta" => Some(Event::TextDelta(text_of(&delta["text"]))),
        "thinking_delta" => Some(Event::ThinkingDelta(text_of(&delta["thinking"]))),
        _ => None,
    }
}

fn said(block: &Value) -> Option<Event> {
    match block["type"].as_str()? {
        "text" => Some(Event::Text(text_of(&block["text"]))),
        "tool_use" => Some(Event::ToolUse {
            id: text_of(&block["id"]),
            name: text_of(&block["name"]),
            input: block["input"].clone(),
        }),
        _ => None,
    }
}

fn tool_result(block: &Value) -> Option<Event> {
    (block["type"] == "tool_result").then(|| Event::ToolResult {
        id: text_of(&block["tool_use_id"]),
        is_error: block["is_error"] == true,
        content: block["content"].clone(),
    })
}

/// A line as JSON. The CLI cuts texts without looking, also through the middle of a character.
pub(super) fn read_json(line: &[u8]) -> Option<Value> {
    serde_json::from_slice(line)
        .ok()
        .or_else(|| serde_json::from_str(&with_whole_characters(line)).ok())
}

/// The same text with `\u{fffd}` for halves of characters.
fn with_whole_characters(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut whole = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let (escape, is_whole) = match (surrogate(rest), rest.get(6..).and_then(surrogate)) {
            (Some(0xd800..0xdc00), Some(0xdc00..)) => (12, true),
            (Some(_), _) => (6, false),
            // The character after the backslash may be a backslash, or of several bytes.
            (None, _) => (rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end), true),
        };
        whole.push_str(if is_whole { &rest[..escape] } else { "\u{fffd}" });
        rest = &rest[escape..];
    }
    whole + rest
}

/// The half of a character that a text begins with, as an escape.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let half = u16::from_str_radix(digits, 16).ok()?;
    (0xd800..0xe000).contains(&half).then_some(half)
}

/// A number of milliseconds.
pub(super) fn millis(value: &Value) -> Option<Duration> {
    value
        .as_f64()
        .filter(|millis| *millis >= 0.0)
        .and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let read = read_json(line.as_bytes()).unwrap_or_else(|| panic!("{line} cannot be read"));
        assert_eq!(read, Value::from(expected), "{line}");
    }

    #[test]
    fn half_a_character_costs_no_message() {
        check(r#""x\ud83d""#, "x\u{fffd}");
        check(r#""\ud83dx\ud83d\ude00\n""#, "\u{fffd}x\u{1f600}\n");
        check(r#""\ude00\\ud83d\ud83d""#, "\u{fffd}\\ud83d\u{fffd}");
        check(r#""\ud83d\u0041é""#, "\u{fffd}Aé");
        check(r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}");
        assert_eq!(read_json(b"\"x\xff\""), Some(Value::from("x\u{fffd}")));
        for not_json in ["", "\\", "\"\\u", "{\"a\":"] {
            assert_eq!(read_json(not_json.as_bytes()), None, "{not_json}");
        }
    }
}
