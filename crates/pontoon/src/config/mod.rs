//! The configuration: what the user wrote, then what we run with.
//!
//! [`Config::load`] puts the command line, the environment and `mcp-servers.json` together. All
//! mistakes are told at once, each with its place; what it gives is complete and checked, and
//! nothing else of the program looks at the environment or the file.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

mod address;
#[cfg(test)]
mod docs;
mod document;
mod draft;
mod environment;
mod file;
mod identity;
pub mod isolation;
mod keys;
mod lifetime;
mod name;
mod nearest;
mod network;
mod program;
mod reach;
mod remarks;
mod review;
mod secret;
mod server;
mod settings;
mod source;
mod storage;
mod template;
mod units;
mod values;
mod variables;

pub use address::{AddressBlock, BadAddressBlock};
pub use identity::{IdentityHeaders, note_on_people};
pub use isolation::Isolation;
pub use lifetime::{Files, Mode, SessionKey, Warm, Workspace};
pub use name::{BadServerName, ServerName};
pub use network::{certificates, proxy_secrets};
pub use program::ProgramError;
pub use reach::is_inner_name;
pub use remarks::{Place, Position, Remark, Remarks, Weight};
pub use secret::{ApiKey, KeyName, Secret};
pub use server::{InheritEnv, Server};
pub use storage::Storage;
pub use template::{SHORTEST_SECRET, Start, Template};
pub(crate) use values::listen as parse_listen;
pub use variables::SMALLEST_BUDGET;

use draft::Surroundings;
use environment::Environment;
use settings::Settings;
use source::{Found, find_file};

/// Everything Pontoon runs with, complete and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The addresses to listen on; at least one.
    pub listen: Vec<SocketAddr>,
    /// The servers in the order of the file; at least one.
    pub servers: Vec<Arc<Server>>,
    /// How many processes may start or work for one request each at the same time.
    pub max_concurrent: usize,
    /// How long a call may take that belongs to no server.
    pub timeout: Duration,
    /// How much is logged.
    pub log_level: Level,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// The largest message of a server, in bytes.
    pub max_message: usize,
    /// How many bytes may be held for clients; `None` for a part of what there is.
    pub memory_budget: Option<usize>,
    /// The absolute folder for what is learnt about the servers; may have to be made.
    ///
    /// `None` where no folder is ours to write (no `HOME`): then nothing is kept.
    pub state_dir: Option<PathBuf>,
    /// More names by which clients may call us, in lower case, some with a port.
    pub allowed_hosts: Vec<String>,
    /// Origins whose scripts may call us, in lower case.
    pub allowed_origins: Vec<String>,
    /// Whether the user wants to listen beyond this machine without an API key.
    pub insecure: bool,
    /// The absolute folder for jobs and workspaces; may have to be made.
    pub jobs_dir: PathBuf,
    /// What links to files begin with, without a slash at the end; may be empty.
    pub base_url: String,
    /// How long the files of a job are kept.
    pub file_expiry: Duration,
    /// How often old jobs are looked for.
    pub gc_interval: Duration,
    /// Whether requests and answers are written into their jobs.
    pub store_payloads: bool,
    /// What links to files are signed with, if they are to be.
    pub link_secret: Option<Secret>,
    /// The secret by which the ids of sessions are signed, where it is not the jobs directory's own.
    pub session_secret: Option<Secret>,
    /// With fewer bytes free than this, no new job is begun.
    pub min_free_disk: u64,
    /// How long a call waits for its turn before it is refused; may be zero.
    pub queue_wait: Duration,
    /// The absolute folder for log files, if there are to be any.
    pub log_dir: Option<PathBuf>,
    /// The files that our own secrets were read from: no child may.
    pub secret_files: Vec<PathBuf>,
    /// The keys by which clients come in; without any, everyone does.
    pub api_keys: Vec<ApiKey>,
    /// Whether a key is asked for everywhere.
    pub strict_auth: bool,
    /// The peers that are believed about who calls and from where.
    pub trusted_proxies: Vec<AddressBlock>,
    /// The headers in which these peers say so.
    pub identity: IdentityHeaders,
    /// What Open WebUI signs its users with.
    pub owui_jwt_secret: Option<Secret>,
    /// How long a user that is signed counts.
    pub owui_jwt_max_age: Duration,
    /// Whether servers may be stateful; if not, all of them are stateless here already.
    pub stateful_enabled: bool,
    /// How many processes are kept, of all servers together.
    pub max_total_processes: usize,
    /// How often idle processes are looked for.
    pub cleanup_interval: Duration,
    /// How much memory all processes that are kept ready may use together.
    pub warm_memory: u64,
    /// Whether a change of the file takes effect by itself.
    pub hot_reload: bool,
    /// Where the servers come from.
    pub source: Source,
}

