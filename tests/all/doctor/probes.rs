//! Each probe finds the fault it is for, and nothing in a server without it.

use serde_json::json;

use super::{codes, finding, report, rude};
use crate::binaries;

const ALL: &[&str] = &["error", "warning"];

/// The rude server with this behaviour has these findings, and no other that is worth a warning.
#[track_caller]
fn check(how: &str, expected: &[&str]) {
    let (report, _) = rude(&["--timeout", "5s"], &["--how", how]);
    assert_eq!(codes(&report, ALL), expected, "{how}: {report:#}");
}

#[test]
fn healthy_servers_have_no_finding() {
    let demo = binaries().pontoon.display().to_string();
    let (healthy, code) = report(&["--", &demo, "demo"]);
    assert_eq!((codes(&healthy, ALL), code), (Vec::new(), 0), "{healthy:#}");
    assert_eq!(healthy["eras"], json!(["legacy", "modern"]));
    let (plain, code) = rude(&[], &[]);
    assert_eq!((codes(&plain, ALL), code), (Vec::new(), 0), "{plain:#}");
    assert_eq!(plain["versions"], json!(["2024-11-05", "2025-06-18", "2025-11-25"]));
    assert!(plain["start_ms"].is_u64() && plain["end_ms"].is_u64(), "{plain:#}");
    // One tool of this one is there to be refused.
    let fixture = binaries().fixture_server.display().to_string();
    let (fixture, _) = report(&["--", &fixture]);
    for found in fixture["findings"].as_array().unwrap() {
        let places = found["places"].as_array().unwrap();
        let is_odd = places.iter().all(|it| it["tool"] == "json_schema_2020_12_tool");
        assert!(found["severity"] == "information" || is_odd && !places.is_empty(), "{found:#}");
    }
}

#[test]
fn a_server_of_the_modern_era_alone_is_examined() {
    let fixture = binaries().fixture_server.display().to_string();
    let (report, _) = report(&["--", &fixture, "--era", "modern"]);
    assert_eq!(report["eras"], json!(["modern"]), "{report:#}");
    assert!(report["tools"].as_u64().unwrap() > 40, "{report:#}");
    assert!(codes(&report, &["error"]).iter().all(|code| code.starts_with("S004")), "{report:#}");
}

#[test]
fn what_is_wrong_with_its_output_is_told() {
    check("banner", &["H01"]);
    check("pretty", &["H02"]);
    check("crlf", &["H04"]);
    check("no-jsonrpc", &["H13"]);
    let (banner, code) = rude(&[], &["--how", "banner"]);
    let evidence = finding(&banner, "H01")["evidence"].as_str().unwrap();
    assert!(evidence.contains("Welcome to the rude server"), "{evidence}");
    assert_eq!(code, 0, "a warning is no failure");
    let (_, code) = rude(&["--strict"], &["--how", "banner"]);
    assert_eq!(code, 1, "but with --strict");
    let (_, code) = rude(&[], &["--how", "pretty"]);
    assert_eq!(code, 1, "clients read half messages");
}

#[test]
fn notifications_versions_and_pings_are_tried() {
    check("answers-notifications", &["H20", "H08"]);
    check("old-version", &[]);
    check("refuses-version", &["H19"]);
    check("no-ping", &["D04"]);
    check("no-capabilities", &["D09"]);
    let (old, _) = rude(&[], &["--how", "old-version"]);
    let oldest = finding(&old, "H19");
    let evidence =
        "it answers 2024-11-05 whatever it is asked for, as a server may that knows no other";
    assert_eq!(oldest["evidence"], evidence);
    assert_eq!(oldest["severity"], "information", "every client knows the oldest version");
    let (refuses, _) = rude(&[], &["--how", "refuses-version"]);
    let evidence = finding(&refuses, "H19")["evidence"].as_str().unwrap();
    assert!(evidence.contains("asked for 2024-11-05"), "{evidence}");
}

#[test]
fn schemas_are_judged_with_their_places() {
    let (odd, code) = rude(&[], &["--how", "odd-schemas"]);
    assert_eq!(code, 1);
    let errors = codes(&odd, &["error"]);
    assert_eq!(errors, ["S001/no-input", "S002/root-type", "S003/map", "S005/word-list"]);
    let place = &finding(&odd, "S005/word-list")["places"][0];
    assert_eq!(place, &json!({"tool": "place", "pointer": "/inputSchema/properties/at/items"}));
}

