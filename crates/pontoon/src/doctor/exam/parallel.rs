//! Several requests at once, each with an id of ours: every one needs its own answer.
//!
//! Only an answer that went to another request, or is lost though the server is quick, is told as a fault: answers that
//! come late or twice are told as what they are (H10). What a call has to answer among others is what it answers alone.

use std::time::Duration;

use futures_util::future::join_all;
use pontoon_wire::{Era, method};
use serde_json::{Value, json};

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

/// Asks for the tools and, between, for something else, all at once; then makes these calls so, if there are any.
pub(super) async fn look(
    visit: &Visit,
    options: &ExamOptions,
    has_tools: bool,
    calls: &[(String, Value)],
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
    if silent > 0 {
        let told = format!("of {all} requests at once {silent} had no answer");
        let alone = (if has_tools { method::LIST_TOOLS } else { other }, "{}");
        return tell_silence(visit, options, &told, alone, report).await;
    }
    let which = if calls.is_empty() { " lists and pings alone," } else { "" };
    let text = format!("{all} requests at once,{which} each with its own answer");
    report.well(Aspect::Requests, text);
    call_at_once(visit, options, calls, report).await;
}

/// A call, and what it answers alone.
struct AnsweredCall {
    tool: String,
    params: String,
    answer: Value,
}

impl AnsweredCall {
    /// Makes the call alone. `None` if it is not answered with a result, or too slowly to be made with others.
    async fn of(
        visit: &Visit,
        tool: &str,
        arguments: &Value,
        patience: Duration,
    ) -> Option<AnsweredCall> {
        let params = json!({"name": tool, "arguments": arguments}).to_string();
        let asked = now();
        let answer = visit.ask(method::CALL_TOOL, &params, patience).await.value()?;
        let is_swift = since(asked) < patience / SWIFT;
        is_swift.then(|| AnsweredCall { tool: tool.to_owned(), params, answer })
    }

    /// Whether it still answers the same, alone.
    async fn is_steady(&self, visit: &Visit, patience: Duration) -> bool {
        let again = visit.ask(method::CALL_TOOL, &self.params, patience).await;
        again.value().as_ref() == Some(&self.answer)
    }
}

/// Makes calls at once, which were made alone before.
async fn call_at_once(
    visit: &Visit,
    options: &ExamOptions,
    calls: &[(String, Value)],
    report: &mut Examination,
) {
    if calls.is_empty() {
        return;
    }
    let patience = options.small();
    let mut known = Vec::new();
    for (tool, arguments) in calls {
        known.extend(AnsweredCall::of(visit, tool, arguments, patience).await);
    }
    if visit.link.is_gone() {
        return died(visit, "at a call", report).await;
    }
    let Some(first) = known.first() else {
        let text = "no calls were made at once: alone none had a quick answer";
        return report.skip(Aspect::Requests, text);
    };
    let asked: Vec<_> = known.iter().cycle().take(EACH.max(known.len())).collect();
    let ask = |call: &&AnsweredCall| {
        let params = call.params.clone();
        async move { visit.ask(method::CALL_TOOL, &params, patience).await }
    };
    let said = join_all(asked.iter().map(ask)).await;
    if said.iter().any(Said::is_end) {
        return died(visit, "when several calls came at once", report).await;
    }
    let is_foreign = |call: &AnsweredCall, said: &Said| {
        said.value()
            .is_some_and(|it| it != call.answer && known.iter().any(|other| other.answer == it))
    };
    let pairs = || asked.iter().zip(&said);
    let mut mixed = 0;
    for (call, _) in pairs().filter(|(call, said)| is_foreign(call, said)) {
        // What answers one thing now and another then may have answered this, too.
        mixed += usize::from(call.is_steady(visit, patience).await);
    }
    let (all, tools) = (asked.len(), names(&known));
    if mixed > 0 {
        let evidence =
            format!("of {all} calls of {tools} at once {mixed} had the answer of another");
        return report.found(Symptom::of_sign(Sign::MixedAnswers, Some(evidence)));
    }
    let silent = said.iter().filter(|it| matches!(it, Said::Silence)).count();
    if silent > 0 {
        let told = format!("of {all} calls of {tools} at once {silent} had no answer");
        let alone = (method::CALL_TOOL, first.params.as_str());
        return tell_silence(visit, options, &told, alone, report).await;
    }
    let refused = said.iter().filter(|it| !matches!(it, Said::Result(_))).count();
    let own = pairs().filter(|(call, said)| said.value().as_ref() == Some(&call.answer)).count();
    let differ = known.iter().any(|it| it.answer != first.answer);
    let text = match () {
        () if refused > 0 => {
            let text = format!("of {all} calls of {tools} at once {refused} were refused");
            return report.skip(Aspect::Requests, text);
        }
        () if differ && own == all => {
            format!("{all} calls of {tools} at once, each with its own answer")
        }
        () => {
            format!("{all} calls of {tools} at once, each answered; which is whose cannot be told")
        }
    };
    report.well(Aspect::Requests, text);
}

/// The tools of some calls, each once.
fn names(calls: &[AnsweredCall]) -> String {
    let mut names: Vec<_> = calls.iter().map(|it| format!("`{}`", it.tool)).collect();
    names.dedup();
    names.join(", ")
}

/// Tells why some had no answer. One that is only slow, or works on one thing after the other, takes its time for one
/// alone, too.
async fn tell_silence(
    visit: &Visit,
    options: &ExamOptions,
    told: &str,
    (alone, params): (&'static str, &str),
    report: &mut Examination,
) {
    let patience = options.small();
    let asked = now();
    let said = visit.ask(alone, params, options.patience).await;
    let is_swift = since(asked) < patience / SWIFT;
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
