//! A browser at the address of an MCP server: it gets a page, and clients get what they always got.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::ACCEPT;
use hyper::{HeaderMap, Method, Request};

use super::super::refusal::Refusal;
use super::super::response::HttpResponse;
use super::super::site::HttpSite;
use super::super::who::auth::{Area, Denied};
use super::pages::server::{ToolsShown, facts_of, page};
use crate::adding::AddedServer;
use crate::config::below_root;
use crate::session::entry::CatalogState;

/// What only clients of MCP send.
const OF_CLIENTS: [&str; 3] = ["mcp-session-id", "mcp-protocol-version", "last-event-id"];

/// Whether a request comes from a browser in which a person opened the address.
pub fn is_browser<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    matches!(*request.method(), Method::GET | Method::HEAD)
        && takes(headers, "text/html")
        && !takes(headers, "text/event-stream")
        && !OF_CLIENTS.iter().any(|name| headers.contains_key(*name))
}

/// Whether the sender names this kind of answer.
pub(super) fn takes(headers: &HeaderMap, media: &str) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepts.flat_map(|accept| accept.split(',')).any(|accept| {
        accept.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media)
    })
}

/// The page of the server of this name.
///
/// # Errors
///
/// A request from a foreign host, without a key where one is needed even to look, or for a server that is not there.
pub fn answer<B>(
    site: &Arc<HttpSite>,
    request: &Request<B>,
    server: &str,
    peer: IpAddr,
) -> Result<HttpResponse, Refusal> {
    let headers = request.headers();
    site.entrance.guard.check(headers)?;
    site.entrance.visitor(headers, peer, Area::Document, Denied::plain)?;
    let entry = site.sessions.entries().get(server).cloned();
    let entry = entry.ok_or_else(|| site.unknown_server(server))?;
    let origin = site.entrance.origins.of(headers, site.entrance.identities.is_trusted(peer));
    let address = below_root(origin.address(), &site.rest.root_path);
    let wants_key = site.entrance.auth.is_on();
    let added = AddedServer { name: server, address: &address, wants_key };
    let state = entry.state();
    let tools = match &state {
        _ if entry.back.server.is_personal() => ToolsShown::Personal,
        CatalogState::Ready(catalog) => ToolsShown::Known(facts_of(catalog)),
        CatalogState::Learning => ToolsShown::Unknown(None),
        // Why may be for the one alone who runs the bridge.
        CatalogState::Failed(_) | CatalogState::Waiting(_) => {
            ToolsShown::Unknown(Some("it did not start"))
        }
    };
    Ok(page(added, tools))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, headers: &[(&str, &str)], expected: bool) {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        assert_eq!(is_browser(&request), expected, "{method} {headers:?}");
    }

    #[test]
    fn only_a_browser_gets_a_page() {
        let chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        check("GET", &[("accept", chromium)], true);
        check("HEAD", &[("accept", "Text/HTML")], true);
        check("GET", &[("accept", "*/*")], false);
        check("GET", &[], false);
        check("POST", &[("accept", chromium)], false);
        check("GET", &[("accept", "text/event-stream")], false);
        check("GET", &[("accept", "text/html, text/event-stream")], false);
        check("GET", &[("accept", "text/html"), ("accept", "text/event-stream;q=0.5")], false);
        for name in OF_CLIENTS {
            check("GET", &[("accept", "text/html"), (name, "1")], false);
        }
    }
}