/// Where the servers of a configuration come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This file, as it was named.
    File(PathBuf),
    /// Nowhere: there was no file, so the built-in server shows what it is like.
    Demo,
}

/// What the command line says; it wins over the environment and the file.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `--config`: the file with the servers, which must be there.
    pub config: Option<PathBuf>,
    /// `--listen`: what `MCPO_LISTEN` says else.
    pub listen: Option<String>,
    /// `--log-level`: what `MCPO_LOG_LEVEL` says else.
    pub log_level: Option<String>,
    /// Nothing will listen, so where is no matter.
    pub is_silent: bool,
    /// `--insecure`: listening beyond this machine is meant.
    pub insecure: bool,
    /// `--api-key`: what `MCPO_API_KEY` says else.
    pub api_key: Option<String>,
    /// `--strict-auth`: a key is asked for everywhere.
    pub strict_auth: bool,
    /// `--hot-reload`: a change of the file takes effect by itself.
    pub hot_reload: bool,
    /// `--allowed-host`: further names by which clients reach us, besides `MCPO_ALLOWED_HOSTS`.
    pub allowed_hosts: Vec<String>,
}

impl Config {
    /// The configuration, and what is worth a warning about it.
    ///
    /// A server whose program is missing is among the servers, with its error, and among the
    /// remarks as [`Weight::BrokenServer`]: it does not keep the others from running.
    ///
    /// ```
    /// use pontoon::config::{Config, Options};
    ///
    /// let options =
    ///     Options { config: Some("mcp-servers.example.json".into()), ..Options::default() };
    /// let home = ("HOME".into(), "/home/me".into());
    /// let (config, remarks) = Config::load(&options, [home])?;
    /// assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    /// for remark in remarks.iter() {
    ///     eprintln!("{remark}");
    /// }
    /// # Ok::<(), pontoon::config::Remarks>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All remarks, when at least one of them is a [`Weight::Mistake`].
    pub fn load(
        options: &Options,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Remarks), Remarks> {
        Self::load_with_defaults(options, &Environment::new(environment), &source::DEFAULT_FILES)
    }

    /// The same with the files to look for when none is named.
    fn load_with_defaults(
        options: &Options,
        environment: &Environment,
        files: &[impl AsRef<Path>],
    ) -> Result<(Self, Remarks), Remarks> {
        let mut remarks = Remarks::default();
        let settings = settings(options, environment, &mut remarks);
        let found = servers(options, environment, &settings, files, &mut remarks);
        let Some((source, servers)) = found else { return Err(remarks) };
        if remarks.heaviest() == Some(Weight::Mistake) {
            return Err(remarks);
        }
        let config = Self {
            api_keys: settings.keys(),
            listen: settings.listen,
            servers,
            max_concurrent: settings.max_concurrent,
            timeout: settings.timeout,
            log_level: settings.log_level,
            max_body: settings.max_body,
            max_message: settings.max_message,
            memory_budget: settings.memory_budget,
            state_dir: settings.state_dir.as_deref().map(absolute),
            allowed_hosts: [settings.allowed_hosts, options.allowed_hosts.clone()].concat(),
            allowed_origins: settings.allowed_origins,
            insecure: options.insecure,
            jobs_dir: absolute(&settings.jobs_dir),
            base_url: settings.base_url,
            file_expiry: settings.file_expiry,
            gc_interval: settings.gc_interval,
            store_payloads: settings.store_payloads,
            link_secret: settings.link_secret,
            session_secret: settings.session_secret,
            min_free_disk: settings.min_free_disk,
            queue_wait: settings.queue_wait,
            log_dir: settings.log_dir.as_deref().map(absolute),
            secret_files: settings.secret_files.iter().map(|path| absolute(path)).collect(),
            strict_auth: settings.strict_auth || options.strict_auth,
            trusted_proxies: settings.trusted_proxies,
            identity: settings.identity,
            owui_jwt_secret: settings.owui_jwt_secret,
            owui_jwt_max_age: settings.owui_jwt_max_age,
            stateful_enabled: settings.stateful_enabled,
            max_total_processes: settings.max_total_processes,
            cleanup_interval: settings.cleanup_interval,
            warm_memory: settings.warm_memory,
            hot_reload: settings.hot_reload || options.hot_reload,
            source,
        };
        Ok((config, remarks))
    }

