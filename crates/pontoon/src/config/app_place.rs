//! Where an application is looked for: at an address, at one of some ports, where its own file says, or nowhere: it comes
//! by itself.

use std::fmt;
use std::path::PathBuf;

use super::endpoint::{BadEndpoint, Endpoint};

/// As many ports may be looked at.
const MAX_PORTS: u16 = 100;

/// Where an application is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppPlace {
    /// At this address.
    At(Endpoint),
    /// At this address, or at one of the ports that follow.
    Ports {
        /// The address with the first port.
        first: Endpoint,
        /// The last port.
        last: u16,
    },
    /// Where the file of an application of this name says.
    Named {
        /// Its name, with its process behind it if there are several.
        name: String,
        /// The folder in which applications leave such files.
        folder: PathBuf,
    },
    /// It comes to us.
    Comes(AppEntrance),
}

/// Where applications come to that look for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppEntrance {
    /// The port, on this machine alone.
    pub port: u16,
    /// The pages that may come, such as `https://app.example`: what a browser calls their origin.
    pub origins: Vec<String>,
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPlace {
    /// It is no address.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// The ports are in the wrong order, or too many.
    #[error(
        "{0} is no range of ports: write FIRST-LAST, at most {MAX_PORTS} of them, such as ws://localhost:9223-9232"
    )]
    Ports(String),
}

impl AppPlace {
    /// Whether it is on this machine: then it costs nothing to look often.
    pub fn is_local(&self) -> bool {
        match self {
            Self::At(endpoint) | Self::Ports { first: endpoint, .. } => endpoint.is_local(),
            Self::Named { .. } | Self::Comes(_) => true,
        }
    }

    /// Whether TLS is spoken there.
    pub fn is_secure(&self) -> bool {
        match self {
            Self::At(endpoint) | Self::Ports { first: endpoint, .. } => {
                matches!(endpoint, Endpoint::WebSocket { is_secure: true, .. })
            }
            Self::Named { .. } | Self::Comes(_) => false,
        }
    }

    /// Whether a token can be shown there: lines have no place for it.
    pub fn takes_token(&self) -> bool {
        match self {
            Self::At(endpoint) | Self::Ports { first: endpoint, .. } => endpoint.is_web(),
            Self::Named { .. } | Self::Comes(_) => true,
        }
    }
}

impl std::str::FromStr for AppPlace {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        let Some((before, ports, after)) = range_in(text) else {
            return Ok(Self::At(text.parse()?));
        };
        let bad = || BadPlace::Ports(ports.to_owned());
        let (first, last) = ports.split_once('-').ok_or_else(bad)?;
        let [first, last] = [first, last].map(|port| port.parse::<u16>());
        let (Ok(first), Ok(last)) = (first, last) else { return Err(bad()) };
        if first == 0 || last < first || last - first >= MAX_PORTS {
            return Err(bad());
        }
        Ok(Self::Ports { first: format!("{before}{first}{after}").parse()?, last })
    }
}

/// An address with several ports: what is before them, the ports, and what is behind.
fn range_in(text: &str) -> Option<(&str, &str, &str)> {
    let authority = text.find("://")? + 3;
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |end| authority + end);
    let port = authority + text[authority..end].rfind(':')? + 1;
    let ports = &text[port..end];
    let is_range = ports.contains('-') && ports.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_range.then(|| (&text[..port], ports, &text[end..]))
}

impl fmt::Display for AppPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(endpoint) => write!(f, "{endpoint}"),
            Self::Ports { first, last } => write!(f, "{first} to port {last}"),
            Self::Named { name, .. } => write!(f, "app {name}"),
            Self::Comes(entrance) => write!(f, "ws://127.0.0.1:{}/", entrance.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_read() {
        let place: AppPlace = "ws://localhost:9223-9232/mcp?x=1-2".parse().unwrap();
        let first = "ws://localhost:9223/mcp?x=1-2".parse().unwrap();
        assert_eq!(place, AppPlace::Ports { first, last: 9232 });
        assert_eq!(place.to_string(), "ws://localhost:9223/mcp to port 9232");
        for plain in ["ws://a-b:7400", "ws://a/1:2-3", "unix:/a:1-2", "tcp://a-1:9"] {
            assert!(matches!(plain.parse(), Ok(AppPlace::At(_))), "{plain}");
        }
    }

    #[test]
    fn ports_that_make_no_sense_are_refused() {
        for text in ["ws://a:2-1", "ws://a:0-3", "ws://a:1-101", "ws://a:1-2-3", "tcp://a:1-70000"]
        {
            let error = text.parse::<AppPlace>().unwrap_err().to_string();
            assert!(error.contains("FIRST-LAST"), "{text}: {error}");
        }
    }
}
