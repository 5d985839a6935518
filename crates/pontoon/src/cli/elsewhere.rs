//! A server at an address, for a command that uses it alone: what is typed of it, and the way there.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pontoon_schema::Profile;
use pontoon_supervise::{Spawner, give_memory_back, harden_worker};

use super::connect::{app_at, wrong};
use super::shell_client::shell_client;
use super::terminal::{Interruption, fail, use_once, with_spawner};
use super::waiting::WaitingLine;
use crate::app::Single;
use crate::back::remote::connector::LOOK;
use crate::back::remote::dial::START_IT;
use crate::back::remote::live_app::AppState;
use crate::client::Client;
use crate::config::{Config, Environment, Server};
use crate::errors::chain;
use crate::observe::app_status::AppStanding;
use crate::session::catalog::Catalog;

/// How long a server may take until it has said what it offers: the bridge there may be starting it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server at a URL is shown, as `connect` has it.
#[derive(Debug, Args)]
pub(super) struct ShownArgs {
    /// The variable with the token that a server at a URL wants [default: PONTOON_TOKEN, if it is set].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token_file", "token_command"])]
    token_env: Option<String>,
    /// The file whose first line is that token.
    #[arg(long, value_name = "FILE", conflicts_with = "token_command")]
    token_file: Option<PathBuf>,
    /// The command whose first line of output is that token.
    #[arg(long, value_name = "COMMAND")]
    token_command: Option<String>,
    /// A header for a server at a URL, such as 'X-Api-Key: ...'; may be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// A file with such headers, one on each line.
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// Certificates of authorities to trust beside those of this machine, in PEM form.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate that is shown to the server, in PEM form.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl ShownArgs {
    /// The same in the words of `connect`.
    fn words(&self) -> impl Iterator<Item = OsString> {
        let word = |name: &str, value: OsString| [OsString::from(name), value];
        let text =
            |name: &str, value: &Option<String>| value.clone().map(|it| word(name, it.into()));
        let file =
            |name: &str, value: &Option<PathBuf>| value.clone().map(|it| word(name, it.into()));
        let all = [
            text("--token-env", &self.token_env),
            file("--token-file", &self.token_file),
            text("--token-command", &self.token_command),
            file("--header-file", &self.header_file),
            file("--ca-file", &self.ca_file),
            file("--client-cert", &self.client_cert),
            file("--client-key", &self.client_key),
        ];
        let headers = self.header.iter().map(|it| word("--header", it.into())).collect::<Vec<_>>();
        all.into_iter().flatten().chain(headers).flatten()
    }

    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        self.words().next().is_none()
    }
}

/// Whether a word is an address and not the name of a server.
pub(super) fn is_url(word: &str) -> bool {
    word.contains("://") || word.starts_with("unix:") || word.starts_with("ws+unix:")
}

/// What is at this address, with what it is shown, and whether it is spoken to over HTTP.
pub(super) fn server_at(
    url: &str,
    shown: &ShownArgs,
    environment: &Environment,
) -> Result<(Server, bool), String> {
    let (address, http) = as_web_socket(url);
    let words = shown.words().chain([OsString::from(&address)]);
    let server = app_at(words, environment).map_err(|why| match http {
        Some((scheme, web)) => why.replace(web, scheme),
        None => why,
    })?;
    Ok((server, http.is_some()))
}

/// An address of HTTP as that of a WebSocket, which has the same hosts, paths, tokens and certificates; and what each
/// begins with, if it was one.
pub(super) fn as_web_socket(url: &str) -> (String, Option<(&'static str, &'static str)>) {
    let lower = url.to_ascii_lowercase();
    let http = [("http://", "ws://"), ("https://", "wss://")];
    let http = http.into_iter().find(|(scheme, _)| lower.starts_with(scheme));
    let address =
        http.map_or_else(|| url.to_owned(), |(it, web)| format!("{web}{}", &url[it.len()..]));
    (address, http)
}

/// A server at an address that has said what it offers.
pub(super) struct Elsewhere<'s> {
    /// It.
    pub(super) single: &'s Single,
    /// Who it was opened for.
    pub(super) client: Arc<Client>,
    /// What it offers.
    pub(super) catalog: Arc<Catalog>,
    /// What it is shown, and where it is.
    pub(super) server: Arc<Server>,
}

