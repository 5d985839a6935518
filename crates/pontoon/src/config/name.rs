//! The name of a server: part of its URL, so it is plain.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// The name of a server: a letter or digit, then up to 63 of these, dots, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(String);

/// A text that cannot name a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server's name is 1 to 64 letters, digits, `.`, `_` and `-`, \
     and begins with a letter or digit"
)]
pub struct BadServerName;

/// The first parts of paths that are the bridge's own.
const RESERVED: [&str; 16] = [
    "",
    "mcp",
    "mcpo",
    "sse",
    "ws",
    "files",
    "health",
    "ready",
    "metrics",
    "docs",
    "redoc",
    "openapi.json",
    "console",
    "favicon.ico",
    "robots.txt",
    "api",
];

/// Whether a path that begins with this name is the bridge's own, so that no server can have it.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

impl ServerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = BadServerName;

    fn from_str(text: &str) -> Result<Self, BadServerName> {
        let is_fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let begins_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if begins_well && text.len() <= 64 && text.bytes().all(is_fit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadServerName)
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(64);
        for good in ["a", "Excel-2.x_y", "0", &long] {
            assert_eq!(good.parse::<ServerName>().unwrap().as_str(), good);
        }
        for bad in ["", ".a", "-a", "_a", "a/b", "a b", "ä", &format!("{long}x")] {
            assert_eq!(bad.parse::<ServerName>(), Err(BadServerName), "{bad:?}");
        }
    }
}