#[test]
fn calls_are_made_only_if_they_are_harmless_or_asked_for() {
    let (quiet, _) = rude(&[], &["--how", "raw-result"]);
    assert_eq!(codes(&quiet, ALL), Vec::<String>::new(), "no tool says that it only reads");
    let call = r#"echo={"text": "x"}"#;
    let (called, code) = rude(&["--call", call], &["--how", "raw-result"]);
    assert_eq!((codes(&called, ALL), code), (vec!["H17".to_owned()], 1), "{called:#}");
    let (unkept, _) = rude(&["--call", call], &["--how", "no-structured"]);
    assert_eq!(codes(&unkept, &["error"]), ["S015/output-unkept"], "{unkept:#}");
    // This one gives the text that it is called with as structured content, and promises a `text`.
    for (text, expected) in [(r#"{"size": 5}"#, vec!["H18"]), (r#"{"text": "x"}"#, Vec::new())] {
        let call = format!("echo={}", json!({"text": text}));
        let (unfit, code) = rude(&["--call", &call], &["--how", "unfit-structured"]);
        assert_eq!(codes(&unfit, ALL), expected, "{unfit:#}");
        assert_eq!(code, i32::from(!expected.is_empty()));
        if !expected.is_empty() {
            let place = &finding(&unfit, "H18")["places"][0];
            assert_eq!(place, &json!({"tool": "echo", "pointer": "/outputSchema"}));
        }
    }
    let (wrong, _) = rude(&["--call", "nothing"], &[]);
    assert_eq!(codes(&wrong, ALL), Vec::<String>::new(), "the server is not to blame: {wrong:#}");
    assert!(
        wrong.to_string().contains("`nothing` was not called: there is no such tool"),
        "{wrong:#}"
    );
}

#[test]
fn a_long_message_is_sent_unless_that_is_not_wanted() {
    let said = |report: &serde_json::Value| {
        let all = report["observations"].as_array().unwrap().iter();
        all.filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let (long, _) = rude(&["--probe-size", "65536"], &[]);
    assert!(said(&long).contains("a message of 64 KiB is answered"), "{long:#}");
    let (none, _) = rude(&["--probe-size", "0"], &[]);
    assert!(said(&none).contains("was not tried (--probe-size)"), "{none:#}");
}

#[test]
fn each_fault_that_only_an_examination_shows_is_told_by_its_code() {
    let information = |how: &str| {
        let (report, code) = rude(&["--timeout", "5s"], &["--how", how]);
        assert_eq!((codes(&report, ALL), code), (Vec::new(), 0), "{how}: {report:#}");
        codes(&report, &["information"])
    };
    check("die-at-unknown", &["D02"]);
    check("takes-unknown", &["D05"]);
    check("half-modern", &["D15"]);
    assert_eq!(information("no-tools"), ["D11"]);
    assert_eq!(information("shuffles"), ["S026/order"]);
    let (died, _) = rude(&["--timeout", "5s"], &["--how", "die-at-unknown"]);
    let evidence = finding(&died, "D02")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("at a method that it does not know"), "{evidence}");
    let (modern, _) = rude(&["--timeout", "5s"], &["--how", "half-modern"]);
    let evidence = finding(&modern, "D15")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("no handshake was made"), "{evidence}");
}

#[test]
fn a_call_that_fails_or_ends_the_server_is_told() {
    let call = r#"echo={"text": "x"}"#;
    let (fails, code) = rude(&["--call", call], &["--how", "call-error"]);
    assert_eq!((codes(&fails, ALL), code), (vec!["D14".to_owned()], 0), "{fails:#}");
    let (dies, code) = rude(&["--call", call], &["--how", "die-mid-line"]);
    assert_eq!((codes(&dies, &["error"]), code), (vec!["D02".to_owned()], 1), "{dies:#}");
    let evidence = finding(&dies, "D02")["evidence"].as_str().unwrap();
    assert!(evidence.contains("it exited with code 9"), "{evidence}");
}

#[test]
fn a_start_that_takes_longer_than_clients_like_is_told() {
    let (slow, code) = rude(&[], &["--how", "slow-start", "--ms", "5200"]);
    assert_eq!((codes(&slow, ALL), code), (vec!["D01".to_owned()], 0), "{slow:#}");
}

