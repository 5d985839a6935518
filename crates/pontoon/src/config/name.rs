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
    /// A name for a server: what is run by `uvx`, `npx` and the like, else the program.
    pub fn of_command(command: &str, arguments: &[String]) -> Self {
        const RUNNERS: [&str; 13] = [
            "uvx", "npx", "uv", "node", "python", "bunx", "deno", "docker", "podman", "pipx",
            "run", "tool", "sh",
        ];
        // Options of these whose next word is no program.
        const WITH_VALUE: [&str; 14] = [
            "--with",
            "--from",
            "--python",
            "--package",
            "-p",
            "-e",
            "--env",
            "--env-file",
            "-v",
            "--volume",
            "--mount",
            "--name",
            "--network",
            "-w",
        ];
        let last = |word: &str| {
            let word = word.rsplit(['/', '\\']).next().unwrap_or_default();
            let word = word.split('@').next().unwrap_or_default();
            let word =
                word.trim_end_matches(".py").trim_end_matches(".js").trim_end_matches(".mjs");
            let plain =
                |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let word: String = word.chars().map(plain).take(64).collect();
            word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
        };
        // Also with its version, as in `python3.11`.
        let is_version = |c: char| c.is_ascii_digit() || c == '.';
        let is_runner = |word: &str| RUNNERS.contains(&word.trim_end_matches(is_version));
        let words = std::iter::once(command).chain(arguments.iter().map(String::as_str));
        let mut is_value = false;
        let plain = words.filter(|word| {
            let is_plain = !std::mem::replace(&mut is_value, WITH_VALUE.contains(word));
            is_plain && !word.starts_with('-')
        });
        let names = plain.map(last);
        let name = names
            .into_iter()
            .find(|name| !is_runner(name) && !is_reserved(name) && name.parse::<Self>().is_ok());
        name.and_then(|name| name.parse().ok()).unwrap_or_else(|| Self("server".to_owned()))
    }

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

    #[test]
    fn a_server_is_named_after_what_is_run() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(ServerName::of_command(&words[0], &words[1..]).as_str(), expected);
        };
        check(&["uvx", "mcp-server-time"], "mcp-server-time");
        check(&["npx", "-y", "@modelcontextprotocol/server-everything@1.0"], "server-everything");
        check(&["/opt/x/my server", "--stdio"], "my-server");
        check(&["python3", "tools/calc.py"], "calc");
        check(&["sh", "-c"], "server");
        check(&["/usr/bin/python3.11", "-m", "weather"], "weather");
        check(&["uvx", "--with", "mcp<2", "--from", "a-package", "a-server"], "a-server");
        check(&["docker", "run", "-i", "--rm", "-e", "API_KEY", "mcp/fetch"], "fetch");
    }
}
