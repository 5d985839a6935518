//! A process for each request, beside starting, opening, calling and ending the same server directly.

use std::process::Command;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Caller, HttpCaller, PipeCaller};
use crate::load::{Side, order};
use crate::process::{processor_time, processor_time_here, processor_time_of_ended};
use crate::server::Server;
use crate::table::{Goal, Table, a_second, millis};

/// Measures this many clients at once, in front of each server.
pub(crate) fn measure(plan: &Plan, clients: usize, table: &mut Table) {
    for server in &plan.servers {
        measure_with(plan, server, clients, table);
    }
}

fn measure_with(plan: &Plan, server: &Server, clients: usize, table: &mut Table) {
    let start = |build| Ours::start(Bridge::start(build, "stateless", server), server, clients);
    let mut ours: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
    let direct = |_| Direct { command: server.command(), call: &server.call };
    let mut direct: Vec<_> = (0..clients).map(direct).collect();

    let (mut floor, mut used_directly) = (Side::default(), Duration::ZERO);
    let before: Vec<_> = ours.iter().map(Ours::used).collect();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for at in order(ours.len(), round) {
            let Ours { bridge, callers, side } = &mut ours[at];
            side.turn(callers, length * 2);
            // The last children end after their answers; the next side must not pay for them.
            bridge.wait_for_no_child();
        }
        let before = processor_time_here();
        floor.turn(&mut direct, length * 2);
        used_directly += processor_time_here() - before;
    }

    let name = server.row("stateless", clients);
    for (percent, part) in [("p50", 0.5), ("p99", 0.99)] {
        let ours: Vec<_> = ours.iter().map(|it| it.side.quantiles(part)).collect();
        let what = format!("{name}: {percent}");
        table.compare(&what, &ours, &floor.quantiles(part), millis, Goal::None);
    }
    let rates: Vec<_> = ours.iter().map(|it| it.side.rates()).collect();
    let goal = server.goal(Goal::AtLeast(0.8));
    table.compare(&format!("{name}: calls"), &rates, &floor.rates(), a_second, goal);
    let used: Vec<[f64; 3]> =
        ours.iter().zip(before).map(|(it, before)| it.used_since(before)).collect();
    let all: Vec<_> = used.iter().map(|used| vec![used.iter().sum()]).collect();
    let direct = [floor.per_call(used_directly)];
    table.compare(&format!("{name}: CPU a call, all"), &all, &direct, millis, Goal::None);
    for (at, part) in ["bridge", "its helper", "child"].into_iter().enumerate() {
        let used: Vec<_> = used.iter().map(|used| used[at]).collect();
        table.tell(&format!("{name}: CPU a call, {part}"), &used, millis, Goal::None);
    }
}

/// One build of the bridge, its clients, and what they did.
struct Ours {
    bridge: Bridge,
    callers: Vec<HttpCaller>,
    side: Side,
}

impl Ours {
    fn start(bridge: Bridge, server: &Server, clients: usize) -> Self {
        let mut callers: Vec<_> = (0..clients).map(|_| bridge.client(&server.call)).collect();
        assert!(callers.iter_mut().all(|caller| caller.answer().contains(server.answer)));
        Self { bridge, callers, side: Side::default() }
    }

    /// The time on a processor of the bridge, its helper, and the children that have ended.
    fn used(&self) -> [Duration; 3] {
        let spawner = self.bridge.spawner();
        let own = [self.bridge.id(), spawner].map(|pid| processor_time(&[pid]));
        [own[0], own[1], processor_time_of_ended(spawner)]
    }

    fn used_since(&self, before: [Duration; 3]) -> [f64; 3] {
        let after = self.used();
        std::array::from_fn(|at| self.side.per_call(after[at] - before[at]))
    }
}

/// Starts, opens, calls and ends a server with each call.
struct Direct<'c> {
    command: Command,
    call: &'c str,
}

impl Caller for Direct<'_> {
    fn call(&mut self) -> usize {
        let mut caller = PipeCaller::start(&mut self.command, self.call);
        let length = caller.call();
        caller.end();
        length
    }
}
