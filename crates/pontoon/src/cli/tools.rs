//! `pontoon tools`: what a server offers, in a list.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use pontoon_supervise::plain_text;
use pontoon_wire::{Era, method};
use serde_json::Value;

use super::elsewhere::{ShownArgs, with_url};
use super::terminal::{say, with_server};
use super::waiting::WaitingLine;
use crate::back::child::stage::StartStage;
use crate::config::Options;
use crate::session::catalog::Catalog;
use crate::session::entry::Entry;

/// Lists the tools of a server.
pub fn run(server: &str, options: &Options, as_json: bool) -> ExitCode {
    with_server(server, options, async |single| {
        Ok(print(&*learn(&single.entry, options.is_quiet).await?, as_json))
    })
}

/// Lists those of the server at an address.
pub(super) fn run_url(url: &str, shown: &ShownArgs, is_quiet: bool, as_json: bool) -> ExitCode {
    with_url(url, shown, is_quiet, async |there| Ok(print(&there.catalog, as_json)))
}

/// What the server offers. A person is told what is waited for.
pub async fn learn(entry: &Entry, is_quiet: bool) -> Result<Arc<Catalog>, String> {
    let name = &entry.back.server.name;
    let line = WaitingLine::begin(started(entry), is_quiet);
    let mut stage = entry.back.stage();
    let mut learning = pin!(entry.learnt());
    let learnt = loop {
        tokio::select! {
            learnt = &mut learning => break learnt,
            Ok(()) = stage.changed() => {
                let stage = *stage.borrow_and_update();
                show_start(&line, entry, stage);
            }
        }
    };
    learnt.map_err(|why| match entry.back.app() {
        Some(_) => why,
        None => format!("the server `{name}` does not start: {why}"),
    })
}

/// What is waited for at first.
pub(super) fn started(entry: &Entry) -> String {
    let server = &entry.back.server;
    match &server.app {
        Some(app) => format!("waiting for \"{}\" at {}", server.name, app.place),
        None => format!("starting the server \"{}\"", server.name),
    }
}

/// Says what is waited for when the last process that was started is so far.
pub(super) fn show_start(line: &WaitingLine, entry: &Entry, stage: StartStage) {
    let name = &entry.back.server.name;
    match stage {
        StartStage::Starting => line.is_for(started(entry), None),
        StartStage::Greeting(patience) => {
            let what = format!("waiting for \"{name}\" to answer `initialize`");
            line.is_for(what, Some(patience));
        }
        StartStage::Ready => line.is_for(format!("asking \"{name}\" what it offers"), None),
    }
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
        say(&plain_text(format!("{}{}", text("name"), usage(tool))));
        let description = text("description");
        description
            .lines()
            .filter(|line| !line.trim().is_empty())
            .for_each(|line| say(&format!("    {}", plain_text(line.to_owned()))));
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
