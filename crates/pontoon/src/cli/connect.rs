//! `pontoon connect`: a client on standard input and output, joined to an application that comes and goes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser};
use pontoon_schema::Profile;
use pontoon_supervise::{Spawner, Starting, Support, give_memory_back, harden_worker};
use tokio::signal::unix::{SignalKind, signal};

use super::announced::announced;
use super::entrance_token::entrance_token;
use super::standard_streams;
use super::terminal::{fail, tell};
use super::user_folders::UserFolders;
use crate::app::{AppRecords, LiveBridge};
use crate::back::child::process::Starter;
use crate::back::remote::sharing::MeetingPoint;
use crate::back::remote::tls::check_files;
use crate::config::{
    AppEntrance, AppHeader, AppHeaders, AppOptions, AppPlace, BadPlace, Config, Environment,
    Healing, LogLevel, Secret, Server, ServerName, Silence, TlsFiles, TokenSource, parse_log_level,
    proxy_secrets,
};
use crate::errors::chain;
use crate::observe::log::{self, LogPlace, LogSettings};
use crate::observe::messages::MessageRing;
use crate::observe::metrics::Metrics;
use crate::observe::redact::Redactor;

/// The variable of a token, unless another is named.
pub(super) const TOKEN: &str = "PONTOON_TOKEN";

/// The longest time that may be typed.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Exit code of words that make no sense.
pub(super) const TYPED_WRONGLY: u8 = 2;

/// How an application is joined.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// Where the application listens: ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, ws+unix:/PATH, tcp://HOST:PORT or
    /// unix:/PATH. For PORT, FIRST-LAST looks at several ports.
    #[arg(required_unless_present_any = ["app", "listen"])]
    url: Option<String>,
    /// Find the application by the file that it leaves for that, under this name.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    app: Option<String>,
    /// Where applications leave such files [default: $XDG_RUNTIME_DIR/pontoon/apps, else
    /// ~/.local/state/pontoon/apps].
    #[arg(long, value_name = "DIRECTORY", requires = "app", conflicts_with_all = ["url", "listen"])]
    app_dir: Option<PathBuf>,
    /// Wait for an application that connects to us, on this port of this machine.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["url", "app"], value_parser = clap::value_parser!(u16).range(1..))]
    listen: Option<u16>,
    /// A page that may do so, as its browser names it (`--allow-origin https://...`); may be given several times.
    #[arg(long, value_name = "ORIGIN", requires = "listen", conflicts_with_all = ["url", "app"])]
    allow_origin: Vec<String>,
    /// Let it come without a token: every program of every user of this machine may then be the application.
    #[arg(
        long,
        requires = "listen",
        conflicts_with_all = ["url", "app", "token_env", "token_file", "token_command"]
    )]
    no_token: bool,
    /// The variable with the token that the application wants [default: PONTOON_TOKEN, if it is set].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token_file", "token_command"])]
    token_env: Option<String>,
    /// The file whose first line is that token; read again for each connection.
    #[arg(long, value_name = "FILE", conflicts_with = "token_command")]
    token_file: Option<PathBuf>,
    /// The command whose first line of output is that token; run by a shell for each connection.
    #[arg(long, value_name = "COMMAND")]
    token_command: Option<String>,
    /// A header for the opening of a WebSocket, such as 'X-Project: demo'; may be given several times. What is typed can
    /// be read by others on this machine.
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "listen")]
    header: Vec<String>,
    /// A file with such headers, one on each line; read again for each connection.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    header_file: Option<PathBuf>,
    /// Certificates of authorities to trust beside those of this machine, in PEM form (wss://).
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate that is shown to the application, in PEM form (wss://).
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// How long a call waits for an application that is away.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    connect_wait: Duration,
    /// How long a call may take.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    timeout: Duration,
    /// The same for one tool; may be given several times.
    #[arg(long, value_name = "TOOL=TIME", value_parser = tool_timeout)]
    tool_timeout: Vec<(String, Duration)>,
    /// How many calls the application works on at once; more wait for their turn.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_in_flight: u16,
    /// How long the application may give no sign of life while it works on a call.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = time)]
    busy_grace: Duration,
    /// After how long a silence it is asked for a sign of life (WebSockets). One that gave one before, and leaves three
    /// such questions unanswered, is connected anew.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time)]
    ping_after: Duration,
    /// How long to wait before the next connection after one that was closed with this code; may be given several
    /// times.
    #[arg(long, value_name = "CODE=TIME", value_parser = close_code)]
    close_code: Vec<(u16, Duration)>,
    /// What is done when the application violates the protocol: repair, warn or off, or CODE=MODE for one kind; may be
    /// given several times.
    #[arg(long, value_name = "MODE|CODE=MODE", value_parser = heal_word)]
    heal: Vec<String>,
    /// The client that tools are shown for: common is what most take, none shapes nothing; others are named after a
    /// client, such as claude-code (docs/codes.md).
    #[arg(long, value_name = "NAME", default_value = "common", value_parser = profile)]
    profile: &'static Profile,
    /// How much to tell on standard error: trace, debug, info, warning or error [default: warning].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log to this file, too: what is of the level info at least, also where less is told on standard error. It is its
    /// owner's alone, and becomes FILE.1 at 10 MiB, up to FILE.4. A second bridge with the same file has FILE-2.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Keep how the last messages begin (512 bytes of each of 256, in memory), for `pontoon status --messages`: arguments
    /// and answers of tools. Tokens, and what is called a password or the like, are hidden.
    #[arg(long)]
    record_messages: bool,
    /// Where the last known tools are kept [default: MCPO_STATE_DIR, else $XDG_STATE_HOME/pontoon, else
    /// ~/.local/state/pontoon].
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
    /// Have a connection of its own: otherwise all bridges of a user to one application share one.
    #[arg(long)]
    no_share: bool,
}

