//! `pontoon logs`: what the log tells of one request, out of the files of all bridges that write into one directory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use uuid::Uuid;

use super::config_args::ConfigArgs;
use super::terminal::{fail, has_colour, say, told};
use crate::config::{BridgeSettings, Environment};
use crate::observe::log::{FoundLine, SoughtLines, find_lines};

/// What stands below its help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon logs 0af7651916cd43dd8448eb211c80319c         what the log tells of this trace
  pontoon logs 3f6c0b1e-8f0a-4c59-9a34-0d2f6f2f7a11     of the request that this job is of
  pontoon logs 0af7651916cd43dd8448eb211c80319c --json | jq -r .message

The id of a trace is in each line of the log, in nginx's log as shipped, in the `traceparent` of each \
answer, and in `pontoon jobs --json`. The directory is MCPO_LOG_DIR. Where that is not set, the log is \
what `serve` prints: docker logs, journalctl or kubectl logs have it.

Exit codes: 0 there are such lines, 1 there is none, or the directory cannot be read, 2 typed wrongly.";

/// Whose lines are wanted.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The id of a trace, a whole `traceparent`, or the id of a job.
    #[arg(value_parser = sought)]
    id: SoughtLines,
    /// Where the log files are [default: MCPO_LOG_DIR].
    #[arg(long, value_name = "DIRECTORY")]
    log_dir: Option<PathBuf>,
    #[command(flatten)]
    source: ConfigArgs,
    /// Print the lines as they stand in the files, each one JSON object.
    #[arg(long)]
    json: bool,
}

fn sought(text: &str) -> Result<SoughtLines, &'static str> {
    let is_hex = |text: &str| text.bytes().all(|it| it.is_ascii_hexdigit());
    let trace = match text.split('-').collect::<Vec<_>>()[..] {
        [version, trace, span, _] if version.len() == 2 && span.len() == 16 => trace,
        _ => text,
    };
    match Uuid::try_parse(text) {
        Ok(job) if text.contains('-') => Ok(SoughtLines::Job(job.to_string())),
        _ if trace.len() == 32 && is_hex(trace) => {
            Ok(SoughtLines::Trace(trace.to_ascii_lowercase()))
        }
        _ => Err(
            "it is no id of a trace (32 digits) and none of a job; `pontoon jobs --json` has both",
        ),
    }
}

/// Prints the lines.
pub fn run(arguments: &LogsArgs) -> ExitCode {
    let folder = match folder(arguments) {
        Ok(folder) => folder,
        Err(code) => return code,
    };
    match find_lines(&folder, &arguments.id) {
        Err(error) => {
            fail(&format!("the log files in {} cannot be read: {error}", folder.display()))
        }
        Ok(lines) if lines.is_empty() => fail(&nothing(&folder)),
        Ok(lines) => {
            print(&lines, arguments.json);
            ExitCode::SUCCESS
        }
    }
}

/// Where the files are.
fn folder(arguments: &LogsArgs) -> Result<PathBuf, ExitCode> {
    if let Some(folder) = &arguments.log_dir {
        return Ok(folder.clone());
    }
    let environment = Environment::of_process();
    let options = arguments.source.options();
    let loaded = BridgeSettings::load_for_collection(&options, &environment);
    let settings = told(loaded, options.is_quiet)?;
    let (SoughtLines::Trace(id) | SoughtLines::Job(id)) = &arguments.id;
    settings.log_dir.ok_or_else(|| {
        fail(&format!(
            "MCPO_LOG_DIR is not set, so there are no log files here: set it as the bridge has it, or say --log-dir. If the \
             bridge has none either, its log is what it prints:\n  \
             docker compose logs --no-log-prefix mcpo-bridge | grep {id}\n  docker logs CONTAINER | grep {id}\n  \
             journalctl -u pontoon -o cat -g {id}\n  kubectl logs --prefix -l app.kubernetes.io/name=pontoon | grep {id}"
        ))
    })
}

fn nothing(folder: &Path) -> String {
    format!(
        "no line in {} is of this request: it may be of a bridge that logs elsewhere, or older than what is kept",
        folder.display()
    )
}

fn print(lines: &[FoundLine], as_json: bool) {
    let has_colour = has_colour(&io::stdout());
    for line in lines {
        match as_json {
            true => say(&line.raw),
            false => say(&line.for_people(has_colour)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_a_trace_or_of_a_job() {
        let check = |text: &str, expected: Option<SoughtLines>| {
            assert_eq!(sought(text).ok(), expected, "{text}");
        };
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let of_trace = || Some(SoughtLines::Trace(trace.to_owned()));
        check(trace, of_trace());
        check(&trace.to_uppercase(), of_trace());
        check(&format!("00-{trace}-00f067aa0ba902b7-01"), of_trace());
        let job = "3f6c0b1e-8f0a-4c59-9a34-0d2f6f2f7a11";
        check(job, Some(SoughtLines::Job(job.to_owned())));
        for wrong in ["", "x", "0af7", "0af7651916cd43dd8448eb211c80319g", "3f6c0b1e-8f0a"] {
            check(wrong, None);
        }
    }
}
