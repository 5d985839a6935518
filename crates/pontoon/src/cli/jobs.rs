//! `pontoon jobs`: who called what, when, and how it ended, from the journal of the jobs directory.
//!
//! It looks beside any number of bridges, and changes nothing.

mod listing;

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use self::listing::{RecordedJob, listed, shown};
use super::config_args::ConfigArgs;
use super::terminal::{fail, say, tell, told};
use crate::config::{BridgeSettings, Environment};
use crate::errors::chain;
use crate::jobs::{CallStatus, JournalLine, Store, StoreOptions};

/// What stands below its help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon jobs                                    the last calls of tools
  pontoon jobs --server slides --user ada         of one server and one person
  pontoon jobs --status failed --since 2h         what failed in the last two hours
  pontoon jobs --since 1day --until 20h           from a day ago until twenty hours ago
  pontoon jobs --slower-than 30s --address 10.0.0.7
  pontoon jobs --trace 0af7651916cd43dd8448eb211c80319c
  pontoon jobs --json | jq -r .tool | sort | uniq -c
  pontoon jobs show 3f6c0b1e-8f0a-4c59-9a34-0d2f6f2f7a11

The directory is MCPO_JOBS_DIR, and what is older than MCPO_FILE_EXPIRY is gone. With --json each \
call is one line. Arguments and results are told by `show --json` alone.

Exit codes: 0 done (also if there was no such call), 1 the directory cannot be read, or there is no \
such job, 2 typed wrongly.";

/// What of the calls is wanted.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JobsArgs {
    #[command(subcommand)]
    what: Option<JobsCommand>,
    #[command(flatten)]
    wanted: WantedCalls,
    /// Only the last of these calls; 0 for all.
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    last: usize,
    #[command(flatten)]
    source: ConfigArgs,
    /// Print each call as a line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Show one job: its call, and the files that it made.
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The id of the job, as `pontoon jobs` and the head `X-MCPO-Job-Id` tell it.
    #[arg(value_parser = job_id)]
    id: Uuid,
    #[command(flatten)]
    source: ConfigArgs,
    /// Print its whole record as JSON, arguments and result included.
    #[arg(long)]
    json: bool,
}

/// Which calls are wanted; of what is not said, all.
#[derive(Debug, Default, Args)]
struct WantedCalls {
    /// Only calls of this server.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only calls of this tool.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only calls of this user, as the front end or the token says it.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only calls that showed the API key of this name.
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Only calls that ended so.
    #[arg(long)]
    status: Option<Ended>,
    /// Only calls with this trace id.
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Only calls of this last time, such as 30m, 2h or 1day.
    #[arg(long, value_name = "TIME", value_parser = super::connect::past_time)]
    since: Option<Duration>,
    /// Only calls that began this long ago or earlier.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    until: Option<Duration>,
    /// Only calls that came from this address.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Only calls that took longer than this, such as 500ms or 30s.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    slower_than: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ended {
    /// The server gave a result.
    Completed,
    /// The server answered with an error, or not at all or not in time, or its result says that the tool failed.
    Failed,
    /// Of those, the ones that took too long.
    #[value(name = "timed_out", alias = "timed-out")]
    TimedOut,
    /// Of those, the ones that an application may have carried out: the connection to it was lost.
    Unknown,
    /// The client no longer wanted the answer, or went away.
    Cancelled,
    /// It was not made: a limit was reached, its arguments do not fit, or there is no room.
    Refused,
}

impl Ended {
    fn takes(self, call: &JournalLine<'_>) -> bool {
        let has_worked = call.status == CallStatus::Completed && !call.is_error;
        match self {
            Self::Completed => has_worked,
            Self::Failed => {
                !has_worked && !matches!(call.status, CallStatus::Cancelled | CallStatus::Refused)
            }
            Self::TimedOut => call.status == CallStatus::TimedOut,
            Self::Unknown => call.status == CallStatus::Unknown,
            Self::Cancelled => call.status == CallStatus::Cancelled,
            Self::Refused => call.status == CallStatus::Refused,
        }
    }
}

