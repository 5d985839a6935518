//! Values of variables and options as people write them: addresses, names, links, keys, switches.
//!
//! Each gives the value or says what was expected. Durations, sizes and numbers are in `units.rs`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tracing::Level;

use super::address::AddressBlock;
use super::name::is_reserved;
use super::secret::{ApiKey, KeyName, Secret};

/// One or more addresses with ports. Names but `localhost` are left out: what they mean may change.
pub(crate) fn listen(text: &str) -> Result<Vec<SocketAddr>, &'static str> {
    let address = |text: &str| match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
        None => text.parse().ok(),
    };
    let addresses = text.split(',').map(|text| address(text.trim()));
    addresses.collect::<Option<_>>().ok_or("an address and a port such as 127.0.0.1:8080")
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub Level);

impl Default for LogLevel {
    fn default() -> Self {
        Self(Level::ERROR)
    }
}

/// A level by the name it has in Rust or in Python.
pub(crate) fn log_level(text: &str) -> Result<LogLevel, &'static str> {
    let level = match text.to_ascii_lowercase().as_str() {
        "trace" => Level::TRACE,
        "debug" => Level::DEBUG,
        "info" => Level::INFO,
        "warning" | "warn" => Level::WARN,
        "error" | "critical" => Level::ERROR,
        _ => return Err("DEBUG, INFO, WARNING or ERROR"),
    };
    Ok(LogLevel(level))
}

/// A path as it is written.
pub(super) fn path(text: &str) -> Result<PathBuf, &'static str> {
    Ok(text.into())
}

/// The absolute path of a folder.
pub(super) fn folder(text: &str) -> Result<PathBuf, &'static str> {
    Ok(absolute(Path::new(text)))
}

/// `text` in quotes, short and without control characters.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// `path` from the root; it need not exist.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A yes or no.
pub(super) fn switch(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("true or false"),
    }
}

pub(super) fn hosts(text: &str) -> Result<Vec<String>, &'static str> {
    list(text, is_host).ok_or("host names such as tools.example.org")
}

/// Addresses and blocks of them.
pub(super) fn blocks(text: &str) -> Result<Vec<AddressBlock>, &'static str> {
    let blocks = text.split(',').map(|block| block.trim().parse().ok());
    blocks.collect::<Option<_>>().ok_or("addresses or blocks of them such as 10.0.0.0/8, ::1")
}

/// A path with a slash at both ends, such as mcpo makes of what it is given.
pub(super) fn path_prefix(text: &str) -> Result<String, &'static str> {
    let inside = text.trim_matches('/');
    match (inside, is_path(inside)) {
        ("", _) => Ok("/".to_owned()),
        (inside, true) => Ok(format!("/{inside}/")),
        _ => Err("a path such as /tools/"),
    }
}

/// A path with a slash at its beginning alone, or nothing.
pub(super) fn root_path(text: &str) -> Result<String, &'static str> {
    // Nothing is under `/api`: no server has that name because Open WebUI asks for `/api/config`.
    let is_own = |path: &str| {
        path.split('/').next().is_some_and(|first| is_reserved(first) && first != "api")
    };
    let inside = text.trim_matches('/');
    match (inside, is_path(inside)) {
        ("", _) => Ok(String::new()),
        // It could not be said whether `/mcp/NAME` has it still, or a proxy took it away; and `/health` would be our root.
        (inside, true) if is_own(inside) => Err(
            "a path such as /bridge, and not one of the bridge's own (mcp, mcpo, sse, files, docs ...)",
        ),
        (inside, true) => Ok(format!("/{inside}")),
        _ => Err("a path such as /bridge"),
    }
}

/// Whether this can stand in a URL as a path, as it is.
fn is_path(text: &str) -> bool {
    let is_fit = |c: u8| c.is_ascii_alphanumeric() || b"-._~/".contains(&c);
    text.bytes().all(is_fit) && !text.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// The name of a header, in lower case.
pub(super) fn header(text: &str) -> Result<String, &'static str> {
    let name = text.to_ascii_lowercase();
    if is_header_name(&name) { Ok(name) } else { Err("the name of a header") }
}

/// Whether `name` can name a header (RFC 9110, a token).
pub(super) fn is_header_name(name: &str) -> bool {
    let is_fit = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.bytes().all(is_fit)
}

/// What links begin with, without a slash at the end.
pub(super) fn base_url(text: &str) -> Result<String, &'static str> {
    let text = text.trim_end_matches('/');
    let is_fit = |rest: &str| {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        is_host(host)
            && path.bytes().all(|c| c.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&c))
    };
    if without_scheme(text).is_some_and(is_fit) {
        Ok(text.to_owned())
    } else {
        Err("a URL such as https://tools.example.org, without a query")
    }
}

/// The host of a URL of the web, without its port.
pub(super) fn host_of(url: &str) -> Option<&str> {
    let host = without_scheme(url)?.split('/').next()?;
    match host.find(']') {
        Some(end) => host.get(..=end),
        None => host.split(':').next(),
    }
}

