//! `pontoon tools`: what a server offers, in a list.

use std::process::ExitCode;
use std::sync::Arc;

use pontoon_wire::{Era, method};
use serde_json::Value;

use super::elsewhere::{ShownArgs, with_url};
use super::terminal::{say, with_server};
use crate::config::Options;
use crate::session::catalog::Catalog;
use crate::session::entry::Entry;

/// Lists the tools of a server.
pub fn run(server: &str, options: &Options, as_json: bool) -> ExitCode {
    with_server(server, options, async |single| Ok(print(&*learn(&single.entry).await?, as_json)))
}

/// Lists those of the server at an address.
pub(super) fn run_url(url: &str, shown: &ShownArgs, as_json: bool) -> ExitCode {
    with_url(url, shown, async |there| Ok(print(&there.catalog, as_json)))
}

/// What the server offers.
pub async fn learn(entry: &Entry) -> Result<Arc<Catalog>, String> {
    let name = &entry.back.server.name;
    entry.learnt().await.map_err(|why| match entry.back.app() {
        Some(_) => why,
        None => format!("the server `{name}` does not start: {why}"),
    })
}

/// The tools in a catalogue.
pub fn tools(catalog: &Catalog) -> Vec<Value> {
    let facts = catalog.facts(Era::Legacy);
    let tools = facts.and_then(|facts| facts.lists.get(method::LIST_TOOLS));
    tools.into_iter().flatten().filter_map(|tool| serde_json::from_str(tool.get()).ok()).collect()
}

fn print(catalog: &Catalog, as_json: bool) -> ExitCode {
    let tools = tools(catalog);
    if as_json {
        say(&serde_json::to_string_pretty(&tools).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    if tools.is_empty() {
        say("this server offers no tools");
    }
    for tool in &tools {
        let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
        say(&format!("{}{}", text("name"), usage(tool)));
        let description = text("description");
        description
            .lines()
            .filter(|line| !line.trim().is_empty())
            .for_each(|line| say(&format!("    {line}")));
    }
    ExitCode::SUCCESS
}

/// The arguments of a tool in short: required ones plain, the others in brackets.
fn usage(tool: &Value) -> String {
    let schema = &tool["inputSchema"];
    let required: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let arguments =
        schema["properties"].as_object().into_iter().flatten().map(|(name, property)| {
            let kind = property["type"].as_str().unwrap_or("any");
            match required.contains(&name.as_str()) {
                true => format!(" {name}={kind}"),
                false => format!(" [{name}={kind}]"),
            }
        });
    arguments.collect()
}
