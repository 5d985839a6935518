//! The variables `MCPO_*`, each with its default and its documentation, and what they set.
//!
//! As with the keys of the file, one table is read, compared and documented. Options of the
//! command line are read by the same functions, so that they accept the same.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tracing::Level;

use super::document::quoted;
use super::environment::Environment;
use super::nearest::unknown;
use super::remarks::{Place, Remarks, Weight};
use super::units;

/// What variables and options set, as it is without them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) config_file: Option<PathBuf>,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) max_concurrent: usize,
    pub(super) timeout: Duration,
    pub(super) log_level: Level,
    pub(super) max_body: usize,
    pub(super) max_message: usize,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            config_file: None,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            max_concurrent: cores * 4,
            timeout: Duration::from_secs(300),
            log_level: Level::INFO,
            max_body: 10 << 20,
            max_message: 64 << 20,
            state_dir: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}

/// A variable that this version knows.
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// The value without it, in words.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) default: &'static str,
    /// For a user, as Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) doc: &'static str,
    /// Takes the value over, or says what was expected.
    pub(super) read: fn(&mut Settings, &str) -> Result<(), &'static str>,
}

/// Every variable that this version knows.
pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "MCPO_CONFIG_FILE",
        default: "`./mcp-servers.json`, else `/app/config/mcp-servers.json`, else the demo server",
        doc: "The file with the servers. A file that is named here must be there.",
        read: |settings, text| {
            settings.config_file = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Variable {
        name: "MCPO_LISTEN",
        default: "`127.0.0.1:8080`",
        doc: "The address to listen on, or several with commas between. Beyond this machine only \
              with `--insecure`, because this version has no API key.",
        read: |settings, text| listen(text).map(|listen| settings.listen = listen),
    },
    Variable {
        name: "MCPO_MAX_CONCURRENT",
        default: "four for each processor core",
        doc: "How many processes may start or work for one request each at the same time.",
        read: |settings, text| {
            let count = text.parse().ok().filter(|&count| count > 0);
            settings.max_concurrent = count.ok_or("a whole number from 1")?;
            Ok(())
        },
    },
    Variable {
        name: "MCPO_TIMEOUT",
        default: "`300`",
        doc: "How long a call may take on servers without a `timeout` of their own: seconds, or \
              text such as `30s` or `5m`.",
        read: |settings, text| units::duration(text).map(|timeout| settings.timeout = timeout),
    },
    Variable {
        name: "MCPO_LOG_LEVEL",
        default: "`INFO`",
        doc: "How much is logged: `ERROR` (or `CRITICAL`), `WARNING`, `INFO`, `DEBUG` or `TRACE`, \
              in capitals or not.",
        read: |settings, text| log_level(text).map(|level| settings.log_level = level),
    },
    Variable {
        name: "MCPO_MAX_BODY",
        default: "`10MiB`",
        doc: "The largest body of a request: bytes, or text such as `10MiB`.",
        read: |settings, text| units::size(text).map(|size| settings.max_body = size),
    },
    Variable {
        name: "MCPO_MAX_MESSAGE",
        default: "`64MiB`",
        doc: "The largest message of a server: bytes, or text such as `64MiB`.",
        read: |settings, text| units::size(text).map(|size| settings.max_message = size),
    },
    Variable {
        name: "MCPO_STATE_DIR",
        default: "`$XDG_CACHE_HOME/pontoon`, else `~/.cache/pontoon`",
        doc: "The folder in which Pontoon keeps what it has learnt about the servers.",
        read: |settings, text| {
            settings.state_dir = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Variable {
        name: "MCPO_ALLOWED_HOSTS",
        default: "none",
        doc: "More names, with commas between, by which clients may call Pontoon in the `Host` \
              header, such as `tools.example.org`. The addresses listened on and `localhost` \
              always may.",
        read: |settings, text| hosts(text).map(|hosts| settings.allowed_hosts = hosts),
    },
    Variable {
        name: "MCPO_ALLOWED_ORIGINS",
        default: "none",
        doc: "Web pages, with commas between, whose scripts may call Pontoon, such as \
              `https://chat.example.org`.",
        read: |settings, text| origins(text).map(|origins| settings.allowed_origins = origins),
    },
];

/// Variables of other versions: ignoring one would change what its author relies on.
pub(super) const REFUSED_VARIABLES: &[&str] = &[
    "MCPO_API_KEY",
    "MCPO_BASE_URL",
    "MCPO_FILE_EXPIRY",
    "MCPO_GC_INTERVAL",
    "MCPO_JOBS_DIR",
    "MCPO_LOG_DIR",
    "MCPO_OWUI_JWT_SECRET",
    "MCPO_QUEUE_WAIT",
    "MCPO_SESSION_STORE",
    "MCPO_STATEFUL_CLEANUP_INTERVAL",
    "MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT",
    "MCPO_STATEFUL_ENABLED",
    "MCPO_STATEFUL_MAX_PROCESSES_PER_IP",
    "MCPO_STATEFUL_MAX_TOTAL_PROCESSES",
    "MCPO_STRICT_AUTH",
    "MCPO_TRUSTED_PROXIES",
];

/// Variables that a bridge sets for its servers; one of them may well be another Pontoon.
const VARIABLES_OF_CHILDREN: &[&str] = &["MCPO_JOB_ID", "MCPO_WORKDIR"];

/// What `environment` sets; what is wrong with it goes to `remarks`.
pub(super) fn read(environment: &Environment, remarks: &mut Remarks) -> Settings {
    let mut settings = Settings { state_dir: cache_dir(environment), ..Settings::default() };
    for (name, value) in environment.with_prefix("MCPO_") {
        let mut tell = |weight, message| remarks.add(weight, Place::Environment, name, message);
        if let Some(variable) = VARIABLES.iter().find(|variable| variable.name == name) {
            let Some(value) = value else {
                tell(Weight::Mistake, "is not UTF-8 text".to_owned());
                continue;
            };
            if let Err(expected) = (variable.read)(&mut settings, value) {
                tell(Weight::Mistake, format!("expected {expected}, found {}", quoted(value)));
            }
        } else if REFUSED_VARIABLES.contains(&name) {
            tell(Weight::Mistake, "not supported by this version".to_owned());
        } else if !VARIABLES_OF_CHILDREN.contains(&name) {
            let known = VARIABLES.iter().map(|variable| variable.name);
            tell(Weight::Warning, unknown("variable", name, known));
        }
    }
    settings
}

/// Where caches belong; only absolute paths count, as the XDG specification has it.
fn cache_dir(environment: &Environment) -> Option<PathBuf> {
    let folder =
        |name: &str| environment.get(name).map(Path::new).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME")
        .map(|cache| cache.join("pontoon"))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/pontoon")))
}

/// One or more addresses with ports. Names but `localhost` are left out: what they mean may change.
pub(super) fn listen(text: &str) -> Result<Vec<SocketAddr>, &'static str> {
    let address = |text: &str| match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
        None => text.parse().ok(),
    };
    let addresses = text.split(',').map(|text| address(text.trim()));
    addresses.collect::<Option<_>>().ok_or("an address and a port such as 127.0.0.1:8080")
}

