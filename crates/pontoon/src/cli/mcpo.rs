//! `pontoon mcpo`: what mcpo does, in its own words.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::hints::behind_dashes;
use super::terminal::tell;
use super::{dotenv, serve};
use crate::config::{Environment, McpoOptions, Options, RootInfo, parse_log_level};

/// What stands below its help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon mcpo --port 8000 -- uvx mcp-server-time --local-timezone=Asia/Tokyo
  pontoon mcpo --port 8000 --api-key top-secret --config config.json --hot-reload

Every option is mcpo's, with mcpo's defaults: it listens on 0.0.0.0 without a key, and all who do \
not say who they are share one process of each server. `pontoon serve` has safer ones. \
The tools of a server are at /NAME/TOOL, of the only server of a command line at /TOOL; documents \
are at openapi.json, pages at docs. MCP itself is at /mcp/NAME.";

/// The command line of mcpo.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct McpoArgs {
    /// The address to listen on.
    #[arg(long, short = 'h', default_value = "0.0.0.0")]
    host: String,
    /// The port to listen on.
    #[arg(long, short, default_value_t = 8000)]
    port: u16,
    /// A web page whose scripts may call, or `*` for all; may be given several times.
    #[arg(long, value_name = "ORIGIN", default_value = "*")]
    cors_allow_origins: Vec<String>,
    /// The key that calls must show.
    #[arg(long, short = 'k', value_name = "KEY")]
    api_key: Option<String>,
    /// Ask for the key everywhere, documents and pages included.
    #[arg(long)]
    strict_auth: bool,
    /// A variable for the servers; may be given several times.
    #[arg(long, short, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// A file with such variables.
    #[arg(long, value_name = "FILE")]
    env_path: Option<PathBuf>,
    /// How the server is reached: only stdio is, by this version.
    #[arg(
        long = "type",
        visible_alias = "server-type",
        value_name = "TYPE",
        default_value = "stdio"
    )]
    server_type: String,
    /// The configuration file.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The title of the document of all servers.
    #[arg(long, short)]
    name: Option<String>,
    /// Its description.
    #[arg(long, short)]
    description: Option<String>,
    /// Its version.
    #[arg(long, short)]
    version: Option<String>,
    /// The certificate for https, in PEM form.
    #[arg(long, short = 't', value_name = "FILE")]
    ssl_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, short = 'K', value_name = "FILE")]
    ssl_keyfile: Option<PathBuf>,
    /// What stands before every path as clients see it, behind a proxy.
    #[arg(long, value_name = "PATH")]
    root_path: Option<String>,
    /// What stands before the names of servers.
    #[arg(long, value_name = "PATH")]
    path_prefix: Option<String>,
    /// Headers for a server that is reached over HTTP, as JSON.
    #[arg(long, short = 'H', value_name = "JSON")]
    header: Option<String>,
    /// Take a change of the configuration file over without a restart.
    #[arg(long)]
    hot_reload: bool,
    /// How much to log: DEBUG, INFO, WARNING, ERROR or CRITICAL.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// What stands before `--` and is no option: a command whose `--` was left out.
    #[arg(hide = true, allow_hyphen_values = true)]
    stray: Vec<String>,
    /// The server to run, with its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Serves until a signal. Exit codes: 1 nothing was named to serve, 2 typed wrongly or not possible.
pub fn run(arguments: McpoArgs) -> ExitCode {
    match options(arguments) {
        Ok(options) => serve::run(&options),
        Err((why, code)) => {
            tell(&why);
            ExitCode::from(code)
        }
    }
}

/// What mcpo says, and exits with 1, where no server is named.
const USAGE: &str = "Usage: mcpo --host 0.0.0.0 --port 8000 -- your_mcp_command";

/// The same for a command whose `--` was left out, with the line that was meant.
fn without_dashes(stray: &[String]) -> String {
    let meant = behind_dashes("mcpo [OPTIONS]", stray);
    format!("{USAGE}\nhint: the command goes after `--`: {meant}")
}

