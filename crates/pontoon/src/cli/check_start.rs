//! `pontoon check --start`: starts each server once, and tells whether it answers and what it offers.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::iter;
use pontoon_supervise::{Ladder, Spawner, plain_text};
use pontoon_wire::method;
use serde_json::{Value, json};

use super::terminal::{HASTY, Interruption, begin, fail, say, tell, with_spawner};
use super::waiting::WaitingLine;
use crate::app::Single;
use crate::config::{Config, Options};
use crate::errors::chain;

/// This many servers start at once: more would make each other slow.
const AT_ONCE: usize = 4;

/// What became of a server.
enum StartOutcome {
    /// It answered after this time, with so many tools.
    Ready { took: Duration, tools: usize },
    /// It runs by itself, and is not there now.
    Away(String),
    /// It starts for each person with what they bring.
    Personal,
    /// It does not start.
    Failed(String),
}

/// Starts each server of the configuration once. Exit code 1 if one does not start, or the configuration is wrong.
pub(super) fn run(options: &Options, patience: Duration, as_json: bool) -> ExitCode {
    let (mut config, starting) = match begin(options) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    // What was learnt at an earlier start says nothing of this one.
    config.settings.state_dir = None;
    with_spawner(starting, async |spawner| {
        let mut interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        let mut singles = Vec::new();
        for server in &config.servers {
            match Single::new(&config, server.name.as_str(), &spawner) {
                Ok(single) => singles.extend(single),
                Err(error) => return fail(&chain(&error)),
            }
        }
        let is_quiet = options.is_quiet;
        let done = tokio::select! {
            code = start_all(&config, &singles, patience, is_quiet, as_json) => Ok(code),
            interrupted = interruption.heard() => Err(interrupted),
        };
        let (code, ladder) = match done {
            Ok(code) => (code, &Ladder::default()),
            Err((code, what)) => {
                tell(&format!("error: {what}; the servers were told to stop"));
                (ExitCode::from(code), &HASTY)
            }
        };
        tokio::select! {
            () = close(singles, &spawner, ladder) => code,
            (code, _) = interruption.heard() => ExitCode::from(code),
        }
    })
}

async fn start_all(
    config: &Config,
    singles: &[Single],
    patience: Duration,
    is_quiet: bool,
    as_json: bool,
) -> ExitCode {
    let (count, seconds) = (config.servers.len(), patience.as_secs());
    let what = if count == 1 { "one server" } else { &format!("{count} servers") };
    if !is_quiet {
        tell(&format!("starting {what}, for up to {seconds} s each"));
    }
    let line = WaitingLine::begin(format!("starting {what}"), is_quiet);
    let starting = singles.iter().map(async |single| {
        let outcome = start(single, patience).await;
        if !as_json {
            let name = &single.entry.back.server.name;
            line.above(|| say(&format!("  {name}: {}", outcome.words())));
        }
        outcome
    });
    let outcomes: Vec<_> = iter(starting).buffered(AT_ONCE).collect().await;
    drop(line);
    let failed = outcomes.iter().filter(|it| matches!(it, StartOutcome::Failed(_))).count();
    if as_json {
        let servers = singles
            .iter()
            .zip(&outcomes)
            .map(|(single, outcome)| outcome.json(single.entry.back.server.name.as_str()));
        let all = json!({"servers": servers.collect::<Vec<_>>(), "failed": failed});
        say(&serde_json::to_string_pretty(&all).unwrap_or_default());
    } else if failed > 0 {
        tell(&format!(
            "error: {failed} of {count} did not start; `pontoon doctor NAME` tells more"
        ));
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Learns what the server offers, as `serve` does at its start.
async fn start(single: &Single, patience: Duration) -> StartOutcome {
    let entry = &single.entry;
    if entry.back.server.is_personal() {
        return StartOutcome::Personal;
    }
    if let Err(why) = entry.back.check_isolation() {
        return StartOutcome::Failed(chain(&why));
    }
    let began = Instant::now();
    let learnt = tokio::time::timeout(patience, entry.learnt()).await;
    match (learnt, entry.back.app()) {
        (Ok(Ok(catalog)), _) => {
            StartOutcome::Ready { took: began.elapsed(), tools: catalog.count(method::LIST_TOOLS) }
        }
        (Ok(Err(why)), Some(_)) => StartOutcome::Away(why),
        (Ok(Err(why)), None) => StartOutcome::Failed(why),
        (Err(_), Some(app)) => StartOutcome::Away(app.absence().unwrap_or_default()),
        (Err(_), None) => {
            StartOutcome::Failed(format!("it was not ready within {} s", patience.as_secs()))
        }
    }
}

/// Ends what was started. All of it has the same helper process, so none is closed while another is at work.
async fn close(singles: Vec<Single>, spawner: &Spawner, ladder: &Ladder) {
    for single in singles {
        single.end(ladder).await;
    }
    spawner.stop_all(ladder).await;
}

impl StartOutcome {
    fn words(&self) -> String {
        match self {
            Self::Ready { took, tools } => {
                let tools =
                    if *tools == 1 { "one tool".to_owned() } else { format!("{tools} tools") };
                format!("ready in {:.1} s, {tools}", took.as_secs_f64())
            }
            Self::Away(why) => {
                format!("not there now, and reached when it is: {}", plain_text(why.clone()))
            }
            Self::Personal => {
                "not started: it starts with the values of the person who calls".to_owned()
            }
            Self::Failed(why) => format!("does not start: {}", plain_text(why.clone())),
        }
    }

    fn json(&self, name: &str) -> Value {
        match self {
            Self::Ready { took, tools } => {
                let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                json!({"name": name, "outcome": "ready", "ready_ms": milliseconds, "tools": tools})
            }
            Self::Away(why) => json!({"name": name, "outcome": "away", "why": why}),
            Self::Personal => json!({"name": name, "outcome": "personal"}),
            Self::Failed(why) => json!({"name": name, "outcome": "failed", "why": why}),
        }
    }
}
