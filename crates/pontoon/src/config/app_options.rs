//! An application that serves MCP by itself and comes and goes: where it is, and how patient the bridge is with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::app_headers::AppHeaders;
use super::app_place::AppPlace;
use super::endpoint::Endpoint;
use super::environment::Environment;
use super::secret::Secret;
use crate::hex::hex;

/// How long a call waits for an application that is not there, unless told otherwise.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How long an application may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// After this long it is asked for a sign of life, and again each time as long passes.
    pub ping_after: Duration,
    /// How long it may give none while it works on a call: one that works on its main thread cannot.
    pub busy_grace: Duration,
}

impl Silence {
    /// Unless told otherwise.
    pub const USUAL: Self =
        Self { ping_after: Duration::from_secs(15), busy_grace: Duration::from_secs(120) };
}

/// What bridges say to each other beside MCP. Those that say something else must not share a connection: they would
/// misunderstand what they do not hear.
const BRIDGE_WORDS: &str = "leaving, passed_on";

/// An application that serves MCP by itself, as the user wants it used.
#[derive(Debug, Clone, PartialEq)]
pub struct AppOptions {
    /// Where it is looked for.
    pub place: AppPlace,
    /// What it is shown, if it asks who is there, or what it has to show if it comes by itself.
    pub token: Option<TokenSource>,
    /// What it is sent besides, where it is a WebSocket.
    pub headers: AppHeaders,
    /// How TLS is spoken to it, where the address wants it.
    pub tls: TlsFiles,
    /// How long a call waits for it.
    pub connect_wait: Duration,
    /// How long it may be silent.
    pub silence: Silence,
    /// How long it is left alone after it has closed a connection with such a code.
    pub close_codes: Vec<(u16, Duration)>,
    /// Whether HTTP is spoken at the place, which is written as that of a WebSocket: commands have it, a configuration not.
    pub over_http: bool,
}

impl AppOptions {
    /// What bridges are called by that may share a connection: the same for one application that is reached in the same
    /// way, with the same token, headers and certificates. Paths are absolute here.
    pub fn meeting_name(&self) -> String {
        let secret = match &self.token {
            Some(TokenSource::Value(secret)) => secret.expose(),
            Some(TokenSource::File(_) | TokenSource::Command(_)) | None => &[],
        };
        let Self { place, token, headers, tls, .. } = self;
        let written = format!("{BRIDGE_WORDS} {place:?} {token:?} {headers:?} {tls:?}");
        let mut hash = Sha256::new().chain_update(written).chain_update([0]).chain_update(secret);
        for header in &headers.typed {
            hash.update([0]);
            hash.update(header.value.expose());
        }
        hex(&hash.finalize()[..8])
    }

    /// The application at this address, which wants to see this token.
    pub fn target(&self, endpoint: Endpoint, token: Option<TokenSource>) -> AppTarget {
        let (headers, tls) = (self.headers.clone(), self.tls.clone());
        AppTarget { endpoint, token, headers, tls, silence: self.silence }
    }
}

/// An application at one address, to be dialled.
#[derive(Debug, Clone, PartialEq)]
pub struct AppTarget {
    /// The address.
    pub endpoint: Endpoint,
    /// What it is shown, if it asks who is there.
    pub token: Option<TokenSource>,
    /// What it is sent besides, where it is a WebSocket.
    pub headers: AppHeaders,
    /// How TLS is spoken to it, where the address wants it.
    pub tls: TlsFiles,
    /// How long it may be silent.
    pub silence: Silence,
}

/// The files that TLS needs, in PEM form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of authorities that are trusted beside those of this machine.
    pub authorities: Option<PathBuf>,
    /// What is shown to an application that wants to know who is there: a certificate, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Where the token of an application comes from. It is read for each connection, for it may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// This value.
    Value(Secret),
    /// The first line of this file.
    File(PathBuf),
    /// The first line that this command writes, by a shell.
    Command(String),
}

impl TokenSource {
    /// The token in a variable of this name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn variable(name: &str, environment: &Environment) -> Result<Self, String> {
        let value = environment.get(name).and_then(|value| value.to_str()).unwrap_or_default();
        match value.trim() {
            "" => Err(format!("the variable {name} is not set, or is empty")),
            token => Ok(Self::Value(Secret::new(token))),
        }
    }

    /// The token in the first line of a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or holds none.
    pub fn first_line(file: &Path) -> io::Result<Secret> {
        let text = fs::read_to_string(file)?;
        match text.lines().next().unwrap_or_default().trim() {
            "" => Err(io::Error::other("its first line is empty")),
            token => Ok(Secret::new(token)),
        }
    }

    /// The token, if it is known without running anything.
    pub fn known(&self) -> Option<Secret> {
        match self {
            Self::Value(secret) => Some(secret.clone()),
            Self::File(path) => Self::first_line(path).ok(),
            Self::Command(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::app_place::AppEntrance;
    use super::*;

    #[test]
    fn only_bridges_that_reach_an_application_in_the_same_way_meet() {
        let options = |place: &str, token, authorities: Option<&str>| AppOptions {
            place: place.parse().unwrap(),
            token,
            headers: AppHeaders::default(),
            tls: TlsFiles { authorities: authorities.map(PathBuf::from), own: None },
            connect_wait: CONNECT_WAIT,
            silence: Silence::USUAL,
            close_codes: Vec::new(),
            over_http: false,
        };
        let value = |token: &str| Some(TokenSource::Value(Secret::new(token)));
        let file = |path: &str| Some(TokenSource::File(PathBuf::from(path)));
        let named = |folder: &str| AppOptions {
            place: AppPlace::Named { name: "a".to_owned(), folder: folder.into() },
            ..options("ws://a", None, None)
        };
        let comes = |origins: &[&str]| {
            let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
            let place = AppPlace::Comes(AppEntrance { port: 80, origins });
            AppOptions { place, ..options("ws://a", None, None) }
        };
        let with_headers = |typed: &[&str], file: Option<&str>| {
            let typed = typed.iter().map(|header| header.parse().unwrap()).collect();
            let headers = AppHeaders { typed, file: file.map(PathBuf::from) };
            AppOptions { headers, ..options("ws://127.0.0.1:80", None, None) }
        };
        let mut names = [
            with_headers(&["A: 1"], None),
            with_headers(&["A: 2"], None),
            with_headers(&["A: 1", "B: 2"], None),
            with_headers(&[], Some("/1")),
            options("ws://127.0.0.1:80", None, None),
            options("ws://127.0.0.1:80/x", None, None),
            options("ws://127.0.0.1:80", value("1"), None),
            options("ws://127.0.0.1:80", value("2"), None),
            options("ws://127.0.0.1:80", file("/1"), None),
            options("ws://127.0.0.1:80", file("/2"), None),
            options("wss://127.0.0.1:80", None, None),
            options("wss://127.0.0.1:80", None, Some("/ca")),
            named("/1"),
            named("/2"),
            comes(&[]),
            comes(&["https://a"]),
        ]
        .map(|options| options.meeting_name())
        .to_vec();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        let silence = Silence { busy_grace: Duration::ZERO, ..Silence::USUAL };
        let patient = AppOptions { silence, ..options("ws://a", None, None) };
        assert_eq!(patient.meeting_name(), options("ws://a", None, None).meeting_name());
    }
}
