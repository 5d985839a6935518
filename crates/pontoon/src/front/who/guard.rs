//! Who may talk to us at all: the `Host` and `Origin` headers, against pages that reach a loopback
//! server through a name of their own (DNS rebinding).

use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use super::super::refusal::Refusal;
use crate::config::AllowedOrigins;

/// The hosts and origins that may be named.
#[derive(Debug)]
pub struct Guard {
    hosts: Vec<String>,
    origins: AllowedOrigins,
    /// Beyond loopback any address may be the one by which we are reached.
    any_address: bool,
    /// Any name may be the one by which we are reached.
    any_host: bool,
}

impl Guard {
    /// A guard for these listening addresses and the extra names that were configured.
    pub fn new(listen: &[SocketAddr], hosts: &[String], origins: &AllowedOrigins) -> Self {
        let mut all: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        all.extend(listen.iter().map(|address| match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        }));
        all.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        Self {
            hosts: all,
            origins: origins.clone(),
            any_address: listen.iter().any(|address| !address.ip().is_loopback()),
            any_host: false,
        }
    }

    /// The same, but clients may call us by any name.
    pub fn of_any_host(self) -> Self {
        Self { any_host: true, ..self }
    }

    /// The pages that may call, beside our own, and read what is answered.
    pub fn origins(&self) -> &AllowedOrigins {
        &self.origins
    }

    /// Whether a request may pass.
    ///
    /// # Errors
    ///
    /// Why it may not, for the person who reads it.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Refusal::invalid(400, "exactly one `Host` header is needed"));
        };
        let host = in_lower_case(host.to_str().unwrap_or_default());
        if !self.is_known(&host) {
            let text =
                format!("the host {host:?} is not served here: name it in MCPO_ALLOWED_HOSTS");
            return Err(Refusal::invalid(403, text));
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            let origin_host = origin.split_once("://").map(|(_, host)| host);
            let is_ours = origin_host.is_some_and(|name| name == host || self.is_named(name));
            if !is_ours && !self.origins.has(&origin) {
                let text =
                    format!("the origin {origin:?} is foreign: name it in MCPO_ALLOWED_ORIGINS");
                return Err(Refusal::invalid(403, text));
            }
        }
        Ok(())
    }

    /// Whether `host`, with or without a port, may be the one we are reached by.
    fn is_known(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        let is_address = || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        self.any_host || self.is_named(host) || (self.any_address && is_address())
    }

    /// Whether `host`, with or without a port, is one of our names.
    fn is_named(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        self.hosts.iter().any(|known| known == name || known == host)
    }
}

/// A text in lower case, and the same one where it is already.
fn in_lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => text.to_ascii_lowercase().into(),
        false => text.into(),
    }
}

/// A host without its port; `None` if the port is none.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => (&host[..colon], &host[colon + 1..]),
        _ => (host, "0"),
    };
    port.parse::<u16>().is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, origin: &str, passes: bool) {
        let guard = Guard::new(
            &["127.0.0.1:8080".parse().unwrap()],
            &["tools.example".to_owned()],
            &AllowedOrigins::These(vec!["https://chat.example".to_owned()]),
        );
        let mut headers = HeaderMap::new();
        if !host.is_empty() {
            headers.insert(HOST, host.parse().unwrap());
        }
        if !origin.is_empty() {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        assert_eq!(guard.check(&headers).is_ok(), passes, "{host} {origin}");
    }

    #[test]
    fn only_our_own_names_pass() {
        check("127.0.0.1:8080", "", true);
        check("localhost", "http://localhost:3000", true);
        check("[::1]:8080", "http://[::1]", true);
        check("Tools.Example", "https://chat.example", true);
        check("evil.example", "", false);
        check("127.0.0.1.evil.example", "", false);
        check("127.0.0.1:8080@evil.example", "", false);
        check("10.0.0.1", "", false);
        check("", "", false);
        check("localhost", "http://evil.example", false);
        check("localhost", "null", false);
        check("localhost", "https://chat.example.evil", false);
    }
}
