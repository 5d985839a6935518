//! Calls of tools: those that were asked for, or one that only reads and needs no arguments.

use pontoon_schema::{Check, Fault, Severity};
use pontoon_wire::heal::Heal;
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

/// The doctor makes this many calls at once, each with other arguments.
const DIFFERENT: usize = 4;

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

/// Calls that may be made again and several at once, each with other arguments: of tools that only read, or that were
/// asked for and say that one call more changes nothing. A tool that says nothing may change something.
pub(super) fn repeatable(options: &ExamOptions, tools: &[String]) -> Vec<(String, Value)> {
    let tools: Vec<Value> = tools.iter().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let harmless = tools.iter().filter(|tool| is_harmless(tool)).map(|it| (name(it), json!({})));
    let asked = options
        .calls
        .iter()
        .filter(|(tool, _)| tools.iter().any(|it| name(it) == *tool && may_be_repeated(it)));
    let mut calls: Vec<_> = match options.calls.is_empty() {
        true => harmless.take(DIFFERENT).collect(),
        false => asked.take(DIFFERENT).cloned().collect(),
    };
    for (tool, arguments) in calls.clone() {
        let known = tools.iter().find(|it| name(it) == tool).filter(|it| only_reads(it));
        let Some(argument) = known.and_then(|it| free_text(it, &arguments)) else { continue };
        for n in 1..=DIFFERENT.saturating_sub(calls.len()) {
            let mut other = arguments.clone();
            other[&argument] = json!(format!("pontoon {n}"));
            calls.push((tool.clone(), other));
        }
    }
    calls
}

/// An argument that takes any text: one that is given, or may be.
fn free_text(tool: &Value, arguments: &Value) -> Option<String> {
    let properties = tool["inputSchema"]["properties"].as_object()?;
    let is_free = |schema: &Value| {
        schema["type"] == "string"
            && ["enum", "const", "pattern", "format", "maxLength"]
                .iter()
                .all(|it| schema[it].is_null())
    };
    let mut free = properties.iter().filter(|(_, schema)| is_free(schema)).map(|(name, _)| name);
    let given = free.clone().find(|name| arguments[name.as_str()].is_string());
    given.or_else(|| free.next()).cloned()
}

fn name(tool: &Value) -> String {
    tool["name"].as_str().unwrap_or_default().to_owned()
}

/// Whether a call without arguments changes nothing, by what the server says of it.
fn is_harmless(tool: &Value) -> bool {
    let required = tool["inputSchema"]["required"].as_array().map_or(0, Vec::len);
    only_reads(tool) && required == 0
}

/// Whether it changes nothing, and does not reach out into the world.
fn only_reads(tool: &Value) -> bool {
    let annotations = &tool["annotations"];
    annotations["readOnlyHint"] == true && annotations["openWorldHint"] != true
}

/// Whether it says that one call more changes nothing.
fn may_be_repeated(tool: &Value) -> bool {
    let annotations = &tool["annotations"];
    annotations["readOnlyHint"] == true || annotations["idempotentHint"] == true
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
            let promised = known.map(|tool| &tool["outputSchema"]).filter(|it| it.is_object());
            // A modern server may have asked something first.
            let is_whole = result["resultType"].as_str().is_none_or(|kind| kind == "complete");
            if let Some(promised) = promised.filter(|_| is_whole && result["isError"] != true) {
                let place =
                    ToolPlace { tool: tool.to_owned(), pointer: "/outputSchema".to_owned() };
                let broken = broken_promise(promised, &result, said.words());
                if let Some(broken) = broken {
                    report.found(Symptom { places: vec![place], ..broken });
                }
            }
        }
        Said::Error { .. } | Said::Silence | Said::Echo => {
            let evidence = format!("`{tool}`: {}", said.words());
            report.found(Symptom::of_sign(Sign::BadResult, Some(evidence)));
        }
    }
}

/// What is wrong with the structured content of a result, which is no error, of a tool that promises this.
fn broken_promise(promised: &Value, result: &Value, evidence: String) -> Option<Symptom> {
    let given = &result["structuredContent"];
    // In the modern era it may be a value of any kind.
    let is_modern = result["resultType"].is_string();
    if given.is_null() || !(given.is_object() || is_modern) {
        return Some(Symptom::of_fault(Fault::OutputUnkept, Some(evidence)));
    }
    // A schema that values cannot be checked with is a fault of its own.
    let check = Check::new(&promised.to_string())?;
    let is_kept = check.takes(&given.to_string());
    (!is_kept).then(|| Symptom::of_heal(Heal::H18, Some(evidence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_gives_is_held_against_what_it_promises() {
        let promised = json!({
            "type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}},
        });
        let odd = json!({"type": "object", "properties": {"n": {"type": "int"}}});
        for (promised, given, code) in [
            (&promised, json!({"n": 1, "m": "x"}), None),
            (&promised, json!(null), Some("S015/output-unkept")),
            (&promised, json!([1]), Some("S015/output-unkept")),
            (&promised, json!({"n": "1"}), Some("H18")),
            (&promised, json!({}), Some("H18")),
            // What is wrong with the schema is told elsewhere.
            (&odd, json!({"n": "1"}), None),
        ] {
            let result = json!({"structuredContent": given});
            let found = broken_promise(promised, &result, String::new());
            let found = found.map(|it| (it.code, it.severity));
            assert_eq!(found, code.map(|code| (code, Severity::Error)), "{given}");
        }
        let listed = json!({"type": "array", "items": {"type": "integer"}});
        for (given, code) in [(json!([1]), None), (json!(["1"]), Some("H18"))] {
            let result = json!({"resultType": "complete", "structuredContent": given});
            let found = broken_promise(&listed, &result, String::new());
            assert_eq!(found.map(|it| it.code), code, "{given}");
        }
    }

    #[test]
    fn only_calls_that_change_nothing_are_made_again() {
        let tool = |name: &str, annotations: Value| {
            let properties = json!({"text": {"type": "string"}});
            let schema = json!({"type": "object", "properties": properties});
            json!({"name": name, "inputSchema": schema, "annotations": annotations}).to_string()
        };
        let tools = [
            tool("read", json!({"readOnlyHint": true})),
            tool("fetch", json!({"readOnlyHint": true, "openWorldHint": true})),
            tool("write", json!({"readOnlyHint": false})),
            tool("set", json!({"readOnlyHint": false, "idempotentHint": true})),
            tool("plain", json!(null)),
        ];
        let repeated = |calls: &[(&str, Value)]| {
            let calls = calls.iter().map(|(tool, given)| ((*tool).to_owned(), given.clone()));
            let options = ExamOptions {
                patience: std::time::Duration::ZERO,
                probe_size: 0,
                calls: calls.collect(),
                profile: None,
            };
            let calls = repeatable(&options, &tools);
            calls.iter().map(|(tool, given)| format!("{tool} {given}")).collect::<Vec<_>>()
        };
        let others = (1..=3).map(|n| format!(r#"read {{"text":"pontoon {n}"}}"#));
        let expected: Vec<_> = ["read {}".to_owned()].into_iter().chain(others).collect();
        assert_eq!(repeated(&[]), expected);
        assert_eq!(repeated(&[("set", json!({}))]), ["set {}"]);
        let fetched = repeated(&[("fetch", json!({"text": "x"}))]);
        assert_eq!(fetched, [r#"fetch {"text":"x"}"#], "what is asked of the world is not made up");
        for tool in ["plain", "write", "no such"] {
            assert_eq!(repeated(&[(tool, json!({"text": "x"}))]), Vec::<String>::new(), "{tool}");
        }
    }
}
