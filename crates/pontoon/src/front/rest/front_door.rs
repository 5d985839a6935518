//! What no server's path is: the page that says what is served and how to add it to a client, and the documents of all
//! servers.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request};
use pontoon_wire::Revision;

use super::super::refusal::Refusal;
use super::super::response::HttpResponse;
use super::super::site::HttpSite;
use super::super::who::auth::{Area, Denied};
use super::asking::PATIENCE;
use super::kept::Known;
use super::place::Named;
use super::server_page::takes;
use super::{document, pages};
use crate::config::below_root;

/// Answers a request to a path of all servers; `None` if it is no such path.
///
/// # Errors
///
/// A request without a key where one is needed even to look.
pub async fn answer<B>(
    site: &Arc<HttpSite>,
    request: &Request<B>,
    segments: &[&str],
    peer: IpAddr,
) -> Result<Option<HttpResponse>, Refusal> {
    let (below, rest) = match segments {
        ["mcpo", rest @ ..] => ("/mcpo", rest),
        rest => ("", rest),
    };
    let path = rest.join("/");
    let named = Named::of(path.strip_suffix('/').unwrap_or(&path));
    if let Named::Tool(_) = named {
        return Ok(None);
    }
    let headers = request.headers();
    let visitor = site.entrance.visitor(headers, peer, Area::Document, Denied::plain)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::plain(405, "Method Not Allowed")
            .with_header(ALLOW, HeaderValue::from_static("GET, HEAD")));
    }
    let mut entries: Vec<_> = site.sessions.entries().values().cloned().collect();
    let names: Vec<Arc<str>> =
        entries.iter().map(|entry| Arc::from(entry.back.server.name.as_str())).collect();
    let has_slash = request.uri().path().ends_with('/');
    Ok(Some(match named {
        Named::Document if below.is_empty() => {
            document::response(document::of_names(&names, &site.rest))
        }
        Named::Document => {
            // To learn what a person is offered, a process of theirs is started.
            let may_learn = visitor.has_key() || !site.entrance.auth.is_on();
            entries.retain(|entry| may_learn || !entry.back.server.is_personal());
            let mut callers = Vec::new();
            for entry in &entries {
                let visitor =
                    site.entrance.visitor(headers, peer, Area::Document, Denied::plain)?;
                let trace = site.traces.of(std::iter::empty());
                let server = &entry.back.server;
                callers.push(site.entrance.caller(visitor, headers, peer, trace, server));
            }
            let each = entries.iter().zip(&callers).map(async |(entry, caller)| {
                let client = caller.bare_client(entry, Revision::NEWEST_LEGACY);
                let known = site.sessions.offered(entry, &client, PATIENCE).await.ok();
                (Arc::clone(&entry.back.server), known)
            });
            let servers: Vec<Known> = join_all(each).await;
            let wants_key = site.entrance.auth.is_on();
            let write = || document::of_all(&servers, &site.rest, wants_key);
            // No path of a server is called so.
            document::response(site.documents.of("all", &servers, write))
        }
        Named::Docs(_) | Named::Asset(_) => pages::docs("Pontoon", &named, has_slash),
        Named::Server | Named::Tool(_) => {
            let is_trusted = site.entrance.identities.is_trusted(peer);
            let origin = site.entrance.origins.of(headers, is_trusted);
            let wants_page = takes(headers, "text/html");
            let wants_key = site.entrance.auth.is_on();
            let root_path = site.rest.root_path.as_str();
            let address = below_root(origin.address(), root_path);
            match wants_page {
                true => {
                    let home = home(request.uri().path(), root_path, below);
                    pages::welcome(&names, &address, &home, wants_key)
                }
                false => pages::welcome_text(&names, &address, wants_key),
            }
        }
    }))
}

/// What leads from a page at this path to where the paths of the bridge begin, as a browser reads it.
fn home(path: &str, root_path: &str, below: &str) -> String {
    if !below.is_empty() {
        return if path.ends_with('/') { "../" } else { "./" }.to_owned();
    }
    match path == root_path {
        // A browser takes the last word of such a path for a page beside the others.
        true => format!("{}/", path.rsplit('/').next().unwrap_or_default()),
        false => "./".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_first_page_lead_to_where_paths_begin() {
        for (path, root, below, expected) in [
            ("/", "", "", "./"),
            ("/mcpo", "", "/mcpo", "./"),
            ("/mcpo/", "", "/mcpo", "../"),
            ("/rp", "/rp", "", "rp/"),
            ("/a/rp", "/a/rp", "", "rp/"),
            ("/rp/", "/rp", "", "./"),
            ("/rp/mcpo/", "/rp", "/mcpo", "../"),
        ] {
            assert_eq!(home(path, root, below), expected, "{path}");
        }
    }
}
