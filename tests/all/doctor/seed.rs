//! The application of seed 003: each fault that cost days is named, with the line that mends it.

use std::fs;

use pontoon_tests::seed_app::{Faults, SeedApp, TOOLS};

use super::{Surgery, codes, finding, report};

/// Compares with what was kept; `UPDATE=1` keeps it anew.
#[track_caller]
pub(super) fn snapshot(place: &str, text: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(place, text).unwrap();
    }
    let kept = fs::read_to_string(place).unwrap_or_default();
    assert_eq!(text, kept, "renew it with UPDATE=1 and read the difference");
}

/// The tools that were called and that it has.
fn called(app: &SeedApp) -> Vec<String> {
    let calls = app.calls().into_iter().map(|call| call["name"].as_str().unwrap().to_owned());
    calls.filter(|name| TOOLS.contains(&name.as_str())).collect()
}

#[test]
fn each_fault_is_named_with_the_line_that_mends_it() {
    let app = SeedApp::start(Faults::ALL);
    let (seed, code) = report(&["--probe-size", "0", &app.url()]);
    assert_eq!(code, 1);
    for (problem, code, fix) in [
        ("1: answers to notifications", "H08", "method.find(\"notifications/\") == 0"),
        ("1: a frame with nothing in it", "H08", "std::string()"),
        ("2: one version", "H19", "value(\"protocolVersion\", \"2024-11-05\")"),
        ("3: properties that are null", "S003/map", "json::object()"),
        ("3: a list of words", "S005/word-list", "{\"items\", {{\"type\", \"number\"}}}"),
    ] {
        let found = finding(&seed, code);
        assert!(found["fix"].as_str().unwrap().contains(fix), "problem {problem}: {found:#}");
    }
    let place = &finding(&seed, "S005/word-list")["places"][0];
    assert_eq!(place["tool"], "add_max_object");
    let clients = seed["clients"].as_array().unwrap();
    let claude = clients.iter().find(|it| it["profile"] == "claude-code").unwrap();
    let all = u64::try_from(TOOLS.len()).unwrap();
    assert!(claude["visible"].as_u64().unwrap() < all, "{claude:#}");
    assert_eq!(claude["visible_through_pontoon"], all);
    assert_eq!(called(&app), Vec::<String>::new());
}

#[test]
fn a_bare_result_is_told_if_a_tool_is_called() {
    let app = SeedApp::start(Faults::ALL);
    let (seed, _) = report(&["--probe-size", "0", "--call", "list_active_patches", &app.url()]);
    assert!(codes(&seed, &["error"]).contains(&"H17".to_owned()), "{seed:#}");
    // It does not say that it only reads.
    assert_eq!(called(&app), ["list_active_patches"]);
}

#[test]
fn of_the_mended_application_nothing_is_left_of_the_seed() {
    let app = SeedApp::start(Faults::NONE);
    let (mended, code) = report(&["--probe-size", "0", &app.url()]);
    assert_eq!(code, 0);
    // What the seed did not know of: it answers no ping, and takes every name for a tool.
    assert_eq!(codes(&mended, &["error", "warning"]), ["D04", "D06"], "{mended:#}");
    let clients = mended["clients"].as_array().unwrap();
    let claude = clients.iter().find(|it| it["profile"] == "claude-code").unwrap();
    assert_eq!(claude["visible"], TOOLS.len());
}

#[test]
fn a_message_that_is_too_long_for_it_is_told() {
    let app = SeedApp::start(Faults::NONE);
    let (seed, _) = report(&["--timeout", "5s", "--probe-size", "65536", &app.url()]);
    assert_eq!(codes(&seed, &["error", "warning"]), ["D04", "D06", "D08"], "{seed:#}");
}

#[test]
fn the_report_for_people_is_as_it_was() {
    let app = SeedApp::start(Faults::ALL);
    let url = app.url();
    let output = Surgery::new().examine(&["--probe-size", "0", "--profile", "claude-code", &url]);
    let said = String::from_utf8(output.stdout).unwrap().replace(&url, "ws://127.0.0.1:7400");
    let said = said.replacen("\nStart\n", "\n", 1);
    let said: Vec<_> = said.lines().filter(|line| !line.contains("answers within")).collect();
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/all/doctor/seed.txt");
    let said = said.join("\n") + "\n";
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md");
    let text = fs::read_to_string(page).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        let before = fs::read_to_string(place).unwrap_or_default();
        fs::write(page, text.replace(&before, &said)).unwrap();
    }
    snapshot(place, &said);
    assert!(
        fs::read_to_string(page).unwrap().contains(&said),
        "the sample in docs/doctor.md is stale"
    );
}