/// A time for one tool, as it is typed.
fn tool_timeout(word: &str) -> Result<(String, Duration), String> {
    let (tool, time) = word.split_once('=').ok_or("write it as TOOL=TIME, such as render=20m")?;
    Ok((tool.to_owned(), self::time(time)?))
}

/// A word on healing, as it is typed.
fn heal_word(word: &str) -> Result<String, String> {
    Healing::typed([word]).map(|_| word.to_owned())
}

/// A client, as it is typed.
pub(super) fn profile(word: &str) -> Result<&'static Profile, String> {
    Profile::named(word).ok_or_else(|| {
        let names: Vec<_> = Profile::all().iter().map(|it| it.name.as_str()).collect();
        format!("there is no profile of that name; there are: {}", names.join(", "))
    })
}

/// A pause after a code, as it is typed.
fn close_code(word: &str) -> Result<(u16, Duration), String> {
    let form = "write it as CODE=TIME, such as 4001=3s, with a code from 1000 to 4999";
    let (code, time) = word.split_once('=').ok_or(form)?;
    let code = code.parse().ok().filter(|code| (1000..5000).contains(code)).ok_or(form)?;
    Ok((code, self::time(time)?))
}

/// A length of time, as it is typed.
pub(super) fn past_time(word: &str) -> Result<Duration, String> {
    let form = |_| "write a time such as 30s, 5m, 2h or 1day".to_owned();
    humantime::parse_duration(word).map_err(form)
}

/// A time that a call may take.
pub(super) fn time(word: &str) -> Result<Duration, String> {
    let time = past_time(word)?;
    match (Duration::from_millis(1)..=LONGEST).contains(&time) {
        true => Ok(time),
        false => Err("it must be from 1ms to 30days".to_owned()),
    }
}

