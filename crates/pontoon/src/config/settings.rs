//! The settings that hold for the whole bridge, and the variables `MCPO_*` that set them.
//!
//! One row of [`settings!`] is all there is to say of a setting: its documentation, its variable, what holds where that is
//! not set, its field, and how it is read. Defaults are read from the rows like any other value, misspelt
//! names are compared with them, and `docs/configuration.md` is written from them. Which variables there are is
//! left to `variables.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pontoon_supervise::processors;

use self::Unset::{Value, Words};
use super::address::AddressBlock;
use super::allowed_origins::{self, AllowedOrigins};
use super::identity::IdentityHeaders;
use super::rest_settings::RestSettings;
use super::secret::{ApiKey, KeyName, Secret};
use super::traces::TraceSettings;
use super::units;
use super::values::{self, LogLevel};

/// Makes [`BridgeSettings`] and [`VARIABLES`] of rows. A row has the documentation of a setting for a user, as Markdown, its
/// variable, what holds where that is not set, and the field with what reads it. A row without a field of its own reads into
/// those that are named first.
macro_rules! settings {
    (
        { $($(#[doc = $note:literal])+ $more:ident: $of:ty,)+ }
        $(
            $(#[doc = $doc:literal])+
            $name:literal, $unset:expr $(, $field:ident: $type:ty = $read:path)? $(=> $into:expr)?;
        )+
    ) => {
        /// What variables and options set: all that is configured but the servers. Without the rows of the table,
        /// as `default()` gives it, every field is empty; `unset()` has what holds where nothing is set.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct BridgeSettings {
            $($(#[doc = $note])+ pub $more: $of,)+
            $($(#[doc = concat!("What `", $name, "` says.")] pub $field: $type,)?)+
        }

        /// Every variable that this version knows.
        pub(super) const VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            unset: $unset,
            doc: concat!($($doc),+),
            read: $(|settings, text| $read(text).map(|value| settings.$field = value.into()))? $($into)?,
        },)+];
    };
}

settings! {
    {
        /// The keys by which clients come in, the one without a name first; without any, everyone does.
        api_keys: Vec<ApiKey>,
        /// The headers in which trusted peers say who calls and from where.
        identity: IdentityHeaders,
        /// The absolute paths of the files that our own secrets were read from, or of their folders: no child may.
        secret_files: Vec<PathBuf>,
        /// Where REST is, and what its documents say.
        rest: RestSettings,
        /// Where spans go; `None` where no collector is named.
        traces: Option<TraceSettings>,
        /// Whether clients may call us by any name.
        any_host: bool,
        /// Whether any client is believed about who calls: it keeps apart those who say it, and proves nothing.
        any_identity: bool,
    }

    /// The file with the servers. A file that is named here must be there.
    "MCPO_CONFIG_FILE", Words("`./mcp-servers.json`, else `/app/config/mcp-servers.json`, else the demo server"),
        config_file: Option<PathBuf> = values::path;
    /// `true`: a change of that file takes effect by itself; without it, on SIGHUP. `--hot-reload` does the same.
    "MCPO_HOT_RELOAD", Value("false"), hot_reload: bool = values::switch;
    /// The address to listen on, or several with commas between. Beyond this machine only with an API key, or with
    /// `--insecure`; the demo makes a key for itself.
    "MCPO_LISTEN", Value("127.0.0.1:8080"), listen: Vec<SocketAddr> = values::listen;
    /// A file with the certificate that Pontoon shows and those that vouch for it, its own first, in PEM form. With it all
    /// addresses are `https://` and `wss://`. New files are shown to new connections within two seconds, and on SIGHUP.
    /// `--tls-cert` does the same.
    "MCPO_TLS_CERT", Words("none"), tls_cert: Option<PathBuf> = values::path;
    /// The file with its key: PKCS#8, PKCS#1 or SEC1 in PEM form, not encrypted. No confined server may read it.
    /// `--tls-key` does the same.
    "MCPO_TLS_KEY", Words("none"), tls_key: Option<PathBuf> = values::path;
    /// More names, with commas between, by which clients may call Pontoon in the `Host` header, such as
    /// `tools.example.org`. The addresses listened on and `localhost` always may.
    "MCPO_ALLOWED_HOSTS", Words("none"), allowed_hosts: Vec<String> = values::hosts;
    /// Web pages, with commas between, whose scripts may call Pontoon and read its answers (CORS), such as
    /// `https://chat.example.org`, or `*` for all. `--cors-allow-origins` does the same. With `*` and no API key, every
    /// page that anyone opens in a browser that reaches Pontoon may use every server.
    "MCPO_ALLOWED_ORIGINS", Words("none"), allowed_origins: AllowedOrigins = allowed_origins::origins;
    /// The key that clients must show, as `Authorization: Bearer KEY`, or as `X-API-Key: KEY` where `Authorization` is
    /// for the server behind. In the log it is called `default`. It is a front end's, not one person's: see
    /// `session_key`. `--api-key` does the same, but others on this machine can read it there.
    "MCPO_API_KEY", Words("none") => |settings, text| values::key(text).map(|value| settings.set_unnamed_key(value));
    /// More keys, each with the name of whom it belongs to, such as `alice=KEY1,bob=KEY2`.
    "MCPO_API_KEYS", Words("none") => |settings, text| values::keys(text).map(|keys| settings.api_keys.extend(keys));
    /// `true`: a key is asked for everywhere but at `/health`, at `/ready` and for signed links, not only where tools
    /// are used. `--strict-auth` does the same.
    "MCPO_STRICT_AUTH", Value("false"), strict_auth: bool = values::switch;
    /// Addresses and blocks of them, with commas between, such as `10.0.0.0/8, ::1`: peers that are believed about where
    /// a call comes from (`X-Forwarded-For`, `X-Real-IP`) and who makes it (the headers below). With an API key others
    /// are believed about who, never about where.
    "MCPO_TRUSTED_PROXIES", Words("none"), trusted_proxies: Vec<AddressBlock> = values::blocks;
    /// What Open WebUI signs its users with, its `FORWARD_USER_INFO_HEADER_JWT_SECRET`. With it, only a user who is
    /// signed counts.
    "MCPO_OWUI_JWT_SECRET", Words("none"), owui_jwt_secret: Option<Secret> = values::secret;
    /// How long a signed user counts, from the moment it was signed (`iat`): seconds, or text such as `1h`. Open WebUI
    /// signs once for a whole turn of a chat, so its own end of the token (`exp`, 300 seconds by default) would cut long
    /// turns off, and is not looked at.
    "MCPO_OWUI_JWT_MAX_AGE", Value("3600"), owui_jwt_max_age: Duration = units::duration;
    /// The header with the signed user.
    "MCPO_JWT_HEADER", Value("x-openwebui-user-jwt")
        => |settings, text| values::header(text).map(|value| settings.identity.jwt = value);
    /// The header with the user.
    "MCPO_USER_HEADER", Value("x-openwebui-user-id")
        => |settings, text| values::header(text).map(|value| settings.identity.user = value);
    /// The header with the user's e-mail address.
    "MCPO_EMAIL_HEADER", Value("x-openwebui-user-email")
        => |settings, text| values::header(text).map(|value| settings.identity.email = value);
    /// The header with the user's name.
    "MCPO_NAME_HEADER", Value("x-openwebui-user-name")
        => |settings, text| values::header(text).map(|value| settings.identity.name = value);
    /// The header with the user's role.
    "MCPO_ROLE_HEADER", Value("x-openwebui-user-role")
        => |settings, text| values::header(text).map(|value| settings.identity.role = value);
    /// The header with the chat.
    "MCPO_CHAT_HEADER", Value("x-openwebui-chat-id")
        => |settings, text| values::header(text).map(|value| settings.identity.chat = value);
    /// What stands before the names of servers in the paths of mcpo, `/NAME/TOOL`: such as `/tools/`. `/mcpo/NAME/TOOL` stays
    /// what it is.
    "MCPO_PATH_PREFIX", Value("/")
        => |settings, text| values::path_prefix(text).map(|value| settings.rest.path_prefix = value);
    /// What stands before every path as clients see it, where a proxy takes it away or leaves it: such as `/bridge`, and no
    /// path of Pontoon's own such as `/mcpo`. OpenAPI documents name it, and links to files lead through it, unless
    /// `MCPO_BASE_URL` says where they begin. After what `X-Forwarded-Prefix` of a trusted proxy names it comes once.
    "MCPO_ROOT_PATH", Words("none")
        => |settings, text| values::root_path(text).map(|value| settings.rest.root_path = value);
    /// `true`: operations of OpenAPI documents have the names of tools as ids, such as `get_time`, and not mcpo's,
    /// `tool_get_time_post`. These are the names that Open WebUI shows the model, and keeps in its lists of tools.
    "MCPO_BARE_OPERATION_IDS", Value("false")
        => |settings, text| values::switch(text).map(|value| settings.rest.has_bare_ids = value);
    /// How many processes may start or work for one request each at the same time. A client that is known by its user or
    /// API key gets three quarters of them at most, even alone (of 8 six, of 2 one; a single one is free for all). As
    /// soon as two clients call within a minute, every client does: the rest is for the others.
    "MCPO_MAX_CONCURRENT", Words("four for each processor core"), max_concurrent: usize = units::count;
    /// How long a call waits for its turn before it is refused as too many: seconds, or text such as `5s`. Its `timeout`
    /// goes on meanwhile.
    "MCPO_QUEUE_WAIT", Value("0"), queue_wait: Duration = units::wait;
    /// How long a call may take on servers without a `timeout` of their own: seconds, or text such as `30s` or `5m`.
    "MCPO_TIMEOUT", Value("300"), timeout: Duration = units::duration;
    /// The largest body of a request: bytes, or text such as `10MiB`.
    "MCPO_MAX_BODY", Value("10MiB"), max_body: usize = units::size;
    /// The largest message of a server: bytes, or text such as `64MiB`.
    "MCPO_MAX_MESSAGE", Value("64MiB"), max_message: usize = units::size;
    /// How many bytes may be held for clients at once: bodies that are being read, answers that come or were not yet
    /// taken. One client may have a quarter of it. Beyond it requests get 503 (429 for a client with its share) with
    /// `Retry-After`. At least `16MiB`; bytes, or text such as `256MiB`.
    "MCPO_MEMORY_BUDGET", Words("a quarter of the memory of the machine, or of the container's limit"),
        memory_budget: Option<usize> = memory_budget;
    /// `false`: every `stateful` server runs `stateless`.
    "MCPO_STATEFUL_ENABLED", Value("true"), stateful_enabled: bool = values::switch;
    /// The `idle_timeout` of servers without their own.
    "MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT", Value("1800"), idle: Duration = units::duration;
    /// The `max_processes_per_ip` of servers without their own.
    "MCPO_STATEFUL_MAX_PROCESSES_PER_IP", Value("1"), per_address: usize = units::count;
    /// Another name for the same, as the key has one.
    "MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT", Value("1")
        => |settings, text| units::count(text).map(|value| settings.per_address = value);
    /// The `max_processes_per_client` of servers without their own.
    "MCPO_STATEFUL_MAX_PROCESSES_PER_CLIENT", Value("32"), per_client: usize = units::count;
    /// How many processes are kept, of all servers together.
    "MCPO_STATEFUL_MAX_TOTAL_PROCESSES", Value("100"), max_total_processes: usize = units::count;
    /// How often processes that are idle for too long are looked for.
    "MCPO_STATEFUL_CLEANUP_INTERVAL", Value("300"), cleanup_interval: Duration = units::duration;
    /// How much memory all processes that `warm` keeps ready may use together.
    "MCPO_WARM_MEMORY", Value("1GiB"), warm_memory: u64 = units::bytes;
    /// The folder for jobs and workspaces; several replicas may share it.
    "MCPO_JOBS_DIR", Value("/tmp/mcpo-jobs"), jobs_dir: PathBuf = values::folder;
    /// What links to files begin with, as a browser reaches Pontoon: such as `https://tools.example.org`. Without it,
    /// links begin with the host that a direct client called, or with what a proxy of `MCPO_TRUSTED_PROXIES` forwards
    /// (`X-Forwarded-Host`, `-Proto`, `-Port`, `-Prefix`, or `Forwarded`); with `/files` where a browser knows neither,
    /// and then the start warns.
    "MCPO_BASE_URL", Words("empty"), base_url: String = values::base_url;
    /// At least 16 bytes with which links to files are signed: a link then ends with `MCPO_FILE_EXPIRY`, and one without
    /// a signature is refused.
    "MCPO_LINK_SECRET", Words("none"), link_secret: Option<Secret> = values::signing_secret;
    /// At least 16 bytes with which the ids of sessions are signed, the same for all replicas, so that a session goes on
    /// at any of them and after a restart. Needed only where replicas do not share `MCPO_JOBS_DIR`.
    "MCPO_SESSION_SECRET", Words("a key in `MCPO_JOBS_DIR`, made by the first replica"),
        session_secret: Option<Secret> = values::signing_secret;
    /// How long jobs and their files are kept: seconds, or text such as `7d`.
    "MCPO_FILE_EXPIRY", Value("86400"), file_expiry: Duration = units::duration;
    /// How often jobs that are too old are looked for.
    "MCPO_GC_INTERVAL", Value("3600"), gc_interval: Duration = units::duration;
    /// `false`: requests and answers are not written into their jobs.
    "MCPO_STORE_PAYLOADS", Value("true"), store_payloads: bool = values::switch;
    /// With less space free than this, no new job is begun; `0` for no such limit.
    "MCPO_MIN_FREE_DISK", Value("64MiB"), min_free_disk: u64 = units::space;
    /// The folder in which Pontoon keeps what it has learnt about the servers.
    "MCPO_STATE_DIR", Words("`$XDG_CACHE_HOME/pontoon`, else `~/.cache/pontoon`"),
        state_dir: Option<PathBuf> = values::folder;
    /// How much is logged: `ERROR` (or `CRITICAL`), `WARNING`, `INFO`, `DEBUG` or `TRACE`, in capitals or not.
    "MCPO_LOG_LEVEL", Value("INFO"), log_level: LogLevel = values::log_level;
    /// A folder for a log file of each instance, besides what it prints.
    "MCPO_LOG_DIR", Words("none"), log_dir: Option<PathBuf> = values::folder;
}

impl BridgeSettings {
    /// What holds where nothing is set.
    pub(crate) fn unset() -> Self {
        let mut settings = Self { max_concurrent: processors() * 4, ..Self::default() };
        for variable in VARIABLES {
            if let Value(text) = variable.unset {
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

fn memory_budget(text: &str) -> Result<usize, &'static str> {
    let size = units::size(text).ok().filter(|size| *size >= SMALLEST_BUDGET);
    size.ok_or("a size of at least `16MiB`, such as `256MiB`")
}

/// Variables of other versions: ignoring one would change what its author relies on.
pub(super) const REFUSED_VARIABLES: &[&str] = &["MCPO_SESSION_STORE"];
