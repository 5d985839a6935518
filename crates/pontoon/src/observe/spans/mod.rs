//! Spans: what a call went through and how long each part took, for a collector of OpenTelemetry.
//!
//! [`Tracer`] decides whether a request has spans and gives it a [`CallTrace`]; that gives a [`Step`] for each part. Spans that
//! are over wait in a [`SpanQueue`], in which a call only ever leaves something: it waits for nothing. Sending them is left
//! to `app`.

mod call_trace;
mod encode;
mod protobuf;
mod queue;
mod span;

pub use call_trace::{CallTrace, Step, Tracer};
pub use encode::{Scope, rejected, request};
pub use queue::{BATCH, SpanQueue};
pub use span::{Kind, Span};

#[cfg(test)]
mod tests;