/// Joins the client and the application until the client leaves, or a signal comes.
pub fn run(arguments: ConnectArgs) -> ExitCode {
    // A command of the user's finds what it would find in a shell, and there is no thread yet.
    let starting = match arguments.token_command.as_ref().map(|_| Spawner::start()).transpose() {
        Ok(starting) => starting,
        Err(error) => return fail(&format!("cannot start the helper process: {error}")),
    };
    harden_worker();
    give_memory_back();
    let environment = Environment::of_process();
    let folders = UserFolders::of(&environment, arguments.state_dir.clone());
    let is_shared = !arguments.no_share;
    let level = match level(arguments.log_level.as_deref(), &environment) {
        Ok(level) => level,
        Err(why) => return wrong(&why),
    };
    let log_file = match arguments.log_file.as_deref().map(absolute).transpose() {
        Ok(file) => file,
        Err(why) => return wrong(&why),
    };
    let has_beginnings = arguments.record_messages;
    let server = match server(arguments, &environment, &folders) {
        Ok(server) => server,
        Err(why) => return wrong(&why),
    };
    let metrics = Arc::new(Metrics::default());
    let redactor = Redactor::new(secrets(&server, &environment).iter().map(Secret::expose));
    let file = log_file.as_deref().map(LogPlace::File);
    let settings = LogSettings { level: level.0, file, redactor, is_output_taken: true };
    let log = match log::start(settings, &metrics) {
        Ok(log) => log,
        Err(error) => return fail(&format!("cannot start the log: {error}")),
    };
    let config = Config::of_app(server, &environment);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let code = runtime.block_on(async {
        let starter = match starting.map(Starting::attach).transpose() {
            Ok(None) => Starter::Nothing(Support::default()),
            Ok(Some(spawner)) => Starter::Spawner(spawner),
            Err(error) => return fail(&format!("cannot reach the helper process: {error}")),
        };
        let meeting = folders.meeting().filter(|_| is_shared);
        let records = AppRecords {
            secrets: log.secrets(),
            messages: Arc::new(MessageRing::new(has_beginnings, log.secrets())),
            troubles: log.troubles(),
        };
        match join(&config, &folders, meeting, &metrics, starter, records).await {
            Ok(code) => code,
            Err(why) => fail(&why),
        }
    });
    // A terminal is read by a thread that cannot be told to stop. It ends with the process.
    runtime.shutdown_background();
    code
}

async fn join(
    config: &Config,
    folders: &UserFolders,
    meeting: Option<PathBuf>,
    metrics: &Arc<Metrics>,
    starter: Starter,
    records: AppRecords,
) -> Result<ExitCode, String> {
    let bridge = LiveBridge::new(config, folders.state.as_deref(), metrics, starter, records);
    let mut bridge = bridge.map_err(|error| chain(&error))?;
    if let (Some(folder), Some(app)) = (meeting, &config.servers[0].app) {
        match MeetingPoint::new(&folder, &app.meeting_name()) {
            Ok(point) => bridge.share(point),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the connection is not shared with other bridges");
            }
        }
    }
    let input = standard_streams::input();
    let input = input.map_err(|error| format!("standard input cannot be read: {error}"))?;
    let output = standard_streams::output();
    let output = output.map_err(|error| format!("standard output cannot be written: {error}"))?;
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals.map(signal) else {
        return Err("signals cannot be heard".to_owned());
    };
    let mut signal = async || {
        tokio::select! {
            _ = interrupt.recv() => ExitCode::from(130),
            _ = terminate.recv() => ExitCode::from(143),
            _ = hangup.recv() => ExitCode::from(129),
        }
    };
    let address = config.servers[0].app.as_ref().map(|app| app.place.to_string());
    let known = announced(&folders.status(), "connect", address.unwrap_or_default());
    let _announcement = known.map(|(announcement, socket)| {
        bridge.tell_status(socket);
        announcement
    });
    bridge.begin();
    let front = bridge.front();
    let code = tokio::select! {
        _ = front.serve(input, output) => ExitCode::SUCCESS,
        code = signal() => code,
    };
    // What a signal cut off is cancelled at the application.
    front.leave();
    tokio::select! {
        () = bridge.close() => Ok(code),
        // It does not wait for the calls of other bridges any more.
        code = signal() => Ok(code),
    }
}

