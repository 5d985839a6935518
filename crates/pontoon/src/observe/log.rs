//! The log: on standard error, for people on a terminal and as JSON lines elsewhere.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins to log. Called once, by the command line.
pub fn start(level: Level) {
    let registry = tracing_subscriber::registry().with(LevelFilter::from_level(level));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    match std::io::stderr().is_terminal() {
        true => registry.with(layer.compact()).init(),
        false => registry.with(layer.json().flatten_event(true)).init(),
    }
}
