//! What the command line says of the configuration: the options of `pontoon serve`.

use std::path::PathBuf;

use clap::Args;

use super::mcpo::McpoOptions;

/// What the command line says; it wins over the environment and the file.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// The configuration file [default: MCPO_CONFIG_FILE, else ./mcp-servers.json, else
    /// /app/config/mcp-servers.json, else the demo server].
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080; port 0 chooses a free one].
    #[arg(long, short, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The port to listen on, for this machine alone: short for --listen 127.0.0.1:PORT.
    #[arg(long, short, conflicts_with = "listen", value_parser = port)]
    pub port: Option<u16>,
    /// How much to log: trace, debug, info, warning, error or critical (the same as error).
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// The key that clients must show; others on this machine can read it here, so rather set
    /// MCPO_API_KEY.
    #[arg(long, short = 'k', value_name = "KEY")]
    pub api_key: Option<String>,
    /// Ask for the key everywhere but at /health, at /ready and for signed links, not only where
    /// tools are used.
    #[arg(long)]
    pub strict_auth: bool,
    /// Take a change of the configuration file over without a restart.
    #[arg(long, conflicts_with = "command")]
    pub hot_reload: bool,
    /// A further host name by which clients reach the bridge; may be given several times.
    #[arg(long = "allowed-host", value_name = "HOST")]
    pub allowed_hosts: Vec<String>,
    /// A web page, such as `https://chat.example.org`, whose scripts may call and read the answers;
    /// may be given several times, and * is all [default: MCPO_ALLOWED_ORIGINS, else none].
    #[arg(long, value_name = "ORIGIN")]
    pub cors_allow_origins: Vec<String>,
    /// The certificate, and those that vouch for it, in PEM form: all addresses are https then
    /// [default: MCPO_TLS_CERT, else none].
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM form [default: MCPO_TLS_KEY].
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Listen beyond this machine although nothing asks clients who they are.
    #[arg(long)]
    pub insecure: bool,
    /// A server to run in place of a configuration file, with its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "config")]
    pub command: Vec<String>,
    /// Tell nothing but errors: no banner, and no warnings.
    #[arg(long = "quiet", short = 'q')]
    pub is_quiet: bool,
    /// The manners of mcpo, and what its command line says besides.
    #[arg(skip)]
    pub mcpo: Option<McpoOptions>,
    /// Nothing will listen, so where is no matter.
    #[arg(skip)]
    pub is_silent: bool,
    /// The servers that are meant, if not all are: what is wrong with others is not told.
    #[arg(skip)]
    pub only: Vec<String>,
    /// The bridge runs already, and reads its configuration again.
    #[arg(skip)]
    pub is_running: bool,
}

fn port(word: &str) -> Result<u16, &'static str> {
    word.parse().map_err(|_| "a port is a number from 0 to 65535; 0 chooses a free one")
}
