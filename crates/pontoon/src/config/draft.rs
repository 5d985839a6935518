//! A server while its keys are read: the server as far as it is known, and what else was written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::app_headers::AppHeader;
use super::app_place::AppPlace;
use super::environment::Environment;
use super::lifetime::Mode;
use super::name::ServerName;
use super::program::ProgramError;
use super::secret::Secret;
use super::server::Server;
use super::settings::BridgeSettings;

/// What a server is read with, besides the file.
pub(super) struct FileContext<'a> {
    /// The absolute folder where relative paths begin: that of the file, or the one in which we were started.
    pub(super) folder: &'a Path,
    /// Our own environment, for placeholders and `PATH`.
    pub(super) environment: &'a Environment,
    /// What holds for servers that say nothing else.
    pub(super) settings: &'a BridgeSettings,
    /// Whether its servers have the manners of mcpo, and so start in that folder.
    pub(super) is_of_mcpo: bool,
    /// Whether the bridge starts, and does not read its configuration again.
    pub(super) is_start: bool,
}

/// The `mode` as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenMode {
    Stateless,
    Stateful,
    Shared,
    /// A slip, which was told: keys beside it may well be right.
    Unknown,
}

/// How a server is spoken to, as its `type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenKind {
    Stdio,
    WebSocket,
}

/// What was written of a server that is reached.
#[derive(Default)]
pub(super) struct WrittenApp {
    pub(super) kind: Option<WrittenKind>,
    pub(super) url: Option<AppPlace>,
    pub(super) socket: Option<PathBuf>,
    pub(super) token: Option<Secret>,
    pub(super) headers: Vec<AppHeader>,
    pub(super) authorities: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) connect_wait: Option<Duration>,
    pub(super) busy_grace: Option<Duration>,
}

/// What was written for one server and could be understood.
pub(super) struct Draft {
    /// The server, but for its program, its mode and its fingerprint.
    pub(super) server: Server,
    pub(super) command: Option<String>,
    /// What was written of a server that is reached, and not started.
    pub(super) app: WrittenApp,
    pub(super) mode: WrittenMode,
    pub(super) idle: Option<Duration>,
    pub(super) per_address: Option<usize>,
    pub(super) per_client: Option<usize>,
}

impl Draft {
    /// A server of which nothing is read yet.
    pub(super) fn new(name: ServerName, settings: &BridgeSettings) -> Self {
        let command = String::new();
        let program = Err(ProgramError::NotFound { command, searched: Vec::new() });
        let server = Server::new(name, program, Vec::new());
        Self {
            server: Server { timeout: settings.timeout, ..server },
            command: None,
            app: WrittenApp::default(),
            mode: WrittenMode::Stateless,
            idle: None,
            per_address: None,
            per_client: None,
        }
    }

    /// How long its processes live; what is not written holds for all servers.
    pub(super) fn mode(&self, settings: &BridgeSettings) -> Mode {
        let idle = self.idle.unwrap_or(settings.idle);
        match self.mode {
            WrittenMode::Stateless => Mode::Stateless,
            WrittenMode::Shared => Mode::Shared { idle },
            WrittenMode::Stateful | WrittenMode::Unknown => Mode::Stateful {
                idle,
                per_address: self.per_address.unwrap_or(settings.per_address),
                per_client: self.per_client.unwrap_or(settings.per_client),
            },
        }
    }
}
