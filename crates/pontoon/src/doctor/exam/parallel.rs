//! Several requests at once, each with an id of ours: every one needs its own answer.
//!
//! Only an answer that went to another request, or is lost though the server is quick, is told as a fault: answers that
//! come late or twice are told as what they are (H10).

use futures_util::future::join_all;
use pontoon_wire::{Era, method};

use super::requests::died;
use crate::clock::{now, since};
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};

/// So many of each kind.
const EACH: usize = 4;

/// One that answers a request this many times faster than all of them were waited for is not slow.
const SWIFT: u32 = 32;

/// Asks for the tools and, between, for something else, all at once.
pub(super) async fn look(
    visit: &Visit,
    options: &ExamOptions,
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
    let patience = options.small();
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
    let all = 2 * EACH;
    if mixed > 0 {
        let evidence = format!("of {all} requests at once {mixed} had the answer of another");
        return report.found(Symptom::of_sign(Sign::MixedAnswers, Some(evidence)));
    }
    if silent == 0 {
        let text = format!("{all} requests at once, each with its own answer");
        return report.well(Aspect::Requests, text);
    }
    // One that is only slow, or works on one thing after the other, takes its time for this one, too.
    let (asked, alone) = (now(), if has_tools { method::LIST_TOOLS } else { other });
    let said = visit.ask(alone, "{}", options.patience).await;
    let is_swift = since(asked) < patience / SWIFT;
    let told = format!("of {all} requests at once {silent} had no answer");
    match said {
        Said::Gone(_) => died(visit, "after several requests came at once", report).await,
        Said::Silence => {
            let evidence = format!("{told}, and then one alone had none");
            report.found(Symptom::of_sign(Sign::Hangs, Some(evidence)));
        }
        _ if is_swift && !has_known_silence(report) => {
            let evidence = format!("{told}, and one alone is answered at once");
            report.found(Symptom::of_sign(Sign::MixedAnswers, Some(evidence)));
        }
        _ => {
            let seconds = patience.as_secs_f32();
            let text = format!("{told} within {seconds} s: it is slow, and may be well");
            report.skip(Aspect::Requests, text);
        }
    }
}

/// Whether it is known that some requests have no answer even alone.
fn has_known_silence(report: &Examination) -> bool {
    let silent =
        [Sign::NoPing, Sign::ListFails, Sign::UnknownMethod, Sign::UnknownTool].map(Sign::code);
    report.symptoms.iter().any(|it| silent.contains(&it.code))
}