/// A key for clients: what a header can carry, so that a client can show it.
pub(super) fn key(text: &str) -> Result<Secret, &'static str> {
    if !text.is_empty() && text.bytes().all(|c| c.is_ascii_graphic()) {
        Ok(Secret::new(text))
    } else {
        Err("a key of ASCII letters, digits and signs, without spaces")
    }
}

/// Keys with the names of those they belong to; between them commas or lines.
pub(super) fn keys(text: &str) -> Result<Vec<ApiKey>, &'static str> {
    const EXPECTED: &str = "names and keys such as alice=KEY1,bob=KEY2";
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let keys = entries.map(|entry| {
        let (name, text) = entry.split_once('=').ok_or(EXPECTED)?;
        let name = name.trim();
        let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_fit) {
            return Err(EXPECTED);
        }
        Ok(ApiKey {
            name: KeyName::Named(name.into()),
            key: key(text.trim()).map_err(|_| EXPECTED)?,
        })
    });
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(EXPECTED) } else { Ok(keys) }
}

/// What somebody else signs with.
pub(super) fn secret(text: &str) -> Result<Secret, &'static str> {
    Ok(Secret::new(text))
}

/// What signs links, or the ids of sessions.
pub(super) fn signing_secret(text: &str) -> Result<Secret, &'static str> {
    if text.len() >= 16 { Ok(Secret::new(text)) } else { Err("at least 16 bytes") }
}

fn without_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))
}

pub(super) fn is_host(host: &str) -> bool {
    let is_fit = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    !host.is_empty() && host.chars().all(is_fit)
}

/// The lower-case items of a list with commas, if each is fit.
fn list(text: &str, is_fit: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let items = text.split(',').map(|item| item.trim().to_lowercase());
    items.map(|item| is_fit(&item).then_some(item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: PartialEq + std::fmt::Debug>(
        read: impl Fn(&str) -> Result<T, &'static str>,
        good: &[(&str, T)],
        bad: &[&str],
    ) {
        for (text, value) in good {
            assert_eq!(read(text).as_ref(), Ok(value), "{text:?}");
        }
        for text in bad {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_switch_is_written_in_a_few_ways() {
        let good = [("true", true), ("FALSE", false), ("1", true), ("0", false), ("off", false)];
        check(switch, &good, &["", "maybe", "2"]);
    }

    #[test]
    fn a_root_path_is_no_path_of_the_bridge() {
        let good = [
            ("", ""),
            ("/", ""),
            ("rp", "/rp"),
            ("/a/mcp/", "/a/mcp"),
            ("/mcpox", "/mcpox"),
            ("/api", "/api"),
        ];
        let good = good.map(|(text, path)| (text, path.to_owned()));
        let bad =
            ["/mcp", "/mcpo", "mcpo/", "/mcpo/x", "/sse", "/ws", "/files", "/health", "/docs"];
        check(root_path, &good, &bad);
        check(root_path, &[], &["/ready", "/metrics", "/redoc", "/openapi.json", "/a b", "/.."]);
    }

    #[test]
    fn a_base_url_has_no_slash_at_the_end_and_no_query() {
        let good = ["https://tools.example.org", "http://a:80/x/y", "http://[::1]:8080"];
        check(base_url, &good.map(|url| (url, url.to_owned())), &[]);
        check(base_url, &[("http://a.b/x//", "http://a.b/x".to_owned())], &[]);
        let bad = ["", "nginx", "ftp://a", "http://", "http://a?b", "http://a/#b", "http://a/b c"];
        check(base_url, &[], &bad);
        check(base_url, &[], &["http://me:secret@a", "http://a/\"", "http://a\n/"]);
    }

    #[test]
    fn a_host_is_found_without_its_port() {
        for (url, host) in
            [("http://a:80/x", "a"), ("https://a.b", "a.b"), ("http://[::1]:8/", "[::1]")]
        {
            assert_eq!(host_of(url), Some(host));
        }
    }

    #[test]
    fn keys_have_names() {
        let key = |name: &str, key: &str| ApiKey {
            name: KeyName::Named(name.into()),
            key: Secret::new(key),
        };
        let both = || vec![key("alice", "k=1"), key("bob@x.org", "k2")];
        let good = [("alice=k=1, bob@x.org = k2", both()), ("alice=k=1\nbob@x.org=k2\n", both())];
        check(keys, &good, &["", ",", "k1", "=k1", "a=", "a=b c", "a b=c", "ä=b"]);
    }

    #[test]
    fn a_key_is_what_a_header_can_carry() {
        check(key, &[("a-b=/!", Secret::new("a-b=/!"))], &["", "a b", "a\n", "ä"]);
    }

    #[test]
    fn the_name_of_a_header_is_in_lower_case() {
        check(header, &[("X-User", "x-user".to_owned())], &["", "a b", "a:", "ä"]);
    }
}
