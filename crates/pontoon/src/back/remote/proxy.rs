//! A proxy on the way to an application that is not on this machine: which one the environment names, and the tunnel
//! through it.
//!
//! What is in the address of a proxy besides its host and port is a secret, and is told nowhere.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::{AddressBlock, Environment, Host, Secret};

/// How long a proxy may take to reach the application; less than the whole step, so that it is known what took so long.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest answer of a proxy.
const LONGEST: usize = 16 * 1024;

/// Why there is no way through a proxy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("{variable} names no proxy: it has to be http://HOST:PORT")]
    Form { variable: String },
    #[error(
        "{variable} names a proxy that speaks {scheme}, but only http:// is spoken to proxies here"
    )]
    Scheme { variable: String, scheme: String },
    #[error("{} cannot be reached: {why}", place(.at, .variable))]
    Unreachable { at: Host, variable: String, why: String },
    #[error("{} refused: {said}", place(.at, .variable))]
    Refused { at: Host, variable: String, status: u16, said: String },
    #[error("{} has said nothing for {} s", place(.at, .variable), PATIENCE.as_secs())]
    Silent { at: Host, variable: String },
    #[error("{} does not answer as a proxy does", place(.at, .variable))]
    Foreign { at: Host, variable: String },
}

fn place(at: &Host, variable: &str) -> String {
    format!("the proxy at {at}, which {variable} names,")
}

impl ProxyError {
    /// What the user can do about it, if it is the proxy that stands in the way, and not the application.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Refused { status: 407, .. } => {
                Some("set the variable to http://USER:PASSWORD@HOST:PORT of the proxy")
            }
            // It let us through, and the application is not there.
            Self::Refused { status: 502..=504, .. } => None,
            _ => Some("correct the variable, or name the host of the application in NO_PROXY,"),
        }
    }

    /// Whether it helps to ask again soon.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Form { .. } | Self::Scheme { .. } => false,
            Self::Refused { status, .. } => *status >= 500,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Foreign { .. } => true,
        }
    }
}

/// The proxies that the environment names.
#[derive(Debug)]
pub(crate) struct Proxies(Environment);

/// A proxy to go through.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) host: Host,
    /// Where it was named.
    variable: String,
    /// The user and the password, as the header has them.
    credentials: Option<Secret>,
}

impl Proxies {
    pub(crate) fn new(environment: &Environment) -> Self {
        Self(environment.clone())
    }

    /// The proxy on the way to this host, if there is one. What is on this machine is never behind one.
    pub(crate) fn on_the_way_to(
        &self,
        host: &Host,
        is_secure: bool,
    ) -> Result<Option<Proxy>, ProxyError> {
        if host.is_here() || self.set("NO_PROXY").is_some_and(|(_, list)| is_named(host, list)) {
            return Ok(None);
        }
        let named = self.set(if is_secure { "HTTPS_PROXY" } else { "HTTP_PROXY" });
        let Some((variable, url)) = named.or_else(|| self.set("ALL_PROXY")) else {
            return Ok(None);
        };
        proxy(variable, url).map(Some)
    }

    /// A variable that is set and not empty, in small letters or as it is, with its name.
    fn set(&self, name: &str) -> Option<(String, &str)> {
        [name.to_ascii_lowercase(), name.to_owned()].into_iter().find_map(|name| {
            let value = self.0.get(&name)?.to_str()?.trim();
            (!value.is_empty()).then_some((name, value))
        })
    }
}

fn proxy(variable: String, url: &str) -> Result<Proxy, ProxyError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    if !scheme.eq_ignore_ascii_case("http") {
        let is_word = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        return Err(match is_word {
            true => ProxyError::Scheme { variable, scheme: scheme.to_owned() },
            false => ProxyError::Form { variable },
        });
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (who, place) = match authority.rsplit_once('@') {
        Some((who, place)) => (Some(who), place),
        None => (None, authority),
    };
    let Some(host) = Host::parse(place, Some(80)) else {
        return Err(ProxyError::Form { variable });
    };
    let credentials = who.map(|who| {
        let plain: Vec<u8> = percent_decode_str(who).collect();
        Secret::new(STANDARD.encode(plain))
    });
    Ok(Proxy { host, variable, credentials })
}

/// Whether a list of `NO_PROXY` has this host: by its name or that of a domain it is in, or by its address or a block
/// of them, each perhaps with a port.
fn is_named(host: &Host, list: &str) -> bool {
    let address: Option<IpAddr> = host.name.parse().ok();
    let name = host.name.trim_end_matches('.').to_ascii_lowercase();
    let names = |word: &str| {
        if word == "*" {
            return true;
        }
        if let (Some(address), Ok(block)) = (address, word.parse::<AddressBlock>()) {
            return block.contains(address);
        }
        let (word, port) = match Host::parse(word, Some(host.port)) {
            Some(named) => (named.name, named.port),
            None => return false,
        };
        if let Some(address) = address {
            return port == host.port && word.parse() == Ok(address);
        }
        let word = word.trim_end_matches('.').to_ascii_lowercase();
        let domain = word.trim_start_matches('*').trim_start_matches('.');
        let is_in =
            name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        port == host.port && !domain.is_empty() && is_in
    };
    list.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()).any(names)
}

