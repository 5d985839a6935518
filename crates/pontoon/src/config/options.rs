//! What the command line says of the configuration.

use std::path::PathBuf;

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
