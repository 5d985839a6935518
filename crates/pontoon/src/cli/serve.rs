//! `pontoon serve`: run the bridge until a signal.

use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use super::announced::announced;
use super::reload::{changes, follow};
use super::terminal::{begin, fail, tell, with_spawner};
use super::user_folders::UserFolders;
use super::{banner, ending};
use crate::app::App;
use crate::back::child::launcher::secrets_of;
use crate::config::{Config, Options, Secret, proxy_secrets};
use crate::errors::chain;
use crate::observe::log::{self, LogPlace, LogSettings};
use crate::observe::metrics::Metrics;
use crate::observe::redact::Redactor;

/// What stands below its help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon serve                                   the built-in demo server, at /mcp/demo
  pontoon serve -- uvx mcp-server-time            one server, run as it would be where this is typed
  pontoon serve --port 9000 --config tools.json   the servers of a file
  MCPO_API_KEYS=me=KEY,bob=KEY2 pontoon serve --listen 0.0.0.0:8080 --hot-reload

Each server is at /mcp/NAME, over WebSocket at /ws/NAME, and as OpenAPI at /mcpo/NAME. Every setting \
is also a variable, such as MCPO_LISTEN: docs/configuration.md has them.";

/// Serves until SIGTERM or SIGINT; a second one ends it at once.
pub fn run(options: &Options) -> ExitCode {
    let (config, starting) = match begin(options) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    let metrics = Arc::new(Metrics::default());
    let proxies = proxy_secrets(&config.environment);
    let settings = LogSettings {
        level: config.settings.log_level.0,
        file: config.settings.log_dir.as_deref().map(LogPlace::Folder),
        is_output_taken: false,
        redactor: Redactor::new(secrets(&config).chain(proxies.iter().map(String::as_bytes))),
    };
    let log = match log::start(settings, &metrics) {
        Ok(log) => log,
        Err(error) => return fail(&format!("cannot start the log: {error}")),
    };
    raise_descriptor_limit();
    let asked = match ending::begin() {
        Ok(asked) => asked,
        Err(error) => return fail(&format!("cannot hear signals: {error}")),
    };
    with_spawner(starting, async |spawner| {
        let app = match App::start(&config, spawner, Arc::clone(&metrics)).await {
            Ok(app) => app,
            Err(error) => return fail(&chain(&error)),
        };
        if !options.is_quiet {
            greet(&config, &app);
        }
        app.tls().map(|tls| tokio::spawn(follow(tls)));
        let folders = UserFolders::of(&config.environment, None).status();
        let known = announced(&folders, "serve", addresses(config.settings.scheme(), &app));
        let _announcement = known.map(|(announcement, socket)| {
            app.tell_status(socket, log.troubles());
            announcement
        });
        let hidden = log.secrets();
        let hide = move |config: &Config| hidden.hide(secrets(config));
        let changes = changes(options, &config, app.metrics(), hide);
        match app.run(asked.cancelled(), changes).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => fail(&why.to_string()),
        }
    })
}

/// Where it listens, in words.
fn addresses(scheme: &str, app: &App) -> String {
    let all: Vec<_> =
        app.addresses().iter().map(|address| format!("{scheme}://{address}")).collect();
    all.join(" ")
}

/// What is configured and must never be logged.
fn secrets(config: &Config) -> impl Iterator<Item = &[u8]> {
    let keys = config.settings.api_keys.iter().map(|key| &key.key);
    let ours = keys.chain(&config.settings.owui_jwt_secret).chain(&config.settings.link_secret);
    let shown = config.settings.traces.iter().flat_map(|traces| &traces.headers);
    let ours = ours.chain(&config.settings.session_secret).chain(shown.map(|(_, value)| value));
    let ours = ours.map(Secret::expose);
    ours.chain(config.servers.iter().flat_map(|server| secrets_of(server)))
}

/// Allows as many descriptors as the system lets us have: each child needs four, each client one.
/// Children keep the limit they had, for they are started by a process that was forked before.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on open descriptors stays as it is");
    }
}

/// Tells where the bridge listens, how to use it, and what to mind.
fn greet(config: &Config, app: &App) {
    banner::lines(config, &app.addresses()).iter().for_each(|line| tell(line));
    if let Some(warning) = config.warning_for_root().filter(|_| geteuid().is_root()) {
        tell(&format!("warning: {warning}"));
        tracing::warn!(warning, "servers run as root");
    }
    if let Some(note) = config.note() {
        tell(&format!("note: {note}"));
        tracing::info!(note, "calls have to say who asks");
    }
}
