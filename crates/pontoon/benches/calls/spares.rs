//! A process for each request that was started ahead, beside a process that is kept.
//!
//! The server takes 300 ms to start, as servers do that load much. Both sides get the same load: two
//! clients that think between their calls, for spares help against waiting and not against work; a
//! machine that cannot start as many processes as there are calls has none ready either way.

use std::collections::HashSet;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Caller, Http, HttpCaller, tool_call};
use crate::load::{Side, median};
use crate::native;
use crate::table::{Goal, Table, micros, millis, times};

/// What the server takes to start, in milliseconds.
const START: &str = "300";

/// How many are kept ready, and how many clients call.
const SPARES: usize = 8;
const CLIENTS: usize = 2;

/// How long a client thinks before it calls again.
const THINKING: Duration = Duration::from_millis(250);

/// Measures spares beside kept processes.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let args = [native::STDIO, "--start-ms", START];
    let program = native::program();
    let kept = Bridge::start(&plan.pontoon, "stateful", &program, &args);
    let warm = Bridge::warm(&plan.pontoon, SPARES, &program, &args);
    let (mut on_kept, mut on_warm) = (callers(&kept), callers(&warm));
    // The first call of each starts what is kept, and tells which spares are wanted.
    assert!(on_kept.iter_mut().chain(&mut on_warm).all(|caller| caller.call() > 0));
    warm.wait_for_spares(SPARES);

    let misses = || warm.metric("pontoon_spare_misses_total{server=\"bench\"}");
    let before = misses();
    let (mut pooled, mut spared) = (Side::default(), Side::default());
    let (rounds, length) = if plan.is_quick { (4, 1500) } else { (12, 2000) };
    for _ in 0..rounds {
        let length = Duration::from_millis(length);
        spared.paced_turn(&mut on_warm, length, THINKING);
        pooled.paced_turn(&mut on_kept, length, THINKING);
    }

    let (used, different) = pids(&on_warm);
    assert_eq!(used, different, "a process was used twice");
    assert_eq!(pids(&on_kept).1, CLIENTS, "each client has one process");
    for (percent, part, goal) in [("p50", 0.5, Goal::AtMost(1.5)), ("p99", 0.99, Goal::None)] {
        let what = format!("spares, {CLIENTS} clients: {percent} beside pooled");
        table.compare(&what, &spared.quantiles(part), &pooled.quantiles(part), micros, goal);
    }
    let cold = cold(plan, &program, &args);
    let ratio = median(&spared.quantiles(0.5)) / cold;
    table.tell("spares: a call without one", cold, millis, Goal::None);
    table.tell("spares: p50 beside that", ratio, times, Goal::None);
    table.tell(
        "spares: different processes a call",
        different as f64 / used as f64,
        times,
        Goal::AtLeast(1.0),
    );
    table.tell(
        "spares: calls that found none",
        (misses() - before) / used as f64,
        times,
        Goal::None,
    );
}

fn callers(bridge: &Bridge) -> Vec<Asking> {
    let caller = |_| {
        let caller = HttpCaller::new(Http::open(bridge), &bridge.path(), &tool_call("pid", "{}"));
        Asking { caller, pids: Vec::new() }
    };
    (0..CLIENTS).map(caller).collect()
}

/// How many calls there were, and by how many processes they were answered.
fn pids(callers: &[Asking]) -> (usize, usize) {
    let pids = || callers.iter().flat_map(|caller| &caller.pids);
    (pids().count(), pids().collect::<HashSet<_>>().len())
}

/// How long a call takes that has to start its process.
fn cold(plan: &Plan, program: &std::path::Path, args: &[&str]) -> f64 {
    let bridge = Bridge::start(&plan.pontoon, "stateless", program, args);
    let mut side = Side::default();
    side.turn(&mut callers(&bridge)[..1], Duration::from_millis(1500));
    median(&side.quantiles(0.5))
}

/// Calls, and notes which process answered.
struct Asking {
    caller: HttpCaller,
    pids: Vec<String>,
}

impl Caller for Asking {
    fn call(&mut self) -> usize {
        let answer = self.caller.answer();
        let length = answer.len();
        let digits = answer.rsplit_once("\"text\":\"").map(|(_, rest)| rest.split('"').next());
        self.pids.extend(digits.flatten().map(str::to_owned));
        length
    }
}