    /// How a front end with many people behind one key is to say who asks.
    pub fn ways_to_say_who(&self) -> String {
        self.identity.ways_to_say_who(self.owui_jwt_secret.is_some())
    }

    /// What is worth knowing before the first call, and no mistake.
    pub fn note(&self) -> Option<String> {
        let is_unnamed = self.api_keys.iter().any(|key| key.name == KeyName::Unnamed);
        let servers = self.servers.iter().map(|server| &**server).filter(|_| is_unnamed);
        note_on_people(servers, &self.ways_to_say_who())
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.name.as_str() == name)
    }
}

/// What environment and command line set, the command line winning.
fn settings(options: &Options, environment: &Environment, remarks: &mut Remarks) -> Settings {
    let mut settings = environment::read(environment, remarks);
    if settings.state_dir.is_none() {
        let message = "neither it nor HOME is set, so what is learnt about the servers is not kept";
        remarks.add(Weight::Warning, Place::Environment, "MCPO_STATE_DIR", message);
    }
    for (option, text, variable) in [
        ("--listen", &options.listen, "MCPO_LISTEN"),
        ("--log-level", &options.log_level, "MCPO_LOG_LEVEL"),
        ("--api-key", &options.api_key, "MCPO_API_KEY"),
    ] {
        let Some(text) = text else { continue };
        if let Err(mistake) = environment::take(&mut settings, variable, text) {
            remarks.add(Weight::Mistake, Place::CommandLine, option, mistake);
        }
    }
    review::review(options, &settings, remarks);
    settings
}

/// The servers, and where they come from; `None` after a mistake.
fn servers(
    options: &Options,
    environment: &Environment,
    settings: &Settings,
    files: &[impl AsRef<Path>],
    remarks: &mut Remarks,
) -> Option<(Source, Vec<Arc<Server>>)> {
    let Found::File { path, text } = find_file(options, settings, files, remarks)? else {
        return Some((Source::Demo, vec![Arc::new(demo(settings.timeout))]));
    };
    let folder = absolute(&path);
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let around = Surroundings { folder, environment, settings };
    let mut servers = file::read(&path, &text, &around, remarks);
    if !settings.stateful_enabled {
        make_stateless(&mut servers, remarks);
    }
    Some((Source::File(path), servers))
}

/// Makes every server stateless, as `MCPO_STATEFUL_ENABLED` wants it.
fn make_stateless(servers: &mut [Arc<Server>], remarks: &mut Remarks) {
    let mut names = Vec::new();
    for server in servers.iter_mut().filter(|server| server.mode != Mode::Stateless) {
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
        remarks.add(Weight::Warning, Place::Environment, "MCPO_STATEFUL_ENABLED", message);
    }
}

