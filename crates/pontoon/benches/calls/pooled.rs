//! A call to a child that is kept, over a connection that is kept.
//!
//! The floor is what no bridge can save: one HTTP exchange of the same size, and one round trip over
//! the pipes of the same server. Time on a processor is compared with a server that speaks MCP over HTTP
//! by itself.

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Http, HttpCaller, PipeCaller};
use crate::load::{Side, order, zip};
use crate::native;
use crate::server::Server;
use crate::table::{Goal, Table, a_second, micros};

/// A mode of the bridge that keeps children.
#[derive(Debug)]
pub(crate) struct Kept {
    /// How it is called in the table, and in the configuration.
    pub(crate) name: &'static str,
    pub(crate) mode: &'static str,
    /// How many children serve this many clients.
    pub(crate) children: fn(usize) -> usize,
}

/// Each client has a session and so a child of its own.
pub(crate) const KEPT: Kept =
    Kept { name: "pooled", mode: "stateful", children: |clients| clients };

/// All clients have one child. Another is there for clients of the other era, and idle.
pub(crate) const SHARED: Kept = Kept { name: "shared", mode: "shared", children: |_| 2 };

/// Measures this many clients at once, in front of each server.
pub(crate) fn measure(plan: &Plan, kept: &Kept, clients: usize, table: &mut Table) {
    for server in &plan.servers {
        measure_with(plan, kept, server, clients, table);
    }
}

fn measure_with(plan: &Plan, kept: &Kept, server: &Server, clients: usize, table: &mut Table) {
    let start = |build| Bridge::start(build, kept.mode, server);
    let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
    let all_of = |bridge: &Bridge| (0..clients).map(|_| bridge.client(&server.call)).collect();
    let mut ours: Vec<Vec<_>> = bridges.iter().map(all_of).collect();
    let answers: Vec<_> = ours.iter_mut().flatten().map(HttpCaller::answer).collect();
    assert!(answers.iter().all(|answer| answer.contains(server.answer)), "{answers:?}");
    let (_http_server, address) = native::start_http();
    let path = format!("/{}", answers[0].len());
    let caller = |address, path: &str| HttpCaller::new(Http::connect(address), path, &server.call);
    let mut http: Vec<_> = (0..clients).map(|_| caller(address, &path)).collect();
    let (native_server, address) = native::start_http();
    let mut native: Vec<_> = (0..clients).map(|_| caller(address, "/mcp")).collect();
    assert_eq!(native[0].answer(), answers[0], "the native server answers the same");
    let pipe = |_| PipeCaller::start(&mut server.command(), &server.call);
    let mut pipes: Vec<_> = (0..clients).map(pipe).collect();

    let pids: Vec<_> = bridges.iter().map(|bridge| [vec![bridge.id()], bridge.servers()]).collect();
    for [_, children] in &pids {
        assert_eq!(children.len(), (kept.children)(clients), "how many children there are");
    }
    let native_pids = [vec![native_server.id()]];
    let mut sides: Vec<Side> = bridges.iter().map(|_| Side::default()).collect();
    let [mut on_http, mut on_pipe, mut on_native]: [Side; 3] = Default::default();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for at in order(sides.len(), round) {
            sides[at].counted_turn(&mut ours[at], length, &pids[at]);
        }
        on_http.turn(&mut http, length);
        on_pipe.turn(&mut pipes, length);
        on_native.counted_turn(&mut native, length, &native_pids);
    }
    sides.iter_mut().zip(&pids).for_each(|(side, pids)| side.read(pids));
    on_native.read(&native_pids);

    let name = server.row(kept.name, clients);
    for (percent, part) in [("p50", 0.5), ("p99", 0.99)] {
        let floor =
            zip(&on_http.quantiles(part), &on_pipe.quantiles(part), |http, pipe| http + pipe);
        let goal = if clients == 1 && part == 0.5 { Goal::AtMost(2.0) } else { Goal::None };
        let ours: Vec<_> = sides.iter().map(|side| side.quantiles(part)).collect();
        table.compare(&format!("{name}: {percent}"), &ours, &floor, micros, server.goal(goal));
    }
    // One after the other, two things take the sum of their times.
    let join = |http: f64, pipe: f64| 1.0 / (1.0 / http + 1.0 / pipe);
    let floor = zip(&on_http.rates(), &on_pipe.rates(), join);
    let goal = if clients > 1 { Goal::AtLeast(0.65) } else { Goal::None };
    let ours: Vec<_> = sides.iter().map(Side::rates).collect();
    table.compare(&format!("{name}: calls"), &ours, &floor, a_second, server.goal(goal));

    let goal = if clients == 16 { Goal::AtMost(3.5) } else { Goal::None };
    let parts: [(&str, &[usize], Goal); 2] =
        [("bridge", &[0], Goal::None), ("with child", &[0, 1], goal)];
    for (part, groups, goal) in parts {
        let ours: Vec<_> = sides.iter().map(|side| side.used(groups)).collect();
        let what = format!("{name}: CPU a call, {part}");
        table.compare(&what, &ours, &on_native.used(&[0]), micros, server.goal(goal));
    }
}
