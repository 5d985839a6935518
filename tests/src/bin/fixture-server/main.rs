//! The fixture server: a well-behaved MCP server over stdio that speaks both protocol eras.
//!
//! It has every tool, prompt and resource that the conformance suite asks for, and some of our
//! own for tests of the bridge. A connection is pinned to one era by its first request other than
//! `server/discover`. At the end of its input it exits at once: answers still owed then are lost,
//! so a bridge that closes early shows.
//!
//! `fixture-server [--era both|legacy|modern] [--start-delay-ms N] [--label TEXT] [--gate FILE]
//! [--tells-directory]`: it reads nothing for N ms, has one tool more that is called `of_TEXT`, exits
//! with 4 as it starts if FILE is not there, and says in its instructions where it works.
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
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use call::{Call, Outcome};
use message::{META_VERSION, RpcError};
use server::{Era, Offer, Server};

fn main() -> ExitCode {
    let told = match Told::from(std::env::args().skip(1)) {
        Ok(told) => told,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "fixture-server: {reason}");
            return ExitCode::from(2);
        }
    };
    if told.gate.is_some_and(|gate| !gate.exists()) {
        let _ = writeln!(io::stderr(), "fixture-server: its gate is closed");
        return ExitCode::from(4);
    }
    // A server that takes its time to start, as real ones do.
    std::thread::sleep(told.start_delay);
    let mut server = Server::new(told.offer, told.label);
    if told.tells_directory {
        let directory = std::env::current_dir().unwrap_or_default();
        server.instructions += &format!(" It works in {}.", directory.display());
    }
    let server = Arc::new(server);
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match stdin.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => receive(&server, &line),
        }
        if server.is_leaving.load(Ordering::Relaxed) {
            return ExitCode::SUCCESS;
        }
    }
}

/// What the command line says.
struct Told {
    offer: Offer,
    start_delay: Duration,
    label: String,
    gate: Option<PathBuf>,
    tells_directory: bool,
}

impl Told {
    fn from(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (label, gate) = (String::new(), None);
        let (start_delay, tells_directory) = (Duration::ZERO, false);
        let mut told = Self { offer: Offer::Both, start_delay, label, gate, tells_directory };
        while let Some(argument) = arguments.next() {
            if argument == "--tells-directory" {
                told.tells_directory = true;
                continue;
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (argument.as_str(), arguments.next().unwrap_or_default()),
            };
            match (name, value.as_str()) {
                ("--era", "both") => told.offer = Offer::Both,
                ("--era", "legacy") => told.offer = Offer::Only(Era::Legacy),
                ("--era", "modern") => told.offer = Offer::Only(Era::Modern),
                ("--era", era) => {
                    return Err(format!("`--era {era}` is none of both, legacy, modern"));
                }
                ("--start-delay-ms", ms) => {
                    let ms = ms.parse().map_err(|_| format!("`{ms}` is no number of ms"))?;
                    told.start_delay = Duration::from_millis(ms);
                }
                ("--label", label) => told.label = label.to_owned(),
                ("--gate", file) => told.gate = Some(file.into()),
                _ => return Err(format!("unknown argument `{argument}`")),
            }
        }
        Ok(told)
    }
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
