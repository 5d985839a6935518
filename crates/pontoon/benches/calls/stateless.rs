//! A process for each request, beside starting, opening, calling and ending the same server directly.

use std::process::Command;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Caller, Http, HttpCaller, PipeCaller, tool_call};
use crate::load::{self, Side};
use crate::process::{self, processor_time, processor_time_here, processor_time_of_ended};
use crate::table::{Goal, Table, a_second, millis};

/// Measures so many clients at once.
pub(crate) fn measure(plan: &Plan, clients: usize, table: &mut Table) {
    let body = tool_call("greet", r#"{"name":"Ada"}"#);
    let bridge = Bridge::start(&plan.pontoon, "stateless", &plan.pontoon, &["demo"]);
    let mut ours: Vec<_> =
        (0..clients).map(|_| HttpCaller::new(Http::open(&bridge), &bridge.path(), &body)).collect();
    assert!(ours.iter_mut().all(|caller| caller.answer().contains("Hello, Ada!")));
    let command = || process::command(&plan.pontoon, &["demo"]);
    let mut direct: Vec<_> =
        (0..clients).map(|_| Direct { command: command(), body: &body }).collect();

    let spawner = bridge.spawner();
    let used = || {
        let own = [bridge.id(), spawner].map(|pid| processor_time(&[pid]));
        [own[0], own[1], processor_time_of_ended(spawner)]
    };
    let (mut bridged, mut floor) = (Side::default(), Side::default());
    let mut used_directly = Duration::ZERO;
    let before = used();
    let (rounds, length) = plan.rounds();
    for _ in 0..rounds {
        bridged.turn(&mut ours, length * 2);
        // The last children end after their answers; the floor must not pay for them.
        bridge.wait_for_no_child();
        let before = processor_time_here();
        floor.turn(&mut direct, length * 2);
        used_directly += processor_time_here() - before;
    }
    let after = used();

    let name = load::name("stateless", clients);
    let (ours, direct) = (bridged.quantiles(0.5), floor.quantiles(0.5));
    table.compare(&format!("{name}: p50"), &ours, &direct, millis, Goal::None);
    let (ours, direct) = (bridged.quantiles(0.99), floor.quantiles(0.99));
    table.compare(&format!("{name}: p99"), &ours, &direct, millis, Goal::None);
    let (ours, direct) = (bridged.rates(), floor.rates());
    table.compare(&format!("{name}: calls"), &ours, &direct, a_second, Goal::AtLeast(0.8));
    let per_call = |used: Duration, side: &Side| used.as_secs_f64() / side.calls() as f64;
    let used: [f64; 3] = std::array::from_fn(|at| per_call(after[at] - before[at], &bridged));
    let direct = per_call(used_directly, &floor);
    let what = format!("{name}: CPU a call, all");
    table.compare(&what, &[used.iter().sum()], &[direct], millis, Goal::None);
    for (used, who) in used.into_iter().zip(["bridge", "its helper", "child"]) {
        table.tell(&format!("{name}: CPU a call, {who}"), used, millis, Goal::None);
    }
}

/// Starts, opens, calls and ends a server with each call.
struct Direct<'b> {
    command: Command,
    body: &'b str,
}

impl Caller for Direct<'_> {
    fn call(&mut self) -> usize {
        let mut caller = PipeCaller::start(&mut self.command, self.body);
        let length = caller.call();
        caller.end();
        length
    }
}
