//! JSON-RPC posted to a server's path: a method of MCP passes as such, any other name is that of a tool, and its
//! parameters are the arguments. Nothing is checked or put in, and the answer is what the server said.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::Request;
use hyper::body::Incoming;
use pontoon_wire::{Kind, Message, Rewrite, Slot, method, quoted};

use super::super::mcp::outcome::bare_json;
use super::super::mcp::post::{check_content, read_message, request_id};
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, accepted, empty};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::asking::ask;
use crate::session::Arrival;
use crate::session::entry::Entry;

/// Answers a message.
///
/// # Errors
///
/// A body that is no request.
pub(super) async fn post(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    check_content(request.headers())?;
    let (head, body) = request.into_parts();
    let message = read_message(&head.headers, body, site, &caller.person.principal).await?;
    let Some(id) = wanted_id(&message)? else { return Ok(accepted()) };
    let request = as_call(message)?;
    let outcome = ask(site, entry, caller, request, id.clone(), Arrival::AsWritten).await;
    Ok(outcome.map_or_else(|| empty(499), |outcome| bare_json(outcome, &id)))
}

/// The id of a request; `None` for a message that wants no answer.
fn wanted_id(message: &Message) -> Result<Option<Bytes>, Refusal> {
    let id = request_id(message);
    match (message.kind(), id) {
        (Kind::Answer, id) => {
            let text = "an answer is posted here, but nothing was asked";
            Err(Refusal::invalid(400, text).with_id(id))
        }
        (_, Some(id)) => Ok(Some(id)),
        (_, None) => match &*message.method() {
            name if name.starts_with(NOTIFICATIONS) => Ok(None),
            name => Err(Refusal::invalid(400, without_id(name))),
        },
    }
}

/// What the methods of notifications begin with: of all messages these alone want no answer.
const NOTIFICATIONS: &str = "notifications/";

/// What is said of a request without an id, whose answer its client could not be given.
fn without_id(method: &str) -> String {
    let undone = match is_of_protocol(method) {
        true => format!("{method:?} was not done: a request"),
        false => format!("the tool {method:?} was not called: a call"),
    };
    format!("{undone} needs an `id`, a number or a text")
}

/// Whether a method is one of MCP and no name of a tool.
fn is_of_protocol(name: &str) -> bool {
    name.contains('/') || matches!(name, method::INITIALIZE | method::PING)
}

/// The message as a server knows it.
fn as_call(message: Message) -> Result<Message, Refusal> {
    let name = message.method();
    if is_of_protocol(&name) {
        return Ok(message);
    }
    let arguments = message.raw(Slot::Params).unwrap_or(b"{}");
    let mut params = BytesMut::with_capacity(arguments.len() + name.len() + 32);
    for part in [b"{\"name\":", quoted(&name).as_bytes(), b",\"arguments\":", arguments, b"}"] {
        params.extend_from_slice(part);
    }
    let has_params = message.raw(Slot::Params).is_some();
    let id = request_id(&message);
    let called = quoted(method::CALL_TOOL);
    let call = Rewrite::new(message).replace(Slot::Method, called);
    let call = match has_params {
        true => call.replace(Slot::Params, params.freeze()),
        false => {
            let params = std::str::from_utf8(&params).expect("made of text just above");
            call.insert_at_top(&format!("\"params\":{params}"))
        }
    };
    call.try_into_message().map_err(|wrong| {
        Refusal::invalid(400, format!("the call cannot be passed on: {wrong}")).with_id(id)
    })
}
