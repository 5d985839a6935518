//! A long message, which a server has to answer or to refuse, and to survive.

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};
use crate::doctor::words::bytes;
use pontoon_wire::{Era, method};

/// What no server has, so that a long message does nothing.
const UNKNOWN: &str = "pontoon_doctor/long_message";

/// Sends a long message.
pub(super) async fn look(visit: &Visit, options: &ExamOptions, report: &mut Examination) {
    if visit.link.is_gone() {
        return;
    }
    let size = options.probe_size;
    let params = format!("{{\"filler\":\"{}\"}}", "x".repeat(size));
    let before = ["H08", "H11"].map(|code| visit.heals(code));
    let said = visit.ask(UNKNOWN, &params, options.small()).await;
    let is_torn = ["H08", "H11"].map(|code| visit.heals(code)) != before;
    let shown = bytes(size);
    let is_alive = match visit.era {
        _ if visit.link.is_gone() => false,
        Era::Legacy => {
            let small = visit.ask(method::LIST_TOOLS, "{}", options.small()).await;
            matches!(small, Said::Result(_) | Said::Error { .. })
        }
        Era::Modern => {
            let small = visit.ask(method::DISCOVER, "{}", options.small()).await;
            matches!(small, Said::Result(_) | Said::Error { .. })
        }
    };
    match (&said, is_alive) {
        (_, true) if is_torn => {
            let evidence = format!("of {shown}: it took pieces of it for messages");
            report.found(Symptom::of_sign(Sign::TooLong, Some(evidence)));
        }
        (Said::Result(_) | Said::Error { .. }, true) => {
            report.well(Aspect::Requests, format!("a message of {shown} is answered"));
        }
        (said, true) => {
            let evidence = format!("of {shown}: {}", said.words());
            report.found(Symptom::of_sign(Sign::TooLong, Some(evidence)));
        }
        (said, false) => {
            let evidence = format!("of {shown}: {}, and nothing after it", said.words());
            report.found(Symptom::of_sign(Sign::TooLong, Some(evidence)));
        }
    }
}
