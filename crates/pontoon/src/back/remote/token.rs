//! The token that an application is shown: a value, the first line of a file, or what a command writes.
//!
//! It is read for each connection, once an application has taken that. Nothing of it is ever logged.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pontoon_supervise::{Command, Exit, SpawnError};
use tokio::io::AsyncReadExt;

use crate::back::child::process::{Process, Starter};
use crate::config::{Environment, Secret, TokenSource};
use crate::observe::log::Secrets;

/// How long a command may take: it may ask a server, or wait for a key to be touched.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much a command may write.
const MOST: u64 = 64 * 1024;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoToken {
    #[error("its file cannot be used: {0}")]
    File(io::Error),
    #[error("its command cannot be started")]
    Start(#[from] SpawnError),
    #[error("its command took longer than {} s", PATIENCE.as_secs())]
    Slow,
    #[error("its command {exit}{said}")]
    Failed { exit: Exit, said: String },
    #[error("its command wrote no first line of text")]
    Nothing,
    #[error("it holds what no header may")]
    Form,
}

/// Reads tokens.
#[derive(Debug, Clone)]
pub(crate) struct TokenReader {
    pub(crate) starter: Starter,
    pub(crate) environment: Environment,
    /// Where it is said that what was read must not be logged.
    pub(crate) secrets: Secrets,
}

impl TokenReader {
    /// The token as it is now.
    pub(crate) async fn read(&self, source: &TokenSource) -> Result<Secret, NoToken> {
        let token = match source {
            TokenSource::Value(secret) => secret.clone(),
            TokenSource::File(path) => TokenSource::first_line(path).map_err(NoToken::File)?,
            TokenSource::Command(command) => self.run(command).await?,
        };
        self.secrets.hide_passing(token.expose());
        Ok(token)
    }

    async fn run(&self, command: &str) -> Result<Secret, NoToken> {
        let variables = self.environment.iter();
        let command = Command {
            args: vec![OsString::from("-c"), OsString::from(command)],
            env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            // It is the user's own, and finds what it would find in a shell.
            trusted: true,
            program: PathBuf::from("/bin/sh"),
            ..Command::default()
        };
        let mut process = self.starter.start(&command).await?;
        let written = tokio::time::timeout(PATIENCE, written_by(&mut process)).await;
        // However it went, nothing of it goes on.
        process.kill();
        let complaints = process.complaints().last_lines();
        for line in &complaints {
            tracing::debug!(line, "the command of the token says");
        }
        let (text, exit) = written.map_err(|_| NoToken::Slow)?;
        if !exit.is_success() {
            let said = complaints.last().map(|line| format!("; it said {line:?}"));
            return Err(NoToken::Failed { exit, said: said.unwrap_or_default() });
        }
        let text = String::from_utf8(text).map_err(|_| NoToken::Nothing)?;
        match text.lines().next().unwrap_or_default().trim() {
            "" => Err(NoToken::Nothing),
            token => Ok(Secret::new(token)),
        }
    }
}

/// What a process writes, and how it ends. It reads nothing, and writes no more than is taken.
async fn written_by(process: &mut Process) -> (Vec<u8>, Exit) {
    let mut text = Vec::new();
    if let Some((input, output)) = process.take_streams() {
        drop(input);
        // A pipe that breaks ends what was written.
        drop(output.take(MOST).read_to_end(&mut text).await);
    }
    (text, process.exited().await)
}