/// The options of `serve` that say the same, or why there are none and the exit code.
fn options(arguments: McpoArgs) -> Result<Options, (String, u8)> {
    match arguments.stray.first() {
        None => {}
        Some(option) if option.starts_with('-') => {
            let why = format!("error: unexpected argument {option:?}; see pontoon mcpo --help");
            return Err((why, 2));
        }
        Some(_) => return Err((without_dashes(&arguments.stray), 1)),
    }
    if arguments.config.is_none() && arguments.command.is_empty() {
        return Err((USAGE.to_owned(), 1));
    }
    if let Some(unused) = unused(&arguments) {
        tell(unused);
    }
    let kind = arguments.server_type.to_ascii_lowercase();
    if kind != "stdio" {
        let why = format!(
            "error: --type {kind}: servers over HTTP are not reached by this version; add the server to the client itself"
        );
        return Err((why, 2));
    }
    let environment = Environment::of_process();
    let mut variables = Vec::new();
    if let Some(file) = &arguments.env_path {
        match std::fs::read_to_string(file) {
            // Like mcpo's, it sets what is not set.
            Ok(text) => {
                let known = |name: &str| environment.get(name)?.to_str().map(str::to_owned);
                let found = dotenv::variables(&text, known).into_iter();
                variables.extend(found.filter(|(name, _)| environment.get(name).is_none()));
            }
            Err(error) => tell(&format!("warning: --env-path: {}: {error}", file.display())),
        }
    }
    for pair in &arguments.env {
        let pair = pair.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            pair.ok_or_else(|| ("error: --env is written NAME=VALUE".to_owned(), 2))?;
        variables.push((name.to_owned(), value.to_owned()));
    }
    let usual = RootInfo::default();
    let root = RootInfo {
        title: arguments.name.unwrap_or(usual.title),
        description: arguments.description.unwrap_or(usual.description),
        version: arguments.version.unwrap_or(usual.version),
    };
    // With a file, mcpo takes its servers from there alone.
    let command = if arguments.config.is_some() { Vec::new() } else { arguments.command };
    let listen = address(&arguments.host, arguments.port)?;
    let log_level = arguments.log_level.or_else(|| usual_level(&environment));
    Ok(Options {
        config: arguments.config,
        listen: Some(listen.to_string()),
        log_level,
        api_key: arguments.api_key,
        strict_auth: arguments.strict_auth,
        hot_reload: arguments.hot_reload,
        cors_allow_origins: arguments.cors_allow_origins,
        tls_cert: arguments.ssl_certfile,
        tls_key: arguments.ssl_keyfile,
        insecure: true,
        command,
        mcpo: Some(McpoOptions {
            variables,
            root,
            path_prefix: arguments.path_prefix,
            root_path: arguments.root_path,
        }),
        ..Options::default()
    })
}

/// What is said of an option that does nothing here.
fn unused(arguments: &McpoArgs) -> Option<&'static str> {
    let is_there =
        arguments.header.is_some() && arguments.server_type.eq_ignore_ascii_case("stdio");
    is_there.then_some(
        "warning: --header is not used: it is for a server over HTTP, and this one is reached over stdio",
    )
}

/// The level that mcpo takes from the environment. Other programs read this variable, too: what is no level for us is
/// nothing.
fn usual_level(environment: &Environment) -> Option<String> {
    let level = environment.get("LOG_LEVEL")?.to_str()?;
    (parse_log_level(level).is_ok() && environment.get("MCPO_LOG_LEVEL").is_none())
        .then(|| level.to_owned())
}

