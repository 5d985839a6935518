//! `pontoon call --url`: a tool of a bridge or another server that runs, and the files that it left there.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Method};
use pontoon_supervise::plain_text;
use pontoon_wire::Message;
use serde_json::Value;

use super::call::{make_call, print, request};
use super::elsewhere::{Elsewhere, ShownArgs, as_web_socket, with_url};
use super::new_file::new_file;
use super::question::TypedAnswers;
use super::terminal::{fail, tell};
use super::typed_words::pairs;
use super::waiting::WaitingLine;
use crate::back::remote::dial::Dialer;
use crate::back::remote::http::pool::HttpPool;
use crate::config::{AppPlace, Endpoint};
use crate::errors::chain;

/// What is called there, and how.
pub(super) struct UrlCall<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a [String],
    pub(super) answers: &'a [String],
    /// Whether the files of the answer are fetched.
    pub(super) saves: bool,
    pub(super) as_json: bool,
    /// Whether nothing is told but errors and results.
    pub(super) is_quiet: bool,
}

/// Calls a tool of the server at an address, and prints what it gives.
pub(super) fn run(url: &str, shown: &ShownArgs, call: &UrlCall<'_>) -> ExitCode {
    let is_quiet = call.is_quiet;
    with_url(url, shown, is_quiet, async |there| {
        let (arguments, answers) = (pairs(call.arguments)?, pairs(call.answers)?);
        let request = request(&there.catalog, call.tool, &arguments, is_quiet)?;
        let mut answers = TypedAnswers::new(answers);
        let client = Arc::clone(&there.client);
        let entry = &there.single.entry;
        let line =
            WaitingLine::begin(format!("waiting for the result of {:?}", call.tool), is_quiet);
        let asked = (call.tool, request);
        let answered = make_call(entry, &there.catalog, client, asked, &mut answers, &line).await;
        drop(line);
        let (answer, _) = answered?;
        let code = print(&answer, call.as_json);
        if let Some(unused) = answers.unused() {
            tell(&format!("warning: {unused}"));
        }
        match call.saves && !save(there, &answer, is_quiet).await {
            true => Ok(ExitCode::FAILURE),
            false => Ok(code),
        }
    })
}

/// Fetches the files that an answer links to. Whether all of them are here.
async fn save(there: &Elsewhere<'_>, answer: &Message, is_quiet: bool) -> bool {
    let mut is_whole = true;
    for link in links(answer) {
        match fetch(there, &link).await {
            Ok(_) if is_quiet => {}
            Ok(to) => tell(&format!("saved {}", plain_text(to))),
            Err(why) => {
                is_whole = false;
                fail(&format!("{} was not saved: {why}", plain_text(link.uri)));
            }
        }
    }
    is_whole
}

/// A file of an answer.
struct FileLink {
    uri: String,
    name: String,
}

fn links(answer: &Message) -> Vec<FileLink> {
    let answer: Value = serde_json::from_slice(answer.text()).unwrap_or_default();
    let blocks = answer["result"]["content"].as_array().into_iter().flatten();
    let links = blocks.filter(|block| block["type"] == "resource_link");
    let text = |block: &Value, name: &str| block[name].as_str().unwrap_or_default().to_owned();
    links.map(|block| FileLink { uri: text(block, "uri"), name: text(block, "name") }).collect()
}

/// Fetches one file, with what the server itself is shown, and says what it is called here.
async fn fetch(there: &Elsewhere<'_>, link: &FileLink) -> Result<String, String> {
    let endpoint = endpoint_of(there, &link.uri)?;
    let app = there.server.app.as_ref().ok_or("there is no address")?;
    let dialer = Dialer::new(there.single.token_reader());
    let pool = HttpPool::new(app.target(endpoint, app.token.clone()), dialer);
    let asked = pool.request(Method::GET, &HeaderMap::new(), &Bytes::new()).await;
    // The connection lives as long as its body is read.
    let (response, _connection) = asked.map_err(|error| chain(&error))?;
    if !response.status().is_success() {
        return Err(format!("it answered HTTP {}", response.status().as_u16()));
    }
    let (mut file, to) = new_file(&link.name).map_err(|error| error.to_string())?;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let part = frame.map_err(|error| format!("{to} is not whole: {error}"))?.into_data();
        if let Ok(part) = part {
            file.write_all(&part).map_err(|error| format!("{to} is not whole: {error}"))?;
        }
    }
    Ok(to)
}

/// Where a link leads, if that is the host that was called: no other is shown a token.
fn endpoint_of(there: &Elsewhere<'_>, uri: &str) -> Result<Endpoint, String> {
    let (address, http) = as_web_socket(uri);
    let link: Endpoint = match http {
        Some(_) => address.parse().map_err(|_| "it is no address that can be fetched")?,
        None => return Err("it is no address of HTTP".to_owned()),
    };
    let called = there.server.app.as_ref().map(|app| &app.place);
    match (called, &link) {
        (
            Some(AppPlace::At(Endpoint::WebSocket { host, is_secure, .. })),
            Endpoint::WebSocket { host: linked, is_secure: links_securely, .. },
        ) if host == linked && is_secure == links_securely => Ok(link),
        _ => {
            Err("it is at another host than the one that was called; fetch it with curl".to_owned())
        }
    }
}
