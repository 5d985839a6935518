//! Turns events into lines: the fields of an event and of the spans around it, each cleaned.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::line::{LogLine, Style};
use super::queue::LineQueue;
use super::secrets::Secrets;
use super::troubles::Troubles;
use crate::errors::chain;
use crate::observe::redact::Redactor;
use crate::observe::trace::TraceId;

/// Gives each event as a line to every queue.
#[derive(Debug)]
pub(super) struct LogLayer {
    pub(super) sinks: Vec<LogSink>,
    pub(super) secrets: Secrets,
    pub(super) troubles: Arc<Troubles>,
}

/// One place where lines go.
#[derive(Debug)]
pub(super) struct LogSink {
    pub(super) style: Style,
    /// What tells more than this does not go there.
    pub(super) level: Level,
    pub(super) queue: Arc<LineQueue>,
}

/// The fields of a span, clean already.
struct SpanFields {
    trace: Option<TraceId>,
    others: Map<String, Value>,
}

impl LogLayer {
    /// Adds the fields that `record` records.
    fn collect(&self, fields: &mut Map<String, Value>, record: impl FnOnce(&mut Collect<'_>)) {
        let redactor = self.secrets.redactor();
        record(&mut Collect { fields, redactor: &redactor });
    }
}

impl<S> Layer<S> for LogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut found = TraceOf::default();
        attributes.record(&mut found);
        let mut others = Map::new();
        if found.has_others {
            self.collect(&mut others, |collect| attributes.record(collect));
        }
        span.extensions_mut().insert(SpanFields { trace: found.trace, others });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields { others, .. }) = span.extensions_mut().get_mut() {
            self.collect(others, |collect| values.record(collect));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields { trace, others }) = span.extensions().get() {
                fields
                    .extend(trace.map(|trace| (TRACE_FIELD.to_owned(), trace.to_string().into())));
                fields.extend(others.clone());
            }
        }
        // The message is apart, so that no field of a span can stand for it.
        let mut own = Map::new();
        self.collect(&mut own, |collect| event.record(collect));
        let message = own.shift_remove("message").and_then(|it| it.as_str().map(str::to_owned));
        fields.extend(own);
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        let message = message.unwrap_or_default();
        let line = LogLine { time: SystemTime::now(), level, target, message, fields };
        self.troubles.note(&line);
        let sinks = self.sinks.iter().filter(|sink| line.level <= sink.level);
        sinks.for_each(|sink| sink.queue.push(sink.style.render(&line)));
    }
}

/// The field by which the lines of a request are found, a number until a line is written.
const TRACE_FIELD: &str = "trace_id";

/// Finds the trace in the fields of a span, and whether there is more.
#[derive(Default)]
struct TraceOf {
    trace: Option<TraceId>,
    has_others: bool,
}

impl Visit for TraceOf {
    fn record_u128(&mut self, field: &Field, value: u128) {
        match field.name() {
            TRACE_FIELD => self.trace = Some(TraceId(value)),
            _ => self.has_others = true,
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {
        self.has_others = true;
    }
}

/// Collects fields, each cleaned. One that comes again takes the place of the old.
struct Collect<'a> {
    fields: &'a mut Map<String, Value>,
    redactor: &'a Redactor,
}

impl Collect<'_> {
    fn text(&mut self, field: &Field, value: impl Display) {
        let value = self.redactor.value(field.name(), value);
        self.fields.insert(field.name().to_owned(), value.into());
    }

    /// A value that cannot carry a trick, but may be a secret.
    fn plain(&mut self, field: &Field, value: impl Into<Value>) {
        match Redactor::is_secret(field.name()) {
            true => self.text(field, ""),
            false => drop(self.fields.insert(field.name().to_owned(), value.into())),
        }
    }
}

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, format_args!("{value:?}"));
        // A list of texts is written as one, and not as the text of one.
        if let Some(written) = self.fields.get_mut(field.name())
            && let Some(list) = written.as_str().filter(|text| text.starts_with('['))
            && let Ok(list) = serde_json::from_str::<Vec<String>>(list)
        {
            *written = list.into();
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, chain(value));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        match field.name() {
            TRACE_FIELD => self.text(field, TraceId(value)),
            _ => self.text(field, value),
        }
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