/// The address of a host, which may be a name.
fn address(host: &str, port: u16) -> Result<SocketAddr, (String, u8)> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((address, port).into());
    }
    let found = (host, port).to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| (format!("error: --host: there is no address of {host:?}"), 2))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(disable_help_flag = true, disable_version_flag = true)]
    struct Typed {
        #[command(flatten)]
        arguments: McpoArgs,
    }

    fn read(words: &str) -> McpoArgs {
        let words = std::iter::once("mcpo").chain(words.split(' ').filter(|it| !it.is_empty()));
        Typed::try_parse_from(words).unwrap().arguments
    }

    fn typed(words: &str) -> Result<Options, (String, u8)> {
        options(read(words))
    }

    #[test]
    fn a_command_without_dashes_gets_the_line_that_was_meant() {
        for (words, command) in [
            ("uvx", "uvx"),
            ("uvx time --zone UTC -x", "uvx time --zone UTC -x"),
            ("--port 9 uvx time; -x", "uvx 'time;' -x"),
            ("-c file.json it's", r"'it'\''s'"),
        ] {
            let (why, code) = typed(words).unwrap_err();
            assert_eq!(code, 1, "{words}");
            let expected = format!(
                "Usage: mcpo --host 0.0.0.0 --port 8000 -- your_mcp_command\n\
                 hint: the command goes after `--`: pontoon mcpo [OPTIONS] -- {command}"
            );
            assert_eq!(why, expected, "{words}");
        }
    }

    #[test]
    fn headers_without_a_server_over_http_are_told_to_do_nothing() {
        assert!(unused(&read("-H {} -- x")).is_some_and(|it| it.contains("--header is not used")));
        assert!(unused(&read("--header {} -c file.json")).is_some());
        assert_eq!(unused(&read("-H {} --type sse -- http://x")), None);
        assert_eq!(unused(&read("-- x -H {}")), None);
        assert!(typed("-H {} -- x").is_ok(), "it is a warning");
    }

    #[test]
    fn the_words_of_mcpo_are_options_of_serve() {
        let plain = typed("-- uvx time --zone UTC").unwrap();
        assert_eq!(plain.listen.as_deref(), Some("0.0.0.0:8000"));
        assert_eq!(plain.command, ["uvx", "time", "--zone", "UTC"]);
        assert_eq!(plain.mcpo.unwrap().root, RootInfo::default());
        let all = typed(
            "-h 127.0.0.1 -p 9 -k K --strict-auth -e A=1 -e B=x=y -n N -d D -v 2 --root-path /r --path-prefix p \
             --hot-reload --log-level DEBUG -c file.json -- ignored",
        );
        let all = all.unwrap();
        assert_eq!(all.listen.as_deref(), Some("127.0.0.1:9"));
        assert!(all.strict_auth && all.hot_reload && all.insecure);
        assert_eq!(all.config.as_deref(), Some(Path::new("file.json")));
        assert_eq!(all.command, [""; 0]);
        let mcpo = all.mcpo.unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(mcpo.variables, [variable("A", "1"), variable("B", "x=y")]);
        assert_eq!((mcpo.root.title.as_str(), mcpo.root.version.as_str()), ("N", "2"));
    }

    #[test]
    fn what_cannot_be_served_is_told_with_mcpos_exit_codes() {
        for (words, code, says) in [
            ("", 1, "Usage: mcpo --host"),
            ("--type sse -- http://x", 2, "not reached by this version"),
            ("--type streamable-http -- http://x", 2, "--type streamable-http"),
            ("-e A -- x", 2, "NAME=VALUE"),
            ("--prot 9 -- x", 2, "unexpected argument \"--prot\""),
            ("-h no.such.host.invalid -- x", 2, "there is no address"),
        ] {
            let (why, found) = typed(words).unwrap_err();
            assert!(found == code && why.contains(says), "{words}: {found} {why}");
        }
    }

    #[test]
    fn a_level_for_other_programs_is_no_level_for_this_one() {
        for (variables, expected) in [
            (&[("LOG_LEVEL", "debug")][..], Some("debug")),
            (&[("LOG_LEVEL", "notice")], None),
            (&[("LOG_LEVEL", "debug"), ("MCPO_LOG_LEVEL", "ERROR")], None),
            (&[], None),
        ] {
            let environment = Environment::new(variables.iter().copied());
            assert_eq!(usual_level(&environment).as_deref(), expected, "{variables:?}");
        }
    }
}
