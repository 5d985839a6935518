//! The conformance suite's tools that become tasks, for clients that know tasks.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Pace, Tool, form, nothing};
use crate::call::{Call, Outcome};
use crate::input::{Question, State, ask};
use crate::message::{RpcError, text, tool_error};
use crate::tasks::{self, Otherwise};

pub(super) fn tools() -> Vec<Tool> {
    let tool =
        |name, description, schema, run| Tool { name, description, schema, pace: Pace::Slow, run };
    let string = || json!({ "type": "string" });
    vec![
        tool("greet", "Never a task.", form(&[("name", string())]), |call| {
            let name = call.argument("name").and_then(Value::as_str).unwrap_or("nobody");
            Ok(text(format!("Hello, {name}!")))
        }),
        tool("slow_compute", "Sleeps.", slow_schema(), |call| {
            tasks::run(call, Otherwise::Wait, |call| {
                let seconds = call.argument("seconds").and_then(Value::as_u64).unwrap_or(0);
                call.sleep(Duration::from_secs(seconds))?;
                Ok(text(format!("computed for {seconds} s")))
            })
        }),
        tool("failing_job", "Always a task that fails as a tool.", nothing(), |call| {
            tasks::run(call, Otherwise::Refuse, |call| {
                call.sleep(Duration::from_secs(1))?;
                Ok(tool_error("the job failed, as it always does"))
            })
        }),
        tool("protocol_error_job", "A task that ends in an error.", nothing(), |call| {
            tasks::run(call, Otherwise::Wait, |_| {
                Err(RpcError::new(-32603, "the job broke, as it always does").into())
            })
        }),
        tool("confirm_delete", "Asks first.", form(&[("filename", string())]), |call| {
            tasks::run(call, Otherwise::Wait, confirm_delete)
        }),
        tool("multi_input", "Asks two things at once.", nothing(), |call| {
            tasks::run(call, Otherwise::Wait, |call| {
                let schema = form(&[("name", json!({ "type": "string" }))]);
                let questions = [
                    Question::elicit("first", "The first name?", &schema),
                    Question::elicit("second", "The second name?", &schema),
                ];
                let answers = ask(call, &questions, State::WhenNeeded)?;
                Ok(text(format!("{} and {}", answers[0]["content"], answers[1]["content"])))
            })
        }),
        tool("test_tool_with_task", "Asks, and then is a task.", nothing(), |call| {
            let schema = form(&[("name", json!({ "type": "string" }))]);
            let question = Question::elicit("user_name", "What is your name?", &schema);
            let answers = ask(call, &[question], State::WhenNeeded)?;
            tasks::run(call, Otherwise::Refuse, move |_| {
                Ok(text(format!("Hello, {}!", answers[0]["content"]["name"])))
            })
        }),
    ]
}

fn slow_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "seconds": { "type": "integer" }, "label": { "type": "string" } },
    })
}

fn confirm_delete(call: &Call) -> Outcome {
    let name = call.argument("filename").and_then(Value::as_str).unwrap_or("nothing");
    let schema = form(&[("confirm", json!({ "type": "boolean" }))]);
    let question = Question::elicit("confirm", &format!("Delete {name}?"), &schema);
    let answers = ask(call, &[question], State::WhenNeeded)?;
    let is_confirmed = answers[0]["content"]["confirm"] == true;
    Ok(text(if is_confirmed { format!("deleted {name}") } else { format!("kept {name}") }))
}
