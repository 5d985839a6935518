//! `pontoon call`: one call of a tool from a shell, with its progress, its questions and its result.

use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use pontoon_supervise::plain_text;
use pontoon_wire::{Era, Message, envelope, method};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::new_file::new_file;
use super::question::{self, TypedAnswers, params_of};
use super::shell_client::shell_client;
use super::terminal::{fail, say, say_text, tell, there_are, with_server};
use super::tools::{learn, show_start, started, tools};
use super::typed_words::{fit, pairs};
use super::waiting::WaitingLine;
use crate::app::Single;
use crate::back::child::stage::StartStage;
use crate::call::{Call, Questions, Receipt, Reply};
use crate::client::Client;
use crate::config::{Options, nearest};
use crate::outbox::{Next, Outbox};
use crate::plain_file::{self, FileKind};
use crate::session::catalog::Catalog;
use crate::session::entry::Entry;
use crate::session::stream::outcome_text;

/// Calls a tool and prints what it gives.
pub fn run(
    server: &str,
    tool: &str,
    arguments: &[String],
    answers: &[String],
    options: &Options,
    as_json: bool,
) -> ExitCode {
    with_server(server, options, async |single| {
        let is_quiet = options.is_quiet;
        // Before anything is started for it.
        let (arguments, answers) = (pairs(arguments)?, pairs(answers)?);
        let catalog = learn(&single.entry, is_quiet).await?;
        let request = request(&catalog, tool, &arguments, is_quiet)?;
        let mut answers = TypedAnswers::new(answers);
        let line = WaitingLine::begin(started(&single.entry), is_quiet);
        let client = Arc::new(shell_client());
        let call = make_call(&single.entry, &catalog, client, (tool, request), &mut answers, &line);
        let (answer, receipt) = call.await?;
        drop(line);
        let code = print(&answer, as_json);
        if let Some(unused) = answers.unused() {
            tell(&format!("warning: {unused}"));
        }
        let saved = receipt.map_or(Ok(()), |receipt| save(single, &receipt, is_quiet));
        saved.map_err(|error| format!("a file was not saved: {error}"))?;
        Ok(code)
    })
}

/// The request that was typed.
pub(super) fn request(
    catalog: &Catalog,
    tool: &str,
    arguments: &[(&str, &str)],
    is_quiet: bool,
) -> Result<Message, String> {
    let tools = tools(catalog);
    let Some(found) = tools.iter().find(|known| known["name"] == tool) else {
        let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        return Err(format!("there is no tool {tool:?}; {}", there_are(tool, &names)));
    };
    let properties = &found["inputSchema"]["properties"];
    let mut values = Map::new();
    for (key, value) in arguments {
        if !is_quiet && let Some(meant) = meant_argument(properties, key) {
            tell(&format!(
                "warning: the tool {tool:?} has no argument {key:?}; did you mean {meant:?}?"
            ));
        }
        if values.insert((*key).to_owned(), fit(&properties[*key], value)).is_some() {
            return Err(format!("the argument {key:?} was typed twice: write {key}=VALUE once"));
        }
    }
    let params = json!({"name": tool, "arguments": values, "_meta": {"progressToken": 1}});
    Ok(Message::own(envelope::request("1", method::CALL_TOOL, &params.to_string())))
}

/// The argument that one was meant to be which the tool does not have.
fn meant_argument<'p>(properties: &'p Value, key: &str) -> Option<&'p str> {
    let known = properties.as_object().filter(|known| !known.contains_key(key))?;
    nearest(key, known.keys().map(String::as_str))
}

/// Makes a call, and gives its answer and what it left.
pub(super) async fn make_call(
    entry: &Entry,
    catalog: &Catalog,
    client: Arc<Client>,
    (tool, request): (&str, Message),
    answers: &mut TypedAnswers<'_>,
    line: &WaitingLine,
) -> Result<(Message, Option<Box<Receipt>>), String> {
    let outbox = Arc::new(Outbox::default());
    // No event has to hold the result here.
    outbox.take_whole();
    let questions = Arc::new(Questions::default());
    let id = Bytes::from_static(b"1");
    let cancel = CancellationToken::new();
    // Whoever stops waiting here, by Ctrl-C for one, cancels the call at the server.
    let _guard = cancel.clone().drop_guard();
    let clock = entry.back.clock(&request);
    let call = Call {
        request,
        client,
        cancel,
        clock,
        may_repeat: false,
        promise: None,
        reply: Reply::new(id.clone(), Arc::clone(&outbox), Some(Arc::clone(&questions))),
    };
    let back = Arc::clone(&entry.back);
    let child_era = catalog.child_era(Era::Legacy);
    let taking = tokio::spawn(async move { back.take(call, child_era).await });
    let mut stage = entry.back.stage();
    loop {
        let next = tokio::select! {
            next = outbox.next() => next,
            Ok(()) = stage.changed() => {
                let stage = *stage.borrow_and_update();
                show_stage(line, entry, stage, tool);
                continue;
            }
        };
        let text = match next {
            Next::Message(text) => text,
            Next::Release => continue,
            Next::End(Some(outcome)) => {
                drop(taking.await);
                let receipt = outcome.receipt();
                let answer = Message::parse(outcome_text(outcome, &id).to_bytes().as_ref());
                return answer.map(|answer| (answer, receipt)).map_err(|error| error.to_string());
            }
            Next::End(None) => return Err("the call was cancelled".to_owned()),
        };
        let Ok(message) = Message::parse(text.to_bytes().as_ref()) else { continue };
        match message.method().as_ref() {
            method::PROGRESS => show(line, &message),
            method::LOG => line.above(|| tell(&log_line(&message))),
            method::ELICIT => {
                let answer = question::answer(&message, answers, line).await;
                questions.answer(&answer);
            }
            _ => {}
        }
    }
}

