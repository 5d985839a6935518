//! Where a client reaches us: what the links in its answers begin with.
//!
//! Of a direct client it is the `Host` it wrote; behind a trusted proxy it is what that forwards, and
//! the forwarded headers of other peers do not count. Both come from outside, so only a plain host, a port and a
//! plain path ever get into a link.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HOST, HeaderName};

use crate::client::Origin;
use crate::config::is_inner_name;

static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
static FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// The longest host and the longest prefix that are taken, in bytes.
const MAX_BYTES: usize = 255;

/// Finds where clients reach us, and tells once what makes their links wrong.
#[derive(Debug)]
pub struct Origins {
    /// Whether links begin with what the configuration says, for every client.
    has_base: bool,
    /// What clients write before our host.
    scheme: &'static str,
    told_inside: AtomicBool,
    told_ignored: AtomicBool,
}

impl Origins {
    /// Origins beside the base URL of the configuration, which may be empty; direct clients come by `scheme`.
    pub fn new(base_url: &str, scheme: &'static str) -> Self {
        let (told_inside, told_ignored) = Default::default();
        Self { has_base: !base_url.is_empty(), scheme, told_inside, told_ignored }
    }

    /// Where the client of these headers reaches us; they came from a trusted proxy or not.
    pub fn of(&self, headers: &HeaderMap, is_trusted: bool) -> Origin {
        let origin = origin(headers, is_trusted, self.scheme);
        if self.has_base {
            return origin;
        }
        if matches!(origin, Origin::Inside(_)) && !self.told_inside.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                client_calls = origin.address(),
                "links begin with /files, because the proxy forwards no host that a browser knows: \
                 let it send X-Forwarded-Host, or set MCPO_BASE_URL"
            );
        }
        let is_ignored = !is_trusted && headers.contains_key(&FORWARDED_HOST);
        if is_ignored && !self.told_ignored.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "X-Forwarded-Host is ignored and links begin with the Host header: name the proxy in \
                 MCPO_TRUSTED_PROXIES, or set MCPO_BASE_URL"
            );
        }
        origin
    }
}

/// `ours` is what stands before our host; a proxy that comes so and says nothing is taken to be called so.
fn origin(headers: &HeaderMap, is_trusted: bool, ours: &'static str) -> Origin {
    let called = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(host);
    if !is_trusted {
        return called.map_or(Origin::Unknown, |host| Origin::Public(with(ours, &host, "")));
    }
    let Forwarded { scheme, host: forwarded, prefix } = Forwarded::read(headers, ours);
    match (forwarded, called) {
        (Some(host), _) if !is_inner_name(name_of(&host)) => {
            Origin::Public(with(scheme, &host, &prefix))
        }
        (Some(host), _) => Origin::Inside(with(scheme, &host, &prefix)),
        // It may be the name by which the proxy knows us.
        (None, Some(host)) => Origin::Inside(with(scheme, &host, &prefix)),
        (None, None) => Origin::Unknown,
    }
}

fn with(scheme: &str, host: &str, prefix: &str) -> std::sync::Arc<str> {
    [scheme, "://", host, prefix].concat().into()
}

/// What a proxy says of how it was called.
struct Forwarded {
    scheme: &'static str,
    host: Option<String>,
    prefix: String,
}

impl Forwarded {
    fn read(headers: &HeaderMap, usual: &'static str) -> Self {
        let last = |name: &HeaderName| last_item(headers, name, ',');
        let ours = [&FORWARDED_HOST, &FORWARDED_PROTO, &FORWARDED_PORT, &FORWARDED_PREFIX];
        // A proxy says it in one way. What stands in the other may be what a client wrote.
        if !ours.iter().any(|name| headers.contains_key(*name)) {
            let element = last(&FORWARDED).unwrap_or_default();
            let part = |wanted: &str| {
                let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
                let mut pairs = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
                pairs.next().map(|(_, value)| value.trim().trim_matches('"'))
            };
            let scheme = scheme(part("proto"), usual);
            return Self { scheme, host: part("host").and_then(host), prefix: String::new() };
        }
        let scheme = scheme(last(&FORWARDED_PROTO), usual);
        let port = last(&FORWARDED_PORT).and_then(port).filter(|port| *port != usual_port(scheme));
        let host = last(&FORWARDED_HOST).and_then(host).map(|host| match port {
            Some(port) if name_of(&host) == host => format!("{host}:{port}"),
            _ => host,
        });
        let prefix = last(&FORWARDED_PREFIX).and_then(prefix).unwrap_or_default();
        Self { scheme, host, prefix }
    }
}

