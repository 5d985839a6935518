//! What each client shows of the tools, as they are and through Pontoon.

use pontoon_schema::{Fault, Profile, repair};

use super::schemas::faults_of;
use crate::doctor::examination::{ClientView, Examination};
use crate::doctor::words::tool_name;

/// Judges the tools for each of these clients.
pub(super) fn look(tools: &[String], profiles: &[&'static Profile], report: &mut Examination) {
    report.clients = profiles.iter().map(|profile| view(tools, profile)).collect();
}

fn view(tools: &[String], profile: &'static Profile) -> ClientView {
    let straight = shown(tools, profile);
    let shaped = |by: &Profile| {
        let mut known = Vec::new();
        let once = tools.iter().filter(|tool| {
            let name = tool_name(tool);
            let is_new = !name.is_empty() && !known.contains(&name);
            known.push(name);
            is_new
        });
        let repaired: Vec<_> = once.map(|tool| repair(tool, by).tool.into_owned()).collect();
        shown(&repaired, profile).count
    };
    let (common, own) = (shaped(Profile::common()), shaped(profile));
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
    match profile.is_measured {
        true => format!("measured with {} on {}", profile.version, profile.date),
        false => format!("by its rules as known on {}", profile.date),
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
