//! What a rig starts: the programs under test, the servers of the configuration, the environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::{Value, json};

use super::{Rig, TAG};

/// The programs under test. Only a test target knows where they are: see [`binaries!`](crate::binaries).
#[derive(Debug, Clone)]
pub struct Binaries {
    /// The bridge.
    pub pontoon: PathBuf,
    /// A server that behaves badly.
    pub rude_server: PathBuf,
    /// A server that behaves well.
    pub fixture_server: PathBuf,
}

/// The programs that were built for this test target.
#[macro_export]
macro_rules! binaries {
    () => {
        $crate::rig::Binaries {
            pontoon: env!("CARGO_BIN_EXE_pontoon-under-test").into(),
            rude_server: env!("CARGO_BIN_EXE_rude-server").into(),
            fixture_server: env!("CARGO_BIN_EXE_fixture-server").into(),
        }
    };
}

impl Binaries {
    /// The program a transcript calls by this name.
    ///
    /// # Panics
    ///
    /// When the name is not one of the kit's servers.
    pub fn named(&self, name: &str) -> &Path {
        match name {
            "rude-server" => &self.rude_server,
            "fixture-server" => &self.fixture_server,
            other => panic!("no server is called {other}"),
        }
    }
}

/// One entry of the configuration.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its name in the URL.
    pub name: String,
    /// The program; empty if it runs already.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Every other member of the entry, as it stands in the file.
    pub settings: Value,
    /// The rig waits until the bridge calls it ready.
    pub comes_up: bool,
}

impl Server {
    /// A server that is expected to come up.
    pub fn new(name: &str, command: &Path, args: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            command: command.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            settings: json!({}),
            comes_up: true,
        }
    }

    /// A server that runs already, at this `url` or `socket`. It need not be there.
    pub fn reached(name: &str, key: &str, place: &str) -> Self {
        let settings = json!({ key: place });
        Self { settings, comes_up: false, ..Self::new(name, Path::new(""), &[]) }
    }

    /// The same with one more member: `.with("mode", "stateful")`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings[key] = value.into();
        self
    }

    /// The same, but the rig does not wait for it.
    #[must_use]
    pub fn that_may_fail(mut self) -> Self {
        self.comes_up = false;
        self
    }

    pub(super) fn entry(&self, tag: &str) -> Value {
        let mut entry = self.settings.clone();
        if self.command.as_os_str().is_empty() {
            return entry;
        }
        entry["command"] = json!(self.command);
        entry["args"] = json!(self.args);
        entry["env"][TAG] = json!(tag);
        entry
    }
}

/// What to start.
#[derive(Debug)]
pub struct Plan {
    /// The programs under test.
    pub binaries: Binaries,
    /// The servers of the configuration.
    pub servers: Vec<Server>,
    /// Environment variables of the bridge.
    pub variables: Vec<(String, String)>,
    /// Arguments after `serve --config FILE --listen 127.0.0.1:0`.
    pub arguments: Vec<String>,
    /// How clients speak TLS, if the bridge has a certificate: its addresses are then those of a tunnel.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Plan {
    /// A bridge with these servers and nothing else.
    pub fn new(binaries: Binaries, servers: impl IntoIterator<Item = Server>) -> Self {
        let servers = servers.into_iter().collect();
        Self { binaries, servers, variables: Vec::new(), arguments: Vec::new(), tls: None }
    }

    /// The same with one more variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with one more argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The same with this certificate and key, called by clients that go by `tls`.
    #[must_use]
    pub fn secured(mut self, files: &(PathBuf, PathBuf), tls: Arc<ClientConfig>) -> Self {
        self.tls = Some(tls);
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        self.variable("MCPO_TLS_CERT", &text(&files.0)).variable("MCPO_TLS_KEY", &text(&files.1))
    }

    /// The first API key of the bridge, if it has any.
    pub(super) fn key(&self) -> Option<String> {
        let value = |name: &str| self.variables.iter().find(|(known, _)| known == name);
        let unnamed = value("MCPO_API_KEY").map(|(_, key)| key.as_str());
        let named = || value("MCPO_API_KEYS")?.1.split(',').next()?.split_once('=');
        unnamed.or_else(|| named().map(|(_, key)| key)).map(str::to_owned)
    }

    /// Starts it and waits until it listens and every server that should has come up.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn start(self) -> Rig {
        Rig::start(&self)
    }
}
