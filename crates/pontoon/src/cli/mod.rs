//! The command line: words in, exit code out.

mod announced;
mod banner;
pub mod call;
mod call_url;
pub mod check;
mod check_start;
pub mod client_config;
pub mod completions;
mod config_args;
pub mod connect;
pub mod demo;
pub mod doctor;
mod dotenv;
mod elsewhere;
mod ending;
mod entrance_token;
pub mod gc;
pub mod health;
mod hints;
pub mod init;
pub mod jobs;
pub mod logs;
pub mod manual;
pub mod mcpo;
mod near_misses;
mod new_file;
mod question;
pub mod reload;
pub mod serve;
mod shell_client;
mod standard_streams;
pub mod status;
pub mod terminal;
pub mod tools;
mod typed_words;
mod user_folders;
mod waiting;
pub mod ws;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use self::call_url::UrlCall;
use self::config_args::ConfigArgs;
use self::connect::wrong;
use self::elsewhere::ShownArgs;
use self::gc::GcReport;
use crate::config::Options;

/// Joins MCP clients and tool servers that cannot reach each other.
#[derive(Debug, Parser)]
#[command(
    name = "pontoon",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  pontoon serve                              serve the built-in demo server on 127.0.0.1:8080
  pontoon serve -- uvx mcp-server-time       serve one server, at /mcp/mcp-server-time
  pontoon serve --config mcp-servers.json    serve your own servers
  pontoon init time excel                    write a configuration with these servers
  pontoon check --start                      find every mistake in a configuration, and start each server once
  pontoon tools demo                         list the tools of a server
  pontoon call demo greet name=Ada           call a tool
  pontoon call --url http://127.0.0.1:8080/mcp/demo greet name=Ada
                                             the same, of a bridge that runs
  pontoon doctor -- uvx mcp-server-time      find what is wrong with a server, and how to mend it
  pontoon connect ws://localhost:7400        join a client to an application that runs by itself
  pontoon jobs --status failed               see which calls failed, whose they were, and why
  pontoon logs 0af7651916cd43dd8448eb211c80319c    see what the log tells of one request
  pontoon status                             see the bridges that run, and how they are

Colours and what is waited for are shown at a terminal alone. NO_COLOR=1 turns colours off, CLICOLOR_FORCE=1 on; -q has
most commands tell nothing but errors and results."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP over HTTP: clients at /mcp/NAME, one process per request or per session.
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<Options>),
    /// Serve tools over REST and OpenAPI with the command line of mcpo.
    #[command(after_help = mcpo::EXAMPLES, disable_help_flag = true, disable_version_flag = true)]
    Mcpo(Box<mcpo::McpoArgs>),
    /// Read the configuration and tell every mistake; nothing is started without --start.
    #[command(after_help = "\
Examples:
  pontoon check                          what would be served, and every mistake at once
  pontoon check --start                  the same, and whether each server starts and answers
  pontoon check --start --timeout 5m     for servers that are fetched at their first start
  pontoon check --start --json           for programs

Exit codes: 0 all is well, 1 there is a mistake, or a server does not start.")]
    Check(CheckArgs),
    /// Write a configuration file: for well-known servers, for a command, or for what other clients have.
    #[command(after_help = init::EXAMPLES)]
    Init(Box<init::InitArgs>),
    /// Print what to write into the configuration of a client, ready to paste.
    #[command(after_help = client_config::EXAMPLES)]
    Config(client_config::ClientConfigArgs),
    /// List the tools of a server.
    #[command(after_help = TOOLS_EXAMPLES, override_usage = TOOLS_USAGE)]
    Tools(Box<ToolsArgs>),
    /// Call a tool of a server and show its result.
    #[command(after_help = CALL_EXAMPLES, override_usage = CALL_USAGE)]
    Call(Box<CallArgs>),
    /// Examine a server: what is wrong with it, how to mend it, and which tools each client will show.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Box<doctor::DoctorArgs>),
    /// Remove jobs and sessions that have expired; safe beside running bridges, made for cron.
    #[command(after_help = gc::EXAMPLES)]
    Gc(GcArgs),
    /// List the calls of tools that were made: who called what, when, and how it ended.
    #[command(after_help = jobs::EXAMPLES)]
    Jobs(Box<jobs::JobsArgs>),
    /// Print what the log tells of one request, from the log files of all bridges.
    #[command(after_help = logs::EXAMPLES)]
    Logs(logs::LogsArgs),
    /// Ask a running bridge how it is: exit code 0 if it works, 1 if it is down or not there.
    Health(HealthArgs),
    /// Show the bridges of this user that run, and how each of them is.
    #[command(after_help = "\
Examples:
  pontoon status                    one look
  pontoon status --watch            look again every second
  pontoon status 4242 --messages    one bridge, and what it and its application said last
  pontoon status --json             for programs
  pontoon status --url http://a:8080 --url http://b:8080     replicas, in one table with a sum

