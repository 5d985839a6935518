//! What to write into a configuration for a server, with the reasons. What is only guessed is said so.

use std::time::Duration;

use serde_json::{Value, json};

use super::patient::Patient;
use super::words::milliseconds;

/// From this on a start is worth being made ahead.
const WORTH_WARMTH: Duration = Duration::from_millis(400);

/// Words in the names of tools of servers that remember something from one call to the next.
const STATE_WORDS: [&str; 16] = [
    "session",
    "open",
    "close",
    "browser",
    "page",
    "tab",
    "navigate",
    "connect",
    "login",
    "cursor",
    "begin",
    "commit",
    "rollback",
    "subscribe",
    "resume",
    "terminal",
];

/// Words in the names of tools that work on files.
const FILE_WORDS: [&str; 13] = [
    "file",
    "save",
    "write",
    "workbook",
    "document",
    "presentation",
    "slide",
    "worksheet",
    "export",
    "upload",
    "download",
    "directory",
    "screenshot",
];

/// What was seen of a server that tells how it is to be run.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// From its start to its first answer.
    pub start: Duration,
    /// What lay in its folder when it had been asked everything.
    pub files: Vec<String>,
    /// Whether it had connections of the network, where that can be seen.
    pub has_connections: Option<bool>,
    /// Whether it ends with its input.
    pub ends_by_itself: bool,
    /// Whether a tool was called.
    pub has_called: bool,
    /// Tools whose names speak of something kept from call to call.
    pub keeps_state: Vec<String>,
    /// Tools whose names speak of files.
    pub makes_files: Vec<String>,
    /// Whether its tools say that they reach out into the world.
    pub is_open_world: bool,
    /// Whether every tool says that it only reads.
    pub only_reads: bool,
}

impl Evidence {
    /// Takes note of what the tools are called and say of themselves.
    pub(super) fn note_tools(&mut self, tools: &[String]) {
        let tools: Vec<Value> =
            tools.iter().filter_map(|it| serde_json::from_str(it).ok()).collect();
        let named = |words: &[&str]| {
            let names = tools.iter().filter_map(|tool| tool["name"].as_str());
            let has = |name: &&str| {
                let lower = name.to_ascii_lowercase();
                let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
                parts.any(|part| words.contains(&part.trim_end_matches('s')))
            };
            names.filter(has).map(str::to_owned).collect::<Vec<_>>()
        };
        self.keeps_state = named(&STATE_WORDS);
        self.makes_files = named(&FILE_WORDS);
        let hint = |tool: &Value, name: &str| tool["annotations"][name] == true;
        self.is_open_world = tools.iter().any(|tool| hint(tool, "openWorldHint"));
        self.only_reads = !tools.is_empty() && tools.iter().all(|tool| hint(tool, "readOnlyHint"));
    }
}

/// What to write into a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The name of the server there.
    pub name: String,
    /// Its keys.
    pub entry: Value,
    /// Why.
    pub reasons: Vec<KeyReason>,
    /// Whether the server is configured already, and these keys are added there.
    pub is_addition: bool,
}

/// Why a key has its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyReason {
    /// The key.
    pub key: &'static str,
    /// Why, in words.
    pub why: String,
    /// Whether it is only guessed.
    pub is_guess: bool,
}

/// Recommends the keys of a server.
pub(super) fn recommend(
    patient: &Patient,
    mixes_answers: bool,
    evidence: &Evidence,
) -> Recommendation {
    let mut entry = patient.entry.clone();
    let mut reasons = Vec::new();
    if patient.is_program() {
        for (key, value, why, is_guess) in of_program(evidence) {
            if let Some(value) = value {
                entry[key] = value;
            }
            reasons.push(KeyReason { key, why, is_guess });
        }
    } else if mixes_answers {
        entry["max_in_flight"] = json!(1);
        let why = "it mixes up answers of requests at the same time".to_owned();
        reasons.push(KeyReason { key: "max_in_flight", why, is_guess: false });
    }
    let is_addition = patient.entry.as_object().is_some_and(serde_json::Map::is_empty);
    Recommendation { name: patient.name().to_owned(), entry, reasons, is_addition }
}