/// Says what a call waits for whose process is so far.
fn show_stage(line: &WaitingLine, entry: &Entry, stage: StartStage, tool: &str) {
    match stage {
        StartStage::Ready => {
            let limit = entry.back.server.timeout_of(Some(tool));
            line.is_for(format!("waiting for the result of {tool:?}"), Some(limit));
        }
        stage => show_start(line, entry, stage),
    }
}

/// Saves the files that a call made in the current folder, and overwrites none.
fn save(single: &Single, receipt: &Receipt, is_quiet: bool) -> std::io::Result<()> {
    for (name, _) in &receipt.files {
        let from = single.files_of(receipt.job).join(name);
        let (mut made, to) = new_file(name)?;
        std::io::copy(&mut plain_file::open(&from, FileKind::Own)?, &mut made)?;
        if !is_quiet {
            tell(&format!("saved {to}"));
        }
    }
    Ok(())
}

fn log_line(message: &Message) -> String {
    let params = params_of(message);
    let data = &params["data"];
    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
    plain_text(format!("[{}] {text}", params["level"].as_str().unwrap_or("log")))
}

/// Shows how far a call is.
fn show(line: &WaitingLine, note: &Message) {
    let params = params_of(note);
    let done = params["progress"].as_f64().unwrap_or_default();
    let message = params["message"].as_str().unwrap_or_default();
    line.has_reached(done, params["total"].as_f64(), message);
}

/// Prints a result: text as it is, the rest in short.
pub(super) fn print(answer: &Message, as_json: bool) -> ExitCode {
    let answer: Value = serde_json::from_slice(answer.text()).unwrap_or_default();
    if as_json {
        let shown = answer.get("result").or(answer.get("error")).unwrap_or(&answer);
        say(&serde_json::to_string_pretty(shown).unwrap_or_default());
    }
    if let Some(error) = answer.get("error") {
        return match as_json {
            true => ExitCode::FAILURE,
            false => {
                let why = error["message"].as_str().unwrap_or("the server answered with an error");
                fail(&plain_text(why.to_owned()))
            }
        };
    }
    let result = &answer["result"];
    if !as_json {
        let blocks = || result["content"].as_array().into_iter().flatten();
        let texts: Vec<_> = blocks().filter_map(text_of).collect();
        // The bridge says in words which links there are; once is enough.
        let is_said = |block: &&Value| {
            let uri = block["uri"].as_str().filter(|_| block["type"] == "resource_link");
            uri.is_some_and(|uri| texts.iter().any(|text| text.contains(uri)))
        };
        blocks().filter(|block| !is_said(block)).for_each(print_content);
    }
    if result["isError"] == true { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The text of a block that has one.
fn text_of(block: &Value) -> Option<&str> {
    block["text"].as_str().or_else(|| block["resource"]["text"].as_str())
}

fn print_content(content: &Value) {
    let text = |name: &str| content[name].as_str().unwrap_or_default();
    let short = |words: String| say(&plain_text(words));
    match text("type") {
        "text" => say_text(text("text")),
        "image" | "audio" => {
            let bytes = text("data").len() / 4 * 3;
            short(format!("[{} {}, about {bytes} bytes]", text("type"), text("mimeType")));
        }
        "resource_link" => short(format!("[link {}]", text("uri"))),
        "resource" => match content["resource"]["text"].as_str() {
            Some(text) => say_text(text),
            None => {
                let uri = content["resource"]["uri"].as_str().unwrap_or_default();
                short(format!("[resource {uri}]"));
            }
        },
        other => short(format!("[{other}]")),
    }
}
