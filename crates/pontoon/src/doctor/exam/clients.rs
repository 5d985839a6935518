//! What each client shows of the tools, as they are and through Pontoon.

use std::collections::{BTreeSet, HashSet};

use pontoon_schema::{Fault, Profile, repair};

use super::schemas::faults_of;
use crate::doctor::examination::{ClientView, Examination};
use crate::doctor::words::tool_name;

/// The clients whose makers say what they take, in a reference or the source that was read there.
const PUBLISHED: [&str; 2] = ["gemini", "vscode"];

/// Those of which public copies of such a reference were read. Of others that were not run, it is known by what their
/// users report.
const COPIED: [&str; 2] = ["gemini-json-schema", "openai-strict"];

/// Those that were run before a script in place of the service of a model, which refuses what the service is known to
/// refuse.
const SCRIPTED: [&str; 1] = ["claude-code"];

/// Judges the tools for each of these clients. The name of the server is the one that its entry in the configuration of
/// a client has: some write it before the names of the tools.
pub(super) fn look(tools: &[String], profiles: &[&'static Profile], report: &mut Examination) {
    report.clients = profiles.iter().map(|profile| view(tools, profile, &report.name)).collect();
}

fn view(tools: &[String], profile: &'static Profile, server: &str) -> ClientView {
    let taken = profile.of_server(server);
    let straight = shown(tools, &taken);
    let shaped = |by: &Profile| {
        let mut known = Vec::new();
        let once = tools.iter().filter(|tool| {
            let name = tool_name(tool);
            let is_new = !name.is_empty() && !known.contains(&name);
            known.push(name);
            is_new
        });
        let repaired: Vec<_> = once.map(|tool| repair(tool, by).tool.into_owned()).collect();
        shown(&repaired, &taken).count
    };
    let (common, own) = (shaped(&Profile::common().of_server(server)), shaped(&taken));
    ClientView {
        profile: &profile.name,
        title: &profile.title,
        basis: basis(profile),
        straight: straight.count,
        through: common.max(own),
        lost: straight.lost,
        loses_all: straight.loses_all,
        limit: straight.limit,
        needs_profile: own > common,
    }
}

fn basis(profile: &Profile) -> String {
    let (date, name, version) = (&profile.date, profile.name.as_str(), &profile.version);
    match profile.is_measured {
        true if SCRIPTED.contains(&name) => {
            format!("measured with {version} before a scripted API on {date}")
        }
        true => format!("measured with {version} on {date}"),
        false if PUBLISHED.contains(&name) => format!("by its published rules of {date}"),
        false if COPIED.contains(&name) => format!("by public copies of its rules of {date}"),
        false => format!("by reports of {date}"),
    }
}

/// What a client makes of some tools.
struct VisibleTools {
    count: usize,
    lost: Vec<(String, Vec<&'static str>)>,
    loses_all: bool,
    limit: Option<usize>,
}

fn shown(tools: &[String], profile: &Profile) -> VisibleTools {
    let (mut lost, mut loses_all, mut names) = (Vec::new(), false, HashSet::new());
    for tool in tools {
        let name = tool_name(tool);
        let mut faults: BTreeSet<_> = faults_of(tool, profile).into_iter().map(|it| it.0).collect();
        if !names.insert(name.clone()) && !name.is_empty() {
            faults.insert(Fault::NameTwice);
        }
        let of = |all: &BTreeSet<Fault>| -> Vec<_> {
            faults.intersection(all).map(|fault| fault.id()).collect()
        };
        let (server, own) = (of(&profile.loses_server), of(&profile.loses_tool));
        loses_all |= !server.is_empty();
        if !server.is_empty() || !own.is_empty() {
            lost.push((name, [server, own].concat()));
        }
    }
    let limit = profile.max_tools.filter(|most| tools.len() > *most);
    loses_all |= limit.is_some() && profile.loses_server.contains(&Fault::TooMany);
    let count = match loses_all {
        true => 0,
        false => (tools.len() - lost.len()).min(limit.unwrap_or(usize::MAX)),
    };
    VisibleTools { count, lost, loses_all, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_by_reports_names_them() {
        for (names, word) in [
            (&PUBLISHED[..], "published"),
            (&COPIED[..], "public copies"),
            (&SCRIPTED[..], "before a model"),
        ] {
            for name in names {
                let profile = Profile::named(name).expect("there is one");
                assert_eq!(profile.is_measured, SCRIPTED.contains(name), "{name}");
                assert!(profile.source.to_lowercase().contains(word), "{name}: no {word}");
            }
        }
        for profile in Profile::all() {
            let is_reported = basis(profile).starts_with("by reports");
            let is_client = !matches!(profile.name.as_str(), "common" | "none");
            if is_client && is_reported {
                let source = profile.source.to_lowercase();
                assert!(source.contains("report"), "{profile}: {source}");
            }
        }
    }

    fn tool(name: &str, rest: &str) -> String {
        format!(
            r#"{{"name":"{name}","description":"d","inputSchema":{{"type":"object","properties":{{}}}}{rest}}}"#
        )
    }

    fn seen_by(profile: &str, tools: &[String]) -> ClientView {
        view(tools, Profile::named(profile).expect("there is one"), "s")
    }

    #[test]
    fn what_a_tool_promises_is_minded_by_those_alone_who_read_it() {
        let valid = r#","outputSchema":{"type":"object","properties":{"a":{"type":["string","null"]}},"additionalProperties":false}"#;
        let wrong = r#","outputSchema":{"type":"object","properties":{"a":{"type":"text"}}}"#;
        for profile in
            ["gemini", "gemini-json-schema", "openai", "anthropic-api", "vscode", "cursor"]
        {
            for promise in [valid, wrong] {
                let view = seen_by(profile, &[tool("t", promise)]);
                assert_eq!((view.straight, view.lost), (1, Vec::new()), "{profile}: {promise}");
            }
        }
        for profile in ["claude-code", "open-webui", "ts-sdk-1", "ts-sdk-2", "python-sdk-1"] {
            assert_eq!(seen_by(profile, &[tool("t", valid)]).straight, 1, "{profile}");
            let view = seen_by(profile, &[tool("t", wrong)]);
            assert_eq!((view.straight, view.loses_all), (0, true), "{profile}");
            assert_eq!(view.lost, [("t".to_owned(), vec!["S015/output-form"])], "{profile}");
        }
    }

    #[test]
    fn a_name_that_comes_twice_costs_what_the_client_makes_of_it() {
        let tools = [tool("t", ""), tool("u", ""), tool("t", "")];
        let lost = [("t".to_owned(), vec!["S014/name-twice"])];
        for (profile, straight) in [("claude-code", 2), ("open-webui", 2), ("anthropic-api", 0)] {
            let view = seen_by(profile, &tools);
            assert_eq!((view.straight, view.through), (straight, 2), "{profile}");
            assert_eq!((&view.lost[..], view.loses_all), (&lost[..], straight == 0), "{profile}");
        }
        let view = seen_by("ts-sdk-1", &tools);
        assert_eq!((view.straight, view.through, view.lost), (3, 2, Vec::new()));
    }

    #[test]
    fn a_list_that_is_too_long_costs_all_or_what_is_cut() {
        let tools: Vec<_> = (0..513).map(|n| tool(&format!("t{n}"), "")).collect();
        for (profile, count, shown) in [
            ("openai", 129, 0),
            ("openai", 128, 128),
            ("gemini", 513, 0),
            ("gemini", 512, 512),
            ("vscode", 129, 128),
            ("claude-code", 513, 513),
        ] {
            let view = seen_by(profile, &tools[..count]);
            assert_eq!((view.straight, view.through), (shown, shown), "{profile}: {count}");
            assert_eq!(view.loses_all, shown == 0, "{profile}: {count}");
        }
    }

    #[test]
    fn a_code_is_told_once_for_a_tool() {
        let properties = r#"{"a":{"type":["string","null"]},"b":{"not":{}}}"#;
        let tool = format!(
            r##"{{"name":"t","description":"d","inputSchema":{{"type":"object","$schema":"http://json-schema.org/draft-07/schema#","properties":{properties},"additionalProperties":false}}}}"##
        );
        let view = seen_by("gemini", &[tool]);
        assert_eq!(view.lost, [("t".to_owned(), vec!["S018/type-list", "S032/unsupported"])]);
    }
}
