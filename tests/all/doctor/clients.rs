//! What clients will show, and the report for people.

use serde_json::Value;

use super::{Surgery, codes, rude};
use crate::binaries;

fn client<'r>(report: &'r Value, profile: &str) -> &'r Value {
    let all = report["clients"].as_array().unwrap();
    all.iter().find(|it| it["profile"] == profile).unwrap_or_else(|| panic!("{report:#}"))
}

#[test]
fn every_client_is_told_with_how_that_is_known() {
    let (report, _) = rude(&[], &["--how", "odd-schemas"]);
    for view in report["clients"].as_array().unwrap() {
        let basis = view["basis"].as_str().unwrap();
        assert!(
            basis.starts_with("measured with") || basis.starts_with("by its rules as known on 20"),
            "{view:#}"
        );
        // It wants all arguments required and no others taken: no tool is made another for that.
        let is_strict = view["profile"] == "openai-strict";
        let through = if is_strict { 0 } else { 4 };
        assert_eq!(view["visible_through_pontoon"], through, "{view:#}");
        let lost = view["lost"].to_string();
        assert_eq!(lost.contains("S022/additional-open"), is_strict, "{view:#}");
    }
    for profile in ["claude-code", "open-webui", "openai", "gemini", "vscode", "cursor"] {
        assert!(client(&report, profile)["visible"].as_u64().unwrap() < 4, "{profile}");
    }
    let (healthy, _) = rude(&[], &[]);
    assert_eq!(client(&healthy, "claude-code")["visible"], 2);
}

#[test]
fn one_client_alone_is_judged_by_what_it_minds() {
    let (report, code) = rude(&["--profile", "python-sdk-1"], &["--how", "odd-schemas"]);
    let names =
        report["clients"].as_array().unwrap().iter().map(|it| it["profile"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["python-sdk-1"]);
    assert_eq!((codes(&report, &["error"]), code), (vec!["S001/no-input".to_owned()], 1));
}

/// Times differ, and so does where the server lies.
fn settled(text: &str) -> String {
    let server = binaries().rude_server.display().to_string();
    let text = text.replace(&server, "rude-server");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(" ms") {
        let (before, after) = rest.split_at(at);
        out += before.trim_end_matches(|c: char| c.is_ascii_digit());
        out += "N ms";
        rest = &after[3..];
    }
    out + rest
}

#[test]
fn the_report_for_people_is_as_it_was() {
    let server = binaries().rude_server.display().to_string();
    let words = [
        "--profile",
        "claude-code",
        "--",
        &server,
        "--how",
        "odd-schemas",
        "--how",
        "banner",
        "--how",
        "old-version",
    ];
    let output = Surgery::new().examine(&words);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains('\u{1b}'), "no colour where there is no terminal");
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/all/doctor/rude.txt");
    // The command line may be broken into lines where it is long.
    let (_, said) = said.split_once("\nStart\n").unwrap();
    super::seed::snapshot(place, &settled(said));
    assert!(
        said.lines().all(|line| line.chars().count() <= 80 || line.contains("\"command\"")),
        "{said}"
    );
}
