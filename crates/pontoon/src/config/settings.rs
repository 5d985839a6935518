//! The settings that hold for the whole bridge, and the variables `MCPO_*` that set them.
//!
//! One row of [`VARIABLES`] is all there is to say of a setting: its variable, what holds where that is not set,
//! its documentation, and how it is read. Defaults are read from the rows like any other value, misspelt
//! names are compared with them, and `docs/configuration.md` is written from them. Which variables there are is
//! left to `variables.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::address::AddressBlock;
use super::identity::IdentityHeaders;
use super::secret::{ApiKey, KeyName, Secret};
use super::units;
use super::values::{self, LogLevel};

/// What variables and options set: all that is configured but the servers. Without the rows of the table,
/// as `default()` gives it, every field is empty; `unset()` has what holds where nothing is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BridgeSettings {
    /// The file with the servers, if one is named.
    pub config_file: Option<PathBuf>,
    /// Whether a change of the file takes effect by itself.
    pub hot_reload: bool,
    /// The addresses to listen on; at least one.
    pub listen: Vec<SocketAddr>,
    /// More names by which clients may call us, in lower case, some with a port.
    pub allowed_hosts: Vec<String>,
    /// Origins whose scripts may call us, in lower case.
    pub allowed_origins: Vec<String>,
    /// The keys by which clients come in, the one without a name first; without any, everyone does.
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
    /// How many processes may start or work for one request each at the same time.
    pub max_concurrent: usize,
    /// How long a call waits for its turn before it is refused; may be zero.
    pub queue_wait: Duration,
    /// How long a call may take where its server says nothing else.
    pub timeout: Duration,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// The largest message of a server, in bytes.
    pub max_message: usize,
    /// How many bytes may be held for clients; `None` for a part of what there is.
    pub memory_budget: Option<usize>,
    /// Whether servers may be stateful.
    pub stateful_enabled: bool,
    /// How long a kept process may be idle where its server says nothing else.
    pub idle: Duration,
    /// The same for how many processes one address has.
    pub per_address: usize,
    /// The same for how many processes one user has.
    pub per_client: usize,
    /// How many processes are kept, of all servers together.
    pub max_total_processes: usize,
    /// How often idle processes are looked for.
    pub cleanup_interval: Duration,
    /// How much memory all processes that are kept ready may use together.
    pub warm_memory: u64,
    /// The absolute folder for jobs and workspaces; may have to be made.
    pub jobs_dir: PathBuf,
    /// What links to files begin with, without a slash at the end; may be empty.
    pub base_url: String,
    /// What links to files are signed with, if they are to be.
    pub link_secret: Option<Secret>,
    /// The secret by which the ids of sessions are signed, where it is not the jobs directory's own.
    pub session_secret: Option<Secret>,
    /// How long the files of a job are kept.
    pub file_expiry: Duration,
    /// How often old jobs are looked for.
    pub gc_interval: Duration,
    /// Whether requests and answers are written into their jobs.
    pub store_payloads: bool,
    /// With fewer bytes free than this, no new job is begun.
    pub min_free_disk: u64,
    /// The absolute folder for what is learnt about the servers; may have to be made.
    ///
    /// `None` where no folder is ours to write (no `HOME`): then nothing is kept.
    pub state_dir: Option<PathBuf>,
    /// How much is logged.
    pub log_level: LogLevel,
    /// The absolute folder for log files, if there are to be any.
    pub log_dir: Option<PathBuf>,
    /// The absolute paths of the files that our own secrets were read from: no child may.
    pub secret_files: Vec<PathBuf>,
}

impl BridgeSettings {
    /// What holds where nothing is set.
    pub(crate) fn unset() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut settings = Self { max_concurrent: cores * 4, ..Self::default() };
        for variable in VARIABLES {
            if let Unset::Value(text) = variable.unset {
                (variable.read)(&mut settings, text).expect("a test reads every default");
            }
        }
        settings
    }

    /// Takes this key for the one that has no name.
    pub(super) fn set_unnamed_key(&mut self, key: Secret) {
        self.api_keys.retain(|known| known.name != KeyName::Unnamed);
        self.api_keys.insert(0, ApiKey { name: KeyName::Unnamed, key });
    }
}

/// A variable that this version knows.
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// What holds without it.
    pub(super) unset: Unset,
    /// For a user, as Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) doc: &'static str,
    /// Takes the value over, or says what was expected.
    pub(super) read: fn(&mut BridgeSettings, &str) -> Result<(), &'static str>,
}

