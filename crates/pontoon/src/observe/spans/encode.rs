//! Spans as a collector takes them: `ExportTraceServiceRequest` of OTLP 1, and what is read of its answer.
//!
//! The numbers are those of the fields in `opentelemetry/proto`, which only ever grow.

use std::time::Duration;

use super::protobuf::{Field, ProtobufWriter, fields};
use super::span::{Span, SpanValue};
use crate::observe::trace::Trace;

/// What all spans come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// What the bridge is said to be; `service.name` is among it.
    pub resource: Vec<(String, String)>,
}

/// The flags of a span say whether its parent is of another process: that this is known, and that it is so.
const IS_REMOTE_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

const STATUS_ERROR: u64 = 2;

/// The body of a request with these spans.
pub fn request(scope: &Scope, spans: &[Span]) -> Vec<u8> {
    let mut body = ProtobufWriter::default();
    body.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            for (key, value) in &scope.resource {
                attribute(resource, 1, key, |it| it.always(1, value.as_bytes()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, b"pontoon");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            spans.iter().for_each(|span| scope_spans.message(2, |it| write(it, span)));
        });
    });
    body.finish()
}

fn write(to: &mut ProtobufWriter, span: &Span) {
    let Trace { trace_id, span_id, parent, flags, state } = &span.trace;
    to.bytes(1, &trace_id.to_be_bytes());
    to.bytes(2, &span_id.to_be_bytes());
    if let Some(state) = state {
        to.bytes(3, state.as_bytes());
    }
    if let Some(parent) = parent {
        to.bytes(4, &parent.to_be_bytes());
    }
    to.bytes(5, span.name.as_bytes());
    to.number(6, span.kind as u64);
    to.fixed64(7, nanoseconds(span.began));
    to.fixed64(8, nanoseconds(span.ended));
    for (key, value) in &span.attributes {
        attribute(to, 9, key, |it| match value {
            SpanValue::Text(text) => it.always(1, text.as_bytes()),
            SpanValue::Number(number) => it.always_number(3, number.cast_unsigned()),
        });
    }
    if let Some(error) = &span.error {
        attribute(to, 9, "error.type", |it| it.always(1, error.as_bytes()));
    }
    if let Some((trace_id, span_id)) = span.link {
        to.message(13, |link| {
            link.bytes(1, &trace_id.to_be_bytes());
            link.bytes(2, &span_id.to_be_bytes());
            link.fixed32(6, IS_REMOTE_KNOWN | IS_REMOTE);
        });
    }
    if span.error.is_some() {
        to.message(15, |status| status.number(3, STATUS_ERROR));
    }
    let remote = match span.kind {
        super::Kind::Server => IS_REMOTE,
        super::Kind::Internal | super::Kind::Client => 0,
    };
    to.fixed32(16, u32::from(*flags) | IS_REMOTE_KNOWN | remote);
}

/// One attribute; `value` writes what it is.
fn attribute(
    to: &mut ProtobufWriter,
    field: u32,
    key: &str,
    value: impl FnOnce(&mut ProtobufWriter),
) {
    to.message(field, |pair| {
        pair.bytes(1, key.as_bytes());
        pair.message(2, value);
    });
}

/// As the format has it, until the year 2554.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How many spans a collector did not want, by its answer to a request that it took.
pub fn rejected(answer: &[u8]) -> u64 {
    let partial_success = fields(answer).find_map(|field| match field {
        (1, Field::Bytes(inner)) => Some(inner),
        _ => None,
    });
    let rejected = fields(partial_success.unwrap_or_default()).find_map(|field| match field {
        (1, Field::Number(count)) => Some(count),
        _ => None,
    });
    rejected.unwrap_or(0)
}
