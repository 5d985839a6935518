//! Descriptions that a client would cut anywhere.

use super::*;

/// For a client that takes 20 letters, a description is shown so, and it is said how it was cut.
#[track_caller]
fn check_description(text: &str, shown: &str, what: Option<&str>) {
    let profile = Profile { max_description: Some(20), ..Profile::none().clone() };
    let tool = |text| {
        let schema = json!({"type": "object"});
        json!({"name": "t", "description": text, "inputSchema": schema}).to_string()
    };
    let (before, expected) = (tool(text), tool(shown));
    let report = repair(&before, &profile);
    assert_eq!(report.tool, expected, "{text}");
    let repaired = report.findings.iter().filter_map(|it| it.repair.as_ref());
    assert_eq!(repaired.map(|it| it.what.as_str()).collect::<Vec<_>>(), Vec::from_iter(what));
    let places = report.findings.iter().map(|it| (it.fault, it.place.as_str()));
    let place = what.map(|_| (Fault::LongDescription, "/description"));
    assert_eq!(places.collect::<Vec<_>>(), Vec::from_iter(place));
    assert_eq!(repair(&report.tool, &profile).tool, report.tool, "a second repair changes nothing");
    assert_eq!(repair(&before, Profile::none()).tool, before, "other clients take it");
}

#[test]
fn a_description_is_cut_only_if_it_is_too_long_and_where_its_meaning_suffers_least() {
    let sentence = Some("cut at the end of a sentence");
    check_description("twenty letters here.", "twenty letters here.", None);
    check_description("It reads a file now. It also writes.", "It reads a file now.", sentence);
    check_description("Reads the file. And then it writes it.", "Reads the file.", sentence);
    check_description("Reads v1.2 files!\nAnd more of them", "Reads v1.2 files!", sentence);
    check_description("Reads many files\nand more of them", "Reads many files", sentence);
    check_description(
        "ファイルを読み込むものです。そして書き込みます",
        "ファイルを読み込むものです。",
        sentence,
    );
    // A sentence that ends early would cost more than it is worth, and a point within a word ends none.
    let word = Some("cut at the end of a word");
    check_description("Reads. Everything that there is.", "Reads. Everything", word);
    check_description("It reads files of v1.25.3 only", "It reads files of", word);
    check_description("exactly twenty chars and more", "exactly twenty chars", word);
    let within = Some("cut within a word");
    check_description("Reads abcdefghijklmnopqrstuvwxyz", "Reads abcdefghijklmn", within);
    check_description("äöüäöüäöüäöüäöüäöüäöü", "äöüäöüäöüäöüäöüäöüäö", within);
}

#[test]
fn the_descriptions_of_claude_code_are_cut_before_it_cuts_them() {
    let claude = Profile::named("claude-code").unwrap();
    let tool = |letters: usize| {
        let text = "It reads. ".repeat(letters / 10 + 1);
        let text = &text[..letters];
        json!({"name": "t", "description": text, "inputSchema": {"type": "object"}}).to_string()
    };
    let letters = |tool: &str| {
        let tool: Value = serde_json::from_str(tool).unwrap();
        tool["description"].as_str().unwrap().len()
    };
    assert_eq!(repair(&tool(4096), claude).tool, tool(4096));
    assert_eq!(letters(&repair(&tool(4097), claude).tool), 4089, "the last sentence that fits");
}
