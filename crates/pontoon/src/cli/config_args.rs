//! Where the configuration comes from, for commands that listen nowhere.

use std::path::PathBuf;

use clap::Args;

use crate::config::Options;

/// Where the configuration comes from.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The configuration file [default: MCPO_CONFIG_FILE, else ./mcp-servers.json, else
    /// /app/config/mcp-servers.json, else the demo server].
    #[arg(long, short, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Tell nothing but errors and results: no warnings, and nothing of what is waited for.
    #[arg(long = "quiet", short = 'q')]
    pub(super) is_quiet: bool,
}

impl ConfigArgs {
    /// For a command that listens nowhere.
    pub(super) fn options(&self) -> Options {
        Options {
            config: self.config.clone(),
            is_silent: true,
            is_quiet: self.is_quiet,
            ..Options::default()
        }
    }
}