/// The last item of the last line: what the nearest proxy said.
fn last_item<'h>(headers: &'h HeaderMap, name: &HeaderName, between: char) -> Option<&'h str> {
    let line = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    line.rsplit(between).next().map(str::trim)
}

fn scheme(text: Option<&str>, usual: &'static str) -> &'static str {
    match text {
        Some(text) if text.eq_ignore_ascii_case("https") => "https",
        Some(text) if text.eq_ignore_ascii_case("http") => "http",
        _ => usual,
    }
}

fn usual_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

/// A port as people write it: no sign, no zeros in front.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.starts_with(|first| matches!(first, '1'..='9')))
}

/// A host with or without a port, in lower case, if nothing of it can end or change an address.
fn host(text: &str) -> Option<String> {
    let name = name_of(text);
    let is_fit = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => {
            let is_letter = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
            name.bytes().all(is_letter) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        }
    };
    let port_is_fit = match text[name.len()..].strip_prefix(':') {
        Some(text) => port(text).is_some(),
        None => name.len() == text.len(),
    };
    (is_fit && port_is_fit && text.len() <= MAX_BYTES).then(|| text.to_ascii_lowercase())
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    let end = match host.find(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    &host[..end]
}

/// A path before ours, without a slash at its end, if it is a plain one.
fn prefix(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let is_part = |part: &str| {
        let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"-._~".contains(&c);
        !matches!(part, "" | "." | "..") && part.bytes().all(is_letter)
    };
    let is_fit = text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part));
    (is_fit && text.len() <= MAX_BYTES).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Headers<'a> = &'a [(&'static str, &'a str)];

    /// Compares what links begin with, and where the client itself calls.
    #[track_caller]
    fn check(is_trusted: bool, headers: Headers<'_>, base: &str, address: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let found = origin(&map, is_trusted, "http");
        assert_eq!((found.base(), found.address()), (base, address), "{headers:?}");
    }

    /// Compares what the `Host` of a direct client comes to.
    #[track_caller]
    fn check_host(host: &str, expected: Option<&str>) {
        let base = expected.map(|host| format!("http://{host}")).unwrap_or_default();
        let address = if base.is_empty() { "http://localhost" } else { &base };
        check(false, &[("host", host)], &base, address);
    }

    #[test]
    fn only_a_plain_host_gets_into_a_link() {
        for host in [
            "localhost",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "tools",
            "tools.example.org:1",
            "xn--bcher-kva.example",
            "a_b.example",
        ] {
            check_host(host, Some(host));
        }
        check_host("Tools.Example:80", Some("tools.example:80"));
        for host in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:+80",
            "a:080",
            "a:65536",
            "a:80:80",
            "a:80/x",
            "a/x",
            "a?x",
            "a#x",
            "a b",
            "a)b",
            "a](x",
            "a\"b",
            "<a>",
            "a@b",
            "me:secret@b",
            "a\\b",
            "[[[127.0.0.1",
            "[::1",
            "::1",
            "[::1]x",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            ".a",
            "-a",
            "%61",
            &"a".repeat(256),
        ] {
            check_host(host, None);
        }
        let mut map = HeaderMap::new();
        map.append("host", hyper::header::HeaderValue::from_bytes(b"\xe9.example").unwrap());
        assert_eq!(origin(&map, false, "http").base(), "");
    }

    #[test]
    fn over_tls_links_are_https_unless_a_proxy_says_otherwise() {
        let check = |is_trusted: bool, headers: Headers<'_>, expected: &str| {
            let mut map = HeaderMap::new();
            for (name, value) in [&[HOST_HERE], headers].concat() {
                map.append(name, value.parse().unwrap());
            }
            assert_eq!(origin(&map, is_trusted, "https").address(), expected, "{headers:?}");
        };
        let host = ("x-forwarded-host", "a.example");
        check(false, &[host, ("x-forwarded-proto", "http")], "https://10.0.0.1:8080");
        check(true, &[], "https://10.0.0.1:8080");
        check(true, &[host], "https://a.example");
        check(true, &[host, ("x-forwarded-proto", "http")], "http://a.example");
        check(true, &[("forwarded", "host=a.example;proto=http")], "http://a.example");
    }

    const HOST_HERE: (&str, &str) = ("host", "10.0.0.1:8080");

    #[test]
    fn forwarded_headers_of_a_stranger_are_nothing() {
        let all: Headers<'_> = &[
            HOST_HERE,
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "1"),
            ("x-forwarded-prefix", "/evil"),
            ("forwarded", "host=evil.example"),
        ];
        check(false, all, "http://10.0.0.1:8080", "http://10.0.0.1:8080");
    }

    #[test]
    fn a_proxy_says_how_it_was_called() {
        let check = |headers: Headers<'_>, base: &str| {
            let headers = [&[HOST_HERE], headers].concat();
            check(true, &headers, base, base);
        };
        let (host, tls) = (("x-forwarded-host", "a.example"), ("x-forwarded-proto", "HTTPS"));
        check(&[host], "http://a.example");
        check(&[host, tls], "https://a.example");
        check(&[host, tls, ("x-forwarded-port", "443")], "https://a.example");
        check(&[host, tls, ("x-forwarded-port", "80")], "https://a.example:80");
        check(&[host, ("x-forwarded-port", "rubbish")], "http://a.example");
        check(&[("x-forwarded-host", "a.b:1"), ("x-forwarded-port", "2")], "http://a.b:1");
        check(&[host, ("x-forwarded-proto", "javascript")], "http://a.example");
        check(&[host, ("x-forwarded-prefix", "/x/y~1/")], "http://a.example/x/y~1");
        for prefix in ["x", "//evil", "/a//b", "/..", "/a/../b", "/a b", "/%2e", "/a?b", "/a)", "/"]
        {
            check(&[host, ("x-forwarded-prefix", prefix)], "http://a.example");
        }
        check(&[("x-forwarded-host", "evil.example"), host], "http://a.example");
        check(&[("x-forwarded-host", "evil.example, a.example")], "http://a.example");
        check(&[("x-forwarded-host", "[::1]:80")], "http://[::1]:80");
        check(&[("x-forwarded-host", "localhost:3000")], "http://localhost:3000");
        check(&[("forwarded", "for=1.1.1.1;Host=a.example;Proto=https")], "https://a.example");
        check(&[("forwarded", "host=evil.example, host=\"a.example:81\"")], "http://a.example:81");
        check(&[host, ("forwarded", "host=evil.example;proto=https")], "http://a.example");
    }

    #[test]
    fn what_no_browser_knows_is_for_the_client_alone() {
        let check = |headers: Headers<'_>, address: &str| {
            check(true, &[&[HOST_HERE], headers].concat(), "", address);
        };
        check(&[], "http://10.0.0.1:8080");
        check(&[("x-forwarded-proto", "https")], "https://10.0.0.1:8080");
        check(&[("x-forwarded-host", "evil.example/x")], "http://10.0.0.1:8080");
        check(&[("x-forwarded-host", "nginx:81")], "http://nginx:81");
        check(&[("x-forwarded-host", "host.docker.internal")], "http://host.docker.internal");
        check(&[("x-forwarded-host", "a.b.svc.cluster.local")], "http://a.b.svc.cluster.local");
    }
}
