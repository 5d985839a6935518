//! The forms that its users rely on: the members of SARIF and of its JSON, and the entry that is ready to paste.

use std::collections::BTreeSet;
use std::fs;

use pontoon_tests::rig::bridge_command;
use serde_json::{Value, json};

use super::Surgery;
use crate::binaries;

/// What is examined here: it has faults of every severity, in tools and beside them.
fn faulty() -> Vec<String> {
    let server = binaries().rude_server.display().to_string();
    [&server, "--how", "odd-schemas", "--how", "banner"].map(str::to_owned).to_vec()
}

/// What an object holds besides these is no member of SARIF 2.1.0 that is used here.
#[track_caller]
fn check_members(value: &Value, needed: &[&str], known: &[&str]) {
    let members = value.as_object().unwrap_or_else(|| panic!("no object: {value:#}"));
    for needed in needed {
        assert!(members.contains_key(*needed), "no {needed} in {value:#}");
    }
    for name in members.keys() {
        assert!(needed.contains(&name.as_str()) || known.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn sarif_has_the_members_of_its_version_with_escaped_places_of_files() {
    let surgery = Surgery::new();
    let server = faulty();
    let folder = surgery.place.path().join("my servers #1");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("mcp-servers.json");
    let entry = |command: &str, args: &[String]| json!({"command": command, "args": args});
    let servers = json!({"mcpServers": {
        "faulty": entry(&server[0], &server[1..]),
        "absent": entry("no-such-program-here", &[]),
    }});
    fs::write(&file, servers.to_string()).unwrap();
    let output = surgery.examine(&["--sarif", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "one could not be examined");
    let sarif: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_members(&sarif, &["version", "$schema", "runs"], &[]);
    assert_eq!(sarif["version"], "2.1.0");
    assert!(sarif["$schema"].as_str().unwrap().ends_with("sarif-2.1.0.json"));
    let run = &sarif["runs"][0];
    check_members(run, &["tool", "results", "invocations"], &[]);
    check_members(&run["tool"], &["driver"], &[]);
    let driver = &run["tool"]["driver"];
    check_members(driver, &["name", "version", "rules"], &[]);
    let mut ids = Vec::new();
    for rule in driver["rules"].as_array().unwrap() {
        check_members(rule, &["id", "shortDescription", "help", "defaultConfiguration"], &[]);
        for text in [&rule["shortDescription"], &rule["help"]] {
            check_members(text, &["text"], &[]);
            assert!(text["text"].is_string());
        }
        assert!(is_level(&rule["defaultConfiguration"]["level"]), "{rule:#}");
        ids.push(rule["id"].as_str().unwrap());
    }
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "a rule stands once: {ids:?}");
    let invocation = &run["invocations"][0];
    check_members(invocation, &["executionSuccessful", "toolExecutionNotifications"], &[]);
    let notification = &invocation["toolExecutionNotifications"][0];
    check_members(notification, &["message", "level"], &[]);
    assert!(notification["message"]["text"].is_string() && is_level(&notification["level"]));
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 4, "{run:#}");
    let path =
        format!("file://{}/my%20servers%20%231/mcp-servers.json", surgery.place.path().display());
    for result in results {
        let members = ["ruleId", "level", "message", "locations", "partialFingerprints"];
        check_members(result, &members, &[]);
        assert!(ids.contains(&result["ruleId"].as_str().unwrap()), "{result:#}");
        assert!(is_level(&result["level"]), "{result:#}");
        check_members(&result["message"], &["text"], &[]);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        assert!(result["partialFingerprints"].as_object().unwrap().values().all(Value::is_string));
        let [location] = &result["locations"].as_array().unwrap()[..] else { panic!("{result:#}") };
        check_members(location, &["logicalLocations", "physicalLocation"], &[]);
        check_members(&location["logicalLocations"][0], &["fullyQualifiedName"], &[]);
        let place = &location["physicalLocation"];
        check_members(place, &["artifactLocation", "region"], &[]);
        assert_eq!(place["artifactLocation"], json!({"uri": path}));
        assert_eq!(place["region"], json!({"startLine": 1}));
    }
}

fn is_level(level: &Value) -> bool {
    ["error", "warning", "note", "none"].iter().any(|known| level == known)
}

/// The names of all members, each behind those that it stands in.
fn names(value: &Value, before: &str, found: &mut BTreeSet<String>) {
    match value {
        // What a server is configured with, which is no form of the report.
        _ if before == "servers[].recommendation.entry" => {}
        Value::Object(members) => {
            for (name, value) in members {
                let name =
                    if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
                names(value, &name, found);
                found.insert(name);
            }
        }
        Value::Array(items) => items.iter().for_each(|it| names(it, &format!("{before}[]"), found)),
        _ => {}
    }
}

/// The words between back-ticks, with those of a list or an object each by itself.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let words = quoted.flat_map(|text| text.split(['{', '}', ',', ' ']));
    let words = words.map(|word| word.trim_matches(['.', '[', ']']).to_owned());
    words.filter(|word| !word.is_empty() && !word.starts_with('"'))
}

#[test]
fn the_page_names_every_member_of_the_json_and_no_other() {
    let mut found = BTreeSet::new();
    let faulty = faulty();
    let faulty: Vec<&str> = faulty.iter().map(String::as_str).collect();
    // One is examined, with a client that shows fewer tools than it has; the other cannot be.
    for command in [&faulty[..], &["no-such-program-here"]] {
        let output = Surgery::new().examine(&[&["--json", "--"], command].concat());
        names(&serde_json::from_slice(&output.stdout).unwrap(), "", &mut found);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("\n## JSON\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let mut told = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let names = quoted(cells[0]).map(|name| name.to_owned()).collect::<Vec<_>>();
        // What stands in an object or a list is told beside it.
        let inner = names.len() == 1 && names[0] != "servers";
        told.extend(names);
        if inner {
            told.extend(quoted(cells[1]).filter(|word| !VALUES.contains(&word.as_str())));
        }
    }
    let last = |name: &String| {
        let name = name.rsplit('.').next().unwrap_or(name);
        name.trim_end_matches("[]").to_owned()
    };
    let found: BTreeSet<_> = found.iter().map(last).collect();
    assert_eq!(told, found);
}

/// Words of the table that are values.
const VALUES: [&str; 3] = ["error", "warning", "information"];

#[test]
fn what_is_ready_to_paste_is_read_without_a_remark() {
    let fixture = binaries().fixture_server.display().to_string();
    for command in [&faulty()[..], &[fixture], &["/bin/sh -c true".to_owned()]] {
        let surgery = Surgery::new();
        let words: Vec<&str> = command.iter().flat_map(|word| word.split(' ')).collect();
        let output = surgery.examine(&[&["--json", "--"], &words[..]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let recommended = &report["servers"][0]["recommendation"];
        if recommended.is_null() {
            assert_ne!(report["servers"][0]["unexamined"], Value::Null, "{report:#}");
            continue;
        }
        let name = recommended["name"].as_str().unwrap();
        let file = surgery.place.path().join("mcp-servers.json");
        let servers = json!({"mcpServers": {name: recommended["entry"]}});
        fs::write(&file, servers.to_string()).unwrap();
        let mut check = bridge_command(&binaries().pontoon, surgery.place.path());
        let output = check.arg("check").arg("--config").arg(&file).output().unwrap();
        let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), remarks.as_str()), (Some(0), ""), "{servers}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("{name}: ")) && !said.contains("cannot start"), "{said}");
    }
}

#[test]
fn no_bar_is_drawn_where_there_is_no_terminal() {
    let faulty = faulty();
    let words: Vec<&str> = faulty.iter().map(String::as_str).collect();
    let output = Surgery::new().examine(&[&["--"], &words[..]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!output.stdout.contains(&0x1b), "nor colours");
}
