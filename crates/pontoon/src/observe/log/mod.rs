//! The log: as JSON lines on standard output, or as text on standard error for people at a terminal;
//! and in a file of this instance if a directory is configured.
//!
//! Every text is cleaned before it is logged; a call that logs never waits for a disk or a reader.

mod console;
mod file;
mod layer;
mod line;
mod old;
mod queue;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::layer::Secrets;

use self::console::Console;
use self::file::LogFile;
use self::layer::LogLayer;
use self::line::{Style, lost};
use self::queue::LineQueue;
use super::metrics::Metrics;
use super::redact::Redactor;

/// How long the end waits for lines that are not written yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the troubles of the log file are told: a disk that is nearly full changes quickly.
const PAUSE: Duration = Duration::from_secs(10);

/// What to log, and where to.
#[derive(Debug)]
pub struct LogSettings<'a> {
    /// How much.
    pub level: Level,
    /// The directory for the file of this instance.
    pub folder: Option<&'a Path>,
    /// What must never be logged.
    pub redactor: Redactor,
}

/// The log, as long as it is held. At its end it is written out.
#[derive(Debug)]
pub struct Log {
    queues: Vec<Arc<LineQueue>>,
    secrets: Secrets,
}

impl Log {
    /// What must never be logged, to be added to.
    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
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
    let (mut console, style) = match io::stdout().is_terminal() {
        true => (Console::new(io::stderr().as_fd())?, Style::Text { has_colour: has_colour() }),
        false => (Console::new(io::stdout().as_fd())?, Style::Json),
    };
    let told = move |count| style.render(&lost(count));
    let console = LineQueue::start("log", metrics, told, move |lines| console.write(lines))?;
    let mut queues = vec![(style, console)];
    if let Some(folder) = settings.folder {
        let name = folder.display().to_string();
        queues.push((Style::Json, start_file(folder, metrics, move |it| tell(&name, it))?));
    }
    let secrets = Secrets(Arc::new(RwLock::new(settings.redactor)));
    let all = queues.iter().map(|(_, queue)| Arc::clone(queue)).collect();
    let log = Log { queues: all, secrets: secrets.clone() };
    let level = LevelFilter::from_level(settings.level);
    tracing_subscriber::registry().with(level).with(LogLayer { queues, secrets }).init();
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let owned = payload.downcast_ref::<String>().map(String::as_str);
        let message = owned.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
        tracing::error!(location, panic = message, "a fault of the bridge itself: it panicked");
    }));
    Ok(log)
}

fn has_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// The queue toward the log file. `tell` hears when its troubles begin and end.
fn start_file(
    folder: &Path,
    metrics: &Arc<Metrics>,
    tell: impl Fn(Option<&io::Error>) + Send + 'static,
) -> io::Result<Arc<LineQueue>> {
    let mut file = LogFile::new(folder);
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
    LineQueue::start("log file", metrics, |count| Style::Json.render(&lost(count)), write)
}

/// Logs that the log file cannot be written, or can again.
fn tell(folder: &str, error: Option<&io::Error>) {
    match error {
        Some(error) => tracing::error!(
            folder,
            error = error as &dyn Error,
            "the log file cannot be written; its lines are lost until it can"
        ),
        None => tracing::info!(folder, "the log file can be written again"),
    }
}

#[cfg(test)]
mod tests;
