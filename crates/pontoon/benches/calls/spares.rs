//! A process for each request that was started ahead, beside a process that is kept.
//!
//! The server takes 300 ms to start, as servers do that load much. Both sides get the same load: two
//! clients that think between their calls, for spares help against waiting and not against work; a
//! machine that cannot start as many processes as there are calls has none ready either way.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Caller, HttpCaller, tool_call};
use crate::load::{Side, median, order, zip};
use crate::server::Server;
use crate::table::{Goal, Table, micros, millis, times};

/// What the server takes to start, in milliseconds.
const START: &str = "300";

/// How many are kept ready, and how many clients call.
const SPARES: usize = 8;
const CLIENTS: usize = 2;

/// How long a client thinks before it calls again.
const THINKING: Duration = Duration::from_millis(250);

const MISSES: &str = "pontoon_spare_misses_total{server=\"bench\"}";

/// Measures spares beside kept processes, of each build.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::cheap(&plan.cheap, &["--start-ms", START]);
    let mut runs: Vec<_> = plan.builds.iter().map(|build| Run::start(build, &server)).collect();
    let (rounds, length) = if plan.is_quick { (4, 1500) } else { (12, 2000) };
    for round in 0..rounds {
        for at in order(runs.len(), round) {
            runs[at].turn(Duration::from_millis(length));
        }
    }
    for (percent, part, goal) in [("p50", 0.5, Goal::AtMost(1.5)), ("p99", 0.99, Goal::None)] {
        // Each build beside its own pooled calls, in the same turn.
        let ratio = |run: &Run| {
            let (warm, kept) = (run.on_warm.side.quantiles(part), run.on_kept.side.quantiles(part));
            median(&zip(&warm, &kept, |warm, kept| warm / kept))
        };
        let ratios: Vec<_> = runs.iter().map(ratio).collect();
        let what = |of: &str| format!("spares, {CLIENTS} clients: {percent}{of}");
        let value = |run: &Run| median(&run.on_warm.side.quantiles(part));
        let values: Vec<_> = runs.iter().map(value).collect();
        table.tell(&what(""), &values, micros, Goal::None);
        table.tell(&what(" over pooled"), &ratios, times, goal);
    }
    let cold: Vec<_> = plan.builds.iter().map(|build| cold(build, &server)).collect();
    table.tell("spares: a call without one", &cold, millis, Goal::None);
    let different: Vec<_> = runs.iter().map(Run::processes_a_call).collect();
    table.tell("spares: different processes a call", &different, times, Goal::AtLeast(1.0));
    let misses: Vec<_> = runs.iter().map(Run::misses_a_call).collect();
    table.tell("spares: calls that found none", &misses, times, Goal::None);
}

/// One build of the bridge: once with a kept process for each client, once with spares.
struct Run {
    warm: Bridge,
    _kept: Bridge,
    on_warm: Clients,
    on_kept: Clients,
    misses_before: f64,
}

impl Run {
    fn start(build: &Path, server: &Server) -> Self {
        let kept = Bridge::start(build, "stateful", server);
        let warm = Bridge::warm(build, SPARES, server);
        // The first call of each starts what is kept, and tells which spares are wanted.
        let (on_warm, on_kept) = (Clients::new(&warm, CLIENTS), Clients::new(&kept, CLIENTS));
        warm.wait_for_spares(SPARES);
        let misses_before = warm.metric(MISSES);
        Self { warm, _kept: kept, on_warm, on_kept, misses_before }
    }

    fn turn(&mut self, length: Duration) {
        for Clients { callers, side } in [&mut self.on_warm, &mut self.on_kept] {
            side.paced_turn(callers, length, THINKING);
        }
    }

    fn processes_a_call(&self) -> f64 {
        let (used, different) = self.on_warm.pids();
        assert_eq!(used, different, "a process was used twice");
        assert_eq!(self.on_kept.pids().1, CLIENTS, "each client has one process");
        different as f64 / used as f64
    }

    fn misses_a_call(&self) -> f64 {
        (self.warm.metric(MISSES) - self.misses_before) / self.on_warm.pids().0 as f64
    }
}

/// How long a call takes that has to start its process.
fn cold(build: &Path, server: &Server) -> f64 {
    let bridge = Bridge::start(build, "stateless", server);
    let Clients { mut callers, mut side } = Clients::new(&bridge, 1);
    side.turn(&mut callers, Duration::from_millis(1500));
    median(&side.quantiles(0.5))
}

/// Clients of one bridge, and what they did.
struct Clients {
    callers: Vec<Asking>,
    side: Side,
}

impl Clients {
    /// Clients that have called once.
    fn new(bridge: &Bridge, count: usize) -> Self {
        let call = tool_call("pid", "{}");
        let caller = |_| Asking { caller: bridge.client(&call), pids: Vec::new() };
        let mut callers: Vec<_> = (0..count).map(caller).collect();
        assert!(callers.iter_mut().all(|caller| caller.call() > 0));
        Self { callers, side: Side::default() }
    }

    /// How many calls there were, and by how many processes they were answered.
    fn pids(&self) -> (usize, usize) {
        let pids = || self.callers.iter().flat_map(|caller| &caller.pids);
        (pids().count(), pids().collect::<HashSet<_>>().len())
    }
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
