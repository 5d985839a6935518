//! The numbers of one server. Whoever serves its calls holds them, so that counting looks up
//! nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pontoon_supervise::ComputedTime;

use super::super::processes::TreeUse;
use super::super::refusals::Refusals;
use super::histogram::{Counter, Histogram};
use super::outcome::{CallEnding, RequestKind};
use super::tool::{ToolMetrics, Tools};
use crate::lock::Lock;

/// The numbers of one server.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// The server's name.
    pub name: String,
    /// What was refused of late, of all servers.
    pub refusals: Arc<Refusals>,
    pub(super) requests: [[Counter; CallEnding::ALL.len()]; RequestKind::ALL.len()],
    pub(super) durations: Histogram,
    pub(super) tools: Tools,
    pub(super) queue_waits: Histogram,
    /// Its children, and how long they compute.
    pub children: ChildTimes,
    pub(super) starts: Counter,
    pub(super) start_durations: Histogram,
    pub(super) start_failures: Counter,
    pub(super) clean_exits: Counter,
    pub(super) abnormal_exits: Counter,
    pub(super) idle_timeouts: Counter,
    pub(super) spare_hits: Counter,
    pub(super) spare_misses: Counter,
}

impl ServerMetrics {
    /// The numbers of the server of this name.
    pub fn new(name: &str, refusals: &Arc<Refusals>) -> Self {
        Self { name: name.to_owned(), refusals: Arc::clone(refusals), ..Self::default() }
    }

    /// A request ended, after this long. A call of a tool counts for that, or for `other`.
    pub fn call_ended(
        &self,
        kind: RequestKind,
        tool: Option<&ToolMetrics>,
        ending: CallEnding,
        took: Duration,
    ) {
        self.requests[kind as usize][ending as usize].bump();
        self.durations.note(took);
        if kind == RequestKind::Tool {
            tool.unwrap_or(&self.tools.other).call_ended(ending, took);
        }
    }

    /// The numbers of a tool, which has its own if the server is known to offer it.
    pub fn tool(&self, name: &str, is_offered: impl FnOnce() -> bool) -> Arc<ToolMetrics> {
        self.tools.of(name, is_offered)
    }

    /// A call has waited so long for its turn, whether or not that came.
    pub fn waited(&self, took: Duration) {
        self.queue_waits.note(took);
    }

    /// A child was started and has shaken hands; it took this long.
    pub fn child_started(&self, took: Duration) {
        self.starts.bump();
        self.start_durations.note(took);
    }

    /// A child did not start, or did not shake hands.
    pub fn child_failed(&self) {
        self.start_failures.bump();
    }

    /// A child is gone. Abnormal is an end that nobody asked for and that was no success: a crash,
    /// a signal, a limit that was reached, a child that was killed because it hung.
    pub fn child_exited(&self, is_abnormal: bool) {
        if is_abnormal { &self.abnormal_exits } else { &self.clean_exits }.bump();
    }

    /// A child was stopped because its client was quiet for too long.
    pub fn idle_timeout(&self) {
        self.idle_timeouts.bump();
    }

    /// A call wanted a child that was started ahead, and got one or not.
    pub fn spare(&self, was_there: bool) {
        if was_there { &self.spare_hits } else { &self.spare_misses }.bump();
    }

    /// The calls of tools that are over, and how many of them somebody was disappointed by.
    pub fn tool_calls(&self) -> (u64, u64) {
        let endings = || CallEnding::ALL.iter().zip(&self.requests[RequestKind::Tool as usize]);
        let sum = |counted: fn(CallEnding) -> bool| -> u64 {
            endings().filter(|(it, _)| counted(**it)).map(|(_, counter)| counter.count()).sum()
        };
        (sum(|_| true), sum(CallEnding::is_error))
    }

    /// Requests that somebody was disappointed by.
    pub(super) fn errors(&self) -> u64 {
        let endings = self.requests.iter().flat_map(|kind| CallEnding::ALL.iter().zip(kind));
        endings.filter(|(ending, _)| ending.is_error()).map(|(_, counter)| counter.count()).sum()
    }
}

/// The children of one server: the processes that live, and how long they and those before them have computed.
#[derive(Debug, Default)]
pub struct ChildTimes {
    living: Lock<BTreeSet<u32>>,
    /// How long those had computed that have ended.
    pub ended: ComputedTime,
    /// The most that was told, in microseconds.
    told: AtomicU64,
}

impl ChildTimes {
    /// A child lives from now on.
    pub fn lives(&self, pid: u32) {
        self.living.lock().insert(pid);
    }

    /// It is gone: its number may be that of another process.
    pub fn is_gone(&self, pid: u32) {
        self.living.lock().remove(&pid);
    }

    /// How long those had computed that have ended, and who lives.
    pub(super) fn begin_look(&self) -> (Duration, Vec<u32>) {
        (self.ended.sum(), self.living.lock().iter().copied().collect())
    }

    /// What they use, of which `seen` is what those use that live.
    pub(super) fn end_look(&self, ended: Duration, seen: TreeUse) -> TreeUse {
        let micros = u64::try_from((ended + seen.computed).as_micros()).unwrap_or(u64::MAX);
        // A process that is just going, or whose parent did, is missing until it is reaped, and a counter never goes
        // down.
        let told = self.told.fetch_max(micros, Ordering::AcqRel).max(micros);
        TreeUse { computed: Duration::from_micros(told), ..seen }
    }
}
