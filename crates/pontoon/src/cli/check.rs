//! `pontoon check`: read the configuration, start nothing, say what would happen.

use std::process::ExitCode;

use super::terminal::{learnt_with, say, source, tell};
use crate::config::{Config, Environment, Mode, Options};

/// Tells every mistake and what would be served.
pub fn run(options: &Options) -> ExitCode {
    let (config, remarks) = match Config::load(options, &Environment::of_process()) {
        Ok((config, remarks)) => (Some(config), remarks),
        Err(remarks) => (None, remarks),
    };
    if !remarks.is_empty() && (remarks.need_repair() || !options.is_quiet) {
        tell(&remarks.to_string());
    }
    if let Some(config) = config.filter(|_| !options.is_quiet) {
        describe(&config);
    }
    if remarks.need_repair() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn describe(config: &Config) {
    say(&format!("configuration: {}", source(config)));
    for server in &config.servers {
        let mode = match server.mode {
            Mode::Stateless => "stateless".to_owned(),
            Mode::Stateful { idle, .. } => format!("stateful, idle {} s", idle.as_secs()),
            Mode::Shared { idle } => format!("shared by all clients, idle {} s", idle.as_secs()),
        };
        let seconds = server.timeout.as_secs();
        if let Some(app) = &server.app {
            let place = &app.place;
            say(&format!(
                "  {}: {place} (reached when it is there, time-out {seconds} s)",
                server.name
            ));
            continue;
        }
        let program = match &server.program {
            Ok(program) => program.display().to_string(),
            Err(error) => format!("cannot start: {error}"),
        };
        let learnt = learnt_with(server);
        say(&format!("  {}: {program} ({mode}, time-out {seconds} s{learnt})", server.name));
    }
    if let Some(note) = config.note() {
        say(&format!("note: {note}"));
    }
}
