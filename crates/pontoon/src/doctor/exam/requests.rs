//! Requests that every server hears one day: a ping, a method it does not know, a tool it does not have.

use std::time::Duration;

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};
use crate::doctor::words::short;
use pontoon_wire::{Era, method};

/// What no server has.
const UNKNOWN: &str = "pontoon_doctor/no_such_method";
const UNKNOWN_TOOL: &str = "pontoon_doctor_no_such_tool";

/// The error of a method that is not known.
const METHOD_NOT_FOUND: i64 = -32601;

/// Asks what a server may not know.
pub(super) async fn look(visit: &Visit, patience: Duration, report: &mut Examination) {
    if visit.era == Era::Legacy {
        ping(visit, patience, report).await;
    }
    if visit.link.is_gone() {
        return died(visit, "before the end of its lists", report).await;
    }
    let said = visit.ask(UNKNOWN, "{}", patience).await;
    match &said {
        Said::Error { code: Some(METHOD_NOT_FOUND), .. } => {
            report.well(Aspect::Requests, "an unknown method is refused with -32601");
        }
        Said::Error { .. } => {
            report
                .well(Aspect::Requests, format!("an unknown method is refused; {}", said.words()));
        }
        Said::Gone(_) => return died(visit, "at a method that it does not know", report).await,
        Said::Result(_) | Said::Silence | Said::Echo => {
            report.found(Symptom::of_sign(Sign::UnknownMethod, Some(said.words())));
        }
    }
    if visit.has_capability("tools") {
        unknown_tool(visit, patience, report).await;
    }
}

async fn ping(visit: &Visit, patience: Duration, report: &mut Examination) {
    match visit.ask(method::PING, "{}", patience).await {
        Said::Result(_) => report.well(Aspect::Requests, "`ping` is answered"),
        Said::Gone(_) => {}
        said => report.found(Symptom::of_sign(Sign::NoPing, Some(said.words()))),
    }
}

async fn unknown_tool(visit: &Visit, patience: Duration, report: &mut Examination) {
    let params = format!("{{\"name\":\"{UNKNOWN_TOOL}\",\"arguments\":{{}}}}");
    let said = visit.ask(method::CALL_TOOL, &params, patience).await;
    match &said {
        Said::Error { .. } => report.well(Aspect::Requests, "an unknown tool is refused"),
        Said::Result(_) if said.value().is_some_and(|it| it["isError"] == true) => {
            report.well(Aspect::Requests, "an unknown tool is refused");
        }
        Said::Gone(_) => died(visit, "at a call of a tool that it does not have", report).await,
        Said::Result(_) | Said::Silence | Said::Echo => {
            report.found(Symptom::of_sign(Sign::UnknownTool, Some(said.words())));
        }
    }
}

/// Tells that the server ended, once.
pub(super) async fn died(visit: &Visit, when: &str, report: &mut Examination) {
    if report.symptoms.iter().any(|known| known.code == Sign::Died.code()) {
        return;
    }
    let how = visit.end_words().await.unwrap_or_else(|| "it hung up".to_owned());
    let how = short(&how);
    report.found(Symptom::of_sign(Sign::Died, Some(format!("{when}: {how}"))));
}
