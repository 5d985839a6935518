//! The schemas of its tools: what is not valid, what some client minds, and what is only not good.

use std::collections::{BTreeMap, HashSet};

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::judge;
use crate::doctor::symptom::{Symptom, ToolPlace};
use crate::doctor::words::tool_name;
use pontoon_schema::{Fault, Profile, Severity, lint, lint_for, lint_list, repair};

/// All that is wrong with a tool for this client: what makes it invalid, what the client minds, what is not good.
pub(super) fn faults_of(tool: &str, profile: &Profile) -> Vec<(Fault, String)> {
    let report = repair(tool, profile);
    // What was put right already, in the words of this client, is no fault for it.
    let is_well = *report.tool == *tool;
    let repaired = report.findings.into_iter().filter(|it| !(is_well && it.repair.is_some()));
    let told = lint(tool).into_iter().chain(lint_for(tool, profile));
    let all = repaired.chain(told).map(|finding| (finding.fault, finding.place));
    let mut faults: Vec<(Fault, String)> = Vec::new();
    let reads_results = judge::reads_results(profile);
    for (fault, place) in all {
        let is_output = place.starts_with("/outputSchema");
        if is_output && !reads_results {
            continue;
        }
        // Clients that compile what tools promise refuse any schema there that is not valid.
        let is_about_results = matches!(fault.code(), "S010" | "S015");
        let fault = match is_output && !is_about_results && is_refused(fault) {
            true => Fault::OutputForm,
            false => fault,
        };
        let fault = (fault, place);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    faults
}

/// Whether validators refuse a schema with this fault, whatever it costs with clients that compile none.
fn is_refused(fault: Fault) -> bool {
    let is_valid = fault == Fault::YesNo;
    let does_not_compile = matches!(
        fault,
        Fault::Dangling
            | Fault::Remote
            | Fault::Pattern
            | Fault::EnumEmpty
            | Fault::OldDialectOutput
    );
    does_not_compile || fault.severity() == Severity::Error && !is_valid
}

/// Looks at each tool, for each of these clients.
pub(super) fn look(tools: &[String], profiles: &[&'static Profile], report: &mut Examination) {
    let mut places: BTreeMap<Fault, Vec<ToolPlace>> = BTreeMap::new();
    let taken: Vec<_> = profiles.iter().map(|profile| profile.of_server(&report.name)).collect();
    for tool in tools {
        let name = tool_name(tool);
        let mut note = |(fault, pointer): (Fault, String)| {
            let place = ToolPlace { tool: name.clone(), pointer };
            let known = places.entry(fault).or_default();
            if !known.contains(&place) {
                known.push(place);
            }
        };
        faults_of(tool, Profile::none()).into_iter().for_each(&mut note);
        for profile in &taken {
            let minded = faults_of(tool, profile).into_iter();
            minded.filter(|(fault, _)| profile.is_about(*fault)).for_each(&mut note);
        }
    }
    // What is wrong with the list has no place in a tool.
    for finding in profiles.iter().flat_map(|profile| lint_list(tools, profile)) {
        places.entry(finding.fault).or_default();
    }
    note_twins(tools, profiles, report);
    let loses = |fault| profiles.iter().any(|it| judge::loses(it, fault));
    let is_valid = !places.keys().any(|fault| is_refused(*fault));
    let is_taken = !places.keys().any(|fault| loses(*fault));
    for (fault, places) in places {
        let mut symptom = Symptom { places, ..judge::symptom(fault, profiles) };
        if fault == Fault::TooMany {
            symptom.evidence = Some(format!("{} tools", tools.len()));
        }
        report.found(symptom);
    }
    match (is_valid, is_taken) {
        _ if tools.is_empty() => {}
        (true, true) => report.well(Aspect::Schemas, "every schema is one that clients take"),
        (true, false) => {
            let text = "every schema is valid; some clients take only a part of JSON Schema";
            report.well(Aspect::Schemas, text);
        }
        (false, _) => {}
    }
}

/// Tells of names that come again.
fn note_twins(tools: &[String], profiles: &[&'static Profile], report: &mut Examination) {
    let mut seen = HashSet::new();
    let names = tools.iter().map(|it| tool_name(it)).filter(|it| !it.is_empty());
    let twins: Vec<_> = names.filter(|it| !seen.insert(it.clone())).collect();
    if !twins.is_empty() {
        let evidence = Some(format!("twice there: {}", twins.join(", ")));
        report.found(Symptom { evidence, ..judge::symptom(Fault::NameTwice, profiles) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::options::ExamOptions;

    #[test]
    fn a_list_that_is_longer_than_a_client_takes_is_told_for_that_client() {
        let tool = |n: usize| {
            format!(
                r#"{{"name":"t{n}","description":"d","inputSchema":{{"type":"object","properties":{{}}}}}}"#
            )
        };
        let tools: Vec<_> = (0..129).map(tool).collect();
        let found = |tools: &[String], profile: &str| {
            let mut report = Examination::default();
            look(tools, &[Profile::named(profile).expect("there is one")], &mut report);
            let told = report.symptoms.into_iter().map(|it| (it.code, it.aspect, it.evidence));
            told.collect::<Vec<_>>()
        };
        let expected = ("S025/too-many", Aspect::Lists, Some("129 tools".to_owned()));
        assert_eq!(found(&tools, "openai"), [expected]);
        assert_eq!(found(&tools[1..], "openai"), []);
        assert_eq!(found(&tools, "claude-code"), []);
    }

    /// What is said of these tools for these clients, or for all of them: the codes, how bad, and what is well.
    fn said(
        tools: &[String],
        profile: Option<&str>,
    ) -> (Vec<(&'static str, Severity)>, Vec<String>) {
        let mut report = Examination::default();
        let options = ExamOptions {
            patience: std::time::Duration::ZERO,
            probe_size: 0,
            calls: Vec::new(),
            profile: profile.and_then(Profile::named),
        };
        look(tools, &options.profiles(), &mut report);
        let codes = report.symptoms.iter().map(|it| (it.code, it.severity)).collect();
        (codes, report.observations.into_iter().map(|it| it.text).collect())
    }

    fn with(schema: &str, rest: &str) -> [String; 1] {
        [format!(r#"{{"name":"t","description":"d","inputSchema":{schema}{rest}}}"#)]
    }

    const EMPTY: &str = r#"{"type":"object","properties":{}}"#;

    #[test]
    fn a_client_that_is_not_sent_what_a_tool_promises_is_told_nothing_of_it() {
        let closed =
            r#","outputSchema":{"type":"object","properties":{},"additionalProperties":false}"#;
        let well = vec!["every schema is one that clients take".to_owned()];
        for profile in [None, Some("gemini"), Some("claude-code")] {
            assert_eq!(
                said(&with(EMPTY, closed), profile),
                (Vec::new(), well.clone()),
                "{profile:?}"
            );
        }
    }

    #[test]
    fn how_bad_a_fault_is_goes_by_who_loses_by_it() {
        let property = |schema: &str| {
            with(&format!(r#"{{"type":"object","properties":{{"a":{schema}}}}}"#), "")
        };
        use Severity::{Error, Information, Warning};
        // A client that was run loses it; one by reports; none that is known; one that takes a part of JSON Schema.
        for (schema, code, severity) in [
            (r#"{"type":"int"}"#, "S008/type-word", Error),
            ("true", "S005/yes-no", Error),
            (r#"{"type":"array"}"#, "S006/no-items", Warning),
            (r#"{"type":"string","pattern":"(?P<a>b)"}"#, "S016/pattern", Warning),
            (r#"{"enum":[]}"#, "S017/enum-empty", Warning),
            (r#"{"type":["string","null"]}"#, "S018/type-list", Information),
        ] {
            let (found, _) = said(&property(schema), None);
            assert!(found.contains(&(code, severity)), "{schema}: {found:?}");
        }
        let (found, _) = said(&property(r#"{"type":"array"}"#), Some("openai"));
        assert_eq!(found, [("S006/no-items", Error)]);
        let (found, _) = said(&property(r#"{"type":["string","null"]}"#), Some("gemini"));
        assert_eq!(found, [("S018/type-list", Error)]);
    }

    #[test]
    fn schemas_are_not_called_well_where_a_client_refuses_them() {
        let (_, well) = said(&with(EMPTY, ""), None);
        assert_eq!(well, ["every schema is one that clients take"]);
        let closed = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
        let (_, well) = said(&with(closed, ""), None);
        assert_eq!(well, ["every schema is valid; some clients take only a part of JSON Schema"]);
        let (_, well) = said(&with(closed, ""), Some("claude-code"));
        assert_eq!(well, ["every schema is one that clients take"]);
        let (_, well) = said(&with(r#"{"type":"object","properties":null}"#, ""), None);
        assert_eq!(well, Vec::<String>::new());
    }

    #[test]
    fn a_name_that_comes_twice_is_told_with_who_minds() {
        let twins = [with(EMPTY, ""), with(EMPTY, "")].concat();
        let found = |profile| said(&twins, profile).0;
        assert_eq!(found(None), [("S014/name-twice", Severity::Error)]);
        assert_eq!(found(Some("claude-code")), [("S014/name-twice", Severity::Error)]);
        assert_eq!(found(Some("ts-sdk-1")), [("S014/name-twice", Severity::Information)]);
    }
}