impl WantedCalls {
    fn takes(&self, call: &JournalLine<'_>, now: SystemTime) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        // A clock that was set back makes no call older than it is.
        let age = humantime::parse_rfc3339(&call.began_at)
            .map(|began| now.duration_since(began).unwrap_or_default());
        let is_late = |since: Duration| age.as_ref().is_ok_and(|age| *age <= since);
        let is_early = |until: Duration| age.as_ref().is_ok_and(|age| *age >= until);
        let took = Duration::from_millis(call.took_ms);
        is(&self.server, Some(&call.server_name))
            && is(&self.tool, Some(&call.tool))
            && is(&self.user, call.user.as_deref())
            && is(&self.key, call.key.as_deref())
            && is(&self.trace, call.trace_id.as_deref())
            && self.status.is_none_or(|status| status.takes(call))
            && self
                .address
                .is_none_or(|address| address.to_canonical() == call.address.to_canonical())
            && self.slower_than.is_none_or(|time| took > time)
            && self.since.is_none_or(is_late)
            && self.until.is_none_or(is_early)
    }
}

fn job_id(text: &str) -> Result<Uuid, &'static str> {
    text.parse().map_err(|_| "it is no id of a job; `pontoon jobs` lists them")
}

/// Lists calls, or shows one job.
pub fn run(arguments: &JobsArgs) -> ExitCode {
    let done = match &arguments.what {
        Some(JobsCommand::Show(show)) => open(&show.source).map(|store| show_job(&store, show)),
        None => open(&arguments.source).map(|store| list(&store, arguments)),
    };
    done.unwrap_or_else(|code| code)
}

/// The jobs directory, to look at.
fn open(source: &ConfigArgs) -> Result<Store, ExitCode> {
    let environment = Environment::of_process();
    let settings = told(
        BridgeSettings::load_for_collection(&source.options(), &environment),
        source.is_quiet,
    )?;
    let options = StoreOptions { expiry: settings.file_expiry, ..StoreOptions::default() };
    if !settings.jobs_dir.exists() {
        let place = settings.jobs_dir.display();
        return Err(fail(&format!(
            "there is no jobs directory {place}: a bridge makes it when it starts, and MCPO_JOBS_DIR says where"
        )));
    }
    Store::visit(&settings.jobs_dir, options).map_err(|error| fail(&chain(&error)))
}

fn list(store: &Store, arguments: &JobsArgs) -> ExitCode {
    let mut calls = match store.calls() {
        Ok(calls) => calls,
        Err(error) => return fail(&format!("the journal cannot be read: {error}")),
    };
    let now = SystemTime::now();
    calls.retain(|call| arguments.wanted.takes(call, now));
    let left_out = match arguments.last {
        0 => 0,
        last => calls.len().saturating_sub(last),
    };
    let calls = &calls[left_out..];
    if arguments.json {
        calls.iter().for_each(|call| say(&serde_json::to_string(call).unwrap_or_default()));
        return ExitCode::SUCCESS;
    }
    match calls.is_empty() {
        true => tell("no such call is in the journal"),
        false => say(listed(calls).trim_end()),
    }
    if left_out > 0 {
        tell(&format!("{left_out} earlier ones are not shown: --last 0 shows all"));
    }
    ExitCode::SUCCESS
}

