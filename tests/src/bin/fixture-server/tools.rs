//! The tools: their list, and which function serves each.
//!
//! `content` has the suite's tools that only answer, `asking` those that need the client's
//! input, `jobs` those that become tasks, `own` those for our own tests, and `state` those that
//! show one process from another.

mod asking;
mod content;
mod jobs;
mod own;
mod state;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::call::{Call, Outcome};
use crate::changes::List;
use crate::message::RpcError;
use crate::server::lock;

pub(crate) use content::PNG;

/// Whether a tool may hold up the reading of the next message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Quick,
    Slow,
}

/// One tool, as it is listed and as it runs.
struct Tool {
    name: &'static str,
    description: &'static str,
    schema: Value,
    pace: Pace,
    run: fn(&Call) -> Outcome,
}

/// Made once: a listing of forty tools is otherwise most of what a short test waits for.
static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    // The suite calls the first tool without arguments, so that one must take none.
    let mut tools = content::tools();
    tools.extend(asking::tools());
    tools.extend(jobs::tools());
    tools.extend(own::tools());
    tools.extend(state::tools());
    tools
});

/// Listed only while the tool list has its extra entry.
const EXTRA: &str = "test_extra_tool";

fn is_listed(call: &Call, tool: &Tool) -> bool {
    tool.name != EXTRA || lock(&call.server.changes).has_extra(List::Tools)
}

pub(crate) fn list(call: &Call) -> Outcome {
    let describe = |tool: &Tool| json!({ "name": tool.name, "description": tool.description, "inputSchema": tool.schema });
    let mut tools: Vec<Value> =
        TOOLS.iter().filter(|tool| is_listed(call, tool)).map(describe).collect();
    let label = &call.server.label;
    if !label.is_empty() {
        tools.push(json!({ "name": format!("of_{label}"), "inputSchema": nothing() }));
    }
    Ok(json!({ "tools": tools }))
}

/// Whether the called tool answers at once.
pub(crate) fn is_quick(call: &Call) -> bool {
    find(call).is_none_or(|tool| tool.pace == Pace::Quick)
}

pub(crate) fn call(call: &Call) -> Outcome {
    match find(call) {
        Some(tool) => (tool.run)(call),
        None => {
            let name = call.params.get("name").unwrap_or(&Value::Null);
            Err(RpcError::new(-32602, format!("no tool {name}")).into())
        }
    }
}

fn find(call: &Call) -> Option<&'static Tool> {
    let name = call.params.get("name")?.as_str()?;
    TOOLS.iter().find(|tool| tool.name == name && is_listed(call, tool))
}

/// The schema of a form, all of whose fields must be filled in.
pub(crate) fn form(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The schema of a tool without arguments.
fn nothing() -> Value {
    json!({ "type": "object", "properties": {} })
}
