//! `pontoon doctor`: the words that were typed become servers to examine, and reports become text and an exit code.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use pontoon_schema::{Profile, Severity};
use pontoon_supervise::{Spawner, give_memory_back, harden_worker};
use serde_json::Value;

use super::ConfigArgs;
use super::connect::wrong;
use super::terminal::{Interruption, fail, load, say, width, with_spawner};
use crate::back::child::process::Starter;
use crate::config::{Config, Environment};
use crate::doctor::render::people::{Sheet, people};
use crate::doctor::{ExamOptions, ExamRoom, Examination, Patient, examine};
use crate::errors::chain;

/// What stands below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  pontoon doctor -- uvx mcp-server-time
  pontoon doctor --config mcp-servers.json
  pontoon doctor excel slides

Exit codes: 0 healthy, or nothing worse than a warning; 1 faults that cost a client tools or answers (with
--strict: warnings, too); 2 typed wrongly; 3 a server could not be examined; 130 interrupted.";

/// Exit code of a server that could not be examined.
const UNEXAMINED: u8 = 3;

/// What is examined, and how the report is written.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Servers of the configuration, by their names; all of them if none is named.
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// A command line that starts a server on standard input and output.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "servers")]
    command: Vec<String>,
    #[command(flatten)]
    source: ConfigArgs,
    /// The folder to start the command in [default: an empty one, as `serve` has it].
    #[arg(long, value_name = "DIRECTORY", requires = "command")]
    cwd: Option<PathBuf>,
    /// How long a start, or a call of a tool, may take.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = super::connect::time)]
    timeout: Duration,
    /// Judge for this client alone, such as claude-code, open-webui, openai or gemini.
    #[arg(long, value_name = "NAME", value_parser = profile)]
    profile: Option<&'static Profile>,
    /// Call this tool, too, with these arguments; may be given several times. Without it a tool is called only if it is
    /// marked as read-only and needs no arguments.
    #[arg(long, value_name = "TOOL[=JSON]", value_parser = call)]
    call: Vec<(String, Value)>,
    /// The length of a long message that the server has to survive, in bytes; 0 for none.
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    probe_size: usize,
    /// Warnings, too, give exit code 1.
    #[arg(long)]
    strict: bool,
}

/// A client, as it is typed.
fn profile(word: &str) -> Result<&'static Profile, String> {
    Profile::named(word).ok_or_else(|| {
        let names: Vec<_> = Profile::all().iter().map(|it| it.name.as_str()).collect();
        format!("there is no profile of that name; there are: {}", names.join(", "))
    })
}

/// A call, as it is typed.
fn call(word: &str) -> Result<(String, Value), String> {
    let (tool, arguments) = word.split_once('=').unwrap_or((word, "{}"));
    match serde_json::from_str(arguments) {
        Ok(arguments @ Value::Object(_)) => Ok((tool.to_owned(), arguments)),
        _ => Err("write it as TOOL or TOOL={\"argument\": \"value\"}".to_owned()),
    }
}

/// Examines servers, and tells what was found.
pub fn run(arguments: &DoctorArgs) -> ExitCode {
    harden_worker();
    give_memory_back();
    let environment = Environment::of_process();
    let (config, patients) = match patients(arguments, &environment) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let starting = match Spawner::start() {
        Ok(starting) => starting,
        Err(error) => return fail(&format!("cannot start the helper process: {error}")),
    };
    let has_colour = io::stdout().is_terminal()
        && environment.get("NO_COLOR").is_none_or(|value| value.is_empty());
    let sheet = Sheet { width: width(), has_colour };
    with_spawner(starting, async |spawner| {
        let mut interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        examine_all(arguments, &config, patients, &spawner, &mut interruption, sheet).await
    })
}

/// Who is to be examined.
fn patients(
    arguments: &DoctorArgs,
    environment: &Environment,
) -> Result<(Config, Vec<Patient>), ExitCode> {
    if !arguments.command.is_empty() {
        let here = std::env::current_dir();
        let here = here.map_err(|error| fail(&format!("there is no current folder: {error}")))?;
        let cwd = arguments.cwd.as_ref().map(|cwd| here.join(cwd));
        let patient = Patient::of_command(&arguments.command, cwd, environment, &here);
        let patient = patient.map_err(|why| wrong(&why))?;
        let server = crate::config::Server::clone(&patient.server);
        return Ok((Config::of_app(server, environment), vec![patient]));
    }
    let config = load(&arguments.source.options())?;
    let named = |name: &String| {
        config.server(name).map(Patient::of_config).ok_or_else(|| {
            let names: Vec<_> = config.servers.iter().map(|it| it.name.as_str()).collect();
            wrong(&format!(
                "there is no server {name:?} in the configuration; there are: {}. A command line stands behind `--`",
                names.join(", ")
            ))
        })
    };
    let patients = match arguments.servers.is_empty() {
        true => config.servers.iter().map(Patient::of_config).collect(),
        false => arguments.servers.iter().map(named).collect::<Result<_, _>>()?,
    };
    Ok((config, patients))
}

async fn examine_all(
    arguments: &DoctorArgs,
    config: &Config,
    patients: Vec<Patient>,
    spawner: &Spawner,
    interruption: &mut Interruption,
    sheet: Sheet,
) -> ExitCode {
    let options = ExamOptions {
        patience: arguments.timeout,
        probe_size: arguments.probe_size,
        calls: arguments.call.clone(),
        profile: arguments.profile,
    };
    let mut reports = Vec::new();
    for patient in patients {
        let name = patient.shown.clone();
        let starter = Starter::Spawner(spawner.clone());
        let room = match ExamRoom::new(config, patient, starter) {
            Ok(room) => room,
            Err(error) => return fail(&chain(&error)),
        };
        let bar = spinner();
        let shown = |step: &str| bar.set_message(format!("{name}: {step}"));
        let report = tokio::select! {
            report = examine(&room, &options, &shown) => report,
            code = interruption.wait() => {
                bar.finish_and_clear();
                room.abandon().await;
                return code;
            }
        };
        bar.finish_and_clear();
        room.close().await;
        if !reports.is_empty() {
            say("");
        }
        say(people(&report, sheet).trim_end());
        reports.push(report);
    }
    if reports.len() > 1 {
        say("");
        reports.iter().for_each(|report| say(&format!("{}: {}", report.name, report.verdict())));
    }
    code_of(&reports, arguments.strict)
}

/// On a terminal; nothing is shown elsewhere.
fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The exit code: what could not be examined weighs most.
fn code_of(reports: &[Examination], is_strict: bool) -> ExitCode {
    let worst = |report: &Examination| match report.unexamined {
        Some(_) => UNEXAMINED,
        None if report.count(Severity::Error) > 0 => 1,
        None if is_strict && report.count(Severity::Warning) > 0 => 1,
        None => 0,
    };
    ExitCode::from(reports.iter().map(worst).max().unwrap_or(0))
}
