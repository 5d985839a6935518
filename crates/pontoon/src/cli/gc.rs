//! `pontoon gc`: one sweep of the jobs directory, for cron and for people.
//!
//! It may run beside any number of bridges: what they use, they keep fresh. When all is well it says nothing, for cron sends
//! what it hears as mail.

use std::process::ExitCode;
use std::time::SystemTime;

use serde::Serialize;

use super::terminal::{fail, say, tell, told};
use crate::config::{BridgeSettings, Environment, Options};
use crate::errors::chain;
use crate::jobs::{NotRemoved, Store, StoreOptions, Swept};

/// What stands below its help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon gc                                              remove what has expired, and say nothing
  pontoon gc --verbose                                    name what is removed
  pontoon gc --dry-run                                    name what would be removed
  MCPO_JOBS_DIR=/var/lib/pontoon/jobs pontoon gc          a line for cron, as the user of the bridge

The directory is MCPO_JOBS_DIR, the time MCPO_FILE_EXPIRY. Mistakes elsewhere in the configuration do \
not matter; --verbose and --dry-run tell them. `--json` prints the result of any run.

Exit codes: 0 all that expired is gone, also where nothing had, 1 something could not be removed, or it is \
unclear where or when: the directory that MCPO_JOBS_DIR names is missing, for one.";

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcReport {
    /// Nothing but failures.
    Failures,
    /// What was removed as well.
    Verbose,
    /// All of it as JSON.
    Json,
}

/// What one sweep did, or would do.
#[derive(Debug, Serialize)]
struct Report {
    directory: String,
    dry_run: bool,
    #[serde(flatten)]
    swept: Swept,
}

/// Removes what has expired, or only says what has.
pub fn run(options: &Options, dry_run: bool, report: GcReport) -> ExitCode {
    let environment = Environment::of_process();
    let tells = dry_run || report == GcReport::Verbose;
    let is_quiet = options.is_quiet || !tells;
    let settings = match told(BridgeSettings::load_for_collection(options, &environment), is_quiet)
    {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let is_named = environment.get("MCPO_JOBS_DIR").is_some_and(|named| !named.is_empty());
    let done = match sweep(&settings, dry_run, is_named) {
        Ok(done) => done,
        Err(why) => return fail(&why),
    };
    if report == GcReport::Json {
        say(&serde_json::to_string_pretty(&done).unwrap_or_default());
    } else {
        describe(&done, tells && !options.is_quiet);
    }
    if done.swept.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sweep(settings: &BridgeSettings, dry_run: bool, is_named: bool) -> Result<Report, String> {
    let directory = settings.jobs_dir.display().to_string();
    if !settings.jobs_dir.exists() && !settings.jobs_dir.is_symlink() {
        // One that was named is misspelt, or not mounted: then nothing is removed where it should be.
        return match is_named {
            true => Err(format!(
                "there is no jobs directory {directory}, which MCPO_JOBS_DIR names: nothing was removed; correct \
                 the name, or mount it. A bridge makes it when it starts"
            )),
            false => Ok(Report { directory, dry_run, swept: Swept::default() }),
        };
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

fn describe(Report { directory, dry_run, swept }: &Report, tells: bool) {
    for NotRemoved { name, error } in &swept.failed {
        tell(&format!(
            "error: {directory}/{name} could not be removed and is tried again next time: {error}"
        ));
    }
    if !tells {
        return;
    }
    let removed = if *dry_run { "would remove" } else { "removed" };
    for job in &swept.removed_jobs {
        say(&format!("{removed} job {job}"));
    }
    for session in &swept.removed_sessions {
        say(&format!("{removed} session {session}"));
    }
    let (jobs, sessions) = (swept.removed_jobs.len(), swept.removed_sessions.len());
    say(&format!("{removed} {jobs} jobs and {sessions} sessions in {directory}"));
}
