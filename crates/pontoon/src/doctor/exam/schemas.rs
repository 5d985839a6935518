//! The schemas of its tools: what is not valid, what some client minds, and what is only not good.

use std::collections::BTreeMap;

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
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
    for (fault, place) in all {
        // Clients that compile what tools promise refuse any schema there that is not valid.
        let is_output = place.starts_with("/outputSchema");
        let fault = match fault.severity() {
            Severity::Error if is_output && !matches!(fault.code(), "S010" | "S015") => {
                Fault::OutputForm
            }
            _ => fault,
        };
        let fault = (fault, place);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    faults
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
    let mut is_valid = true;
    for (fault, places) in places {
        let mut symptom = judged(fault, profiles, places);
        if fault == Fault::TooMany {
            symptom.evidence = Some(format!("{} tools", tools.len()));
        }
        is_valid &= symptom.severity != Severity::Error;
        report.found(symptom);
    }
    if is_valid && !tools.is_empty() {
        report.well(Aspect::Schemas, "every schema is one that clients take");
    }
}

/// A fault with the clients that mind it. For one client alone, what that one makes of it counts.
fn judged(fault: Fault, profiles: &[&'static Profile], places: Vec<ToolPlace>) -> Symptom {
    let loses =
        |it: &&&'static Profile| it.loses_tool.contains(&fault) || it.loses_server.contains(&fault);
    let mut minds: Vec<String> = profiles.iter().filter(loses).map(|it| it.title.clone()).collect();
    let is_lost = !minds.is_empty();
    let others = profiles.iter().filter(|it| it.is_about(fault) && !loses(it));
    let others: Vec<_> = others.map(|it| it.title.clone()).collect();
    let severity = match (fault.severity(), is_lost) {
        (_, true) if profiles.len() == 1 => Severity::Error,
        (Severity::Error, true) => Severity::Error,
        // No client that was asked for refuses it.
        (Severity::Error | Severity::Warning, false)
            if profiles.len() == 1 && others.is_empty() =>
        {
            Severity::Information
        }
        (Severity::Error, false) => Severity::Warning,
        (severity, _) => severity,
    };
    minds.extend(others);
    Symptom { severity, minds, places, ..Symptom::of_fault(fault, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
