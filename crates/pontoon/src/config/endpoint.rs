//! Where an application is reached that serves MCP by itself: a WebSocket, or a socket with a message on each line.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The forms that are understood, for people.
const FORMS: &str = "ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, ws+unix:/PATH/TO/SOCKET, tcp://HOST:PORT or unix:/PATH/TO/SOCKET";

/// Where an application is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A WebSocket at a host.
    WebSocket {
        /// Who listens.
        host: Host,
        /// What is asked for there, with its query; begins with a slash.
        path: String,
        /// Whether it is inside TLS.
        is_secure: bool,
    },
    /// A WebSocket behind a Unix socket.
    WebSocketUnix(PathBuf),
    /// A message on each line, over TCP.
    Tcp(Host),
    /// The same over a Unix socket.
    Unix(PathBuf),
}

/// A host and a port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, the latter without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Why a text names no application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// It has another form.
    #[error("{0:?} is no address of an application: write {FORMS}")]
    Form(String),
    /// It is a server behind HTTP, which clients speak to by themselves.
    #[error(
        "{scheme}:// is not spoken here, for clients speak it themselves: add the server to the client (`claude mcp add \
         --transport http NAME {scheme}://...`), or write {web}:// if it is a WebSocket"
    )]
    Http {
        /// `http` or `https`.
        scheme: String,
        /// The same of a WebSocket.
        web: &'static str,
    },
    /// It begins with something that is not spoken.
    #[error("{0}:// is not spoken here: write {FORMS}")]
    Scheme(String),
    /// It says a password where everybody can read it.
    #[error(
        "an address must hold no user name or password, which others on this machine could read: use --token-env, --token-file or \
         --token-command"
    )]
    Secret,
    /// The path of a Unix socket has to be absolute.
    #[error("the path {0:?} of a Unix socket must begin with a slash")]
    Relative(String),
}

impl Endpoint {
    /// Whether it is on this machine: then it costs nothing to look for it often.
    pub fn is_local(&self) -> bool {
        match self {
            Self::WebSocket { host, .. } | Self::Tcp(host) => host.is_loopback(),
            Self::WebSocketUnix(_) | Self::Unix(_) => true,
        }
    }
}

impl Endpoint {
    /// Whether it is a WebSocket.
    pub fn is_web(&self) -> bool {
        matches!(self, Self::WebSocket { .. } | Self::WebSocketUnix(_))
    }

    /// The ports from its own to this one, each as an address.
    pub fn to_port(&self, last: u16) -> Vec<Self> {
        let (Self::WebSocket { host, .. } | Self::Tcp(host)) = self else {
            return vec![self.clone()];
        };
        let at = |port| {
            let mut other = self.clone();
            if let Self::WebSocket { host, .. } | Self::Tcp(host) = &mut other {
                host.port = port;
            }
            other
        };
        (host.port..=last).map(at).collect()
    }
}

impl Host {
    /// Whether it means this machine.
    pub fn is_loopback(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        self.name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is reached without leaving this machine, however it is written.
    pub fn is_here(&self) -> bool {
        let name = self.name.trim_end_matches('.').to_ascii_lowercase();
        let address = name.parse::<IpAddr>().map(|address| address.to_canonical());
        name == "localhost"
            || name.ends_with(".localhost")
            || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }

    /// The host and port in a text; the port may be left out if there is a usual one.
    pub fn parse(text: &str, default_port: Option<u16>) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']')?;
                name.parse::<IpAddr>().ok()?;
                (name, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
            }
            None => text.rsplit_once(':').unwrap_or((text, "")),
        };
        let port = match port {
            "" => default_port?,
            port => port.parse().ok().filter(|port| *port > 0)?,
        };
        let is_name =
            |name: &str| name.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@\\".contains(&b));
        (!name.is_empty() && is_name(name)).then(|| Self { name: name.to_owned(), port })
    }
}

