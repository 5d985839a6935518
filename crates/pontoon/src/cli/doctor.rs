//! `pontoon doctor`: the words that were typed become servers to examine, and reports become text and an exit code.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pontoon_schema::{Profile, Severity};
use pontoon_supervise::{Spawner, give_memory_back, harden_worker};
use serde_json::Value;

use super::connect::{TYPED_WRONGLY, profile, wrong};
use super::elsewhere::{ShownArgs, is_url, server_at};
use super::terminal::{
    Interruption, fail, has_colour, load, no_server, say, tell, width, with_spawner,
};
use super::waiting::WaitingLine;
use crate::back::child::process::Starter;
use crate::config::{Config, ConfigSource, Environment, Options};
use crate::doctor::examination::DumpedPage;
use crate::doctor::render::json::json;
use crate::doctor::render::markdown::markdown;
use crate::doctor::render::people::{Sheet, people};
use crate::doctor::render::sarif::sarif;
use crate::doctor::{ExamOptions, ExamRoom, ExamStep, Examination, Patient, examine};
use crate::errors::chain;

/// What stands below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  pontoon doctor -- uvx mcp-server-time
  pontoon doctor https://host/mcp --token-env MY_TOKEN
  pontoon doctor ws://localhost:7400
  pontoon doctor --config mcp-servers.json
  pontoon doctor excel slides
  pontoon doctor --json -- node server.js | jq .servers[0].findings
  pontoon doctor --fix-report -- node server.js > for-the-author.md
  pontoon doctor --profile claude-code --strict -- uvx my-server
  pontoon doctor --call 'add={\"a\": 1, \"b\": 2}' -- uvx my-server

Exit codes: 0 healthy, or nothing worse than a warning; 1 faults that cost a client tools or answers (with \
--strict: warnings, too); 2 typed wrongly; 3 a server could not be examined; 130 interrupted.";

/// Exit code of a server that could not be examined.
const UNEXAMINED: u8 = 3;

/// What is examined, and how the report is written.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A URL (http, https, ws, wss, ws+unix, tcp, unix), or servers of the configuration by their names; all of them if
    /// none is named.
    #[arg(value_name = "URL|SERVER")]
    servers: Vec<String>,
    /// A command line that starts a server on standard input and output.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "servers")]
    command: Vec<String>,
    /// The configuration file [default: MCPO_CONFIG_FILE, else ./mcp-servers.json, else
    /// /app/config/mcp-servers.json, else the demo server].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder to start the command in [default: an empty one, as `serve` has it].
    #[arg(long, value_name = "DIRECTORY", requires = "command")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    shown: ShownArgs,
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
    /// Print the reports as JSON.
    #[arg(long, conflicts_with_all = ["sarif", "fix_report"])]
    json: bool,
    /// Print the reports as SARIF 2.1.0, for code scanning.
    #[arg(long, conflicts_with = "fix_report")]
    sarif: bool,
    /// Print a text in Markdown to give to the server's author.
    #[arg(long)]
    fix_report: bool,
    /// Write the lists to this file, as the server gave them.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    /// Tell nothing but errors and the report: nothing of what is waited for.
    #[arg(long = "quiet", short = 'q')]
    is_quiet: bool,
    /// Warnings, too, give exit code 1.
    #[arg(long)]
    strict: bool,
}

impl DoctorArgs {
    fn is_for_people(&self) -> bool {
        !self.json && !self.sarif && !self.fix_report
    }
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
    // Before the examination, which may take its time.
    if let Some(file) = &arguments.dump
        && let Err(error) = std::fs::write(file, "")
    {
        return wrong(&format!("{} cannot be written: {error}", file.display()));
    }
    let (config, patients) = match patients(arguments, &environment) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let starting = match Spawner::start() {
        Ok(starting) => starting,
        Err(error) => return fail(&format!("cannot start the helper process: {error}")),
    };
    let sheet = Sheet { width: width(), has_colour: has_colour(&io::stdout()) };
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
    if let [url] = &arguments.servers[..]
        && is_url(url)
    {
        let patient = at_url(url, arguments, environment).map_err(|why| wrong(&why))?;
        let server = crate::config::Server::clone(&patient.server);
        return Ok((Config::of_app(server, environment), vec![patient]));
    }
    if arguments.servers.iter().any(|word| is_url(word)) {
        return Err(wrong("one URL is examined at a time"));
    }
    if !arguments.shown.is_empty() {
        return Err(wrong(
            "tokens, headers and certificates are for a URL; those of a configuration stand in it",
        ));
    }
    let source = Options {
        config: arguments.config.clone(),
        is_silent: true,
        is_quiet: arguments.is_quiet,
        only: arguments.servers.clone(),
        ..Options::default()
    };
    let config = load(&source).map_err(|_| ExitCode::from(TYPED_WRONGLY))?;
    let named = |name: &String| {
        config.server(name).map(Patient::of_config).ok_or_else(|| {
            let why = no_server(name, &config);
            wrong(&format!(
                "{why}\nhint: a command line stands behind `--`: pontoon doctor -- {name}"
            ))
        })
    };
    let patients = match arguments.servers.is_empty() {
        true => config.servers.iter().map(Patient::of_config).collect(),
        false => arguments.servers.iter().map(named).collect::<Result<_, _>>()?,
    };
    Ok((config, patients))
}

