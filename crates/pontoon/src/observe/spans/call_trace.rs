//! The trace of one request, and the steps in it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use super::queue::SpanQueue;
use super::span::{Kind, Span};
use crate::config::Sampling;
use crate::observe::metrics::Metrics;
use crate::observe::trace::{Trace, Traces};

/// Makes the traces of requests.
#[derive(Debug)]
pub struct Tracer {
    /// Makes ids.
    pub traces: Traces,
    /// Where spans wait that are over.
    pub queue: SpanQueue,
    sampling: Sampling,
}

impl Tracer {
    /// One that makes spans of these requests, and counts there what gets lost of them.
    pub fn new(sampling: Sampling, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { traces: Traces::default(), queue: SpanQueue::new(metrics), sampling })
    }

    /// Begins the span of a request that we answer, in the trace that its client told, if it did. `link` is the trace of
    /// what brought it, where that is another.
    pub fn begin(
        self: &Arc<Self>,
        mut trace: Trace,
        link: Option<(u128, u64)>,
        name: String,
    ) -> CallTrace {
        trace.flags = u8::from(self.is_sampled(&trace));
        let mut step = self.step(trace, Cow::Owned(name), Kind::Server);
        step.span.link = link;
        CallTrace { step }
    }

    /// As the samplers of the specification decide, of which each is one of these.
    fn is_sampled(&self, trace: &Trace) -> bool {
        match trace.parent {
            Some(_) if self.sampling.is_parent_based => trace.is_sampled(),
            _ => ((trace.trace_id as u64) >> 1) < self.sampling.below,
        }
    }

    fn step(self: &Arc<Self>, trace: Trace, name: Cow<'static, str>, kind: Kind) -> Step {
        let span = Span::begin(trace, name, kind);
        Step { tracer: Arc::clone(self), span: Box::new(span), began: Instant::now() }
    }
}

/// The span of a request that we answer, until it is dropped.
#[derive(Debug)]
pub struct CallTrace {
    step: Step,
}

impl CallTrace {
    /// Begins a step of the request.
    pub fn step(&self, name: &'static str, kind: Kind) -> Step {
        let tracer = &self.step.tracer;
        let trace = tracer.traces.below(&self.step.span.trace);
        tracer.step(trace, Cow::Borrowed(name), kind)
    }

    /// The span of the request itself.
    pub fn span(&mut self) -> &mut Span {
        &mut self.step.span
    }

    /// The trace, as the processes see it that work for the request.
    pub fn trace(&self) -> &Trace {
        &self.step.span.trace
    }
}

/// A part of a request. It ends when it is dropped.
#[derive(Debug)]
pub struct Step {
    tracer: Arc<Tracer>,
    span: Box<Span>,
    began: Instant,
}

impl Step {
    /// Its span.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }

    /// Its place in the trace, for whoever is asked in it.
    pub fn trace(&self) -> &Trace {
        &self.span.trace
    }

    /// Says in a word why it failed.
    pub fn fail(&mut self, error: impl Into<Cow<'static, str>>) {
        self.span.error = Some(error.into());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.span.trace.is_sampled() {
            return;
        }
        // The clock of the machine may be set meanwhile; this one goes on evenly.
        self.span.ended = self.span.began + self.began.elapsed();
        self.tracer.queue.push(std::mem::take(&mut *self.span));
    }
}
