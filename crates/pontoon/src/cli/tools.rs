//! `pontoon tools`: what a server offers, in a list.

use std::process::ExitCode;
use std::sync::Arc;

use pontoon_wire::{Era, method};
use serde_json::Value;

use super::terminal::{Interruption, begin, fail, say, with_spawner};
use crate::app::Single;
use crate::config::{Config, Options};
use crate::errors::chain;
use crate::session::catalog::Catalog;
use crate::session::entry::Entry;

/// Lists the tools of a server.
pub fn run(server: &str, options: &Options, as_json: bool) -> ExitCode {
    let (config, starting) = match begin(options) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    with_spawner(starting, async |spawner| {
        let mut interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        let single = match Single::new(&config, server, &spawner) {
            Ok(Some(single)) => single,
            Ok(None) => return unknown(&config, server),
            Err(error) => return fail(&chain(&error)),
        };
        let code = tokio::select! {
            learnt = learn(&single.entry) => match learnt {
                Ok(catalog) => print(&catalog, as_json),
                Err(why) => fail(&why),
            },
            code = interruption.wait() => code,
        };
        single.close().await;
        code
    })
}

/// There is no such server.
pub fn unknown(config: &Config, server: &str) -> ExitCode {
    let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
    fail(&format!(
        "there is no server {server:?} in the configuration; there are: {}",
        names.join(", ")
    ))
}

/// What the server offers.
pub async fn learn(entry: &Entry) -> Result<Arc<Catalog>, String> {
    let name = &entry.back.server.name;
    entry.learnt().await.map_err(|why| format!("the server `{name}` does not start: {why}"))
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
