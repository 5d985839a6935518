//! Whether it speaks the modern era: `server/discover` as the first word on a connection of its own.

use std::time::Duration;

use pontoon_wire::{Era, Message, Revision, Slot, json, method};

use crate::back::conversation::handshake::speaks_newest;
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::room::ExamRoom;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};

/// What became of the question.
pub(super) enum ModernLook {
    /// It speaks it; this is the connection, and what it said.
    Speaks(Box<Visit>, Message),
    /// It does not.
    No,
}

/// Opens a connection in the modern era.
pub(super) async fn discover(room: &ExamRoom, patience: Duration) -> ModernLook {
    let Ok(Ok(mut visit)) = tokio::time::timeout(patience, room.open()).await else {
        return ModernLook::No;
    };
    visit.set_era(Era::Modern);
    match visit.ask(method::DISCOVER, "{}", patience).await {
        Said::Result(answer) if speaks_newest(&answer) => {
            visit.greeting = Some(answer.clone());
            ModernLook::Speaks(Box::new(visit), answer)
        }
        _ => ModernLook::No,
    }
}

/// Looks for the modern era, and whether lists work in it.
pub(super) async fn look(
    room: &ExamRoom,
    options: &ExamOptions,
    start: Duration,
    report: &mut Examination,
) {
    let (newest, eras) = (Revision::NEWEST_MODERN, report.eras.clone());
    if eras.contains(&"modern") {
        return report.well(
            Aspect::Handshake,
            format!("speaks {newest} (without a handshake), and nothing older"),
        );
    }
    let patience = start.min(options.patience) + options.small().min(Duration::from_secs(5));
    let ModernLook::Speaks(visit, discovered) = discover(room, patience).await else {
        return report.well(
            Aspect::Handshake,
            format!("speaks the era with a handshake, not {newest}; Pontoon translates"),
        );
    };
    report.eras.push("modern");
    report.versions.push(newest.to_string());
    let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
    let capabilities = json::find(result, "capabilities").unwrap_or(b"{}");
    if json::find(capabilities, "tools").is_some() {
        let listed = visit.ask(method::LIST_TOOLS, "{}", options.small()).await;
        let count = listed.value().and_then(|it| it["tools"].as_array().map(Vec::len));
        if count.is_none() {
            let evidence = format!("tools/list there: {}", listed.words());
            return report.found(Symptom::of_sign(Sign::ModernPart, Some(evidence)));
        }
    }
    report.well(Aspect::Handshake, format!("speaks both eras: with a handshake, and {newest}"));
}