Every `connect` and `serve` of this user is found that has the same HOME or XDG_RUNTIME_DIR. For a
`serve` of another user, or in a container: --url http://ADDRESS:PORT, with the key that is in the variable
of --token-env, else in MCPO_API_KEY.

Exit codes: 0 all that run answer (also if none runs), 1 one does not answer or is down, the one that
was named is not there, or it cannot be looked for, 2 typed wrongly.")]
    Status(status::StatusArgs),
    /// Join this program's standard input and output to an application that serves MCP by itself, and comes and goes.
    #[command(after_help = "\
Examples:
  claude mcp add max -- pontoon connect ws://localhost:7400
  pontoon connect ws://localhost:7400 --token-env MAX_TOKEN
  pontoon connect ws://localhost:7400 --token-command 'pass show max'
  pontoon connect wss://studio.example:7443/mcp --ca-file studio.pem
  pontoon connect ws://localhost:7400 --header 'X-Project: demo'
  pontoon connect ws://localhost:8090 --close-code 4001=3s --max-in-flight 4
  pontoon connect unix:/run/user/1000/editor.sock --connect-wait 30s
  pontoon connect tcp://localhost:9876 --timeout 2m --tool-timeout render=20m
  pontoon connect ws://localhost:9223-9232
  pontoon connect --app max --log-file ~/max.log
  pontoon connect --listen 9009 --allow-origin https://app.example

It never ends by itself but with its standard input: while the application is away its tools are
those it had last, and calls wait a while for it. Nothing but MCP is written to standard output;
DEBUG=1 tells more on standard error, --log-file keeps it, and `pontoon status` shows how it is.")]
    Connect(Box<connect::ConnectArgs>),
    /// The same in the words of the Node bridge that came before it.
    #[command(after_help = "\
Examples:
  pontoon ws
  pontoon ws --host localhost --port 7400
  pontoon ws ws://localhost:7400
  DEBUG=1 MAXMCP_PORT=7400 pontoon ws
  PONTOON_TOKEN=sesame pontoon ws ws://localhost:7400
  pontoon ws --log-file ~/max.log ws://localhost:7400

Everything else is as with `pontoon connect`, which has more to choose from.")]
    Ws(ws::WsArgs),
    /// Print the script by which your shell completes commands, options and their values.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsArgs),
    /// Write the manual pages, one for each command.
    #[command(hide = true)]
    Man(manual::ManualArgs),
    /// Be a small MCP server on standard input and output, to try things with.
    Demo,
    /// Serve the tools of a running program, behind its Unix socket, on standard input and output.
    Ipc(IpcArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    source: ConfigArgs,
    /// Check what `serve --insecure` would do.
    #[arg(long)]
    insecure: bool,
    /// Start each server once, and tell how long it took and how many tools it has, or why it does not start.
    #[arg(long)]
    start: bool,
    /// How long each may take to be ready.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = connect::time, requires = "start")]
    timeout: Duration,
    /// Print what became of each server as JSON.
    #[arg(long, requires = "start")]
    json: bool,
}

#[derive(Debug, Args)]
struct IpcArgs {
    /// The Unix socket of the program.
    socket: PathBuf,
    /// Its schema file.
    schema: PathBuf,
}

/// What stands below the help of `tools`.
const TOOLS_EXAMPLES: &str = "\
Examples:
  pontoon tools demo                                      a server of the configuration, started for this
  pontoon tools --url http://127.0.0.1:8080/mcp/demo      one of a bridge that runs
  pontoon tools --url https://host/mcp --token-env TOKEN";

/// The forms of `tools`.
const TOOLS_USAGE: &str = "pontoon tools [OPTIONS] <SERVER>
       pontoon tools [OPTIONS] --url <URL>";

/// The forms of `call`.
const CALL_USAGE: &str = "pontoon call [OPTIONS] <SERVER> <TOOL> [KEY=VALUE]...
       pontoon call [OPTIONS] --url <URL> <TOOL> [KEY=VALUE]...";

/// What stands below the help of `call`.
const CALL_EXAMPLES: &str = "\
Examples:
  pontoon call demo greet name=Ada
  pontoon call demo count to=5 delay_ms=200
  pontoon call demo make_report title=Sales 'lines=[\"one\",\"two\"]' format=md
  pontoon call --url http://127.0.0.1:8080/mcp/demo greet name=Ada
  pontoon call --url https://host/mcp/excel --token-env KEY --save create_workbook filepath=a.xlsx

A value is taken as JSON where the tool wants a number, a list and so on, and as text otherwise.

The files that a call made are saved where it was typed. With --url they stay with the bridge, as links
in the answer, and --save fetches them, too. No file is overwritten.";

