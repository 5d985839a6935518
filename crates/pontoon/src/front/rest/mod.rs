//! REST, as mcpo has it: each tool of a server is a path to which its arguments are posted, and a document says which
//! there are. Beside it JSON-RPC, for those who call tools by their names.
//!
//! What comes in: requests to `/mcpo/{server}/...` and to mcpo's own `/{server}/...`. What goes out: a call for each
//! tool that is asked for, and its result in mcpo's words. What a tool takes is for `session` to say.

mod asking;
mod besides;
mod document;
mod failure;
mod front_door;
mod kept;
mod operation;
mod pages;
mod place;
mod result;
mod rpc;
pub mod server_page;
mod structure;
mod titles;
mod tool;

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request};
use pontoon_wire::{Era, Revision};

use self::asking::PATIENCE;
use self::failure::not_found;
pub use self::front_door::answer as front_door;
pub use self::kept::KeptDocuments;
pub use self::place::{Named, RestPlace, without_root};
use super::refusal::Refusal;
use super::response::HttpResponse;
use super::site::HttpSite;
use super::who::auth::{Area, Denied};
use super::who::caller::Caller;
use crate::observe::trace::Trace;
use crate::session::entry::Entry;

#[cfg(test)]
mod tests;

/// Answers a request to a server's path.
pub async fn handle(
    site: &Arc<HttpSite>,
    place: &RestPlace,
    request: Request<Incoming>,
    peer: IpAddr,
    trace: Trace,
) -> HttpResponse {
    let is_rpc = place.named == Named::Server && place.is_ours;
    let refuse = |refusal: Refusal, from| {
        refusal.log(&site.metrics.refusals, &place.server, from);
        match is_rpc {
            true => refusal.into_response(),
            false => refusal.into_detail(),
        }
    };
    // What may be done is the same everywhere, and tells nothing of what is there.
    if request.method() == Method::OPTIONS {
        let guarded = site.entrance.guard.check(request.headers());
        return guarded.map_or_else(Refusal::into_detail, |()| tool::only_posted());
    }
    let (entry, caller) = match caller(site, &request, place, is_rpc, peer, trace) {
        Ok(found) => found,
        Err(refusal) => {
            return refuse(refusal, site.entrance.identities.address(request.headers(), peer));
        }
    };
    let answered = match (&place.named, request.method()) {
        (Named::Server, &Method::POST) if is_rpc => rpc::post(site, &entry, request, &caller).await,
        (Named::Server, _) if is_rpc => {
            let text =
                "JSON-RPC is posted here; the tools are at openapi.json and docs below this path";
            Err(Refusal::not_allowed(text, "POST"))
        }
        (Named::Server, _) => Ok(not_found()),
        (Named::Document, &Method::GET | &Method::HEAD) => {
            document(site, &entry, place, &caller).await
        }
        (Named::Docs(_) | Named::Asset(_), &Method::GET | &Method::HEAD) => {
            Ok(pages::docs(&place.server, &place.named, place.has_slash))
        }
        (Named::Document | Named::Docs(_) | Named::Asset(_), _)
            if !tool::is_there(site, &entry, place.tool(), &caller).await =>
        {
            Err(Refusal::plain(405, "Method Not Allowed")
                .with_header(ALLOW, HeaderValue::from_static("GET, HEAD")))
        }
        (_, &Method::POST) => tool::post(site, &entry, place.tool(), request, &caller).await,
        _ => Ok(tool::not_posted(site, &entry, place.tool(), &caller).await),
    };
    answered.unwrap_or_else(|refusal| {
        refuse(refusal.asked_by(caller.person.principal.words()), caller.identity.address)
    })
}

/// The server that a request is for, and who makes it.
fn caller(
    site: &HttpSite,
    request: &Request<Incoming>,
    place: &RestPlace,
    is_rpc: bool,
    peer: IpAddr,
    trace: Trace,
) -> Result<(Arc<Entry>, Caller), Refusal> {
    let (headers, method) = (request.headers(), request.method());
    site.entrance.guard.check(headers)?;
    let entry = site.sessions.entries().get(place.server.as_str()).cloned();
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    let area = match place.named {
        Named::Docs(_) | Named::Asset(_) if is_look => Area::Document,
        // To learn what a person is offered, a process of theirs is started.
        Named::Document if is_look && !is_personal(entry.as_deref()) => Area::Document,
        _ => Area::Tool,
    };
    let words = if is_rpc { Denied::mcp } else { Denied::plain };
    let visitor = site.entrance.visitor(headers, peer, area, words)?;
    site.metrics.request_from(visitor.identity.address);
    let entry = entry.ok_or_else(|| match is_rpc {
        true => site.unknown_server(&place.server).asked_by(visitor.words()),
        false => Refusal::plain(404, "Not Found"),
    })?;
    let caller = site.entrance.caller(visitor, headers, peer, trace, &entry.back.server);
    Ok((entry, caller))
}

/// Whether what a server offers differs by who asks.
fn is_personal(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.back.server.is_personal())
}

/// The document of a server, as it is known now.
async fn document(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    place: &RestPlace,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let client = caller.bare_client(entry, Revision::NEWEST_LEGACY);
    let catalog = site.sessions.offered(entry, &client, PATIENCE).await;
    let catalog = catalog.map_err(|why| Refusal::of_call(503, &why))?;
    let server = Arc::clone(&entry.back.server);
    let wants_key = site.entrance.auth.is_on();
    let made_of = (server, Some(catalog));
    let document = site.documents.of(&place.base, std::slice::from_ref(&made_of), || {
        let (server, catalog) = &made_of;
        let facts = catalog.as_ref().and_then(|catalog| catalog.facts(Era::Legacy));
        document::of_server(facts, server, &place.base, &site.rest, wants_key)
    });
    Ok(document::response(document))
}