/// A key, its value if that is not the default, why, and whether that is only guessed.
type Advice = (&'static str, Option<Value>, String, bool);

fn of_program(evidence: &Evidence) -> Vec<Advice> {
    let mut all = Vec::new();
    let is_stateful = !evidence.keeps_state.is_empty();
    let is_slow = evidence.start >= WORTH_WARMTH;
    let start = milliseconds(evidence.start);
    all.push(match (is_stateful, evidence.files.is_empty()) {
        (true, _) => {
            let why = format!(
                "tools such as {} seem to keep something from call to call",
                some(&evidence.keeps_state)
            );
            ("mode", Some(json!("stateful")), why, true)
        }
        (false, _) => {
            let why = "no tool is named as if it kept something from call to call".to_owned();
            ("mode", None, format!("stateless, the default: {why}"), true)
        }
    });
    if !is_stateful {
        let files = !evidence.makes_files.is_empty() || !evidence.files.is_empty();
        all.push(match (evidence.files.is_empty(), files) {
            (false, _) => {
                let why = format!("it wrote {} into its folder", some(&evidence.files));
                ("workspace", Some(json!("session")), why, false)
            }
            (true, true) => {
                let why = format!("tools such as {} work on files", some(&evidence.makes_files));
                ("workspace", Some(json!("session")), why, true)
            }
            (true, false) => {
                let why = "it wrote nothing into its folder, and no tool is named after files";
                ("workspace", None, format!("job, the default: {why}"), true)
            }
        });
        all.push(match is_slow {
            true => ("warm", Some(json!(1)), format!("a start takes {start}"), false),
            false => ("warm", None, format!("0, the default: a start takes {start}"), false),
        });
    }
    all.push(isolation(evidence));
    all
}

fn isolation(evidence: &Evidence) -> Advice {
    let is_quiet = evidence.has_connections == Some(false) && !evidence.is_open_world;
    let seen = match evidence.has_connections {
        Some(true) => "it had connections open",
        Some(false) => "it had no connection open",
        None => "connections cannot be seen here",
    };
    match is_quiet {
        true => {
            let called = if evidence.has_called { "" } else { ", though no tool was called" };
            let why = format!(
                "confined; {seen}{called}: add \"network\": \"none\" if no tool needs the network"
            );
            ("isolation", Some(json!("confined")), why, true)
        }
        false => {
            let why = format!("confined, with the network open: {seen}");
            ("isolation", Some(json!("confined")), why, true)
        }
    }
}

/// Some of these, in words.
fn some(all: &[String]) -> String {
    let named: Vec<_> = all.iter().take(3).map(|it| format!("`{it}`")).collect();
    match all.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(names: &[&str], start: u64) -> Evidence {
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name}).to_string()).collect();
        let mut evidence = Evidence { start: Duration::from_millis(start), ..Evidence::default() };
        evidence.note_tools(&tools);
        evidence
    }

    #[track_caller]
    fn check(evidence: &Evidence, expected: &[(&str, Value)]) {
        let all = of_program(evidence).into_iter();
        let set: Vec<_> = all.filter_map(|(key, value, ..)| Some((key, value?))).collect();
        assert_eq!(set, expected);
    }

    #[test]
    fn a_server_that_keeps_nothing_has_the_defaults() {
        check(&evidence(&["get_time", "convert_time"], 100), &[("isolation", json!("confined"))]);
    }

    #[test]
    fn a_slow_one_is_kept_warm_and_files_are_found_again() {
        let isolation = ("isolation", json!("confined"));
        let slow = evidence(&["create_workbook"], 900);
        check(&slow, &[("workspace", json!("session")), ("warm", json!(1)), isolation.clone()]);
        let writer = Evidence { files: vec!["x.db".to_owned()], ..evidence(&["query"], 10) };
        check(&writer, &[("workspace", json!("session")), isolation]);
    }

    #[test]
    fn one_that_has_something_open_is_stateful() {
        let browser = evidence(&["browser_navigate", "browser_close"], 900);
        check(&browser, &[("mode", json!("stateful")), ("isolation", json!("confined"))]);
    }
}