#[derive(Debug, Args)]
struct ToolsArgs {
    /// The name of the server in the configuration.
    #[arg(required_unless_present = "url", conflicts_with = "url")]
    server: Option<String>,
    #[command(flatten)]
    there: ThereArgs,
    #[command(flatten)]
    source: ConfigArgs,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// A server that runs already.
#[derive(Debug, Args)]
struct ThereArgs {
    /// A server that runs, in place of one of the configuration: http, https, ws, wss, ws+unix, tcp or unix.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    #[command(flatten)]
    shown: ShownArgs,
}

#[derive(Debug, Args)]
struct CallArgs {
    /// The name of the server in the configuration, the name of the tool, and the tool's arguments; with --url there is
    /// no name of a server.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    there: ThereArgs,
    #[command(flatten)]
    source: ConfigArgs,
    /// Fetch the files that a call of a server at a URL left there into the current folder.
    #[arg(long, requires = "url")]
    save: bool,
    /// What to answer if the server asks; may be given several times. Else you are asked.
    #[arg(long, value_name = "KEY=VALUE")]
    answer: Vec<String>,
    /// Print the whole result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HealthArgs {
    /// The bridge to ask [default: the one at MCPO_LISTEN, else http://127.0.0.1:8080, or https where
    /// MCPO_TLS_CERT is set].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Certificates of authorities, in PEM form, that may vouch for an https URL, beside those of this machine.
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GcArgs {
    #[command(flatten)]
    source: ConfigArgs,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Name what is removed.
    #[arg(long, short, conflicts_with = "is_quiet")]
    verbose: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command that was typed. Exit codes: 0 done, 1 failed, 2 typed wrongly.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return hints::told(error),
    };
    match cli.command {
        Command::Serve(options) => serve::run(&options),
        Command::Mcpo(arguments) => mcpo::run(*arguments),
        Command::Check(CheckArgs { source, insecure, start, timeout, json }) => {
            let ConfigArgs { config, is_quiet } = source;
            let options = Options { config, is_quiet, insecure, ..Options::default() };
            match start {
                true => check_start::run(&options, timeout, json),
                false => check::run(&options),
            }
        }
        Command::Init(init) => init::run(&init),
        Command::Config(arguments) => client_config::run(&arguments),
        Command::Tools(tools) => list_tools(&tools),
        Command::Call(call) => make_call(&call),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Health(HealthArgs { url, ca_file, json }) => {
            health::run(url.as_deref(), ca_file.as_deref(), json)
        }
        Command::Gc(GcArgs { source, dry_run, verbose, json }) => {
            let report = match (json, verbose) {
                (true, _) => GcReport::Json,
                (false, true) => GcReport::Verbose,
                (false, false) => GcReport::Failures,
            };
            gc::run(&source.options(), dry_run, report)
        }
        Command::Jobs(jobs) => jobs::run(&jobs),
        Command::Logs(logs) => logs::run(&logs),
        Command::Status(status) => status::run(&status),
        Command::Connect(connect) => connect::run(*connect),
        Command::Ws(ws) => ws::run(&ws),
        Command::Completions(arguments) => completions::run(&arguments, Cli::command()),
        Command::Man(arguments) => manual::run(&arguments, Cli::command()),
        Command::Demo => demo::run(),
        // As a rule `main` has taken it already.
        Command::Ipc(IpcArgs { socket, schema }) => {
            pontoon_host::bridge::main([socket.into(), schema.into()].into_iter())
        }
    }
}

/// What is said where something is to be shown to a server that is started here.
const SHOWN_TO_NONE: &str = "tokens, headers and certificates are for a server at a --url";

fn list_tools(arguments: &ToolsArgs) -> ExitCode {
    let ToolsArgs { server, there, source, json } = arguments;
    match (&there.url, server) {
        (Some(url), _) => tools::run_url(url, &there.shown, source.is_quiet, *json),
        (None, Some(server)) => match hints::url_without_option("tools", server) {
            Some(hint) => wrong(&hint),
            None if !there.shown.is_empty() => wrong(SHOWN_TO_NONE),
            None => tools::run(server, &source.options(), *json),
        },
        (None, None) => wrong("which server? Name one of the configuration, or say --url URL"),
    }
}

fn make_call(arguments: &CallArgs) -> ExitCode {
    let CallArgs { words, there, source, save, answer, json } = arguments;
    match (&there.url, words.as_slice()) {
        (Some(url), [tool, arguments @ ..]) => {
            let (saves, as_json, is_quiet) = (*save, *json, source.is_quiet);
            let call = UrlCall { tool, arguments, answers: answer, saves, as_json, is_quiet };
            call_url::run(url, &there.shown, &call)
        }
        (None, [server, rest @ ..]) => {
            if let Some(hint) = hints::url_without_option("call", server) {
                return wrong(&hint);
            }
            if !there.shown.is_empty() {
                return wrong(SHOWN_TO_NONE);
            }
            let [tool, arguments @ ..] = rest else {
                return wrong(&format!(
                    "which tool of {server:?}? `pontoon tools {server}` lists them; then write pontoon call {server} TOOL"
                ));
            };
            call::run(server, tool, arguments, answer, &source.options(), *json)
        }
        (Some(url), []) => {
            wrong(&format!("which tool? `pontoon tools --url {url}` lists those that are there"))
        }
        (None, []) => {
            wrong("which server, and which tool? Write pontoon call SERVER TOOL key=value")
        }
    }
}