/// The words of this command, as if they were typed.
#[derive(Debug, Parser)]
struct TypedConnect {
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The application at an address, with what it is shown, in the words of this command.
pub(super) fn app_at(
    words: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Server, String> {
    let words = [OsString::from("pontoon connect")].into_iter().chain(words);
    let typed = TypedConnect::try_parse_from(words).map_err(|error| error.to_string())?;
    server(typed.connect, environment, &UserFolders::of(environment, None))
}

/// The application that was typed.
fn server(
    arguments: ConnectArgs,
    environment: &Environment,
    folders: &UserFolders,
) -> Result<Server, String> {
    let place = place(&arguments, folders)?;
    let has_token = arguments.token_file.is_some()
        || arguments.token_env.is_some()
        || arguments.token_command.is_some();
    if !place.takes_token() && has_token {
        return Err(format!("{place} has no place for a token: only WebSockets have"));
    }
    let token = match (arguments.token_file, arguments.token_command, arguments.token_env) {
        (Some(file), ..) => Some(TokenSource::File(absolute(&file)?)),
        (None, Some(command), _) => Some(TokenSource::Command(command)),
        (None, None, Some(name)) => Some(TokenSource::variable(&name, environment)?),
        (None, None, None) => TokenSource::variable(TOKEN, environment).ok(),
    };
    let token = match &place {
        AppPlace::Comes(_) if arguments.no_token => None,
        AppPlace::Comes(AppEntrance { port, .. }) => {
            Some(entrance_token(*port, token, folders.state.as_deref())?)
        }
        _ => token,
    };
    let file = |file: Option<PathBuf>| file.as_deref().map(absolute).transpose();
    let typed = arguments.header.iter().map(|header| AppHeader::typed(header));
    let typed = typed.collect::<Result<_, _>>().map_err(|bad| bad.to_string())?;
    let headers = AppHeaders { typed, file: file(arguments.header_file)? };
    if !headers.is_empty() && !place.takes_token() {
        return Err(format!("{place} has no place for headers: only WebSockets have"));
    }
    headers.read().map_err(|error| chain(&error))?;
    let own = file(arguments.client_cert)?.zip(file(arguments.client_key)?);
    let tls = TlsFiles { authorities: file(arguments.ca_file)?, own };
    if tls != TlsFiles::default() {
        if !place.is_secure() {
            return Err(format!("{place} has no use for certificates: only wss:// has"));
        }
        check_files(&tls).map_err(|error| chain(&error))?;
    }
    let name: ServerName = "app".parse().map_err(|_| "the name `app` is no name".to_owned())?;
    let app = AppOptions {
        place,
        token,
        headers,
        tls,
        connect_wait: arguments.connect_wait,
        silence: Silence { ping_after: arguments.ping_after, busy_grace: arguments.busy_grace },
        close_codes: arguments.close_code,
        over_http: false,
    };
    Ok(Server {
        timeout: arguments.timeout,
        tool_timeouts: arguments.tool_timeout,
        max_in_flight: usize::from(arguments.max_in_flight),
        heal: Healing::typed(arguments.heal.iter().map(String::as_str))?,
        profile: arguments.profile,
        ..Server::of_app(name, app)
    })
}

/// What must never be in the log, as far as it is known now.
fn secrets(server: &Server, environment: &Environment) -> Vec<Secret> {
    let mut secrets: Vec<_> = proxy_secrets(environment).into_iter().map(Secret::new).collect();
    if let Some(app) = &server.app {
        secrets.extend(app.token.as_ref().and_then(TokenSource::known));
        let headers = app.headers.read().unwrap_or_default();
        secrets.extend(headers.iter().filter_map(AppHeader::secret).map(Secret::new));
    }
    secrets
}

/// The path from the root on: bridges that were started elsewhere may use the same one, or not.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where the application is looked for.
fn place(arguments: &ConnectArgs, folders: &UserFolders) -> Result<AppPlace, String> {
    if let Some(port) = arguments.listen {
        let origins = arguments.allow_origin.clone();
        return Ok(AppPlace::Comes(AppEntrance { port, origins }));
    }
    if let Some(name) = &arguments.app {
        let folder = arguments.app_dir.clone().or_else(|| folders.apps());
        let folder = absolute(&folder.ok_or("there is no home to look in: use --app-dir")?)?;
        return Ok(AppPlace::Named { name: name.clone(), folder });
    }
    let url = arguments.url.as_deref().unwrap_or_default();
    url.parse().map_err(|bad: BadPlace| bad.to_string())
}

fn level(word: Option<&str>, environment: &Environment) -> Result<LogLevel, String> {
    let is_debug = environment.get("DEBUG").is_some_and(|value| value == "1");
    let word = word.unwrap_or(if is_debug { "debug" } else { "warning" });
    parse_log_level(word).map_err(|forms| format!("{word:?} is no log level: write {forms}"))
}

pub(super) fn wrong(why: &str) -> ExitCode {
    tell(&format!("error: {why}"));
    ExitCode::from(TYPED_WRONGLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_after_a_code_is_a_code_and_a_time() {
        assert_eq!(close_code("4001=3s"), Ok((4001, Duration::from_secs(3))));
        for word in ["4001", "=3s", "x=3s", "999=3s", "5000=3s", "70000=3s"] {
            assert!(close_code(word).unwrap_err().contains("such as 4001=3s"), "{word}");
        }
        assert!(close_code("4001=soon").is_err());
    }
}
