//! `pontoon ws`: the words of the Node bridge that `pontoon connect` takes the place of.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};
use pontoon_supervise::run_anew;

use super::connect::{self, ConnectArgs, TOKEN};
use super::terminal::{fail, tell};
use crate::config::Environment;

/// The port, unless another is named.
const PORT: u16 = 7400;

/// How an application is joined, in the words of the Node bridge.
#[derive(Debug, Args)]
pub struct WsArgs {
    /// The host of the application.
    #[arg(long, value_name = "HOST", default_value = "localhost")]
    host: String,
    /// Its port [default: MAXMCP_PORT, else 7400].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Log to this file, too, as `pontoon connect --log-file` does.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Its address, in place of a host and a port.
    url: Option<String>,
    /// The token that it wants. Better: in the variable PONTOON_TOKEN.
    token: Option<String>,
}

/// The words of `connect`, as if they were typed.
#[derive(Debug, Parser)]
struct Typed {
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Joins the client and the application until the client leaves, or a signal comes.
pub fn run(arguments: &WsArgs) -> ExitCode {
    let url = match arguments.url.clone().map_or_else(|| url(arguments), Ok) {
        Ok(url) => url,
        Err(why) => return connect::wrong(&why),
    };
    if let Some(token) = arguments.token.as_deref().filter(|token| !token.is_empty()) {
        return hide(words(arguments, url), token);
    }
    let words = [OsString::from("pontoon ws")].into_iter().chain(words(arguments, url));
    match Typed::try_parse_from(words) {
        Ok(Typed { connect }) => connect::run(connect),
        Err(error) => connect::wrong(&error.to_string()),
    }
}

/// What was typed, but for the token. Both commands know these words.
fn words(arguments: &WsArgs, url: String) -> impl Iterator<Item = OsString> {
    let log = arguments.log_file.clone();
    let log = log.into_iter().flat_map(|file| [OsString::from("--log-file"), file.into()]);
    log.chain([OsString::from(url)])
}

/// Begins again without the token on the command line, where every user of the machine could read it.
fn hide(words: impl Iterator<Item = OsString>, token: &str) -> ExitCode {
    tell(&format!(
        "warning: a token on the command line can be read by others on this machine for a moment, and in the history of \
         the shell for longer: set {TOKEN} instead"
    ));
    let words: Vec<_> = [OsString::from("ws")].into_iter().chain(words).collect();
    let error = run_anew(&words, (TOKEN, token));
    fail(&format!("cannot begin again without the token on the command line: {error}"))
}

/// The address of a host and a port.
fn url(arguments: &WsArgs) -> Result<String, String> {
    let environment = Environment::of_process();
    let named = environment.get("MAXMCP_PORT").filter(|port| !port.is_empty());
    let port = match (arguments.port, named) {
        (Some(port), _) => port,
        (None, None) => PORT,
        (None, Some(named)) => {
            let port = named.to_str().and_then(|port| port.parse().ok()).filter(|port| *port > 0);
            port.ok_or_else(|| format!("MAXMCP_PORT is {named:?}, which is no port"))?
        }
    };
    Ok(match arguments.host.contains(':') && !arguments.host.starts_with('[') {
        true => format!("ws://[{}]:{port}", arguments.host),
        false => format!("ws://{}:{port}", arguments.host),
    })
}
