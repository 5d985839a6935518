//! What clients will show, and the report for people.

use serde_json::{Value, json};

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
        assert_eq!(view["visible_through_pontoon"], 4, "{view:#}");
    }
    for (profile, basis) in [
        ("claude-code", "measured with 2."),
        ("open-webui", "measured with 0."),
        ("openai", "by reports of 20"),
        ("cursor", "by reports of 20"),
        ("gemini", "by its published rules of 20"),
        ("vscode", "by its published rules of 20"),
    ] {
        let view = client(&report, profile);
        assert!(view["basis"].as_str().unwrap().starts_with(basis), "{view:#}");
        assert!(view["visible"].as_u64().unwrap() < 4, "{profile}");
    }
    let (healthy, _) = rude(&[], &[]);
    assert_eq!(client(&healthy, "claude-code")["visible"], 2);
}

#[test]
fn a_mode_that_a_caller_has_to_choose_is_judged_only_if_it_is_asked_for() {
    let (healthy, _) = rude(&[], &[]);
    for view in healthy["clients"].as_array().unwrap() {
        assert_eq!(view["visible"], 2, "{view:#}");
        assert_ne!(view["profile"], "openai-strict");
    }
    // It wants all arguments required and no others taken: no tool is made another for that.
    let (strict, _) = rude(&["--profile", "openai-strict"], &[]);
    let view = client(&strict, "openai-strict");
    assert_eq!((&view["visible"], &view["visible_through_pontoon"]), (&json!(0), &json!(0)));
    assert!(view["lost"].to_string().contains("S022/additional-open"), "{view:#}");
}

#[test]
fn the_name_of_the_server_counts_where_a_client_writes_it_before_those_of_tools() {
    let surgery = Surgery::new();
    let file = surgery.place.path().join("mine.json");
    let server = binaries().rude_server.display().to_string();
    let entry = json!({"command": server, "args": ["--how", "long-name"]});
    let config = json!({"mcpServers": {"spreadsheets": entry, "s": entry}});
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let shown = |arguments: &[&str]| {
        let (report, _) = super::report(arguments);
        let view = client(&report, "cursor").clone();
        (view["visible"].clone(), view["visible_through_pontoon"].clone(), view["lost"].to_string())
    };
    // With `s:` before it, it has 57 letters of the 59 that there may be.
    assert_eq!(shown(&["--config", &file, "s"]), (json!(3), json!(3), "[]".to_owned()));
    let (straight, through, lost) = shown(&["--config", &file, "spreadsheets"]);
    assert_eq!((straight, through), (json!(2), json!(3)));
    assert!(lost.contains("S014/name-length"), "{lost}");
    // A command line has the name that the recommendation would paste.
    let (straight, ..) = shown(&["--", &server, "--how", "long-name"]);
    assert_eq!(straight, json!(2), "`rude-server:` is before it");
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
