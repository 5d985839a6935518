//! The report as SARIF 2.1.0, for code scanning.
//!
//! A server has no source here, so a result stands at the tool, as a place with a name, and at the file that
//! configures it, or that is started, if there is one.

use std::collections::BTreeMap;

use pontoon_schema::Severity;
use serde_json::{Value, json};

use super::super::examination::Examination;
use super::super::symptom::Symptom;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The reports of some servers; `file` is where they are configured, or what is started. Some readers want one.
pub fn sarif(reports: &[Examination], file: Option<&str>) -> Value {
    let mut rules: BTreeMap<&str, Value> = BTreeMap::new();
    let mut results = Vec::new();
    let mut notifications = Vec::new();
    for report in reports {
        for symptom in report.sorted() {
            rules.entry(symptom.code).or_insert_with(|| rule(symptom));
            results.extend(results_of(report, symptom, file));
        }
        if let Some(unexamined) = &report.unexamined {
            let text = format!("{}: {}; {}", report.target, unexamined.why, unexamined.advice);
            notifications.push(json!({"level": "error", "message": {"text": text}}));
        }
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "pontoon doctor",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.into_values().collect::<Vec<_>>(),
            }},
            "invocations": [{
                "executionSuccessful": notifications.is_empty(),
                "toolExecutionNotifications": notifications,
            }],
            "results": results,
        }],
    })
}

fn rule(symptom: &Symptom) -> Value {
    json!({
        "id": symptom.code,
        "shortDescription": {"text": symptom.what},
        "help": {"text": symptom.fix},
        "defaultConfiguration": {"level": level(symptom.severity)},
    })
}

/// A result for each place, or one if there is none.
fn results_of(report: &Examination, symptom: &Symptom, file: Option<&str>) -> Vec<Value> {
    let result = |place: Option<(&str, &str)>| {
        let name = match place {
            Some((tool, pointer)) => format!("{}/{tool}{pointer}", report.name),
            None => report.name.clone(),
        };
        let mut text = format!("{}: {}", report.name, symptom.what);
        if let Some((tool, pointer)) = place {
            text += &format!(", in the tool `{tool}` at {pointer}");
        }
        if let Some(evidence) = &symptom.evidence {
            text += &format!(" ({evidence})");
        }
        text += &format!(". {}", symptom.fix);
        let mut location = json!({"logicalLocations": [{"fullyQualifiedName": name}]});
        if let Some(file) = file {
            location["physicalLocation"] =
                json!({"artifactLocation": {"uri": file_uri(file)}, "region": {"startLine": 1}});
        }
        json!({
            "ruleId": symptom.code,
            "level": level(symptom.severity),
            "message": {"text": text},
            "locations": [location],
            "partialFingerprints": {"place/v1": format!("{} {name}", symptom.code)},
        })
    };
    match symptom.places.is_empty() {
        true => vec![result(None)],
        false => {
            let places = symptom.places.iter();
            places.map(|place| result(Some((&place.tool, &place.pointer)))).collect()
        }
    }
}

/// A path as SARIF wants it: relative to the folder of the examination, or from the root, and escaped as in a URI.
fn file_uri(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let path = path.trim_start_matches("./");
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match is_plain(byte) {
            true => uri.push(char::from(byte)),
            false => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Information => "note",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped_as_a_uri() {
        for (path, uri) in [
            ("dist/index.js", "dist/index.js"),
            ("./mcp-servers.json", "mcp-servers.json"),
            ("a: b/50%/é?#.js", "a%3A%20b/50%25/%C3%A9%3F%23.js"),
            ("/home/me/my servers.json", "file:///home/me/my%20servers.json"),
        ] {
            assert_eq!(file_uri(path), uri);
        }
    }
}
