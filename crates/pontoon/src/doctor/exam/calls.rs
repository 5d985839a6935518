//! Calls of tools: those that were asked for, or one that only reads and needs no arguments.

use pontoon_schema::{Fault, Severity};
use pontoon_wire::method;
use serde_json::{Value, json};

use super::requests::died;
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::recommend::Evidence;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::{Symptom, ToolPlace};
use crate::doctor::visit::{Said, Visit};
use crate::doctor::words::short;

/// Calls tools.
pub(super) async fn look(
    visit: &Visit,
    options: &ExamOptions,
    tools: &[String],
    report: &mut Examination,
    evidence: &mut Evidence,
) {
    if visit.link.is_gone() {
        return;
    }
    let tools: Vec<Value> = tools.iter().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let calls = match options.calls.is_empty() {
        true => tools.iter().find(|tool| is_harmless(tool)).map(|tool| (name(tool), json!({}))),
        false => None,
    };
    let calls: Vec<_> = calls.into_iter().chain(options.calls.iter().cloned()).collect();
    if calls.is_empty() {
        let text = "no tool was called: none is marked as read-only without required arguments (--call TOOL)";
        return report.skip(Aspect::Requests, text);
    }
    for (tool, arguments) in calls {
        let known = tools.iter().find(|it| name(it) == tool);
        if known.is_none() {
            let names: Vec<_> = tools.iter().map(name).collect();
            let text = format!(
                "`{tool}` was not called: there is no such tool; there are: {}",
                names.join(", ")
            );
            report.skip(Aspect::Requests, text);
            continue;
        }
        call(visit, options, &tool, &arguments, known, report).await;
        evidence.has_called = true;
    }
}

fn name(tool: &Value) -> String {
    tool["name"].as_str().unwrap_or_default().to_owned()
}

/// Whether a call without arguments changes nothing, by what the server says of it.
fn is_harmless(tool: &Value) -> bool {
    let annotations = &tool["annotations"];
    let required = tool["inputSchema"]["required"].as_array().map_or(0, Vec::len);
    annotations["readOnlyHint"] == true && annotations["openWorldHint"] != true && required == 0
}

async fn call(
    visit: &Visit,
    options: &ExamOptions,
    tool: &str,
    arguments: &Value,
    known: Option<&Value>,
    report: &mut Examination,
) {
    let params = json!({"name": tool, "arguments": arguments}).to_string();
    let said = visit.ask(method::CALL_TOOL, &params, options.patience).await;
    match &said {
        Said::Gone(_) => died(visit, &format!("at a call of `{tool}`"), report).await,
        Said::Result(_) => {
            let result = said.value().unwrap_or_default();
            if result["isError"] == true {
                let text = short(result["content"][0]["text"].as_str().unwrap_or_default());
                let evidence = format!("`{tool}` says: {text}");
                let symptom = Symptom::of_sign(Sign::BadResult, Some(evidence));
                // One that was chosen here may well want arguments that its schema does not require.
                let severity = match options.calls.is_empty() {
                    true => Severity::Information,
                    false => symptom.severity,
                };
                report.found(Symptom { severity, ..symptom });
            } else {
                report.well(Aspect::Requests, format!("`{tool}` was called and answered"));
            }
            let promises = known.is_some_and(|tool| tool["outputSchema"].is_object());
            if promises && result["isError"] != true && !result["structuredContent"].is_object() {
                let place =
                    ToolPlace { tool: tool.to_owned(), pointer: "/outputSchema".to_owned() };
                let unkept = Symptom::of_fault(Fault::OutputUnkept, Some(said.words()));
                report.found(Symptom { places: vec![place], ..unkept });
            }
        }
        Said::Error { .. } | Said::Silence | Said::Echo => {
            let evidence = format!("`{tool}`: {}", said.words());
            report.found(Symptom::of_sign(Sign::BadResult, Some(evidence)));
        }
    }
}