/// A level by the name it has in Rust or in Python.
pub(super) fn log_level(text: &str) -> Result<Level, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "trace" => Ok(Level::TRACE),
        "debug" => Ok(Level::DEBUG),
        "info" => Ok(Level::INFO),
        "warning" | "warn" => Ok(Level::WARN),
        "error" | "critical" => Ok(Level::ERROR),
        _ => Err("DEBUG, INFO, WARNING or ERROR"),
    }
}

fn hosts(text: &str) -> Result<Vec<String>, &'static str> {
    let is_host = |host: &str| {
        let is_fit =
            |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        !host.is_empty() && host.chars().all(is_fit)
    };
    list(text, is_host).ok_or("host names such as tools.example.org")
}

fn origins(text: &str) -> Result<Vec<String>, &'static str> {
    let is_origin = |origin: &str| {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        host.is_some_and(|host| hosts(host).is_ok())
    };
    list(text, is_origin).ok_or("origins such as https://chat.example.org")
}

/// The lower-case items of a list with commas, if each is fit.
fn list(text: &str, is_fit: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let items = text.split(',').map(|item| item.trim().to_lowercase());
    items.map(|item| is_fit(&item).then_some(item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: &Settings, told: &[&str]) {
        let variables = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        let mut remarks = Remarks::default();
        let settings = read(&Environment::new(variables), &mut remarks);
        assert_eq!(settings, *expected);
        let lines: Vec<String> = remarks.iter().map(ToString::to_string).collect();
        assert_eq!(lines, told);
    }

    #[test]
    fn every_variable_sets_its_value() {
        check(
            &[
                ("MCPO_CONFIG_FILE", "a/b.json"),
                ("MCPO_LISTEN", "localhost:1, [::1]:2"),
                ("MCPO_MAX_CONCURRENT", "7"),
                ("MCPO_TIMEOUT", "2m"),
                ("MCPO_LOG_LEVEL", "Warning"),
                ("MCPO_MAX_BODY", "1MiB"),
                ("MCPO_MAX_MESSAGE", "2000"),
                ("MCPO_STATE_DIR", "state"),
                ("MCPO_ALLOWED_HOSTS", "Tools.example.org, b:80"),
                ("MCPO_ALLOWED_ORIGINS", "https://chat.example.org"),
            ],
            &Settings {
                config_file: Some("a/b.json".into()),
                listen: vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()],
                max_concurrent: 7,
                timeout: Duration::from_secs(120),
                log_level: Level::WARN,
                max_body: 1 << 20,
                max_message: 2000,
                state_dir: Some("state".into()),
                allowed_hosts: vec!["tools.example.org".to_owned(), "b:80".to_owned()],
                allowed_origins: vec!["https://chat.example.org".to_owned()],
            },
            &[],
        );
    }

    #[test]
    fn every_wrong_value_is_told() {
        check(
            &[
                ("MCPO_LISTEN", "8080"),
                ("MCPO_MAX_CONCURRENT", "0"),
                ("MCPO_TIMEOUT", "soon"),
                ("MCPO_LOG_LEVEL", "loud"),
                ("MCPO_MAX_BODY", "10M"),
                ("MCPO_ALLOWED_HOSTS", "*"),
                ("MCPO_ALLOWED_ORIGINS", "chat.example.org"),
            ],
            &Settings::default(),
            &[
                "environment: MCPO_ALLOWED_HOSTS: expected host names such as tools.example.org, found \"*\"",
                "environment: MCPO_ALLOWED_ORIGINS: expected origins such as https://chat.example.org, found \"chat.example.org\"",
                "environment: MCPO_LISTEN: expected an address and a port such as 127.0.0.1:8080, found \"8080\"",
                "environment: MCPO_LOG_LEVEL: expected DEBUG, INFO, WARNING or ERROR, found \"loud\"",
                "environment: MCPO_MAX_BODY: expected bytes such as 1048576 or \"10MiB\", found \"10M\"",
                "environment: MCPO_MAX_CONCURRENT: expected a whole number from 1, found \"0\"",
                "environment: MCPO_TIMEOUT: expected seconds such as 300 or \"5m\", found \"soon\"",
            ],
        );
    }

    #[test]
    fn a_variable_of_another_version_is_refused_and_an_unknown_one_warns() {
        check(
            &[("MCPO_API_KEY", "hunter2"), ("MCPO_TIMOUT", "5"), ("MCPO_BASE_URL", "")],
            &Settings::default(),
            &[
                "environment: MCPO_API_KEY: not supported by this version",
                "environment: MCPO_TIMOUT: unknown variable `MCPO_TIMOUT`, did you mean `MCPO_TIMEOUT`?",
            ],
        );
    }

    #[test]
    fn what_a_bridge_sets_for_its_servers_is_no_mistake() {
        check(&[("MCPO_JOB_ID", "5"), ("MCPO_WORKDIR", "/w")], &Settings::default(), &[]);
    }

    #[test]
    fn the_state_is_kept_where_caches_belong() {
        let state = |state: &str| Settings { state_dir: Some(state.into()), ..Settings::default() };
        check(&[("HOME", "/h")], &state("/h/.cache/pontoon"), &[]);
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")], &state("/c/pontoon"), &[]);
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")], &state("/h/.cache/pontoon"), &[]);
        check(&[("HOME", "")], &Settings::default(), &[]);
    }
}
