//! Words of reports: times, numbers, and texts of servers made fit for a line.

use std::time::Duration;

use pontoon_wire::{json, string_value};

/// The beginning of a text, on one line.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 160;
    let text = pontoon_supervise::plain_text(text.trim().to_owned());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A time for people.
pub(super) fn milliseconds(time: Duration) -> String {
    match time.as_millis() {
        ms if ms < 1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// So many of a thing.
pub(super) fn number(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    }
}

/// A length for people.
pub(super) fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} bytes"),
    }
}

/// The name of a tool, as it is written.
pub(super) fn tool_name(tool: &str) -> String {
    let name = json::find(tool.as_bytes(), "name").and_then(string_value);
    name.map(|name| name.into_owned()).unwrap_or_default()
}
