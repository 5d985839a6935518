//! `pontoon gc`: one sweep of the jobs directory, for cron and for people.
//!
//! It may run beside any number of bridges: what they use, they keep fresh.

use std::process::ExitCode;
use std::time::SystemTime;

use serde::Serialize;

use super::terminal::{fail, say, tell, told};
use crate::config::{BridgeSettings, Environment, Options};
use crate::errors::chain;
use crate::jobs::{NotRemoved, Store, StoreOptions, Swept};

/// What one sweep did, or would do.
#[derive(Debug, Serialize)]
struct Report {
    directory: String,
    dry_run: bool,
    #[serde(flatten)]
    swept: Swept,
}

/// Removes what has expired, or only says what has.
pub fn run(options: &Options, dry_run: bool, as_json: bool) -> ExitCode {
    let environment = Environment::of_process();
    let settings = match told(BridgeSettings::load_for_collection(options, &environment)) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let report = match sweep(&settings, dry_run) {
        Ok(report) => report,
        Err(why) => return fail(&why),
    };
    match as_json {
        true => say(&serde_json::to_string_pretty(&report).unwrap_or_default()),
        false => describe(&report),
    }
    if report.swept.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sweep(settings: &BridgeSettings, dry_run: bool) -> Result<Report, String> {
    let directory = settings.jobs_dir.display().to_string();
    if !settings.jobs_dir.exists() && !settings.jobs_dir.is_symlink() {
        return Ok(Report { directory, dry_run, swept: Swept::default() });
    }
    let options = StoreOptions { expiry: settings.file_expiry, ..StoreOptions::default() };
    let store = Store::visit(&settings.jobs_dir, options).map_err(|error| chain(&error))?;
    let now = SystemTime::now();
    let swept = match dry_run {
        true => store.expired(now),
        false => Ok(store.sweep(now)),
    };
    let swept = swept.map_err(|error| format!("{directory} cannot be read: {error}"))?;
    Ok(Report { directory, dry_run, swept })
}

fn describe(Report { directory, dry_run, swept }: &Report) {
    let removed = if *dry_run { "would remove" } else { "removed" };
    for job in &swept.removed_jobs {
        say(&format!("{removed} job {job}"));
    }
    for session in &swept.removed_sessions {
        say(&format!("{removed} session {session}"));
    }
    for NotRemoved { name, error } in &swept.failed {
        tell(&format!("error: {name} could not be removed and is tried again next time: {error}"));
    }
    let (jobs, sessions) = (swept.removed_jobs.len(), swept.removed_sessions.len());
    say(&format!("{removed} {jobs} jobs and {sessions} sessions in {directory}"));
}
