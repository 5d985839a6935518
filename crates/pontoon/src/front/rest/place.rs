//! Which server a path names, and what of it.

use percent_encoding::percent_decode_str;

use crate::config::is_reserved;
use crate::session::Entries;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestPlace {
    /// The name of the server.
    pub server: String,
    /// The path of the server, which its document gives as its address.
    pub base: String,
    /// Whether it is below `/mcpo`, where there is JSON-RPC as well.
    pub is_ours: bool,
    /// What of the server.
    pub named: Named,
    /// Whether the path ends in a slash.
    pub has_slash: bool,
}

/// What of a server a path names. A tool may have the name of anything else: it is posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The server itself.
    Server,
    /// Its OpenAPI document.
    Document,
    /// The page that shows it.
    Docs,
    /// A part of that page.
    Asset(&'static str),
    /// A tool.
    Tool(String),
}

/// The parts of the page, and where they are.
const ASSETS: [&str; 3] = ["docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "docs/page.js"];

/// The part of the page at this path, if one is.
pub(super) fn asset(path: &str) -> Option<&'static str> {
    ASSETS.into_iter().find(|asset| *asset == path)
}

impl RestPlace {
    /// The place of a path of these segments: below `/mcpo` of any server, else of one of these.
    pub fn of(segments: &[&str], entries: &Entries) -> Option<Self> {
        let (server, rest, is_ours) = match segments {
            ["mcpo", server, rest @ ..] if !is_reserved(server) => (*server, rest, true),
            [server, rest @ ..] if entries.contains_key(*server) => (*server, rest, false),
            _ => return None,
        };
        let (rest, has_slash) = match rest {
            [rest @ .., ""] => (rest, true),
            rest => (rest, false),
        };
        let base = if is_ours { format!("/mcpo/{server}") } else { format!("/{server}") };
        let rest = rest.join("/");
        let named = match rest.as_str() {
            "" => Named::Server,
            "openapi.json" => Named::Document,
            // mcpo has both; the second one shows the same.
            "docs" | "redoc" => Named::Docs,
            rest => match asset(rest) {
                Some(asset) => Named::Asset(asset),
                None => Named::Tool(percent_decode_str(rest).decode_utf8_lossy().into_owned()),
            },
        };
        Some(Self { server: server.to_owned(), base, is_ours, named, has_slash })
    }

    /// The tool that is meant, if a tool is.
    pub fn tool(&self) -> &str {
        match &self.named {
            Named::Server => "",
            Named::Document => "openapi.json",
            Named::Docs => "docs",
            Named::Asset(asset) => asset,
            Named::Tool(tool) => tool,
        }
    }
}