impl std::str::FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        // What follows may be a secret.
        let form =
            || BadEndpoint::Form(text.split(['?', '#']).next().unwrap_or_default().to_owned());
        let (scheme, rest) = text.split_once(':').ok_or_else(form)?;
        let socket = |rest: &str| {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            match path.starts_with('/') && path.len() > 1 {
                true => Ok(PathBuf::from(path)),
                false => Err(BadEndpoint::Relative(path.to_owned())),
            }
        };
        match scheme.to_ascii_lowercase().as_str() {
            "ws+unix" => socket(rest).map(Self::WebSocketUnix),
            "unix" => socket(rest).map(Self::Unix),
            scheme @ ("ws" | "wss" | "tcp") => {
                let rest = rest.strip_prefix("//").ok_or_else(form)?;
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                if authority.contains('@') {
                    return Err(BadEndpoint::Secret);
                }
                let default_port = match scheme {
                    "ws" => Some(80),
                    "wss" => Some(443),
                    _ => None,
                };
                let host = Host::parse(authority, default_port).ok_or_else(form)?;
                let path = match (scheme, path) {
                    ("tcp", "" | "/") => return Ok(Self::Tcp(host)),
                    ("tcp", _) => return Err(form()),
                    (_, "") => "/".to_owned(),
                    (_, path) if path.starts_with('/') && is_plain(path) => path.to_owned(),
                    (_, path) if path.starts_with('?') && is_plain(path) => format!("/{path}"),
                    _ => return Err(form()),
                };
                Ok(Self::WebSocket { host, path, is_secure: scheme == "wss" })
            }
            scheme @ ("http" | "https") if rest.starts_with("//") => {
                let web = if scheme == "https" { "wss" } else { "ws" };
                Err(BadEndpoint::Http { scheme: scheme.to_owned(), web })
            }
            other
                if other.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
                    && rest.starts_with("//") =>
            {
                Err(BadEndpoint::Scheme(other.to_owned()))
            }
            _ => Err(form()),
        }
    }
}

fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Without the query, which may hold a secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket { host, path, is_secure } => {
                let path = path.split('?').next().unwrap_or_default();
                let scheme = if *is_secure { "wss" } else { "ws" };
                write!(f, "{scheme}://{host}{path}")
            }
            Self::WebSocketUnix(path) => write!(f, "ws+unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, is_local: bool) {
        let endpoint: Endpoint = text.parse().unwrap();
        assert_eq!((endpoint.to_string().as_str(), endpoint.is_local()), (expected, is_local));
    }

    #[test]
    fn the_addresses_of_applications_are_read() {
        check("ws://localhost:7400", "ws://localhost:7400/", true);
        check("WS://127.0.0.1:7400/mcp", "ws://127.0.0.1:7400/mcp", true);
        check("ws://[::1]:7400?x=1", "ws://[::1]:7400/", true);
        check("ws://max.example/mcp?token=secret", "ws://max.example:80/mcp", false);
        check("wss://max.example", "wss://max.example:443/", false);
        check("WSS://localhost:7400/mcp?x=1", "wss://localhost:7400/mcp", true);
        check("tcp://127.0.0.1:9876", "tcp://127.0.0.1:9876", true);
        check("unix:/run/app.sock", "unix:/run/app.sock", true);
        check("unix:///run/app.sock", "unix:/run/app.sock", true);
        check("ws+unix:/run/app.sock", "ws+unix:/run/app.sock", true);
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_forms_that_are() {
        for text in [
            "",
            "7400",
            "localhost:7400",
            "ws:localhost",
            "ws://",
            "ws://:7400",
            "ws://a:0",
            "ws://a:x",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("ws://HOST:PORT/PATH"), "{text}: {error}");
        }
        let error = |text: &str| text.parse::<Endpoint>().unwrap_err();
        assert_eq!(error("ftp://a:1"), BadEndpoint::Scheme("ftp".to_owned()));
        assert_eq!(error("ws://me:word@a:1"), BadEndpoint::Secret);
        assert_eq!(error("unix:run/app.sock"), BadEndpoint::Relative("run/app.sock".to_owned()));
        assert_eq!(error("tcp://a:1/path"), BadEndpoint::Form("tcp://a:1/path".to_owned()));
        assert_eq!(error("tcp://a"), BadEndpoint::Form("tcp://a".to_owned()));
    }
}