/// The server inside this program, for a first try.
fn demo(timeout: Duration) -> Server {
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

/// `path` from the root; it need not exist.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ONE_SERVER: &str = r#"{"mcpServers": {"shell": {"command": "/bin/sh"}}}"#;

    /// The configuration with `default.json`, if given, beside which `named.json` always is.
    fn load(
        default: Option<&str>,
        options: &Options,
        variables: &[(&str, &str)],
    ) -> Result<(Config, Remarks), Remarks> {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("named.json"), ONE_SERVER.replace("shell", "named")).unwrap();
        if let Some(text) = default {
            fs::write(place("default.json"), text).unwrap();
        }
        let config = options.config.as_ref().map(|name| folder.path().join(name));
        let options = Options { config, ..options.clone() };
        let variables = variables.iter().map(|&(name, value)| {
            (name.into(), value.replace("FOLDER", folder.path().to_str().unwrap()).into())
        });
        let home = [("HOME".into(), "/home/me".into())];
        let environment = Environment::new(variables.chain(home));
        Config::load_with_defaults(
            &options,
            &environment,
            &[place("absent"), place("default.json")],
        )
    }

    /// Compares the part of the configuration that `part` shows.
    fn check<T: PartialEq + std::fmt::Debug>(
        options: &Options,
        variables: &[(&str, &str)],
        part: impl Fn(&Config) -> T,
        expected: &T,
    ) {
        let (config, _) = load(Some(ONE_SERVER), options, variables).unwrap();
        assert_eq!(part(&config), *expected);
    }

    fn check_refused(options: &Options, variables: &[(&str, &str)], told: &str) {
        let remarks = load(Some(ONE_SERVER), options, variables).unwrap_err();
        assert!(remarks.to_string().starts_with(told), "{remarks}");
    }

    fn first_name(config: &Config) -> String {
        config.servers[0].name.to_string()
    }

    fn listening(listen: &str) -> Options {
        Options { listen: Some(listen.to_owned()), ..Options::default() }
    }

    #[test]
    fn options_win_over_variables_and_these_over_defaults() {
        let port = |config: &Config| config.listen[0].port();
        let variable = ("MCPO_LISTEN", "127.0.0.1:2");
        check(&Options::default(), &[], port, &8080);
        check(&Options::default(), &[variable], port, &2);
        check(&listening("127.0.0.1:3"), &[variable], port, &3);
        let log_level = Some("trace".to_owned());
        let options = Options { log_level, ..Options::default() };
        check(&options, &[("MCPO_LOG_LEVEL", "ERROR")], |config| config.log_level, &Level::TRACE);
    }

    #[test]
    fn a_named_file_wins_over_the_one_that_lies_there() {
        let named = ("MCPO_CONFIG_FILE", "FOLDER/named.json");
        check(&Options::default(), &[], first_name, &"shell".to_owned());
        check(&Options::default(), &[named], first_name, &"named".to_owned());
        let options = Options { config: Some("named.json".into()), ..Options::default() };
        check(&options, &[("MCPO_CONFIG_FILE", "absent")], first_name, &"named".to_owned());
    }

    #[test]
    fn without_a_file_there_is_the_demo() {
        let (config, remarks) = load(None, &Options::default(), &[]).unwrap();
        assert_eq!((config.source, remarks.is_empty()), (Source::Demo, true));
        let [demo] = &config.servers[..] else { panic!("one server") };
        assert_eq!(demo.name.as_str(), "demo");
        assert_eq!(demo.program, Ok(std::env::current_exe().unwrap()));
        assert_eq!(demo.args, [Template::plain("demo")]);
        assert_eq!(demo.mode, Mode::Stateless);
    }

    #[test]
    fn a_named_file_that_is_missing_is_a_mistake() {
        let options = Options { config: Some("absent".into()), ..Options::default() };
        check_refused(&options, &[], "command line: 1 mistake\n  --config: cannot read `/");
        let variable = [("MCPO_CONFIG_FILE", "FOLDER/absent")];
        let told = "environment: 1 mistake\n  MCPO_CONFIG_FILE: cannot read `/";
        check_refused(&Options::default(), &variable, told);
    }

    #[test]
    fn mistakes_of_every_place_are_told_together() {
        let told = "command line: 1 mistake\n  --listen: expected an address and a port such as \
                    127.0.0.1:8080, found \"here\"\nenvironment: 1 mistake\n  MCPO_TIMEOUT: ";
        check_refused(&listening("here"), &[("MCPO_TIMEOUT", "soon")], told);
        let remarks = load(Some("{}"), &listening("here"), &[]).unwrap_err();
        assert_eq!(remarks.iter().count(), 2);
    }

    #[test]
    fn strangers_are_let_in_only_on_purpose() {
        let told = "command line: 1 mistake\n  --listen: 0.0.0.0:80 can be reached";
        check_refused(&listening("0.0.0.0:80"), &[], told);
        let told = "environment: 1 mistake\n  MCPO_LISTEN: [::]:80 can be reached";
        check_refused(&Options::default(), &[("MCPO_LISTEN", "127.0.0.1:80,[::]:80")], told);
        for loopback in ["127.8.8.8:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            check(&listening(loopback), &[], |config| config.insecure, &false);
        }
        let insecure = Options { insecure: true, ..listening("0.0.0.0:80") };
        let (_, remarks) = load(None, &insecure, &[]).unwrap();
        assert_eq!(
            remarks.to_string(),
            "command line: 1 warning\n  \
             warning: --listen: whoever reaches 0.0.0.0:80 can use every server"
        );
    }

    #[test]
    fn a_missing_program_breaks_only_its_server() {
        let text = r#"{"mcpServers": {"a": {"command": "/gone"}, "b": {"command": "/bin/sh"}}}"#;
        let (config, remarks) = load(Some(text), &Options::default(), &[]).unwrap();
        assert_eq!(remarks.heaviest(), Some(Weight::BrokenServer));
        assert!(remarks.need_repair());
        assert!(config.server("a").unwrap().program.is_err());
        assert!(config.server("b").unwrap().program.is_ok());
        assert!(config.server("c").is_none());
    }

    #[test]
    fn the_timeout_of_all_holds_where_a_server_has_none() {
        let text = r#"{"mcpServers": {"a": {"command": "/bin/sh", "timeout": "1m"},
                                      "b": {"command": "/bin/sh"}}}"#;
        let (config, _) = load(Some(text), &Options::default(), &[("MCPO_TIMEOUT", "9")]).unwrap();
        let seconds = |name: &str| config.server(name).unwrap().timeout.as_secs();
        assert_eq!((seconds("a"), seconds("b")), (60, 9));
    }

    #[test]
    fn what_holds_for_all_holds_where_a_server_says_nothing() {
        let text = r#"{"mcpServers": {
            "a": {"command": "/bin/sh", "mode": "stateful", "idle_timeout": 7,
                  "max_processes_per_ip": 8, "max_processes_per_client": 9},
            "b": {"command": "/bin/sh", "mode": "stateful"}}}"#;
        let variables = [
            ("MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT", "1"),
            ("MCPO_STATEFUL_MAX_PROCESSES_PER_IP", "2"),
            ("MCPO_STATEFUL_MAX_PROCESSES_PER_CLIENT", "3"),
        ];
        let (config, _) = load(Some(text), &Options::default(), &variables).unwrap();
        let mode = |seconds, per_address, per_client| Mode::Stateful {
            idle: Duration::from_secs(seconds),
            per_address,
            per_client,
        };
        assert_eq!(config.server("a").unwrap().mode, mode(7, 8, 9));
        assert_eq!(config.server("b").unwrap().mode, mode(1, 2, 3));
    }

    #[test]
    fn without_stateful_every_server_is_stateless_and_that_is_told() {
        let text = r#"{"mcpServers": {"a": {"command": "/bin/sh", "mode": "stateful"},
                                      "b": {"command": "/bin/sh"}}}"#;
        let variables = [("MCPO_STATEFUL_ENABLED", "false")];
        let (config, remarks) = load(Some(text), &Options::default(), &variables).unwrap();
        assert!(config.servers.iter().all(|server| server.mode == Mode::Stateless));
        assert_eq!(
            remarks.to_string(),
            "environment: 1 warning\n  warning: MCPO_STATEFUL_ENABLED: `a` would be stateful, \
             but forgets between calls what it knows"
        );
        let (_, remarks) = load(Some(ONE_SERVER), &Options::default(), &variables).unwrap();
        assert!(remarks.is_empty(), "{remarks}");
    }

    #[test]
    fn the_key_of_the_command_line_wins_over_that_of_the_environment() {
        let names_and_keys = |config: &Config| {
            let shown = |key: &ApiKey| {
                (key.name.to_string(), String::from_utf8(key.key.expose().to_vec()).unwrap())
            };
            config.api_keys.iter().map(shown).collect::<Vec<_>>()
        };
        let pair = |name: &str, key: &str| (name.to_owned(), key.to_owned());
        let variables = [("MCPO_API_KEY", "of-the-environment"), ("MCPO_API_KEYS", "a=of-alice")];
        let both = |key| vec![pair("default", key), pair("a", "of-alice")];
        check(&Options::default(), &variables, names_and_keys, &both("of-the-environment"));
        let options = Options { api_key: Some("of-the-line".to_owned()), ..Options::default() };
        check(&options, &variables, names_and_keys, &both("of-the-line"));
        let options = Options { api_key: Some("hunter 2".to_owned()), ..Options::default() };
        let told = "command line: 1 mistake, 1 warning\n  --api-key: expected a key of ASCII \
                    letters, digits and signs, without spaces\n";
        check_refused(&options, &[], told);
    }

    #[test]
    fn switches_of_the_command_line_count_as_those_of_the_environment() {
        let switches = |config: &Config| (config.strict_auth, config.hot_reload);
        let options = Options { strict_auth: true, hot_reload: true, ..Options::default() };
        let key = ("MCPO_API_KEY", "12345678");
        check(&options, &[key], switches, &(true, true));
        check(&Options::default(), &[key], switches, &(false, false));
        let variables = [key, ("MCPO_STRICT_AUTH", "on"), ("MCPO_HOT_RELOAD", "on")];
        check(&Options::default(), &variables, switches, &(true, true));
    }

    #[test]
    fn folders_are_absolute() {
        let variables = [("MCPO_JOBS_DIR", "jobs"), ("MCPO_LOG_DIR", "log")];
        let here = std::env::current_dir().unwrap();
        let folders = |config: &Config| (config.jobs_dir.clone(), config.log_dir.clone());
        let expected = (here.join("jobs"), Some(here.join("log")));
        check(&Options::default(), &variables, folders, &expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_anyone_may_write_warns() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, ONE_SERVER).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let options = Options { config: Some(file.path().into()), ..Options::default() };
        let (_, remarks) = load(None, &options, &[]).unwrap();
        assert!(remarks.to_string().contains("anyone on this machine"), "{remarks}");
    }
}
