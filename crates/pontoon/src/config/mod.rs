//! The configuration: what the user wrote, then what we run with.
//!
//! [`Config::load`] puts the command line, the environment and `mcp-servers.json` together. All
//! mistakes are told at once, each with its place; what it gives is complete and checked, and
//! nothing else of the program looks at the environment or the file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod address;
mod allowed_origins;
mod app_headers;
mod app_options;
mod app_place;
mod complete;
#[cfg(test)]
mod docs;
mod document;
mod draft;
mod endpoint;
mod environment;
mod file;
mod healing;
mod identity;
pub mod isolation;
mod keys;
mod lifetime;
mod mcpo;
mod name;
mod nearest;
mod network;
mod options;
mod program;
mod reach;
mod remarks;
mod remote;
mod rest_settings;
mod review;
mod secret;
mod server;
mod settings;
mod source;
mod template;
mod tls;
mod traces;
mod typed_server;
mod units;
mod values;
mod variables;

pub use address::{AddressBlock, BadAddressBlock};
pub use allowed_origins::AllowedOrigins;
pub use app_headers::{AppHeader, AppHeaders, BadHeader, BadHeaderFile};
pub use app_options::{AppOptions, AppTarget, CONNECT_WAIT, Silence, TlsFiles, TokenSource};
pub use app_place::{AppEntrance, AppPlace, BadPlace};
pub use endpoint::{BadEndpoint, Endpoint, Host};
pub use environment::{Environment, own_variable};
pub use healing::Healing;
pub use identity::{IdentityHeaders, as_spelt, note_on_people};
pub use isolation::Isolation;
pub use lifetime::{FileLinks, MessageFraming, Mode, RestExtras, SessionKey, Warm, WorkspaceScope};
pub use mcpo::McpoOptions;
pub use name::{BadServerName, ServerName, is_reserved};
pub use nearest::nearest;
pub use network::{certificates, proxy_secrets};
pub use options::Options;
pub use program::ProgramError;
pub(crate) use program::is_program_name;
pub use reach::is_inner_name;
pub use remarks::{Position, Remark, RemarkPlace, Remarks, Weight};
pub use rest_settings::{RestSettings, RootInfo, below_root};
pub use secret::{ApiKey, KeyName, Secret};
pub use server::{InheritEnv, Server};
pub use settings::{BridgeSettings, SMALLEST_BUDGET};
pub use template::{SHORTEST_SECRET, Start, Template};
pub use traces::{Sampling, TraceSettings};
pub use values::LogLevel;
pub(crate) use values::{listen as parse_listen, log_level as parse_log_level};

use draft::FileContext;
use source::find_file;
use typed_server::typed_server;
use values::absolute;

/// Everything Pontoon runs with, complete and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// What holds for the whole bridge.
    pub settings: BridgeSettings,
    /// The servers in the order of the file; at least one.
    pub servers: Vec<Arc<Server>>,
    /// Where the servers come from.
    pub source: ConfigSource,
    /// Our own environment.
    pub environment: Environment,
}

/// Where the servers of a configuration come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// This file, as it was named.
    File(PathBuf),
    /// Nowhere: there was no file, so the built-in server shows what it is like.
    Demo {
        /// The API key that was made for it, where other machines can reach it and none is set.
        made_key: Option<Secret>,
    },
    /// The command line, which names an application or the only server.
    CommandLine,
}

impl Config {
    /// The configuration, and what is worth a warning about it.
    ///
    /// A server whose program is missing is among the servers, with its error, and among the
    /// remarks as [`Weight::BrokenServer`]: it does not keep the others from running.
    ///
    /// ```
    /// use pontoon::config::{Config, Environment, Options};
    ///
    /// let options =
    ///     Options { config: Some("mcp-servers.example.json".into()), ..Options::default() };
    /// let environment = Environment::new([("HOME", "/home/me"), ("TOKEN", "of the application")]);
    /// let (config, remarks) = Config::load(&options, &environment)?;
    /// assert_eq!(config.settings.listen, ["127.0.0.1:8080".parse().unwrap()]);
    /// for remark in remarks.iter() {
    ///     eprintln!("{remark}");
    /// }
    /// # Ok::<(), pontoon::config::Remarks>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All remarks, when at least one of them is a [`Weight::Mistake`].
    pub fn load(options: &Options, environment: &Environment) -> Result<(Self, Remarks), Remarks> {
        Self::load_with_defaults(options, environment, &source::DEFAULT_FILES)
    }