/// What holds where a variable is not set.
pub(super) enum Unset {
    /// This value, as it would be written.
    Value(&'static str),
    /// What these words say, for a user.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    Words(&'static str),
}

/// The least that may be held for clients: a body and its answer, of the usual size.
pub const SMALLEST_BUDGET: usize = 16 << 20;

/// Every variable that this version knows.
pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "MCPO_CONFIG_FILE",
        unset: Unset::Words(
            "`./mcp-servers.json`, else `/app/config/mcp-servers.json`, else the demo server",
        ),
        doc: "The file with the servers. A file that is named here must be there.",
        read: |settings, text| {
            settings.config_file = Some(text.into());
            Ok(())
        },
    },
    Variable {
        name: "MCPO_HOT_RELOAD",
        unset: Unset::Value("false"),
        doc: "`true`: a change of that file takes effect by itself; without it, on SIGHUP. \
              `--hot-reload` does the same.",
        read: |settings, text| values::switch(text).map(|value| settings.hot_reload = value),
    },
    Variable {
        name: "MCPO_LISTEN",
        unset: Unset::Value("127.0.0.1:8080"),
        doc: "The address to listen on, or several with commas between. Beyond this machine only \
              with an API key, or with `--insecure`; the demo makes a key for itself.",
        read: |settings, text| values::listen(text).map(|value| settings.listen = value),
    },
    Variable {
        name: "MCPO_ALLOWED_HOSTS",
        unset: Unset::Words("none"),
        doc: "More names, with commas between, by which clients may call Pontoon in the `Host` \
              header, such as `tools.example.org`. The addresses listened on and `localhost` \
              always may.",
        read: |settings, text| values::hosts(text).map(|value| settings.allowed_hosts = value),
    },
    Variable {
        name: "MCPO_ALLOWED_ORIGINS",
        unset: Unset::Words("none"),
        doc: "Web pages, with commas between, whose scripts may call Pontoon, such as \
              `https://chat.example.org`.",
        read: |settings, text| values::origins(text).map(|value| settings.allowed_origins = value),
    },
    Variable {
        name: "MCPO_API_KEY",
        unset: Unset::Words("none"),
        doc: "The key that clients must show, as `Authorization: Bearer KEY`, or as `X-API-Key: \
              KEY` where `Authorization` is for the server behind. In the log it is called \
              `default`. It is a front end's, not one person's: see `session_key`. `--api-key` does the same, but others on this machine can read it \
              there.",
        read: |settings, text| values::key(text).map(|value| settings.set_unnamed_key(value)),
    },
    Variable {
        name: "MCPO_API_KEYS",
        unset: Unset::Words("none"),
        doc: "More keys, each with the name of whom it belongs to, such as `alice=KEY1,bob=KEY2`.",
        read: |settings, text| values::keys(text).map(|keys| settings.api_keys.extend(keys)),
    },
    Variable {
        name: "MCPO_STRICT_AUTH",
        unset: Unset::Value("false"),
        doc: "`true`: a key is asked for everywhere but at `/health`, at `/ready` and for signed \
              links, not only where tools are used. `--strict-auth` does the same.",
        read: |settings, text| values::switch(text).map(|value| settings.strict_auth = value),
    },
    Variable {
        name: "MCPO_TRUSTED_PROXIES",
        unset: Unset::Words("none"),
        doc: "Addresses and blocks of them, with commas between, such as `10.0.0.0/8, ::1`: peers \
              that are believed about where a call comes from (`X-Forwarded-For`, `X-Real-IP`) \
              and who makes it (the headers below). With an API key others are believed about \
              who, never about where.",
        read: |settings, text| values::blocks(text).map(|value| settings.trusted_proxies = value),
    },
    Variable {
        name: "MCPO_OWUI_JWT_SECRET",
        unset: Unset::Words("none"),
        doc: "What Open WebUI signs its users with, its `FORWARD_USER_INFO_HEADER_JWT_SECRET`. \
              With it, only a user who is signed counts.",
        read: |settings, text| {
            settings.owui_jwt_secret = Some(Secret::new(text));
            Ok(())
        },
    },
    Variable {
        name: "MCPO_OWUI_JWT_MAX_AGE",
        unset: Unset::Value("3600"),
        doc: "How long a signed user counts, from the moment it was signed (`iat`): seconds, or text \
              such as `1h`. Open WebUI signs once for a whole turn of a chat, so its own end of the \
              token (`exp`, 300 seconds by default) would cut long turns off, and is not looked at.",
        read: |settings, text| units::duration(text).map(|value| settings.owui_jwt_max_age = value),
    },
    Variable {
        name: "MCPO_JWT_HEADER",
        unset: Unset::Value("x-openwebui-user-jwt"),
        doc: "The header with the signed user.",
        read: |settings, text| values::header(text).map(|value| settings.identity.jwt = value),
    },
    Variable {
        name: "MCPO_USER_HEADER",
        unset: Unset::Value("x-openwebui-user-id"),
        doc: "The header with the user.",
        read: |settings, text| values::header(text).map(|value| settings.identity.user = value),
    },
    Variable {
        name: "MCPO_EMAIL_HEADER",
        unset: Unset::Value("x-openwebui-user-email"),
        doc: "The header with the user's e-mail address.",
        read: |settings, text| values::header(text).map(|value| settings.identity.email = value),
    },
    Variable {
        name: "MCPO_NAME_HEADER",
        unset: Unset::Value("x-openwebui-user-name"),
        doc: "The header with the user's name.",
        read: |settings, text| values::header(text).map(|value| settings.identity.name = value),
    },
    Variable {
        name: "MCPO_ROLE_HEADER",
        unset: Unset::Value("x-openwebui-user-role"),
        doc: "The header with the user's role.",
        read: |settings, text| values::header(text).map(|value| settings.identity.role = value),
    },
    Variable {
        name: "MCPO_CHAT_HEADER",
        unset: Unset::Value("x-openwebui-chat-id"),
        doc: "The header with the chat.",
        read: |settings, text| values::header(text).map(|value| settings.identity.chat = value),
    },
    Variable {
        name: "MCPO_MAX_CONCURRENT",
        unset: Unset::Words("four for each processor core"),
        doc: "How many processes may start or work for one request each at the same time. A client that is \
              known by its user or API key gets three quarters of them at most, even alone (of 8 six, of 2 \
              one; a single one is free for all). As soon as two clients call within a minute, every \
              client does: the rest is for the others.",
        read: |settings, text| units::count(text).map(|value| settings.max_concurrent = value),
    },
    Variable {
        name: "MCPO_QUEUE_WAIT",
        unset: Unset::Value("0"),
        doc: "How long a call waits for its turn before it is refused as too many: seconds, or \
              text such as `5s`. Its `timeout` goes on meanwhile.",
        read: |settings, text| units::wait(text).map(|value| settings.queue_wait = value),
    },
    Variable {
        name: "MCPO_TIMEOUT",
        unset: Unset::Value("300"),
        doc: "How long a call may take on servers without a `timeout` of their own: seconds, or \
              text such as `30s` or `5m`.",
        read: |settings, text| units::duration(text).map(|value| settings.timeout = value),
    },
    Variable {
        name: "MCPO_MAX_BODY",
        unset: Unset::Value("10MiB"),
        doc: "The largest body of a request: bytes, or text such as `10MiB`.",
        read: |settings, text| units::size(text).map(|value| settings.max_body = value),
    },
    Variable {
        name: "MCPO_MAX_MESSAGE",
        unset: Unset::Value("64MiB"),
        doc: "The largest message of a server: bytes, or text such as `64MiB`.",
        read: |settings, text| units::size(text).map(|value| settings.max_message = value),
    },
    Variable {
        name: "MCPO_MEMORY_BUDGET",
        unset: Unset::Words("a quarter of the memory of the machine, or of the container's limit"),
        doc: "How many bytes may be held for clients at once: bodies that are being read, answers that come or \
              were not yet taken. One client may have a quarter of it. Beyond it requests get 503 (429 for a \
              client with its share) with `Retry-After`. At least `16MiB`; bytes, or text such as `256MiB`.",
        read: |settings, text| {
            let value = units::size(text).ok().filter(|value| *value >= SMALLEST_BUDGET);
            let value = value.ok_or("a size of at least `16MiB`, such as `256MiB`")?;
            settings.memory_budget = Some(value);
            Ok(())
        },
    },
    Variable {
        name: "MCPO_STATEFUL_ENABLED",
        unset: Unset::Value("true"),
        doc: "`false`: every `stateful` server runs `stateless`.",
        read: |settings, text| values::switch(text).map(|value| settings.stateful_enabled = value),
    },
    Variable {
        name: "MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT",
        unset: Unset::Value("1800"),
        doc: "The `idle_timeout` of servers without their own.",
        read: |settings, text| units::duration(text).map(|value| settings.idle = value),
    },
    Variable {
        name: "MCPO_STATEFUL_MAX_PROCESSES_PER_IP",
        unset: Unset::Value("1"),
        doc: "The `max_processes_per_ip` of servers without their own.",
        read: |settings, text| units::count(text).map(|value| settings.per_address = value),
    },
    Variable {
        name: "MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT",
        unset: Unset::Value("1"),
        doc: "Another name for the same, as the key has one.",
        read: |settings, text| units::count(text).map(|value| settings.per_address = value),
    },
    Variable {
        name: "MCPO_STATEFUL_MAX_PROCESSES_PER_CLIENT",
        unset: Unset::Value("32"),
        doc: "The `max_processes_per_client` of servers without their own.",
        read: |settings, text| units::count(text).map(|value| settings.per_client = value),
    },
    Variable {
        name: "MCPO_STATEFUL_MAX_TOTAL_PROCESSES",
        unset: Unset::Value("100"),
        doc: "How many processes are kept, of all servers together.",
        read: |settings, text| units::count(text).map(|value| settings.max_total_processes = value),
    },
    Variable {
        name: "MCPO_STATEFUL_CLEANUP_INTERVAL",
        unset: Unset::Value("300"),
        doc: "How often processes that are idle for too long are looked for.",
        read: |settings, text| units::duration(text).map(|value| settings.cleanup_interval = value),
    },
    Variable {
        name: "MCPO_WARM_MEMORY",
        unset: Unset::Value("1GiB"),
        doc: "How much memory all processes that `warm` keeps ready may use together.",
        read: |settings, text| units::bytes(text).map(|value| settings.warm_memory = value),
    },
    Variable {
        name: "MCPO_JOBS_DIR",
        unset: Unset::Value("/tmp/mcpo-jobs"),
        doc: "The folder for jobs and workspaces; several replicas may share it.",
        read: |settings, text| values::folder(text).map(|value| settings.jobs_dir = value),
    },
    Variable {
        name: "MCPO_BASE_URL",
        unset: Unset::Words("empty"),
        doc: "What links to files begin with, as a browser reaches Pontoon: such as \
              `https://tools.example.org`. Without it, links begin with the host that a direct \
              client called, or with what a proxy of `MCPO_TRUSTED_PROXIES` forwards \
              (`X-Forwarded-Host`, `-Proto`, `-Port`, `-Prefix`, or `Forwarded`); with `/files` \
              where a browser knows neither, and then the start warns.",
        read: |settings, text| values::base_url(text).map(|value| settings.base_url = value),
    },
    Variable {
        name: "MCPO_LINK_SECRET",
        unset: Unset::Words("none"),
        doc: "At least 16 bytes with which links to files are signed: a link then ends with \
              `MCPO_FILE_EXPIRY`, and one without a signature is refused.",
        read: |settings, text| {
            values::signing_secret(text).map(|value| settings.link_secret = Some(value))
        },
    },
    Variable {
        name: "MCPO_SESSION_SECRET",
        unset: Unset::Words("a key in `MCPO_JOBS_DIR`, made by the first replica"),
        doc: "At least 16 bytes with which the ids of sessions are signed, the same for all replicas, \
              so that a session goes on at any of them and after a restart. Needed only where replicas \
              do not share `MCPO_JOBS_DIR`.",
        read: |settings, text| {
            values::signing_secret(text).map(|value| settings.session_secret = Some(value))
        },
    },
    Variable {
        name: "MCPO_FILE_EXPIRY",
        unset: Unset::Value("86400"),
        doc: "How long jobs and their files are kept: seconds, or text such as `7d`.",
        read: |settings, text| units::duration(text).map(|value| settings.file_expiry = value),
    },
    Variable {
        name: "MCPO_GC_INTERVAL",
        unset: Unset::Value("3600"),
        doc: "How often jobs that are too old are looked for.",
        read: |settings, text| units::duration(text).map(|value| settings.gc_interval = value),
    },
    Variable {
        name: "MCPO_STORE_PAYLOADS",
        unset: Unset::Value("true"),
        doc: "`false`: requests and answers are not written into their jobs.",
        read: |settings, text| values::switch(text).map(|value| settings.store_payloads = value),
    },
    Variable {
        name: "MCPO_MIN_FREE_DISK",
        unset: Unset::Value("64MiB"),
        doc: "With less space free than this, no new job is begun; `0` for no such limit.",
        read: |settings, text| units::space(text).map(|value| settings.min_free_disk = value),
    },
    Variable {
        name: "MCPO_STATE_DIR",
        unset: Unset::Words("`$XDG_CACHE_HOME/pontoon`, else `~/.cache/pontoon`"),
        doc: "The folder in which Pontoon keeps what it has learnt about the servers.",
        read: |settings, text| values::folder(text).map(|value| settings.state_dir = Some(value)),
    },
    Variable {
        name: "MCPO_LOG_LEVEL",
        unset: Unset::Value("INFO"),
        doc: "How much is logged: `ERROR` (or `CRITICAL`), `WARNING`, `INFO`, `DEBUG` or `TRACE`, \
              in capitals or not.",
        read: |settings, text| values::log_level(text).map(|value| settings.log_level = value),
    },
    Variable {
        name: "MCPO_LOG_DIR",
        unset: Unset::Words("none"),
        doc: "A folder for a log file of each instance, besides what it prints.",
        read: |settings, text| values::folder(text).map(|value| settings.log_dir = Some(value)),
    },
];

/// Variables of other versions: ignoring one would change what its author relies on.
pub(super) const REFUSED_VARIABLES: &[&str] = &["MCPO_SESSION_STORE"];
