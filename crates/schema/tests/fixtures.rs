//! One fixture for each fault: the fault in, what clients see out, and the healthy form byte for byte as it is.
//!
//! `UPDATE=1 cargo test -p pontoon-schema --test fixtures` writes `seen.txt` anew, what clients see, to be
//! read before it is kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pontoon_schema::{Fault, Profile, Report, lint, lint_for, lint_list, repair_list};
use serde_json::Value;

/// Faults of which one list of tools tells nothing: those of calls, of several lists, and of clients. They have their tests
/// in the crate `pontoon`: results in `back/call/healed`, another order in `session/order`, pages in `session/lists` and
/// `session/pages`, arguments in `session/fitted`.
const ELSEWHERE: [Fault; 4] = [Fault::OutputUnkept, Fault::Order, Fault::Pages, Fault::Arguments];

fn fixtures() -> Vec<(PathBuf, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let files = std::fs::read_dir(folder).expect("the fixtures are there");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("a file of text");
        let fixture = serde_json::from_str(&text).expect("a fixture is JSON");
        (file, fixture)
    };
    files.into_iter().map(read).collect()
}

fn fault(fixture: &Value) -> Fault {
    let id = fixture["fault"].as_str().expect("a fixture names its fault");
    Fault::named(id).unwrap_or_else(|| panic!("there is no fault {id}"))
}

/// The tools of one side of a fixture, which is a tool or a list.
fn tools(side: &Value) -> Vec<String> {
    match side {
        Value::Array(tools) => tools.iter().map(Value::to_string).collect(),
        tool => vec![tool.to_string()],
    }
}

/// A profile whose clients mind the fault, the usual one first.
fn profile_for(fault: Fault) -> &'static Profile {
    let mut all = std::iter::once(Profile::common()).chain(Profile::all());
    all.find(|profile| profile.is_about(fault)).unwrap_or(Profile::common())
}

fn found(reports: &[Report<'_>], tools: &[String], profile: &Profile) -> BTreeSet<Fault> {
    let repaired = reports.iter().flat_map(|report| &report.findings).map(|it| it.fault);
    let told = tools.iter().flat_map(|tool| lint(tool).into_iter().chain(lint_for(tool, profile)));
    let told = told.chain(lint_list(tools, profile));
    repaired.chain(told.map(|it| it.fault)).collect()
}

#[test]
fn every_fault_has_a_fixture() {
    let named: BTreeSet<_> = fixtures().iter().map(|(_, fixture)| fault(fixture)).collect();
    let missing: Vec<_> = Fault::ALL.iter().filter(|fault| !named.contains(fault)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_fault_is_found_in_its_fixture_and_clients_see_what_they_saw() {
    let mut seen = String::new();
    for (file, fixture) in fixtures() {
        let fault = fault(&fixture);
        let profile = profile_for(fault);
        let broken = tools(&fixture["broken"]);
        let reports = repair_list(broken.iter().map(String::as_str), profile);
        if !ELSEWHERE.contains(&fault) {
            assert!(found(&reports, &broken, profile).contains(&fault), "{}", file.display());
        }
        seen += &format!("{fault} for {profile}\n", fault = fault.id());
        for (report, tool) in reports.iter().zip(&broken) {
            let shown = match &*report.tool {
                _ if !report.is_shown => "not shown",
                shown if shown == tool => "unchanged",
                shown => shown,
            };
            seen += &format!("  {shown}\n");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seen.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &seen).expect("the file can be written");
    }
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    for (now, before) in seen.lines().zip(before.lines()) {
        assert_eq!(now, before, "tests/seen.txt has another");
    }
    assert_eq!(seen.lines().count(), before.lines().count(), "tests/seen.txt is of other fixtures");
}

#[test]
fn the_healthy_form_has_no_such_fault_and_passes_byte_for_byte() {
    for (file, fixture) in fixtures() {
        let fault = fault(&fixture);
        let healthy = tools(&fixture["healthy"]);
        for profile in [profile_for(fault), Profile::common()] {
            let reports = repair_list(healthy.iter().map(String::as_str), profile);
            if !ELSEWHERE.contains(&fault) {
                assert!(!found(&reports, &healthy, profile).contains(&fault), "{}", file.display());
            }
        }
        // Some clients take less than is healthy: the fixture says which of it.
        let shaped = Profile::all().iter().filter(|profile| {
            let reports = repair_list(healthy.iter().map(String::as_str), profile);
            let same = reports.iter().map(|report| report.tool.as_ref());
            !same.eq(healthy.iter().map(String::as_str))
        });
        let shaped: BTreeSet<_> = shaped.map(|profile| profile.name.as_str()).collect();
        let told = fixture["shaped_for"].as_object();
        let told = told.into_iter().flatten().map(|(profile, _)| profile.as_str());
        assert_eq!(shaped, told.collect(), "{}", file.display());
    }
}

#[test]
fn what_clients_see_of_a_fixture_is_valid() {
    for (file, fixture) in fixtures() {
        let broken = tools(&fixture["broken"]);
        for profile in Profile::all() {
            for report in repair_list(broken.iter().map(String::as_str), profile) {
                let tool: Value = serde_json::from_str(&report.tool).expect("a repair leaves JSON");
                let is_valid = jsonschema::draft202012::new(&tool["inputSchema"]).is_ok();
                assert!(is_valid, "{profile}: {}", file.display());
            }
        }
    }
}
