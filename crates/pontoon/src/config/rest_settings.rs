//! Where REST is, and what its documents say of themselves.

use super::name::ServerName;

/// Where REST is, and what its documents say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestSettings {
    /// What stands before every path as clients see it: empty, or a path without a slash at its end.
    pub root_path: String,
    /// What stands before the names of servers: a path with a slash at both ends.
    pub path_prefix: String,
    /// The server whose tools are at the root, if it is the only one.
    pub single: Option<ServerName>,
    /// Whether operations have the names of tools as ids.
    pub has_bare_ids: bool,
    /// What the document of all servers says of itself.
    pub root: RootInfo,
}

/// The address below which a client finds our paths, when it reaches us at `address`: a proxy that says which path it took
/// away may have named the root path there, or another one that stands before it.
pub fn below_root(address: &str, root_path: &str) -> String {
    let root = if address.ends_with(root_path) { "" } else { root_path };
    format!("{address}{root}")
}

/// What the document of all servers says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootInfo {
    /// Its title.
    pub title: String,
    /// What it is.
    pub description: String,
    /// Its version.
    pub version: String,
}

impl Default for RootInfo {
    fn default() -> Self {
        Self {
            title: "MCP OpenAPI Proxy".to_owned(),
            description: "Automatically generated API from MCP Tool Schemas".to_owned(),
            version: "1.0".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_path_is_named_once() {
        for (address, root, expected) in [
            ("http://h:1", "", "http://h:1"),
            ("http://h:1", "/rp", "http://h:1/rp"),
            ("http://h:1/rp", "/rp", "http://h:1/rp"),
            ("http://h:1/x/rp", "/rp", "http://h:1/x/rp"),
            ("http://h:1/x", "/rp", "http://h:1/x/rp"),
            ("http://h:1/xrp", "/rp", "http://h:1/xrp/rp"),
            ("", "/rp", "/rp"),
        ] {
            assert_eq!(below_root(address, root), expected, "{address:?} {root:?}");
        }
    }
}
