//! Which versions it agrees to, each asked for on a connection of its own (seed 003, problem 2).

use std::time::Duration;

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::room::ExamRoom;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::Said;
use pontoon_schema::Severity;
use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, Revision};

/// A version that nobody speaks: a server has to offer another.
const UNKNOWN: &str = "1999-01-01";

/// Asks for an old version, one in the middle, and one that there is not.
pub(super) async fn look(
    room: &ExamRoom,
    options: &ExamOptions,
    start: Duration,
    report: &mut Examination,
) {
    let Some(newest) = report.versions.first().cloned() else { return };
    let patience = start.min(options.patience) + options.small();
    let asked = [Revision::V2024_11_05.as_str(), Revision::V2025_06_18.as_str(), UNKNOWN];
    let ask = |version: &'static str| async move { (version, ask(room, version, patience).await) };
    // A program is started once for each; an application may know only one client at a time.
    let said = match room.patient.is_program() {
        true => {
            let [old, middle, unknown] = asked;
            let (old, middle, unknown) = tokio::join!(ask(old), ask(middle), ask(unknown));
            vec![old, middle, unknown]
        }
        false => {
            let mut said = Vec::new();
            for version in asked {
                said.push(ask(version).await);
            }
            said
        }
    };
    let agreed = |version: &str| {
        said.iter().find(|(asked, _)| *asked == version).and_then(|(_, said)| {
            Some(said.as_ref()?.value()?["protocolVersion"].as_str()?.to_owned())
        })
    };
    for (_, said) in &said {
        let Some(version) = said.as_ref().and_then(|it| it.value()) else { continue };
        let version = version["protocolVersion"].as_str().unwrap_or_default().to_owned();
        if Revision::parse(&version).is_some() && !report.versions.contains(&version) {
            report.versions.push(version);
        }
    }
    report.versions.sort_unstable();
    let (old, middle, unknown) = (agreed(asked[0]), agreed(asked[1]), agreed(UNKNOWN));
    let fault = match (&old, &middle, &unknown) {
        _ if !is_version(&newest) => {
            let evidence =
                format!("it answers with the version {newest:?}, which is none of the protocol");
            Some(Symptom::of_heal(Heal::H19, Some(evidence)))
        }
        (_, _, Some(unknown)) if unknown == UNKNOWN => {
            let evidence = format!("it agrees to {UNKNOWN}, which is no version");
            Some(Symptom::of_heal(Heal::H19, Some(evidence)))
        }
        (Some(old), Some(middle), _) if *old == newest && *middle == newest => Some(same(&newest)),
        _ => None,
    };
    // What was healed at the first handshake is told here, with what it means.
    report.symptoms.retain(|symptom| symptom.code != Heal::H19.code());
    if let Some(fault) = fault {
        return report.found(fault);
    }
    let refusal = said.iter().find_map(|(version, said)| match said {
        Some(error @ Said::Error { .. }) => Some(format!("asked for {version}: {}", error.words())),
        _ => None,
    });
    match refusal {
        Some(evidence) => {
            let evidence = format!("it refuses in place of offering another version; {evidence}");
            report.found(Symptom::of_heal(Heal::H19, Some(evidence)));
        }
        None => {
            let versions = report.versions.join(", ");
            report.well(
                Aspect::Handshake,
                format!("agrees to the version it is asked for: {versions}"),
            );
        }
    }
}

/// It answers with the same version always. One that knows no other may, and the oldest is known to every client; with another
/// one it loses those that are older.
fn same(version: &str) -> Symptom {
    let evidence = format!("it answers {version} whatever it is asked for");
    if version != Revision::V2024_11_05.as_str() {
        return Symptom::of_heal(Heal::H19, Some(evidence));
    }
    let evidence = format!("{evidence}, as a server may that knows no other");
    Symptom {
        severity: Severity::Information,
        minds: Vec::new(),
        fix: format!("If it knows others: {}", Heal::H19.fix()),
        ..Symptom::of_heal(Heal::H19, Some(evidence))
    }
}

fn is_version(text: &str) -> bool {
    Revision::parse(text).is_some_and(|revision| revision.era() == Era::Legacy)
}

async fn ask(room: &ExamRoom, version: &str, patience: Duration) -> Option<Said> {
    let opened = tokio::time::timeout(patience, room.open()).await;
    let mut visit = opened.ok()?.ok()?;
    visit.set_era(Era::Legacy);
    Some(visit.ask_version(version, patience).await)
}
