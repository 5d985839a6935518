//! The fixture server: a well-behaved MCP server over stdio that speaks both protocol eras.
//!
//! It has every tool, prompt and resource that the conformance suite asks for, and some of our
//! own for tests of the bridge. `fixture-server [--era both|legacy|modern]`; a connection is
//! pinned to one era by its first request other than `server/discover`. At the end of its input
//! it exits at once: answers still owed then are lost, so a bridge that closes early shows.
//!
//! This file reads lines and routes them; [`legacy`] and [`modern`] know the eras, and `tools`,
//! `prompts` and `resources` know nothing of them.

mod call;
mod changes;
mod input;
mod legacy;
mod message;
mod modern;
mod prompts;
mod resources;
mod seal;
mod server;
mod tasks;
mod tools;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};

use call::{Call, Outcome};
use message::{META_VERSION, RpcError};
use server::{Era, Offer, Server};

fn main() -> ExitCode {
    let offer = match offer_from(std::env::args().skip(1)) {
        Ok(offer) => offer,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "fixture-server: {reason}");
            return ExitCode::from(2);
        }
    };
    let server = Arc::new(Server::new(offer));
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match stdin.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => receive(&server, &line),
        }
    }
}

/// Which eras to offer, from the command line.
fn offer_from(mut arguments: impl Iterator<Item = String>) -> Result<Offer, String> {
    let mut offer = Offer::Both;
    while let Some(argument) = arguments.next() {
        let era = match argument.strip_prefix("--era=") {
            Some(era) => era.to_owned(),
            None if argument == "--era" => arguments.next().unwrap_or_default(),
            None => return Err(format!("unknown argument `{argument}`")),
        };
        offer = match era.as_str() {
            "both" => Offer::Both,
            "legacy" => Offer::Only(Era::Legacy),
            "modern" => Offer::Only(Era::Modern),
            _ => return Err(format!("`--era {era}` is none of both, legacy, modern")),
        };
    }
    Ok(offer)
}

fn receive(server: &Arc<Server>, line: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return server.send_error(&Value::Null, &RpcError::new(-32700, "not JSON"));
    };
    let id = message.get("id");
    match (message.get("method").and_then(Value::as_str), id) {
        (Some(method), Some(id)) if id.is_string() || id.is_number() => {
            request(server, method, id, &message);
        }
        (Some(method), None) => notification(server, method, &message),
        (None, Some(id)) if message.get("result").or(message.get("error")).is_some() => {
            server.take_answer(id, &message);
        }
        // A batch lands here too: no version this server speaks well still has them on stdio.
        _ => server.send_error(
            id.unwrap_or(&Value::Null),
            &RpcError::new(-32600, "neither a request, a notification nor a response"),
        ),
    }
}

fn request(server: &Arc<Server>, method: &str, id: &Value, message: &Value) {
    let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
    let says_modern = params.pointer(&format!("/_meta/{META_VERSION}")).is_some()
        || matches!(method, "server/discover" | "subscriptions/listen");
    let era = match server.pin(method, says_modern) {
        Ok(era) => era,
        Err(error) => return server.send_error(id, &error),
    };
    let call = Call::new(Arc::clone(server), era, id.clone(), params);
    let admitted = match era {
        Era::Legacy => legacy::admit(&call, method),
        Era::Modern => modern::admit(&call, method),
    };
    match admitted {
        Ok(Some(result)) => call.answer(method, Ok(result)),
        Ok(None) => run(call, method),
        Err(stop) => call.answer(method, Err(stop)),
    }
}

/// Runs one of the methods that both eras have.
fn run(call: Call, method: &str) {
    let handler: fn(&Call) -> Outcome = match method {
        "tools/list" => tools::list,
        "tools/call" if tools::is_quick(&call) => tools::call,
        "tools/call" => return on_a_thread(call, "tools/call", tools::call),
        "prompts/list" => prompts::list,
        "prompts/get" => return on_a_thread(call, "prompts/get", prompts::get),
        "completion/complete" => prompts::complete,
        "resources/list" => resources::list,
        "resources/templates/list" => resources::list_templates,
        "resources/read" => resources::read,
        "tasks/get" if call.era == Era::Modern => tasks::get,
        "tasks/update" if call.era == Era::Modern => tasks::update,
        "tasks/cancel" if call.era == Era::Modern => tasks::cancel,
        "subscriptions/listen" => return changes::listen(&call),
        _ => |_| Err(RpcError::new(-32601, "no such method").into()),
    };
    let outcome = handler(&call);
    call.answer(method, outcome);
}

/// Runs `handler` beside the reading loop, so that it can wait, ask and be cancelled.
fn on_a_thread(call: Call, method: &'static str, handler: fn(&Call) -> Outcome) {
    call.register();
    let (server, id) = (Arc::clone(&call.server), call.id.clone());
    let worker = move || {
        let outcome = handler(&call);
        call.answer(method, outcome);
    };
    let started = std::thread::Builder::new().stack_size(256 << 10).spawn(worker);
    if let Err(error) = started {
        server.send_error(&id, &RpcError::new(-32603, format!("no thread: {error}")));
    }
}

fn notification(server: &Server, method: &str, message: &Value) {
    if method == "notifications/cancelled"
        && let Some(id) = message.pointer("/params/requestId")
    {
        server.cancel(id);
        changes::stop_listening(server, id);
    }
}
