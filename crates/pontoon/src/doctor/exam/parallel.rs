//! Several requests at once, each with an id of ours: every one needs its own answer.

use std::time::Duration;

use futures_util::future::join_all;
use pontoon_wire::{Era, method};

use super::requests::died;
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};

/// So many of each kind.
const EACH: usize = 4;

/// Asks for the tools and, between, for something else, all at once.
pub(super) async fn look(
    visit: &Visit,
    patience: Duration,
    has_tools: bool,
    report: &mut Examination,
) {
    if visit.link.is_gone() {
        return;
    }
    let (other, other_params) = match visit.era {
        Era::Legacy => (method::PING, "{}"),
        Era::Modern => (method::DISCOVER, "{}"),
    };
    let before = (visit.heals("H09"), visit.heals("H10"), visit.heals("H11"));
    let lists = (0..EACH).map(|_| visit.ask(method::LIST_TOOLS, "{}", patience));
    let others = (0..EACH).map(|_| visit.ask(other, other_params, patience));
    let (lists, others) = tokio::join!(join_all(lists), join_all(others));
    if lists.iter().chain(&others).any(Said::is_end) {
        return died(visit, "when several requests came at once", report).await;
    }
    let is_list = |said: &Said| said.value().is_some_and(|it| it["tools"].is_array());
    let silent = lists.iter().chain(&others).filter(|it| matches!(it, Said::Silence)).count();
    let mixed = lists
        .iter()
        .filter(|it| has_tools && matches!(it, Said::Result(_)) && !is_list(it))
        .count()
        + others.iter().filter(|it| is_list(it)).count();
    let after = (visit.heals("H09"), visit.heals("H10"), visit.heals("H11"));
    let all = 2 * EACH;
    if mixed > 0 || after.1 > before.1 {
        let evidence = format!("of {all} requests at once {mixed} had the answer of another");
        report.found(Symptom::of_sign(Sign::MixedAnswers, Some(evidence)));
    } else if silent == all {
        report.found(Symptom::of_sign(
            Sign::Hangs,
            Some(format!("{all} requests at once had no answer")),
        ));
    } else if silent > 0 && !has_known_silence(report) {
        let evidence = format!("of {all} requests at once {silent} had no answer");
        report.found(Symptom::of_sign(Sign::MixedAnswers, Some(evidence)));
    } else {
        report.well(Aspect::Requests, format!("{all} requests at once, each with its own answer"));
    }
}

/// Whether it is known that some requests have no answer even alone.
fn has_known_silence(report: &Examination) -> bool {
    report
        .symptoms
        .iter()
        .any(|it| [Sign::NoPing.code(), Sign::ListFails.code()].contains(&it.code))
}
