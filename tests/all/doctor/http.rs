//! Servers behind HTTP: our own bridge in both eras, and what is told of those that want to know who asks.

use pontoon_tests::certificates::Authority;
use serde_json::{Value, json};

use super::{Surgery, codes, report};
use crate::{fixture_of, plan, rig};

/// What was found besides the tool of the fixture that is there to be refused.
fn worth_telling(report: &Value) -> Vec<String> {
    let is_odd = |code: &String| code.starts_with("S004") || code.starts_with("S007");
    codes(report, &["error", "warning"]).into_iter().filter(|code| !is_odd(code)).collect()
}

#[test]
fn a_server_behind_http_is_examined_in_both_eras() {
    for (era, eras) in
        [("legacy", json!(["legacy", "modern"])), ("modern", json!(["legacy", "modern"]))]
    {
        let rig = rig([fixture_of(era, "stateless")]);
        let url = format!("http://{}/mcp/fixture", rig.address());
        let (report, code) = report(&[&url]);
        assert_eq!(report["eras"], eras, "the bridge speaks both: {report:#}");
        assert_eq!((worth_telling(&report), code), (Vec::new(), 0), "{report:#}");
        assert!(report["tools"].as_u64().unwrap() > 40);
        rig.stop();
    }
}

#[test]
fn the_same_over_its_websocket() {
    let rig = rig([fixture_of("legacy", "stateless")]);
    let (report, _) = report(&[&format!("ws://{}/ws/fixture", rig.address())]);
    assert_eq!(worth_telling(&report), Vec::<String>::new(), "{report:#}");
    rig.stop();
}

#[test]
fn one_that_wants_a_key_is_told_so_and_opens_with_it() {
    let rig = plan([fixture_of("legacy", "stateless")])
        .variable("MCPO_API_KEYS", "me=sesame-of-the-test")
        .start();
    let url = format!("http://{}/mcp/fixture", rig.address());
    let (refused, code) = report(&[&url]);
    assert_eq!(code, 3, "{refused:#}");
    let unexamined = &refused["unexamined"];
    assert!(unexamined["advice"].as_str().unwrap().contains("--token-env"), "{unexamined:#}");
    let surgery = Surgery::new();
    let file = surgery.place.path().join("token");
    std::fs::write(&file, "sesame-of-the-test\n").unwrap();
    let file = file.display().to_string();
    let output = surgery.examine(&["--token-file", &file, &url]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "it is examined: {said}");
    assert!(!said.contains("sesame"), "{said}");
    let output = surgery.examine(&["--header", "X-API-Key: sesame-of-the-test", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    rig.stop();
}

#[test]
fn one_behind_https_is_examined_with_the_authority_that_is_named() {
    let (authority, folder) = (Authority::default(), tempfile::tempdir().unwrap());
    let files = authority.sign(&["localhost"]).write(folder.path(), "tls");
    let rig =
        plan([fixture_of("legacy", "stateless")]).secured(&files, authority.client(&[])).start();
    let url = format!("https://localhost:{}/mcp/fixture", rig.bound().port());
    let (refused, code) = report(&[&url]);
    assert_eq!(code, 3, "{refused:#}");
    let why = refused["unexamined"].to_string();
    assert!(why.contains("an authority that is not known here"), "{why}");
    let ca_file = authority.write(folder.path(), "ca.pem").display().to_string();
    let (examined, code) = report(&["--ca-file", &ca_file, &url]);
    assert_eq!((worth_telling(&examined), code), (Vec::new(), 0), "{examined:#}");
    assert!(examined["tools"].as_u64().unwrap() > 40);
    rig.stop();
}
