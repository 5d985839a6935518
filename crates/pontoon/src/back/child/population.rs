//! The children of one server, counted: those that live, and those of them that are on their way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio_util::task::TaskTracker;

use crate::observe::heals::HealLog;
use crate::observe::metrics::ServerMetrics;

/// What the children of one server have in common.
#[derive(Debug)]
pub(crate) struct Population {
    living: AtomicUsize,
    stopping: AtomicUsize,
    /// Whether one of them has ever ended when its input did.
    pub(crate) ends_by_itself: AtomicBool,
    pub(crate) heals: Arc<HealLog>,
    pub(crate) metrics: Arc<ServerMetrics>,
    /// Where their ends are waited for.
    pub(crate) endings: TaskTracker,
}

impl Population {
    /// No child yet.
    pub(crate) fn new(
        heals: Arc<HealLog>,
        metrics: Arc<ServerMetrics>,
        endings: TaskTracker,
    ) -> Self {
        let (living, stopping, ends_by_itself) = Default::default();
        Self { living, stopping, ends_by_itself, heals, metrics, endings }
    }

    /// How many live.
    pub(crate) fn living(&self) -> usize {
        self.living.load(Ordering::Relaxed)
    }

    /// How many of them are on their way out.
    pub(crate) fn stopping(&self) -> usize {
        self.stopping.load(Ordering::Acquire)
    }
}

/// Counts a child among the living for as long as this is held.
#[derive(Debug)]
pub(crate) struct Living {
    population: Arc<Population>,
    /// Its process, while that can be seen.
    pid: Option<u32>,
}

impl Living {
    pub(crate) fn new(population: &Arc<Population>, pid: u32) -> Self {
        population.living.fetch_add(1, Ordering::AcqRel);
        population.metrics.children.lives(pid);
        Self { population: Arc::clone(population), pid: Some(pid) }
    }

    pub(crate) fn population(&self) -> &Arc<Population> {
        &self.population
    }

    fn process_ended(&mut self) {
        let children = &self.population.metrics.children;
        self.pid.take().into_iter().for_each(|pid| children.is_gone(pid));
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.process_ended();
        self.population.living.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a child among those on their way out for as long as this is held. It still lives.
#[derive(Debug)]
pub(crate) struct Leaving(Living);

impl Leaving {
    pub(crate) fn new(living: Living) -> Self {
        living.population().stopping.fetch_add(1, Ordering::AcqRel);
        Self(living)
    }

    pub(crate) fn population(&self) -> &Arc<Population> {
        self.0.population()
    }

    /// Takes note that its process is gone, though what it left is still to be put away.
    pub(crate) fn process_ended(&mut self) {
        self.0.process_ended();
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.population().stopping.fetch_sub(1, Ordering::AcqRel);
    }
}
