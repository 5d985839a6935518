//! The log: as JSON lines on standard output, or as text on standard error for people at a terminal;
//! and in a file of this instance if one is configured.
//!
//! Every text is cleaned before it is logged; a call that logs never waits for a disk or a reader.

mod call_line;
mod calls;
mod console;
mod file;
mod layer;
mod line;
mod old;
mod place;
mod queue;
mod read;
mod screen;
mod secrets;
mod troubles;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::call_line::CallLine;
pub use self::calls::tell_calls;
pub use self::place::LogPlace;
pub use self::read::{FoundLine, SoughtLines, find_lines};
pub use self::secrets::Secrets;
pub use self::troubles::Troubles;

use self::console::Console;
use self::file::LogFile;
use self::layer::{LogLayer, LogSink};
use self::line::{Style, lost};
use self::queue::LineQueue;
use super::metrics::Metrics;
use super::redact::Redactor;
use crate::colour;

/// How long the end waits for lines that are not written yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the troubles of the log file are told: a disk that is nearly full changes quickly.
const PAUSE: Duration = Duration::from_secs(10);

/// What to log, and where to.
#[derive(Debug)]
pub struct LogSettings<'a> {
    /// How much.
    pub level: Level,
    /// The file besides, if there is to be one.
    pub file: Option<LogPlace<'a>>,
    /// What must never be logged.
    pub redactor: Redactor,
    /// Whether standard output is a client's, and nothing of the log may be on it.
    pub is_output_taken: bool,
}

/// The log, as long as it is held. At its end it is written out.
#[derive(Debug)]
pub struct Log {
    queues: Vec<Arc<LineQueue>>,
    secrets: Secrets,
    troubles: Arc<Troubles>,
}

impl Log {
    /// What must never be logged, to be added to.
    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// The last warnings and errors.
    pub fn troubles(&self) -> Arc<Troubles> {
        Arc::clone(&self.troubles)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.finish(PATIENCE));
    }
}

/// Begins to log. Called once, by the command line.
///
/// # Errors
///
/// When no thread can be started. A log file that cannot be written is no error: the log says so, its
/// lines are counted as lost, and it is tried again.
pub fn start(settings: LogSettings<'_>, metrics: &Arc<Metrics>) -> io::Result<Log> {
    // Collectors read standard output. A person at a terminal reads what is told on standard error.
    let (mut console, style) = match settings.is_output_taken || io::stdout().is_terminal() {
        true => (Console::new(io::stderr().as_fd())?, style_for_people()),
        false => (Console::new(io::stdout().as_fd())?, Style::Json),
    };
    let told = move |count| style.render(&lost(count));
    let console = LineQueue::start("log", metrics, told, move |lines| console.write(lines))?;
    let mut sinks = vec![LogSink { style, level: settings.level, queue: console }];
    if let Some(place) = settings.file {
        let (path, style, level) = (place.path(), place.style(), place.level(settings.level));
        let queue = start_file(place, metrics, move |it| tell(&path, it))?;
        sinks.push(LogSink { style, level, queue });
    }
    let secrets = Secrets::new(settings.redactor);
    let queues = sinks.iter().map(|sink| Arc::clone(&sink.queue)).collect();
    let troubles = Arc::new(Troubles::default());
    let log = Log { queues, secrets: secrets.clone(), troubles: Arc::clone(&troubles) };
    let most = sinks.iter().map(|sink| sink.level).max().unwrap_or(settings.level);
    let layer = LogLayer { sinks, secrets, troubles };
    tracing_subscriber::registry().with(LevelFilter::from_level(most)).with(layer).init();
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let owned = payload.downcast_ref::<String>().map(String::as_str);
        let message = owned.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
        tracing::error!(location, panic = message, "a fault of the bridge itself: it panicked");
    }));
    Ok(log)
}

/// How lines on standard error look.
fn style_for_people() -> Style {
    match io::stderr().is_terminal() {
        true => Style::Screen { has_colour: has_colour() },
        false => Style::Text { has_colour: false },
    }
}

fn has_colour() -> bool {
    colour::is_wanted(io::stderr().is_terminal(), |name| std::env::var_os(name))
}

/// The queue toward the log file. `tell` hears when its troubles begin and end.
fn start_file(
    place: LogPlace<'_>,
    metrics: &Arc<Metrics>,
    tell: impl Fn(Option<&io::Error>) + Send + 'static,
) -> io::Result<Arc<LineQueue>> {
    let (mut file, style) = (LogFile::new(place), place.style());
    let (mut is_well, mut told) = (true, None::<Instant>);
    let write = move |lines: &[u8]| {
        let written = file.write(lines, Instant::now());
        let may_tell = told.is_none_or(|told| told.elapsed() >= PAUSE);
        if written.is_ok() != is_well && may_tell {
            is_well = written.is_ok();
            told = Some(Instant::now());
            tell(written.as_ref().err());
        }
        written
    };
    LineQueue::start("log file", metrics, move |count| style.render(&lost(count)), write)
}

/// Logs that the log file cannot be written, or can again.
fn tell(path: &str, error: Option<&io::Error>) {
    match error {
        Some(error) => tracing::error!(
            path,
            error = error as &dyn Error,
            "the log file cannot be written; its lines are lost until it can"
        ),
        None => tracing::info!(path, "the log file can be written again"),
    }
}

#[cfg(test)]
mod tests;