impl Proxy {
    /// It does not answer, for this reason.
    pub(crate) fn unreachable(self, why: String) -> ProxyError {
        ProxyError::Unreachable { at: self.host, variable: self.variable, why }
    }

    /// Makes a connection to the proxy one to this host.
    pub(crate) async fn tunnel(
        self,
        mut stream: TcpStream,
        to: &Host,
    ) -> Result<TcpStream, ProxyError> {
        let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
        if let Some(credentials) = &self.credentials {
            request.extend_from_slice(b"Proxy-Authorization: Basic ");
            request.extend_from_slice(credentials.expose());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let asked = tokio::time::timeout(PATIENCE, ask(&mut stream, &request)).await;
        let (at, variable) = (self.host, self.variable);
        match asked {
            Err(_) => Err(ProxyError::Silent { at, variable }),
            Ok(None) => Err(ProxyError::Foreign { at, variable }),
            Ok(Some((200..=299, _))) => Ok(stream),
            Ok(Some((status, said))) => Err(ProxyError::Refused { at, variable, status, said }),
        }
    }
}

/// What the proxy answers: its status, and that with its words. `None` if it is something else.
async fn ask(stream: &mut TcpStream, request: &[u8]) -> Option<(u16, String)> {
    stream.write_all(request).await.ok()?;
    let mut head = Vec::new();
    // The application says nothing before it is spoken to, so nothing but the head comes.
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await.ok()?;
        if read == 0 || head.len() > LONGEST {
            break;
        }
    }
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
    let said = line.strip_prefix("HTTP/1.")?.split_once(' ')?.1.trim();
    let status = said.get(..3)?.parse().ok()?;
    let is_open = (200..300).contains(&status);
    let is_whole = head.ends_with(b"\r\n\r\n");
    let said = said.chars().filter(|letter| !letter.is_control()).collect();
    (is_whole || !is_open).then_some((status, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text, Some(443)).unwrap()
    }

    /// The proxy on the way to a host, where the environment has these variables.
    fn check(variables: &[(&str, &str)], to: &str, expected: &str) {
        let proxies = Proxies::new(&Environment::new(variables.iter().copied()));
        let found = match proxies.on_the_way_to(&host(to), true) {
            Ok(None) => "none".to_owned(),
            Ok(Some(proxy)) => format!("{} of {}", proxy.host, proxy.variable),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected) && !found.contains("hunter2"), "{variables:?}: {found}");
    }

    #[test]
    fn the_environment_names_the_proxy() {
        check(&[], "a.example", "none");
        check(&[("HTTP_PROXY", "http://p:1")], "a.example", "none");
        check(&[("HTTPS_PROXY", "http://p:1")], "a.example", "p:1 of HTTPS_PROXY");
        check(&[("HTTPS_PROXY", ""), ("ALL_PROXY", "p")], "a.example", "p:80 of ALL_PROXY");
        check(&[("https_proxy", "p:1"), ("HTTPS_PROXY", "q:1")], "a.example", "p:1 of https_proxy");
        let plain = Proxies::new(&Environment::new([("http_proxy", "http://p:1/")]));
        let proxy = plain.on_the_way_to(&host("a.example"), false).unwrap().unwrap();
        assert_eq!(proxy.host, host("p:1"));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_told_without_its_password() {
        check(&[("ALL_PROXY", "socks5h://me:hunter2@p:1")], "a.example", "speaks socks5h");
        check(&[("ALL_PROXY", "https://me:hunter2@p:1")], "a.example", "speaks https");
        check(&[("ALL_PROXY", "http://me:hunter2@")], "a.example", "ALL_PROXY names no proxy");
        check(&[("ALL_PROXY", "hunter2 ://p")], "a.example", "ALL_PROXY names no proxy");
        let error = proxy("X".to_owned(), "http://me:hunt%65r2@p:1").unwrap();
        assert!(!format!("{error:?}").contains("hunter2"));
        assert_eq!(error.credentials.unwrap().expose(), STANDARD.encode("me:hunter2").as_bytes());
    }

    #[test]
    fn this_machine_and_what_no_proxy_names_is_reached_without_one() {
        let with = |list, to, expected| {
            check(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", list)], to, expected);
        };
        for to in [
            "localhost",
            "localhost.",
            "x.LocalHost",
            "127.0.0.1",
            "127.9.9.9:80",
            "0.0.0.0",
            "[::1]:9",
            "[::]:9",
            "[::ffff:127.0.0.1]:9",
        ] {
            with("", to, "none");
        }
        for list in
            ["*", "a.example", "x, A.Example", "example", ".example", "*.example", "a.example:443"]
        {
            with(list, "a.example", "none");
        }
        for list in ["", "b.example", "ple", "a.example:80", "x.a.example", ",", "."] {
            with(list, "a.example", "p:1");
        }
        with("10.0.0.0/8", "10.1.2.3", "none");
        with("10.1.2.3", "10.1.2.3", "none");
        with("10.0.0.0/8", "11.1.2.3", "p:1");
        for list in ["3", "2.3", ".2.3"] {
            with(list, "10.1.2.3", "p:1");
        }
        with("a.example.", "a.example", "none");
        with("localhost.example", "notlocalhost", "p:1");
        with("fe80::/10", "[fe80::1]:80", "none");
    }
}
