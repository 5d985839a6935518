//! `pontoon gc`: one sweep of the jobs directory, for cron and for people.
//!
//! It may run beside any number of bridges: what they use, they keep fresh.

use std::process::ExitCode;
use std::time::SystemTime;

use serde::Serialize;

use super::terminal::{fail, say, tell, told};
use crate::config::{BridgeSettings, Environment, Options};
use crate::jobs::{Removed, Store, StoreError, StoreOptions};

/// What one sweep did, or would do.
#[derive(Debug, Default, Serialize)]
struct Report {
    directory: String,
    dry_run: bool,
    removed_jobs: Vec<String>,
    removed_sessions: Vec<String>,
    failed: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct Failure {
    name: String,
    error: String,
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
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sweep(settings: &BridgeSettings, dry_run: bool) -> Result<Report, String> {
    let directory = settings.jobs_dir.display().to_string();
    let mut report = Report { directory, dry_run, ..Report::default() };
    if !settings.jobs_dir.exists() && !settings.jobs_dir.is_symlink() {
        return Ok(report);
    }
    let options = StoreOptions { expiry: settings.file_expiry, ..StoreOptions::default() };
    let store = Store::visit(&settings.jobs_dir, options).map_err(|error| explain(&error))?;
    let now = SystemTime::now();
    if dry_run {
        let expired = store.expired(now);
        let expired =
            expired.map_err(|error| format!("{} cannot be read: {error}", report.directory))?;
        (report.removed_jobs, report.removed_sessions) = (expired.jobs, expired.sessions);
        return Ok(report);
    }
    let swept = store.sweep_telling(now, &mut |removed| match removed {
        Removed::Job(job) => report.removed_jobs.push(job.to_owned()),
        Removed::Session(session) => report.removed_sessions.push(session.to_owned()),
    });
    report.failed = swept.failed.into_iter().map(|(name, error)| Failure { name, error }).collect();
    Ok(report)
}

fn explain(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn describe(report: &Report) {
    let removed = if report.dry_run { "would remove" } else { "removed" };
    for job in &report.removed_jobs {
        say(&format!("{removed} job {job}"));
    }
    for session in &report.removed_sessions {
        say(&format!("{removed} session {session}"));
    }
    for Failure { name, error } in &report.failed {
        tell(&format!("error: {name} could not be removed and is tried again next time: {error}"));
    }
    let (jobs, sessions) = (report.removed_jobs.len(), report.removed_sessions.len());
    say(&format!("{removed} {jobs} jobs and {sessions} sessions in {}", report.directory));
}
