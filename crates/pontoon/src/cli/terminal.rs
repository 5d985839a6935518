//! Printing for people, and the ways a command can fail.
//!
//! A reader that stops reading (`pontoon tools | head`) is no error.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use pontoon_supervise::{Spawner, Starting, give_memory_back, harden_worker};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::Single;
use crate::config::{Config, ConfigSource, Environment, Options, Remarks, Server};
use crate::errors::chain;

/// Prints a line to standard output.
pub fn say(line: &str) {
    drop(writeln!(io::stdout().lock(), "{line}"));
}

/// Prints a line to standard error.
pub fn tell(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// How many letters a line of the terminal has; 80 where there is none.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(80, |size| usize::from(size.ws_col)).max(1)
}

/// Prints why a command failed.
pub fn fail(why: &str) -> ExitCode {
    tell(&format!("error: {why}"));
    ExitCode::FAILURE
}

/// The configuration, its warnings told; mistakes end the command.
pub fn load(options: &Options) -> Result<Config, ExitCode> {
    told(Config::load(options, &Environment::of_process()))
}

/// What was loaded, its warnings told; mistakes end the command.
pub fn told<T>(loaded: Result<(T, Remarks), Remarks>) -> Result<T, ExitCode> {
    match loaded {
        Ok((loaded, remarks)) => {
            if !remarks.is_empty() {
                tell(&remarks.to_string());
            }
            Ok(loaded)
        }
        Err(remarks) => {
            tell(&remarks.to_string());
            Err(ExitCode::FAILURE)
        }
    }
}

/// What is to be said of a server whose processes differ by who calls.
pub fn learnt_with(server: &Server) -> &'static str {
    match server.is_personal() {
        true => ", learnt with each person's values",
        false => "",
    }
}

/// Where the configuration came from, in words.
pub fn source(config: &Config) -> String {
    match &config.source {
        ConfigSource::File(path) => path.display().to_string(),
        ConfigSource::CommandLine => "the command line".to_owned(),
        ConfigSource::Demo { .. } => "the built-in demo server (no configuration file)".to_owned(),
    }
}

/// The configuration, and the process that starts children: forked before any thread exists.
pub fn begin(options: &Options) -> Result<(Config, Starting), ExitCode> {
    harden_worker();
    give_memory_back();
    let config = load(options)?;
    let starting = Spawner::start();
    let starting =
        starting.map_err(|error| fail(&format!("cannot start the helper process: {error}")))?;
    Ok((config, starting))
}

/// A wish to end the command, noticed from now on.
pub(super) struct Interruption([Signal; 3]);

impl Interruption {
    pub(super) fn begin() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    /// Waits for it. Gives the status that shells expect of a program that a signal ended.
    pub(super) async fn wait(&mut self) -> ExitCode {
        let (code, what) = self.heard().await;
        tell(&format!("error: {what}; the server was told to stop"));
        ExitCode::from(code)
    }

    /// Waits for it, and says nothing. Gives the status, and what happened.
    pub(super) async fn heard(&mut self) -> (u8, &'static str) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (130, "interrupted"),
            _ = terminate.recv() => (143, "terminated"),
            _ = hangup.recv() => (129, "the terminal is gone"),
        }
    }
}

/// How long tasks that block may go on when a command is done: one may wait for a disk, or for a process
/// that is stopped.
const LAST: Duration = Duration::from_secs(2);

/// Runs `work` with a spawner. What it leaves running is killed by the helper process when this one ends.
pub fn with_spawner<F>(starting: Starting, work: impl FnOnce(Spawner) -> F) -> ExitCode
where
    F: Future<Output = ExitCode>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start threads: {error}")),
    };
    let code = runtime.block_on(async {
        match starting.attach() {
            Ok(spawner) => work(spawner).await,
            Err(error) => fail(&format!("cannot reach the helper process: {error}")),
        }
    });
    runtime.shutdown_timeout(LAST);
    code
}

/// Runs `work` with one server of the configuration, until it is done or the command is interrupted.
pub fn with_server(
    name: &str,
    options: &Options,
    work: impl AsyncFnOnce(&Single) -> Result<ExitCode, String>,
) -> ExitCode {
    let (config, starting) = match begin(options) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    with_spawner(starting, async |spawner| {
        let mut interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        let single = match Single::new(&config, name, &spawner) {
            Ok(Some(single)) => single,
            Ok(None) => {
                let names: Vec<_> = config.servers.iter().map(|it| it.name.as_str()).collect();
                let names = names.join(", ");
                return fail(&format!(
                    "there is no server {name:?} in the configuration; there are: {names}"
                ));
            }
            Err(error) => return fail(&chain(&error)),
        };
        let code = tokio::select! {
            done = work(&single) => done.unwrap_or_else(|why| fail(&why)),
            code = interruption.wait() => code,
        };
        single.close().await;
        code
    })
}