/// Runs `work` with the server at an address, until it is done or the command is interrupted.
pub(super) fn with_url(
    url: &str,
    shown: &ShownArgs,
    is_quiet: bool,
    work: impl AsyncFnOnce(&Elsewhere<'_>) -> Result<ExitCode, String>,
) -> ExitCode {
    if let Some(meant) = meant(url) {
        return wrong(&meant);
    }
    harden_worker();
    give_memory_back();
    let environment = Environment::of_process();
    let (mut server, over_http) = match server_at(url, shown, &environment) {
        Ok(found) => found,
        Err(why) => return wrong(&why),
    };
    // Its tools are shown as they are.
    server.profile = Profile::named("none").unwrap_or(server.profile);
    if let Some(app) = &mut server.app {
        (app.over_http, app.connect_wait) = (over_http, PATIENCE);
    }
    let starting = match Spawner::start() {
        Ok(starting) => starting,
        Err(error) => return fail(&format!("cannot start the helper process: {error}")),
    };
    let config = Config::of_app(server, &environment);
    with_spawner(starting, async |spawner| {
        let interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        let server = Arc::clone(&config.servers[0]);
        let single = match Single::new(&config, server.name.as_str(), &spawner) {
            Ok(Some(single)) => single,
            Ok(None) => return fail("there is no server"),
            Err(error) => return fail(&chain(&error)),
        };
        use_once(single, interruption, is_quiet, async |single| {
            let client = Arc::new(shell_client());
            let catalog = learn(single, &client, url, is_quiet).await?;
            work(&Elsewhere { single, client, catalog, server }).await
        })
        .await
    })
}

/// What the server offers. A command does not wait for one that is not there.
async fn learn(
    single: &Single,
    client: &Arc<Client>,
    url: &str,
    is_quiet: bool,
) -> Result<Arc<Catalog>, String> {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let line = WaitingLine::begin(format!("asking {shown}"), is_quiet);
    line.is_for(format!("asking {shown} what it offers"), Some(PATIENCE));
    let back = &single.entry.back;
    let app = back.app().ok_or("it is no server at an address")?;
    back.meet(client);
    let mut state = app.state();
    let is_away = |state: &AppState| matches!(state, AppState::Away(Some(_)));
    let told = |why: String| format!("{shown} cannot be used: {why}{}", below_a_bridge(url));
    let late = || format!("it did not say what it offers within {} s", PATIENCE.as_secs());
    tokio::select! {
        known = single.entry.learnt() => known.map_err(|_| told(late())),
        _ = state.wait_for(is_away) => Err(told(match app.view().standing {
            AppStanding::Away { why, advice } => format!("{why}. To do: {}", advice_here(&advice)),
            _ => late(),
        })),
    }
}

/// Advice for the one who typed an address.
fn advice_here(advice: &str) -> &str {
    match advice {
        START_IT => "start the server, or correct the address",
        LOOK => "look whether the address is that of the server",
        advice => advice.trim_end_matches(','),
    }
}

/// What to say of an address that may be one of a bridge but names no server of it.
fn below_a_bridge(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (is_web_socket, is_http) = (scheme.starts_with("ws"), scheme.starts_with("http"));
    let below = match path.split_once('/') {
        _ if path.is_empty() && is_http => "mcp/NAME".to_owned(),
        _ if path.is_empty() && is_web_socket => "ws/NAME".to_owned(),
        Some(("mcp", name)) if is_web_socket => format!("ws/{name}"),
        Some(("ws", name)) if is_http => format!("mcp/{name}"),
        _ => return String::new(),
    };
    format!("\nhint: a server of a bridge is at {scheme}://{host}/{below}")
}

/// What was meant by a word that is no address, if it is none.
fn meant(word: &str) -> Option<String> {
    if is_url(word) {
        return None;
    }
    let host = word.split('/').next().unwrap_or_default();
    let is_place = word.contains('/') || host == "localhost" || host.contains([':', '.']);
    Some(match is_place && !host.is_empty() {
        true => format!("{word:?} is no URL: did you mean http://{word}?"),
        false => format!(
            "{word:?} is no URL but looks like a server's name: leave --url out for one of the configuration, or write \
             --url http://127.0.0.1:8080/mcp/{word} for one of a bridge that runs"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_url_is_told_what_was_meant() {
        for url in ["http://a/mcp/x", "wss://a", "unix:/a", "tcp://a:1"] {
            assert_eq!(meant(url), None, "{url}");
        }
        for (word, says) in [
            ("127.0.0.1:8080/mcp/demo", "did you mean http://127.0.0.1:8080/mcp/demo?"),
            ("localhost/mcp/demo", "did you mean http://localhost/mcp/demo?"),
            ("tools.example/mcp", "did you mean http://tools.example/mcp?"),
            ("demo", "leave --url out"),
            ("demo", "http://127.0.0.1:8080/mcp/demo"),
        ] {
            let told = meant(word).unwrap();
            assert!(told.contains(says), "{word}: {told}");
        }
    }

    #[test]
    fn an_address_without_a_path_is_told_where_servers_are() {
        for (url, says) in [
            ("http://a:1", "http://a:1/mcp/NAME"),
            ("https://a:1/", "https://a:1/mcp/NAME"),
            ("ws://a", "ws://a/ws/NAME"),
            ("ws://a/mcp/x", "ws://a/ws/x"),
            ("http://a/ws/x", "http://a/mcp/x"),
        ] {
            let told = below_a_bridge(url);
            assert!(told.ends_with(says), "{url}: {told}");
        }
        for url in ["http://a:1/mcp/x", "ws://a/ws/x", "unix:/a", "tcp://a:1"] {
            assert_eq!(below_a_bridge(url), "", "{url}");
        }
    }
}
