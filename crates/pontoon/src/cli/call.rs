//! `pontoon call`: one call of a tool from a shell, with its progress, its questions and its result.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use pontoon_wire::{Era, Message, Slot, envelope, method, quoted};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::new_file::new_file;
use super::shell_client::shell_client;
use super::terminal::{fail, say, tell, with_server};
use super::tools::{learn, tools};
use crate::app::Single;
use crate::call::{Call, Questions, Receipt, Reply};
use crate::client::Client;
use crate::config::Options;
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
        let catalog = learn(&single.entry).await?;
        let (request, answers) = (request(&catalog, tool, arguments)?, pairs(answers)?);
        let client = Arc::new(shell_client());
        let (answer, receipt) =
            make_call(&single.entry, &catalog, client, request, &answers).await?;
        let code = print(&answer, as_json);
        let saved = receipt.map_or(Ok(()), |receipt| save(single, &receipt));
        saved.map_err(|error| format!("a file was not saved: {error}"))?;
        Ok(code)
    })
}

/// The request that was typed.
pub(super) fn request(
    catalog: &Catalog,
    tool: &str,
    arguments: &[String],
) -> Result<Message, String> {
    let tools = tools(catalog);
    let Some(found) = tools.iter().find(|known| known["name"] == tool) else {
        let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        return Err(format!("there is no tool {tool:?}; there are: {}", names.join(", ")));
    };
    let mut values = Map::new();
    for (key, value) in pairs(arguments)? {
        values.insert(key.to_owned(), fit(&found["inputSchema"]["properties"][key], value));
    }
    let params = json!({"name": tool, "arguments": values, "_meta": {"progressToken": 1}});
    Ok(Message::own(envelope::request("1", method::CALL_TOOL, &params.to_string())))
}

/// Words typed as key=value.
pub(super) fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let pair = |word: &String| format!("{word:?} is no argument: write it as key=value");
    words.iter().map(|word| word.split_once('=').ok_or_else(|| pair(word))).collect()
}

/// A typed word as the value that the tool's schema wants.
fn fit(schema: &Value, word: &str) -> Value {
    let text = || Value::String(word.to_owned());
    if schema["type"] == "string" {
        return text();
    }
    serde_json::from_str(word).unwrap_or_else(|_| text())
}

/// Makes a call, and gives its answer and what it left.
pub(super) async fn make_call(
    entry: &Entry,
    catalog: &Catalog,
    client: Arc<Client>,
    request: Message,
    answers: &[(&str, &str)],
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
    // On a terminal; nothing is shown elsewhere.
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    loop {
        let text = match outbox.next().await {
            Next::Message(text) => text,
            Next::Release => continue,
            Next::End(Some(outcome)) => {
                bar.finish_and_clear();
                drop(taking.await);
                let receipt = outcome.receipt();
                let answer = Message::parse(outcome_text(outcome, &id).to_bytes().as_ref());
                return answer.map(|answer| (answer, receipt)).map_err(|error| error.to_string());
            }
            Next::End(None) => return Err("the call was cancelled".to_owned()),
        };
        let Ok(message) = Message::parse(text.to_bytes().as_ref()) else { continue };
        match message.method().as_ref() {
            method::PROGRESS => show(&bar, &message),
            method::LOG => bar.suspend(|| tell(&log_line(&message))),
            method::ELICIT => {
                let answer = bar.suspend(|| ask_person(&message, answers));
                questions.answer(&answer);
            }
            _ => {}
        }
    }
}

/// Saves the files that a call made in the current folder, and overwrites none.
fn save(single: &Single, receipt: &Receipt) -> std::io::Result<()> {
    for (name, _) in &receipt.files {
        let from = single.files_of(receipt.job).join(name);
        let (mut made, to) = new_file(name)?;
        std::io::copy(&mut plain_file::open(&from, FileKind::Own)?, &mut made)?;
        tell(&format!("saved {to}"));
    }
    Ok(())
}

fn params_of(message: &Message) -> Value {
    serde_json::from_slice(message.raw(Slot::Params).unwrap_or_default()).unwrap_or_default()
}

fn log_line(message: &Message) -> String {
    let params = params_of(message);
    let data = &params["data"];
    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
    format!("[{}] {text}", params["level"].as_str().unwrap_or("log"))
}

/// Shows on the bar how far a call is.
fn show(bar: &ProgressBar, note: &Message) {
    let params = params_of(note);
    if let (Some(total), None) = (params["total"].as_f64(), bar.length()) {
        bar.set_length(total as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        style.into_iter().for_each(|style| bar.set_style(style));
    }
    bar.set_position(params["progress"].as_f64().unwrap_or_default() as u64);
    bar.set_message(params["message"].as_str().unwrap_or_default().to_owned());
}

/// Answers a server's question: as typed beforehand, or by the person at the terminal; without
/// either it is declined.
fn ask_person(question: &Message, answers: &[(&str, &str)]) -> Message {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or_default()).into_owned();
    let params = params_of(question);
    let answer = |result: Value| Message::own(envelope::result_answer(&id, &result.to_string()));
    tell(&format!("the server asks: {}", params["message"].as_str().unwrap_or_default()));
    let mut content = Map::new();
    for (name, property) in
        params["requestedSchema"]["properties"].as_object().into_iter().flatten()
    {
        if let Some((_, value)) = answers.iter().find(|(key, _)| key == name) {
            content.insert(name.clone(), fit(property, value));
            continue;
        }
        if !std::io::stdin().is_terminal() {
            tell("(declined: standard input is no terminal; answer with --answer KEY=VALUE)");
            return answer(json!({ "action": "decline" }));
        }
        let label = property["description"].as_str().or(property["title"].as_str()).unwrap_or(name);
        drop(write!(std::io::stderr(), "  {label} ({}): ", quoted(name)));
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
            return answer(json!({ "action": "cancel" }));
        }
        content.insert(name.clone(), fit(property, line.trim_end_matches(['\r', '\n'])));
    }
    answer(json!({ "action": "accept", "content": content }))
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
            false => fail(error["message"].as_str().unwrap_or("the server answered with an error")),
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
    match text("type") {
        "text" => say(text("text")),
        "image" | "audio" => {
            let bytes = text("data").len() / 4 * 3;
            say(&format!("[{} {}, about {bytes} bytes]", text("type"), text("mimeType")));
        }
        "resource_link" => say(&format!("[link {}]", text("uri"))),
        "resource" => say(&match content["resource"]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => {
                format!("[resource {}]", content["resource"]["uri"].as_str().unwrap_or_default())
            }
        }),
        other => say(&format!("[{other}]")),
    }
}
