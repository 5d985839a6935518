//! What each client shows of the tools, as they are and through Pontoon.

use pontoon_schema::{Fault, Profile, repair};

use super::schemas::faults_of;
use crate::doctor::examination::{ClientView, Examination};
use crate::doctor::words::tool_name;

/// The clients whose makers say what they take, in a reference, a guide or the source. Of others that were not run,
/// it is known by what their users report.
const PUBLISHED: [&str; 4] = ["gemini", "gemini-json-schema", "openai-strict", "vscode"];

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
        needs_profile: own > common,
    }
}

fn basis(profile: &Profile) -> String {
    let date = &profile.date;
    match profile.is_measured {
        true => format!("measured with {} on {date}", profile.version),
        false if PUBLISHED.contains(&profile.name.as_str()) => {
            format!("by its published rules of {date}")
        }
        false => format!("by reports of {date}"),
    }
}

/// What a client makes of some tools.
struct VisibleTools {
    count: usize,
    lost: Vec<(String, Vec<&'static str>)>,
    loses_all: bool,
}

fn shown(tools: &[String], profile: &Profile) -> VisibleTools {
    let (mut lost, mut loses_all) = (Vec::new(), false);
    for tool in tools {
        let faults = faults_of(tool, profile);
        let of = |all: &std::collections::BTreeSet<Fault>| {
            let mut ids: Vec<_> =
                faults.iter().filter(|(it, _)| all.contains(it)).map(|(it, _)| it.id()).collect();
            ids.dedup();
            ids
        };
        let (server, own) = (of(&profile.loses_server), of(&profile.loses_tool));
        loses_all |= !server.is_empty();
        if !server.is_empty() || !own.is_empty() {
            lost.push((tool_name(tool), [server, own].concat()));
        }
    }
    let most = profile.max_tools.unwrap_or(usize::MAX);
    let count = if loses_all { 0 } else { (tools.len() - lost.len()).min(most) };
    VisibleTools { count, lost, loses_all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_by_reports_names_them() {
        for name in PUBLISHED {
            assert!(Profile::named(name).is_some_and(|it| !it.is_measured), "{name}");
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
}
