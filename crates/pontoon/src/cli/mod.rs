//! The command line: words in, exit code out.

mod announced;
pub mod call;
pub mod check;
pub mod client_config;
mod config_args;
pub mod connect;
pub mod demo;
pub mod doctor;
mod dotenv;
mod ending;
mod entrance_token;
pub mod gc;
pub mod health;
pub mod jobs;
pub mod logs;
pub mod mcpo;
pub mod reload;
pub mod serve;
mod standard_streams;
pub mod status;
pub mod terminal;
pub mod tools;
mod user_folders;
pub mod ws;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::config_args::ConfigArgs;
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
  pontoon check --config mcp-servers.json    find every mistake in a configuration
  pontoon tools demo                         list the tools of a server
  pontoon call demo greet name=Ada           call a tool
  pontoon doctor -- uvx mcp-server-time      find what is wrong with a server, and how to mend it
  pontoon connect ws://localhost:7400        join a client to an application that runs by itself
  pontoon jobs --status failed               see which calls failed, whose they were, and why
  pontoon logs 0af7651916cd43dd8448eb211c80319c    see what the log tells of one request
  pontoon status                             see the bridges that run, and how they are"
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
    /// Read the configuration, start nothing, and tell every mistake.
    Check(CheckArgs),
    /// Print what to write into the configuration of a client, ready to paste.
    #[command(after_help = client_config::EXAMPLES)]
    Config(client_config::ClientConfigArgs),
    /// List the tools of a server.
    Tools(ToolsArgs),
    /// Call a tool of a server and show its result.
    #[command(after_help = "\
Examples:
  pontoon call demo greet name=Ada
  pontoon call demo count to=5 delay_ms=200
  pontoon call demo make_report title=Sales 'lines=[\"one\",\"two\"]' format=md

A value is taken as JSON where the tool wants a number, a list and so on, and as text otherwise.")]
    Call(CallArgs),
    /// Examine a server: what is wrong with it, how to mend it, and which tools each client will show.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Box<doctor::DoctorArgs>),
    /// Remove jobs and sessions that have expired; safe beside running bridges, made for cron.
    #[command(after_help = "\
Exit codes: 0 all that expired is gone, 1 something could not be removed, or it is unclear where or
when. The directory is MCPO_JOBS_DIR, the time MCPO_FILE_EXPIRY; mistakes elsewhere in the
configuration are told and do not matter.")]
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
}

#[derive(Debug, Args)]
struct IpcArgs {
    /// The Unix socket of the program.
    socket: PathBuf,
    /// Its schema file.
    schema: PathBuf,
}

#[derive(Debug, Args)]
struct ToolsArgs {
    /// The name of the server in the configuration.
    server: String,
    #[command(flatten)]
    source: ConfigArgs,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CallArgs {
    /// The name of the server in the configuration.
    server: String,
    /// The name of the tool.
    tool: String,
    /// The tool's arguments.
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    source: ConfigArgs,
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
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command that was typed. Exit codes: 0 done, 1 failed, 2 typed wrongly.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::run(&options),
        Command::Mcpo(arguments) => mcpo::run(*arguments),
        Command::Check(CheckArgs { source: ConfigArgs { config }, insecure }) => {
            check::run(&Options { config, insecure, ..Options::default() })
        }
        Command::Config(arguments) => client_config::run(&arguments),
        Command::Tools(ToolsArgs { server, source, json }) => {
            tools::run(&server, &source.options(), json)
        }
        Command::Call(CallArgs { server, tool, arguments, source, answer, json }) => {
            call::run(&server, &tool, &arguments, &answer, &source.options(), json)
        }
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Health(HealthArgs { url, ca_file, json }) => {
            health::run(url.as_deref(), ca_file.as_deref(), json)
        }
        Command::Gc(GcArgs { source, dry_run, json }) => gc::run(&source.options(), dry_run, json),
        Command::Jobs(jobs) => jobs::run(&jobs),
        Command::Logs(logs) => logs::run(&logs),
        Command::Status(status) => status::run(&status),
        Command::Connect(connect) => connect::run(*connect),
        Command::Ws(ws) => ws::run(&ws),
        Command::Demo => demo::run(),
        // As a rule `main` has taken it already.
        Command::Ipc(IpcArgs { socket, schema }) => {
            pontoon_host::bridge::main([socket.into(), schema.into()].into_iter())
        }
    }
}