    /// The same with the files to look for when none is named.
    fn load_with_defaults(
        options: &Options,
        environment: &Environment,
        files: &[impl AsRef<Path>],
    ) -> Result<(Self, Remarks), Remarks> {
        let typed = options.mcpo.as_ref().map(|mcpo| mcpo.environment(environment));
        let environment = typed.as_ref().unwrap_or(environment);
        let (settings, found, remarks) = read(options, environment, files);
        match (found, remarks.heaviest()) {
            (None, _) | (_, Some(Weight::Mistake)) => Err(remarks),
            (Some((source, servers)), _) => {
                let environment = environment.clone();
                Ok((Self { settings, servers, source, environment }, remarks))
            }
        }
    }

    /// The configuration of a bridge between one client and this application.
    pub fn of_app(server: Server, environment: &Environment) -> Self {
        Self {
            settings: BridgeSettings { max_message: LARGEST_OF_APP, ..BridgeSettings::unset() },
            servers: vec![Arc::new(server)],
            source: ConfigSource::CommandLine,
            environment: environment.clone(),
        }
    }

    /// How a front end with many people behind one key is to say who asks.
    pub fn ways_to_say_who(&self) -> String {
        self.settings.identity.ways_to_say_who(self.settings.owui_jwt_secret.is_some())
    }

    /// What is worth knowing before the first call, and no mistake.
    pub fn note(&self) -> Option<String> {
        let is_unnamed = self.settings.api_keys.iter().any(|key| key.name == KeyName::Unnamed);
        let servers = self.servers.iter().map(|server| &**server).filter(|_| is_unnamed);
        note_on_people(servers, &self.ways_to_say_who())
    }

    /// What to know of servers with no more than `basic` isolation when the bridge runs as root.
    pub fn warning_for_root(&self) -> Option<String> {
        let is_basic = |server: &&Arc<Server>| {
            server.app.is_none() && server.isolation.level == isolation::Level::Basic
        };
        let names = self.servers.iter().filter(is_basic).map(|server| format!("`{}`", server.name));
        let names: Vec<_> = names.collect();
        (!names.is_empty()).then(|| {
            format!(
                "Pontoon runs as root, and so do the processes of {}, which `\"isolation\": \"basic\"` keeps from \
                 nothing: run it as another user, or give them \"confined\" or \"user\"",
                names.join(", ")
            )
        })
    }

    /// Whether children run as users of their own.
    pub fn has_own_users(&self) -> bool {
        self.servers.iter().any(|server| server.isolation.level == isolation::Level::User)
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name.as_str() == name)
    }
}

/// The longest message of an application: pictures of what it shows, for one.
const LARGEST_OF_APP: usize = 64 << 20;

/// Settings a mistake in which may cost files.
const COSTS_FILES: &[&str] =
    &["MCPO_JOBS_DIR", "MCPO_FILE_EXPIRY", "MCPO_LOG_DIR", "MCPO_STATE_DIR"];

impl BridgeSettings {
    /// The settings that a bridge with this configuration has, for a collection of old jobs, and what is
    /// worth a warning. Mistakes elsewhere are no more than that: files grow old whatever
    /// becomes of the servers.
    ///
    /// # Errors
    ///
    /// All remarks, when one of them is a mistake about the folders or the expiry.
    pub fn load_for_collection(
        options: &Options,
        environment: &Environment,
    ) -> Result<(Self, Remarks), Remarks> {
        Self::load_with_defaults(options, environment, &source::DEFAULT_FILES)
    }

    fn load_with_defaults(
        options: &Options,
        environment: &Environment,
        files: &[impl AsRef<Path>],
    ) -> Result<(Self, Remarks), Remarks> {
        let (settings, _, mut remarks) = read(options, environment, files);
        remarks.only_warn_except(COSTS_FILES);
        match remarks.heaviest() {
            Some(Weight::Mistake) => Err(remarks),
            _ => Ok((settings, remarks)),
        }
    }
}

/// Where the servers come from, and the servers.
type FoundServers = (ConfigSource, Vec<Arc<Server>>);

