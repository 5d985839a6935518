//! The pages of REST: one that shows a server's document, where its tools can be tried out. All of it is in the binary,
//! and nothing is asked of any other host.

pub(super) mod server;

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};

use super::super::body::ResponseBody;
use super::super::response::{HttpResponse, empty};
use super::failure::not_found;
use super::place::Named;
use std::sync::Arc;

const BUNDLE: &[u8] = include_bytes!("../swagger-ui/swagger-ui-bundle.js.gz");
const STYLE: &[u8] = include_bytes!("../swagger-ui/swagger-ui.css.gz");
const DOCS: &str = include_str!("docs.html");
const SCRIPT: &str = include_str!("docs.js");
const OF_SERVER: &str = include_str!("server.js");
const WELCOME: &str = include_str!("welcome.html");

/// What a page may load, and from where: of ours alone. Swagger UI writes styles into its elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'";

/// The page of a document, or a part of it.
pub(super) fn docs(title: &str, named: &Named, has_slash: bool) -> HttpResponse {
    match *named {
        Named::Asset("docs/swagger-ui-bundle.js") => packed("text/javascript", BUNDLE),
        Named::Asset("docs/swagger-ui.css") => packed("text/css", STYLE),
        Named::Asset("docs/page.js") => text("text/javascript; charset=utf-8", SCRIPT.into()),
        Named::Asset("docs/server.js") => text("text/javascript; charset=utf-8", OF_SERVER.into()),
        Named::Docs(_) => {
            // What the page names is beside it.
            let base = if has_slash { "../" } else { "./" };
            html(DOCS.replace("BASE", base).replace("SERVER", title))
        }
        _ => not_found(),
    }
}

/// The page that says what is served at this address, and how to add it to a client; `home` is where paths begin.
pub(super) fn welcome(
    names: &[Arc<str>],
    address: &str,
    home: &str,
    wants_key: bool,
) -> HttpResponse {
    let address = escaped(address);
    let servers = names.iter().map(|name| {
        format!(
            "<tr><th scope=\"row\"><a href=\"{home}mcp/{name}\">{name}</a></th><td><a href=\"{home}mcpo/{name}/docs\">tools</a></td>\
             <td><code>{address}/mcp/{name}</code></td><td><code>{address}/mcpo/{name}</code></td></tr>\n"
        )
    });
    let servers: String = servers.collect();
    let first = names.first().map_or("NAME", |name| name);
    let (header, key) = match wants_key {
        true => (
            " --header \"Authorization: Bearer <mark>KEY</mark>\"",
            " Your key, which whoever runs this bridge has for you, goes where <mark>KEY</mark> stands.",
        ),
        false => ("", ""),
    };
    let page = WELCOME.replace("{servers}", &servers).replace("{address}", &address);
    let page = page.replace("{home}", home);
    html(page.replace("{first}", first).replace("{header}", header).replace("{key}", key))
}

/// The same for a terminal.
pub(super) fn welcome_text(names: &[Arc<str>], address: &str, wants_key: bool) -> HttpResponse {
    let mut lines = vec!["Pontoon serves these MCP servers:".to_owned(), String::new()];
    for name in names {
        lines.push(format!("  {name}"));
        lines.push(format!("    MCP      {address}/mcp/{name}"));
        lines.push(format!("    OpenAPI  {address}/mcpo/{name}"));
    }
    lines.push(String::new());
    if wants_key {
        lines.push("Calls need a key: Authorization: Bearer KEY".to_owned());
    }
    lines.push(format!("A page with more, for a browser: {address}/\n"));
    text("text/plain; charset=utf-8", lines.join("\n").into())
}

/// A text as it stands in a page.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A page.
fn html(page: String) -> HttpResponse {
    text("text/html; charset=utf-8", page.into())
}

fn text(media: &'static str, content: Bytes) -> HttpResponse {
    let mut response = empty(200);
    *response.body_mut() = ResponseBody::text(&content.into());
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, media),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A part that is compressed already: every browser takes it so.
fn packed(media: &'static str, content: &'static [u8]) -> HttpResponse {
    let mut response = text(media, Bytes::from_static(content));
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    response
}
