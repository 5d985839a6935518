//! A tool that is posted to: the body is its arguments, the response its result.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use pontoon_wire::{Era, Message, Revision, json, quoted};

use super::super::headers::only_text;
use super::super::refusal::Refusal;
use super::super::request_body::read_body;
use super::super::response::{HttpResponse, json as json_response};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::asking::{PATIENCE, add_to_head, ask};
use super::besides::{self, Besides};
use super::{failure, result};
use crate::call::Outcome;
use crate::session::Arrival;
use crate::session::catalog::Facts;
use crate::session::entry::Entry;

/// The bytes of a body of another type that a refusal repeats, at most.
const MAX_TEXT: usize = 4096;

/// The id of the call, which its client never sees.
const ID: &str = "1";

/// Calls a tool.
///
/// # Errors
///
/// A body that is refused before anything looks at what the tool takes.
pub(super) async fn post(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    tool: &str,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let (head, body) = request.into_parts();
    let (body, hold) = read_body(&head.headers, body, site, &caller.person.principal).await?;
    let given = match is_json(&head.headers)? {
        // Editors of one system write this mark; it is no part of the text.
        true => Cow::Borrowed(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body)),
        // What is of another type is a text, and fits no tool that takes arguments.
        false => {
            let begin = &body[..body.len().min(MAX_TEXT)];
            Cow::Owned(quoted(&String::from_utf8_lossy(begin)).into_bytes())
        }
    };
    let given = match failure::of_body(&given) {
        // A tool that takes nothing takes any body.
        Some(_) if takes_nothing(site, entry, tool, caller).await => Cow::Borrowed(&b"{}"[..]),
        Some(wrong) => return Ok(wrong),
        None => given,
    };
    if let Some(what) = Besides::of(tool, entry.back.server.rest)
        && !is_there(site, entry, tool, caller).await
    {
        return Ok(besides::post(site, entry, what, &given, caller).await);
    }
    let request = match Message::parse(call_of(tool, &given)) {
        Ok(request) => hold.ride_with(request),
        Err(wrong) => return Ok(failure::unreadable(&wrong.to_string())),
    };
    drop(given);
    drop(body);
    let id = Bytes::from_static(ID.as_bytes());
    let outcome = ask(site, entry, caller, request, id, Arrival::Body).await;
    let Some(outcome) = outcome else { return Ok(failure::cancelled()) };
    let mut response = answered(&outcome, entry.back.server.rest.html);
    add_to_head(&mut response, &outcome);
    Ok(response)
}

/// Whether a body is said to be JSON, or nothing is said of it.
fn is_json(headers: &HeaderMap) -> Result<bool, Refusal> {
    let Some(content) = only_text(headers, &CONTENT_TYPE)? else { return Ok(true) };
    let essence = content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let kind = essence.strip_prefix("application/");
    Ok(kind.is_some_and(|kind| kind == "json" || kind.ends_with("+json")))
}

/// The call of a tool with a body that is JSON, or null where there is none.
fn call_of(tool: &str, body: &[u8]) -> BytesMut {
    let body = body.trim_ascii();
    let mut text = BytesMut::with_capacity(body.len() + tool.len() + 128);
    text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    text.extend_from_slice(ID.as_bytes());
    text.extend_from_slice(b",\"method\":\"tools/call\",\"params\":{\"name\":");
    text.extend_from_slice(quoted(tool).as_bytes());
    text.extend_from_slice(b",\"arguments\":");
    text.extend_from_slice(if body.is_empty() { b"null" } else { body });
    text.extend_from_slice(b"}}");
    text
}

/// The outcome of a call in mcpo's words; a page as such, where that is wanted.
fn answered(outcome: &Outcome, shows_pages: bool) -> HttpResponse {
    let (text, code) = match outcome {
        Outcome::Answer(text, code, _) => (text.to_bytes(), code),
        Outcome::Failed(why, _) => return failure::of_call(why),
    };
    if code.is_some() {
        return failure::of_error(json::find(&text, "error").unwrap_or(b"{}"));
    }
    let result = json::find(&text, "result").unwrap_or(b"{}");
    let added = outcome.receipt().map_or(0, |receipt| receipt.blocks);
    if json::find(result, "isError") == Some(b"true") {
        return failure::of_result(result, added);
    }
    if shows_pages && let Some(page) = result::page(result, added) {
        return shown_page(page);
    }
    json_response(200, &Bytes::from(result::body(result, added)).into())
}

/// A page that a tool made, for Open WebUI, which shows what says of itself that it is `inline`. A browser that comes here
/// by itself shows it as a page of no origin.
fn shown_page(page: String) -> HttpResponse {
    let mut response = json_response(200, &Bytes::from(page).into());
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_DISPOSITION, "inline"),
        (CONTENT_SECURITY_POLICY, "sandbox allow-scripts"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a request that is no `POST`: mcpo's words for a tool that is there, and for one that is not.
pub(super) async fn not_posted(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    tool: &str,
    caller: &Caller,
) -> HttpResponse {
    let offered = entry.back.server.rest;
    let is_posted =
        |facts: &Facts| facts.body_of(tool).is_some() || besides::is_there(facts, tool, offered);
    match look(site, entry, caller, is_posted).await {
        true => only_posted(),
        false => failure::not_found(),
    }
}

/// A tool answers nothing else.
pub(super) fn only_posted() -> HttpResponse {
    let mut response = failure::plain(405, "Method Not Allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

/// Whether a server offers this tool.
pub(super) async fn is_there(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    tool: &str,
    caller: &Caller,
) -> bool {
    look(site, entry, caller, |facts| facts.body_of(tool).is_some()).await
}

/// Whether this tool is there, and needs no arguments.
async fn takes_nothing(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    tool: &str,
    caller: &Caller,
) -> bool {
    let takes_nothing = |facts: &Facts| facts.body_of(tool).is_some_and(|body| !body.is_needed());
    look(site, entry, caller, takes_nothing).await
}

/// Whether this holds for what a server offers; not where that is not known.
async fn look(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    caller: &Caller,
    holds: impl FnOnce(&Facts) -> bool,
) -> bool {
    let client = caller.bare_client(entry, Revision::NEWEST_LEGACY);
    let catalog = site.sessions.offered(entry, &client, PATIENCE).await;
    let facts = catalog.as_ref().ok().and_then(|catalog| catalog.facts(Era::Legacy));
    facts.is_some_and(holds)
}
