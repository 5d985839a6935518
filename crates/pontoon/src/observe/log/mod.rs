//! The log: as JSON lines on standard output, or as text on standard error for people at a terminal;
//! and in a file of this instance if a directory is configured.
//!
//! Every text is cleaned before it is logged; nobody who logs waits for a disk or a reader.

mod console;
mod file;
mod line;
mod old;
mod queue;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::redact::Redactor;

use self::console::Console;
use self::file::LogFile;
use self::line::{Line, lost};
use self::queue::Queue;
use super::metrics::Metrics;

/// How long the end waits for lines that are not written yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the troubles of the log file are told: a disk that is nearly full changes quickly.
const PAUSE: Duration = Duration::from_secs(10);

/// What to log, and where to.
#[derive(Debug)]
pub struct Settings<'a> {
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
    queues: Vec<Arc<Queue>>,
    redactor: Secrets,
}

impl Log {
    /// What must never be logged, to be added to.
    pub fn secrets(&self) -> Secrets {
        self.redactor.clone()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.finish(PATIENCE));
    }
}

/// What must never be logged. It grows when the configuration changes.
#[derive(Debug, Clone)]
pub struct Secrets(Arc<RwLock<Redactor>>);

impl Secrets {
    /// Keeps these out of the log too, from now on.
    pub fn hide<'a>(&self, secrets: impl IntoIterator<Item = &'a [u8]>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).hide_more(secrets);
    }
}

/// Begins to log. Called once, by the command line.
///
/// # Errors
///
/// When no thread can be started. A log file that cannot be written is no error: it is told, its
/// lines are counted as lost, and it is tried again.
pub fn start(settings: Settings<'_>, metrics: &Arc<Metrics>) -> io::Result<Log> {
    let level = LevelFilter::from_level(settings.level);
    // Collectors read standard output. A person at a terminal reads what is told on standard error.
    let is_for_people = io::stdout().is_terminal();
    let (mut console, style) = match is_for_people {
        true => (Console::stderr()?, Style::Text { has_colour: has_colour() }),
        false => (Console::stdout()?, Style::Json),
    };
    let told: fn(u64) -> String = match is_for_people {
        true => |count| lost(count).to_text(false),
        false => |count| lost(count).to_json(),
    };
    let console = Queue::start("log", metrics, told, move |lines| console.write(lines))?;
    let mut queues = vec![(style, Arc::clone(&console))];
    if let Some(folder) = settings.folder {
        queues.push((Style::Json, start_file(folder, metrics, &console, style)?));
    }
    let redactor = Secrets(Arc::new(RwLock::new(settings.redactor)));
    let log = Log {
        queues: queues.iter().map(|(_, queue)| Arc::clone(queue)).collect(),
        redactor: redactor.clone(),
    };
    let layer = LogLayer { queues, redactor };
    tracing_subscriber::registry().with(level).with(layer).init();
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

/// The queue toward the log file. Its troubles are told on the console, when they begin and end.
fn start_file(
    folder: &Path,
    metrics: &Arc<Metrics>,
    console: &Arc<Queue>,
    style: Style,
) -> io::Result<Arc<Queue>> {
    let mut file = LogFile::new(folder);
    let (folder, console) = (folder.display().to_string(), Arc::clone(console));
    let (mut is_well, mut told) = (true, None::<Instant>);
    let write = move |lines: &[u8]| {
        let written = file.write(lines, Instant::now());
        let may_tell = told.is_none_or(|told| told.elapsed() >= PAUSE);
        if written.is_ok() != is_well && may_tell {
            is_well = written.is_ok();
            told = Some(Instant::now());
            console.push(style.render(&trouble(&folder, written.as_ref().err())).into());
        }
        written
    };
    Queue::start("log file", metrics, |count| lost(count).to_json(), write)
}

/// Says that the log file cannot be written, or can again.
fn trouble(folder: &str, error: Option<&io::Error>) -> Line {
    let (level, message) = match error {
        Some(_) => {
            (Level::ERROR, "the log file cannot be written; its lines are lost until it can")
        }
        None => (Level::INFO, "the log file can be written again"),
    };
    let redactor = Redactor::default();
    let mut fields = Map::new();
    fields.insert("folder".to_owned(), redactor.value("folder", folder).into());
    if let Some(error) = error {
        fields.insert("error".to_owned(), redactor.value("error", error).into());
    }
    let (time, target) = (SystemTime::now(), module_path!().to_owned());
    Line { time, level, target, message: message.to_owned(), fields }
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Json,
    Text { has_colour: bool },
}

impl Style {
    fn render(self, line: &Line) -> String {
        match self {
            Self::Json => line.to_json(),
            Self::Text { has_colour } => line.to_text(has_colour),
        }
    }
}

/// Turns events into lines.
#[derive(Debug)]
struct LogLayer {
    queues: Vec<(Style, Arc<Queue>)>,
    redactor: Secrets,
}

type Fields = Vec<(&'static str, Value)>;

/// The fields of a span, clean already.
struct SpanFields(Fields);

impl LogLayer {
    /// Adds the fields that `record` records.
    fn collect(&self, fields: &mut Fields, record: impl FnOnce(&mut Collect<'_>)) {
        let redactor = self.redactor.0.read().unwrap_or_else(PoisonError::into_inner);
        record(&mut Collect { fields, redactor: &redactor });
    }

    fn line<S>(&self, event: &Event<'_>, context: &Context<'_, S>) -> Line
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(more)) = span.extensions().get() {
                fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            }
        }
        // The message is apart, so that no field of a span can stand for it.
        let mut own = Vec::new();
        self.collect(&mut own, |collect| event.record(collect));
        let mut message = String::new();
        for (name, value) in own {
            match (name, value) {
                ("message", Value::String(text)) => message = text,
                (name, value) => drop(fields.insert(name.to_owned(), value)),
            }
        }
        let metadata = event.metadata();
        let (level, target) = (*metadata.level(), metadata.target().to_owned());
        Line { time: SystemTime::now(), level, target, message, fields }
    }
}

impl<S> Layer<S> for LogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Vec::new();
        self.collect(&mut fields, |collect| attributes.record(collect));
        span.extensions_mut().insert(SpanFields(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields(fields)) = span.extensions_mut().get_mut() {
            self.collect(fields, |collect| values.record(collect));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let line = self.line(event, &context);
        let mut written: Option<(Style, Arc<str>)> = None;
        for (style, queue) in &self.queues {
            let text = match &written {
                Some((same, text)) if same == style => Arc::clone(text),
                _ => Arc::from(style.render(&line)),
            };
            queue.push(Arc::clone(&text));
            written = Some((*style, text));
        }
    }
}

/// Collects fields, each cleaned.
struct Collect<'a> {
    fields: &'a mut Fields,
    redactor: &'a Redactor,
}

impl Collect<'_> {
    fn text(&mut self, field: &Field, value: impl std::fmt::Display) {
        let value = self.redactor.value(field.name(), value);
        self.note(field, value.into());
    }

    /// A value that cannot carry a trick, but may be a secret.
    fn plain(&mut self, field: &Field, value: impl Into<Value>) {
        if Redactor::is_secret(field.name()) {
            return self.text(field, "");
        }
        self.note(field, value.into());
    }

    /// Keeps a value; a span may learn a field again.
    fn note(&mut self, field: &Field, value: Value) {
        match self.fields.iter_mut().find(|(name, _)| *name == field.name()) {
            Some((_, old)) => *old = value,
            None => self.fields.push((field.name(), value)),
        }
    }
}

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        self.text(field, text);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.plain(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }
}

#[cfg(test)]
mod tests;