#[test]
fn pages_that_do_not_end_are_told_and_an_empty_one_is_not() {
    for (how, part) in
        [("endless-pages", "repeats the one before"), ("circular-pages", "comes again")]
    {
        let (report, code) = rude(&["--timeout", "5s"], &["--how", how]);
        assert_eq!((codes(&report, ALL), code), (vec!["S029/pages".to_owned()], 1), "{report:#}");
        let evidence = finding(&report, "S029/pages")["evidence"].as_str().unwrap();
        assert!(evidence.contains(part), "{how}: {evidence}");
        assert_eq!(report["tools"], 2, "{how}");
    }
    check("empty-page", &[]);
}

#[test]
fn answers_are_mixed_up_only_where_one_had_that_of_another() {
    let (mixes, code) = rude(&["--timeout", "5s"], &["--how", "one-id"]);
    assert_eq!((codes(&mixes, &["error"]), code), (vec!["D07".to_owned()], 1), "{mixes:#}");
    // Every answer twice, one that is late, and some that come too late for all of them: slow or odd, but never mixed.
    for (hows, expected) in [
        (&["--how duplicate --when start"][..], &["H10"][..]),
        (&["--how slow-refusal --ms 1500"], &["D06", "H10"]),
        (&["--how one-by-one --ms 200"], &["H10"]),
    ] {
        let (report, code) = rude(&["--timeout", "1s"], hows);
        assert_eq!((codes(&report, ALL), code), (own(expected), 0), "{hows:?}: {report:#}");
    }
}

#[test]
fn calls_are_made_at_once_where_they_may_be_made_again() {
    let said = |report: &serde_json::Value| {
        let all = report["observations"].as_array().unwrap().iter();
        all.filter_map(|it| it["text"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let calls =
        ["--timeout", "2s", "--call", r#"echo={"text": "x"}"#, "--call", r#"echo={"text": "y"}"#];
    let (healthy, code) = rude(&calls, &["--how", "may-repeat"]);
    assert_eq!((codes(&healthy, ALL), code), (Vec::new(), 0), "{healthy:#}");
    assert!(
        said(&healthy).contains("4 calls of `echo` at once, each with its own answer"),
        "{healthy:#}"
    );
    let (once, code) = rude(&calls, &[]);
    assert_eq!((codes(&once, ALL), code), (Vec::new(), 0), "{once:#}");
    assert!(!said(&once).contains("calls of"), "it does not say that it may be: {once:#}");
    let (one, _) = rude(&calls[..4], &["--how", "may-repeat"]);
    assert!(said(&one).contains("each answered; which is whose cannot be told"), "{one:#}");
    let (none, _) = rude(&[], &[]);
    assert!(
        said(&none).contains("8 requests at once, lists and pings alone, each with its own answer"),
        "{none:#}"
    );
    // Each has the id of the newest: one call has the answers of all, the others have none.
    let (mixes, code) = rude(&calls, &["--how may-repeat --how mixes-calls"]);
    assert_eq!((codes(&mixes, &["error"]), code), (own(&["D07"]), 1), "{mixes:#}");
    let evidence = finding(&mixes, "D07")["evidence"].as_str().unwrap();
    assert!(evidence.contains("calls of `echo` at once"), "{evidence}");
    let (lists, _) = rude(&["--timeout", "2s"], &["--how mixes-calls"]);
    assert_eq!(codes(&lists, ALL), Vec::<String>::new(), "no call was made: {lists:#}");
}

#[test]
fn a_list_that_fails_is_an_error_if_it_is_that_of_tools() {
    check("list-fails", &["D13"]);
    let (fails, code) = rude(&[], &["--how", "list-fails"]);
    assert_eq!((codes(&fails, &["error"]), code), (own(&["D13"]), 1), "{fails:#}");
    let (promises, code) = rude(&[], &["--how", "empty-promises"]);
    assert_eq!((codes(&promises, &["error"]), code), (Vec::new(), 0), "{promises:#}");
    assert!(codes(&promises, ALL).contains(&"D13".to_owned()), "{promises:#}");
}

fn own(codes: &[&str]) -> Vec<String> {
    codes.iter().map(|code| (*code).to_owned()).collect()
}
