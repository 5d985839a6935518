//! The reports for programs: SARIF, Markdown and the dump. JSON is read by every other test.

use std::fs;

use serde_json::Value;

use super::Surgery;
use crate::binaries;

fn words<'w>(first: &[&'w str], server: &'w str) -> Vec<&'w str> {
    [first, &["--", server, "--how", "odd-schemas", "--how", "banner"]].concat()
}

#[test]
fn sarif_has_what_its_readers_require() {
    let server = binaries().rude_server.display().to_string();
    let output = Surgery::new().examine(&words(&["--sarif"], &server));
    assert_eq!(output.status.code(), Some(1));
    let sarif: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    assert!(sarif["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let run = &sarif["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "pontoon doctor");
    let rules: Vec<_> = driver["rules"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 4, "{run:#}");
    for result in results {
        assert!(rules.contains(&&result["ruleId"]), "{result:#}");
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
        assert!(place.as_str().unwrap().starts_with("rude-server"), "{result:#}");
    }
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let output = Surgery::new().examine(&["--sarif", "--", "no-such-program-here"]);
    let sarif: Value = serde_json::from_slice(&output.stdout).unwrap();
    let invocation = &sarif["runs"][0]["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let told = invocation["toolExecutionNotifications"][0]["message"]["text"].as_str().unwrap();
    assert!(told.contains("was not found"), "{told}");
}

#[test]
fn the_author_gets_each_fault_with_its_fix() {
    let server = binaries().rude_server.display().to_string();
    let output = Surgery::new().examine(&words(&["--fix-report"], &server));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("# What to mend in rude-server"), "{text}");
    for part in [
        "### S003/map",
        "### H01",
        "json::object()",
        "| Claude Code | 0 of 4",
        "`wait`, at `/inputSchema/properties`",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn the_dump_has_the_lists_as_they_came() {
    let surgery = Surgery::new();
    let file = surgery.place.path().join("dump");
    let name = file.display().to_string();
    let server = binaries().rude_server.display().to_string();
    let arguments = ["--dump", &name, "--", &server, "--how", "pages", "--how", "odd-schemas"];
    let output = surgery.examine(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let dump = fs::read_to_string(&file).unwrap();
    let pages: Vec<Value> = dump.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(pages.len(), 3, "{dump}");
    assert!(
        pages.iter().all(|page| page["server"] == "rude-server" && page["method"] == "tools/list")
    );
    let odd = &pages[0]["result"]["tools"][2]["inputSchema"]["properties"]["at"]["items"];
    assert_eq!(*odd, serde_json::json!(["type", "number"]));
}

#[test]
fn the_dump_has_what_was_healed_as_it_was() {
    let surgery = Surgery::new();
    let file = surgery.place.path().join("dump");
    let name = file.display().to_string();
    let server = binaries().rude_server.display().to_string();
    surgery.examine(&["--dump", &name, "--", &server, "--how", "nulls"]);
    let dump = fs::read_to_string(&file).unwrap();
    let page: Value = serde_json::from_str(dump.lines().next().unwrap()).unwrap();
    let result = page["result"].as_object().unwrap();
    assert!(result["nextCursor"].is_null() && result.contains_key("_meta"), "{dump}");
    assert!(result["tools"][0].as_object().unwrap().contains_key("outputSchema"), "{dump}");
}