/// What answers at this address.
fn at_url(url: &str, arguments: &DoctorArgs, environment: &Environment) -> Result<Patient, String> {
    let (server, is_http) = server_at(url, &arguments.shown, environment)?;
    Ok(Patient::of_url(url, server, is_http))
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
        let line = WaitingLine::begin(format!("starting: {name}"), arguments.is_quiet);
        let shown = |step| line.is_for(shown_step(step, &name), None);
        let report = tokio::select! {
            report = examine(&room, &options, &shown) => report,
            (code, what) = interruption.heard() => {
                drop(line);
                tell(&format!("error: {what}; what was started is ended"));
                room.abandon().await;
                return ExitCode::from(code);
            }
        };
        line.is_for(format!("waiting for its end: {name}"), None);
        let ended = tokio::select! {
            () = room.close() => None,
            (code, what) = interruption.heard() => Some((code, what)),
        };
        drop(line);
        if let Some((code, what)) = ended {
            tell(&format!("error: {what}; what was started is ended"));
            return ExitCode::from(code);
        }
        if arguments.is_for_people() {
            if !reports.is_empty() {
                say("");
            }
            say(people(&report, sheet).trim_end());
        }
        reports.push(report);
    }
    let code = code_of(&reports, arguments.strict);
    print(arguments, config, &reports, code);
    if let Some(file) = &arguments.dump
        && let Err(error) = std::fs::write(file, dump(&reports))
    {
        return fail(&format!("{} cannot be written: {error}", file.display()));
    }
    ExitCode::from(code)
}

/// Prints what is printed when all are examined.
fn print(arguments: &DoctorArgs, config: &Config, reports: &[Examination], code: u8) {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    if arguments.json {
        say(&pretty(&json(reports, code)));
    } else if arguments.sarif {
        let file = match &config.source {
            ConfigSource::File(path) => Some(path.display().to_string()),
            ConfigSource::Demo { .. } | ConfigSource::CommandLine => {
                // The file of the command that lies here, such as `dist/index.js`.
                let is_here =
                    |word: &&String| Path::new(word).is_relative() && Path::new(word).is_file();
                arguments.command.iter().find(is_here).cloned()
            }
        };
        say(&pretty(&sarif(reports, file.as_deref())));
    } else if arguments.fix_report {
        let texts: Vec<_> = reports.iter().map(markdown).collect();
        say(texts.join("\n").trim_end());
    } else if reports.len() > 1 {
        say("");
        reports.iter().for_each(|report| say(&format!("{}: {}", report.name, report.verdict())));
    }
}

/// The lists of all servers: a line for each page, with its server, its method and the result.
fn dump(reports: &[Examination]) -> String {
    let line = |report: &Examination, page: &DumpedPage| {
        let head = serde_json::json!({"server": report.name, "method": page.method}).to_string();
        format!("{},\"result\":{}}}\n", head.trim_end_matches('}'), page.result.get())
    };
    reports.iter().flat_map(|report| report.dump.iter().map(|page| line(report, page))).collect()
}

/// What is done now, and to which server: the step comes first, for there may be room for no more.
fn shown_step(step: ExamStep, name: &str) -> String {
    let (number, count) = (step.done_before() + 1, ExamStep::ALL.len());
    format!("{number}/{count} {}: {name}", step.name())
}

/// The exit code: what could not be examined weighs most.
fn code_of(reports: &[Examination], is_strict: bool) -> u8 {
    let worst = |report: &Examination| match report.unexamined {
        Some(_) => UNEXAMINED,
        None if report.count(Severity::Error) > 0 => 1,
        None if is_strict && report.count(Severity::Warning) > 0 => 1,
        None => 0,
    };
    reports.iter().map(worst).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_says_how_far_it_is() {
        let name = "npx server";
        assert_eq!(shown_step(ExamStep::ALL[0], name), "1/11 starting: npx server");
        assert_eq!(shown_step(ExamStep::ALL[10], name), "11/11 versions and eras: npx server");
    }
}
