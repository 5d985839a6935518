//! Spans that are over and not yet sent. There is room for so many; what finds none is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::span::Span;
use crate::lock::Lock;
use crate::observe::metrics::Metrics;

/// How many spans go into one request.
pub const BATCH: usize = 512;

/// How many may wait.
const ROOM: usize = 2048;

/// How long the first of a batch waits for others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Spans that are over and not yet sent.
#[derive(Debug)]
pub struct SpanQueue {
    waiting: Lock<Vec<Span>>,
    /// Told when there is a first span, and when there are enough for a batch.
    filled: Notify,
    metrics: Arc<Metrics>,
}

impl SpanQueue {
    /// An empty one, which counts there what it drops.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { waiting: Lock::default(), filled: Notify::new(), metrics }
    }

    /// Leaves a span here. Never waits but for a short lock.
    pub(super) fn push(&self, span: Span) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= ROOM {
            drop(waiting);
            return self.metrics.spans_dropped.bump();
        }
        waiting.push(span);
        let count = waiting.len();
        drop(waiting);
        if count == 1 || count == BATCH {
            self.filled.notify_one();
        }
    }

    /// The next batch: as soon as it is full, or its first span has waited for some seconds. Cancel safe.
    pub async fn batch(&self) -> Vec<Span> {
        self.until(1).await;
        drop(tokio::time::timeout(PATIENCE, self.until(BATCH)).await);
        self.take()
    }

    /// What is there now, no more than a batch.
    pub fn take(&self) -> Vec<Span> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether none is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts spans that were taken and came to nothing.
    pub fn dropped(&self, count: u64) {
        self.metrics.spans_dropped.add(count);
    }

    async fn until(&self, count: usize) {
        while self.len() < count {
            self.filled.notified().await;
        }
    }
}