/// What command line, environment and file say, with all that there is to remark. There are no servers after
/// some mistakes.
fn read(
    options: &Options,
    environment: &Environment,
    files: &[impl AsRef<Path>],
) -> (BridgeSettings, Option<FoundServers>, Remarks) {
    let mut remarks = Remarks::default();
    let mut settings = variables::settings(options, environment, &mut remarks);
    if let Some(mcpo) = &options.mcpo {
        if environment.get("MCPO_TIMEOUT").is_none_or(OsStr::is_empty) {
            settings.timeout = mcpo::TIMEOUT;
        }
        settings.rest.root = mcpo.root.clone();
        settings.any_host = true;
        settings.any_identity = settings.api_keys.is_empty();
        mcpo::warn(&settings, &mut remarks);
    }
    review::review(options, &settings, &mut remarks);
    let mut found = servers(options, environment, &settings, files, &mut remarks);
    match &mut found {
        Some((ConfigSource::Demo { made_key }, _)) => {
            *made_key = review::lock_demo(options, &mut settings, &mut remarks);
        }
        _ => review::review_listening(options, &settings, &mut remarks),
    }
    if let Some((ConfigSource::CommandLine, servers)) = &found
        && options.mcpo.is_some()
    {
        settings.rest.single = servers.first().map(|server| server.name.clone());
    }
    if !options.only.is_empty() {
        remarks.keep_only(&options.only);
    }
    // What the command line adds has been looked at under its own name.
    settings.allowed_hosts.extend(options.allowed_hosts.iter().cloned());
    settings.strict_auth |= options.strict_auth;
    settings.hot_reload |= options.hot_reload;
    (settings, found, remarks)
}

/// The servers, and where they come from; `None` after a mistake.
fn servers(
    options: &Options,
    environment: &Environment,
    settings: &BridgeSettings,
    files: &[impl AsRef<Path>],
    remarks: &mut Remarks,
) -> Option<FoundServers> {
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(server) = typed_server(options, settings, environment, &here, remarks) {
        return Some((ConfigSource::CommandLine, vec![server]));
    }
    let Some((path, text)) = find_file(options, settings, files, remarks)? else {
        let demo = ConfigSource::Demo { made_key: None };
        return Some((demo, vec![Arc::new(demo_server(settings.timeout))]));
    };
    let file = absolute(&path);
    let is_of_mcpo = options.mcpo.is_some();
    let folder = match is_of_mcpo {
        true => here.as_path(),
        false => file.parent().unwrap_or(Path::new("/")),
    };
    let is_start = !options.is_running;
    let around = FileContext { folder, environment, settings, is_of_mcpo, is_start };
    let mut servers = file::read(&path, &text, &around, remarks);
    if !settings.stateful_enabled {
        make_stateless(&mut servers, remarks);
    }
    Some((ConfigSource::File(path), servers))
}

/// Makes every server stateless, as `MCPO_STATEFUL_ENABLED` wants it.
fn make_stateless(servers: &mut [Arc<Server>], remarks: &mut Remarks) {
    let mut names = Vec::new();
    for server in servers.iter_mut().filter(|server| server.mode.is_stateful()) {
        let server = Arc::make_mut(server);
        server.mode = Mode::Stateless;
        names.push(format!("`{}`", server.name));
    }
    if !names.is_empty() {
        let forgets = match names.len() {
            1 => "forgets between calls what it knows",
            _ => "forget between calls what they know",
        };
        let message = format!("{} would be stateful, but {forgets}", names.join(", "));
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_STATEFUL_ENABLED", message);
    }
}

/// The server inside this program, for a first try.
fn demo_server(timeout: Duration) -> Server {
    let program = std::env::current_exe()
        .map_err(|error| ProgramError::OwnPath { reason: error.to_string() });
    let name = "demo".parse().expect("a plain word is a name");
    let server = Server::new(name, program, vec![Template::plain("demo")]);
    let mut server = Server { timeout, ..server };
    // Our own tools change with our version, wherever the program lies.
    server.fingerprint =
        server.fingerprint_of(concat!("pontoon demo ", env!("CARGO_PKG_VERSION")).as_bytes());
    server
}

#[cfg(test)]
mod tests;
