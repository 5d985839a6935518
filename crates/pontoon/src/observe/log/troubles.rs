//! The last warnings and errors, for those who ask a running bridge how it is.

use std::collections::VecDeque;
use std::time::SystemTime;

use serde_json::{Value, json};
use tracing::Level;

use super::line::LogLine;
use crate::date::to_seconds;
use crate::lock::Lock;
use crate::observe::redact::boundary;

/// So many are kept, each up to this many bytes.
const KEPT: usize = 8;
const MAX_BYTES: usize = 600;

/// The last warnings and errors, clean as they were logged.
#[derive(Debug, Default)]
pub struct Troubles(Lock<VecDeque<Trouble>>);

#[derive(Debug)]
struct Trouble {
    time: SystemTime,
    level: Level,
    text: String,
    /// How often it came in a row.
    times: u64,
}

impl Troubles {
    /// Takes note of a line, if it is one.
    pub(super) fn note(&self, line: &LogLine) {
        if line.level > Level::WARN {
            return;
        }
        let mut text = line.words();
        if text.len() > MAX_BYTES {
            text.truncate(boundary(&text, MAX_BYTES));
            text.push_str(" [cut]");
        }
        let mut kept = self.0.lock();
        if let Some(last) = kept.back_mut().filter(|last| last.text == text) {
            (last.time, last.times) = (line.time, last.times + 1);
            return;
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Trouble { time: line.time, level: line.level, text, times: 1 });
    }

    /// All that are kept, the newest last.
    pub fn to_json(&self) -> Value {
        let one = |it: &Trouble| {
            let level = if it.level == Level::ERROR { "error" } else { "warning" };
            json!({ "time": to_seconds(it.time), "level": level, "text": it.text, "times": it.times })
        };
        self.0.lock().iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::Map;

    use super::*;

    fn line(level: Level, second: u64, message: &str) -> LogLine {
        let fields = Map::from_iter([("why".to_owned(), "it broke".into())]);
        let time = UNIX_EPOCH + Duration::from_secs(second);
        LogLine { time, level, target: "t".to_owned(), message: message.to_owned(), fields }
    }

    #[test]
    fn the_last_warnings_and_errors_are_kept_and_what_repeats_is_counted() {
        let troubles = Troubles::default();
        troubles.note(&line(Level::INFO, 0, "all is well"));
        (0..20).for_each(|n| troubles.note(&line(Level::WARN, n, &format!("number {n}"))));
        troubles.note(&line(Level::ERROR, 30, "lost"));
        troubles.note(&line(Level::ERROR, 31, "lost"));
        let kept = troubles.to_json();
        let kept = kept.as_array().unwrap();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0]["text"], "number 13 why=\"it broke\"");
        let last = json!({
            "time": "1970-01-01T00:00:31Z", "level": "error", "text": "lost why=\"it broke\"", "times": 2,
        });
        assert_eq!(kept[KEPT - 1], last);
        troubles.note(&line(Level::WARN, 40, &"é".repeat(MAX_BYTES)));
        let long = troubles.to_json()[KEPT - 1]["text"].as_str().unwrap().to_owned();
        assert!(long.ends_with("é [cut]") && long.len() <= MAX_BYTES + 6, "{}", long.len());
    }
}