fn show_job(store: &Store, ShowArgs { id, json, .. }: &ShowArgs) -> ExitCode {
    let record = match store.record(*id) {
        Ok(Some(record)) => record,
        Ok(None) => {
            return fail(&format!(
                "there is no record of a job {id}: it is gone, still under way, or was none"
            ));
        }
        Err(error) => return fail(&format!("the record of {id} cannot be read: {error}")),
    };
    if *json {
        say(String::from_utf8_lossy(&record).trim_end());
        return ExitCode::SUCCESS;
    }
    let job: RecordedJob = match serde_json::from_slice(&record) {
        Ok(job) => job,
        Err(error) => return fail(&format!("the record of {id} is not whole: {error}")),
    };
    // What of the call is not the job's is in the journal, for as long as that is kept.
    let id = id.to_string();
    let calls = store.calls().unwrap_or_default();
    let call = calls.iter().find(|call| call.job_id.as_deref() == Some(&id));
    say(shown(&id, &job, call).trim_end());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: JobsArgs,
    }

    /// A call that worked, with all that may be known of one.
    pub(super) fn call() -> JournalLine<'static> {
        JournalLine {
            began_at: "2026-11-19T20:31:05.123Z".into(),
            took_ms: 12,
            server_name: "slides".into(),
            tool: "make_report".into(),
            user: Some("ada".into()),
            key: Some("front".into()),
            address: Ipv4Addr::LOCALHOST.into(),
            status: CallStatus::Completed,
            is_error: false,
            bytes_in: 17,
            bytes_out: 90,
            files: 2,
            error: None,
            job_id: Some("3f6c".into()),
            trace_id: Some("0af7".into()),
        }
    }

    /// Whether these words want a call, a minute after that one began.
    #[track_caller]
    fn check(words: &str, asked: &JournalLine<'_>, is_wanted: bool) {
        let words = std::iter::once("jobs").chain(words.split(' ').filter(|it| !it.is_empty()));
        let typed = Typed::try_parse_from(words).unwrap().arguments;
        let now = humantime::parse_rfc3339(&call().began_at).unwrap();
        let now = now + Duration::from_secs(60);
        assert_eq!(typed.wanted.takes(asked, now), is_wanted);
    }

    #[test]
    fn each_word_chooses_and_all_have_to_fit() {
        for (words, is_wanted) in [
            ("", true),
            ("--server slides --tool make_report --user ada --key front --trace 0af7", true),
            ("--server slides --tool other", false),
            ("--user ben", false),
            ("--key other", false),
            ("--trace 0af", false),
            ("--status completed", true),
            ("--status failed", false),
            ("--since 60s", true),
            ("--since 59s", false),
            ("--since 1h", true),
            ("--until 60s", true),
            ("--until 61s", false),
            ("--since 2m --until 30s", true),
            ("--address 127.0.0.1", true),
            ("--address ::ffff:127.0.0.1", true),
            ("--address 127.0.0.2", false),
            ("--slower-than 11ms", true),
            ("--slower-than 12ms", false),
        ] {
            check(words, &call(), is_wanted);
        }
        // A call without a user is no user's.
        check("--user ada", &JournalLine { user: None, ..call() }, false);
    }

    #[test]
    fn a_tool_that_says_that_it_failed_has_failed() {
        let said = JournalLine { is_error: true, ..call() };
        let gone = JournalLine { status: CallStatus::Failed, ..call() };
        for call in [said, gone] {
            check("--status failed", &call, true);
            check("--status completed", &call, false);
        }
    }

    #[test]
    fn a_call_that_was_not_made_or_not_wanted_has_not_failed_and_a_late_one_has() {
        for (status, words, has_failed) in [
            (CallStatus::Refused, "refused", false),
            (CallStatus::Cancelled, "cancelled", false),
            (CallStatus::TimedOut, "timed_out", true),
            (CallStatus::Unknown, "unknown", true),
        ] {
            let call = JournalLine { status, ..call() };
            assert_eq!(status.word(), words);
            check(&format!("--status {words}"), &call, true);
            check("--status failed", &call, has_failed);
            check("--status completed", &call, false);
        }
    }

    #[test]
    fn a_clock_that_was_set_back_hides_no_call() {
        let later = JournalLine { began_at: "2030-01-01T00:00:00.000Z".into(), ..call() };
        check("--since 1s", &later, true);
    }
}
