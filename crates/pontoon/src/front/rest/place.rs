//! Which server a path names, and what of it.

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::config::{RestSettings, is_reserved};
use crate::session::Entries;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestPlace {
    /// The name of the server.
    pub server: String,
    /// The path of the server as clients see it, which its document gives as its address.
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
    /// The page that shows it, by one of its names.
    Docs(&'static str),
    /// A part of that page.
    Asset(&'static str),
    /// A tool, or nothing that is known.
    Tool(String),
}

/// The parts of the page, and where they are.
const ASSETS: [&str; 4] =
    ["docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "docs/page.js", "docs/server.js"];

impl Named {
    /// What this path below a server names.
    pub(super) fn of(path: &str) -> Self {
        match path {
            "" => Self::Server,
            "openapi.json" => Self::Document,
            // mcpo has both; the second one shows the same.
            "docs" => Self::Docs("docs"),
            "redoc" => Self::Docs("redoc"),
            path => match ASSETS.into_iter().find(|asset| *asset == path) {
                Some(asset) => Self::Asset(asset),
                None => Self::Tool(percent_decode_str(path).decode_utf8_lossy().into_owned()),
            },
        }
    }
}

impl RestPlace {
    /// The place of a path, without what a proxy left before it: below `/mcpo` of any server, below the prefix of one of
    /// these, and at the root of the only one.
    pub fn of(
        method: &Method,
        path: &str,
        settings: &RestSettings,
        entries: &Entries,
    ) -> Option<Self> {
        let RestSettings { root_path, path_prefix, single, .. } = settings;
        let place = |server: &str, base: String, is_ours, rest: &str| {
            let (rest, has_slash) = match rest.strip_suffix('/') {
                Some(rest) => (rest, true),
                None => (rest, false),
            };
            let named = Named::of(rest);
            Self { server: server.to_owned(), base, is_ours, named, has_slash }
        };
        let inside = path.trim_start_matches('/');
        // What is posted to one word is a tool of the only server, whatever else that word names.
        if let Some(single) = single
            && *method == Method::POST
            && !inside.trim_end_matches('/').contains('/')
            && !inside.is_empty()
        {
            return Some(place(single.as_str(), root_path.clone(), false, inside));
        }
        if let Some(below) = path.strip_prefix("/mcpo/") {
            let (server, rest) = below.split_once('/').unwrap_or((below, ""));
            let base = format!("{root_path}/mcpo/{server}");
            return (!is_reserved(server)).then(|| place(server, base, true, rest));
        }
        if let Some(below) = path.strip_prefix(path_prefix.as_str()) {
            let (server, rest) = below.split_once('/').unwrap_or((below, ""));
            if entries.contains_key(server) {
                let base = format!("{root_path}{path_prefix}{server}");
                return Some(place(server, base, false, rest));
            }
        }
        let single = single.as_ref()?;
        let first = inside.split('/').next().unwrap_or_default();
        let is_document = matches!(first, "docs" | "redoc" | "openapi.json");
        (is_document || !is_reserved(first))
            .then(|| place(single.as_str(), root_path.clone(), false, inside))
    }

    /// The tool that is meant, if a tool is.
    pub fn tool(&self) -> &str {
        match &self.named {
            Named::Server => "",
            Named::Document => "openapi.json",
            Named::Docs(name) => name,
            Named::Asset(asset) => asset,
            Named::Tool(tool) => tool,
        }
    }
}

/// The path below what a proxy may have left before it.
pub fn without_root<'p>(path: &'p str, root: &str) -> &'p str {
    match path.strip_prefix(root) {
        Some("") => "/",
        Some(below) if below.starts_with('/') => below,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_may_leave_its_path_or_take_it_away() {
        for (path, below) in [
            ("/rp/a/b", "/a/b"),
            ("/a/b", "/a/b"),
            ("/rp", "/"),
            ("/rpx/a", "/rpx/a"),
            ("/rp/", "/"),
        ] {
            assert_eq!(without_root(path, "/rp"), below);
            assert_eq!(without_root(path, ""), path);
        }
    }

    #[test]
    fn a_path_below_a_server_names_a_page_or_a_tool() {
        let tool = |name: &str| Named::Tool(name.to_owned());
        for (path, named) in [
            ("", Named::Server),
            ("openapi.json", Named::Document),
            ("redoc", Named::Docs("redoc")),
            ("docs/page.js", Named::Asset("docs/page.js")),
            ("docs/other.js", tool("docs/other.js")),
            ("a%20b", tool("a b")),
            ("%ff", tool("\u{fffd}")),
        ] {
            assert_eq!(Named::of(path), named);
        }
    }
}
