//! A call to a child that is kept, over a connection that is kept.
//!
//! The floor is what no bridge can save: one HTTP exchange of the same size, and one round trip over
//! the pipes of the same server. Each client has a session and so a child of its own. Time on a
//! processor is compared with a server that speaks MCP over HTTP by itself.

use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Http, HttpCaller, PipeCaller, tool_call};
use crate::load::{self, Side, zip};
use crate::native;
use crate::process::{self, processor_time};
use crate::table::{Goal, Table, a_second, micros};

/// Measures so many clients at once.
pub(crate) fn measure(plan: &Plan, clients: usize, table: &mut Table) {
    let body = tool_call("greet", r#"{"name":"Ada"}"#);
    let bridge = Bridge::start(&plan.pontoon, "stateful", &plan.pontoon, &["demo"]);
    let mut ours: Vec<_> =
        (0..clients).map(|_| HttpCaller::new(Http::open(&bridge), &bridge.path(), &body)).collect();
    let answers: Vec<_> = ours.iter_mut().map(HttpCaller::answer).collect();
    assert!(answers.iter().all(|answer| answer.contains("Hello, Ada!")), "{answers:?}");
    let (_http_server, address) = native::start_http();
    let path = format!("/{}", answers[0].len());
    let mut http: Vec<_> =
        (0..clients).map(|_| HttpCaller::new(Http::connect(address), &path, &body)).collect();
    let (native_server, address) = native::start_http();
    let mut native: Vec<_> =
        (0..clients).map(|_| HttpCaller::new(Http::connect(address), "/mcp", &body)).collect();
    assert_eq!(native[0].answer(), answers[0], "the native server answers the same");
    let mut pipes: Vec<_> = (0..clients)
        .map(|_| PipeCaller::start(&mut process::command(&plan.pontoon, &["demo"]), &body))
        .collect();

    let processes = [vec![bridge.id()], bridge.servers(), vec![native_server.id()]];
    assert_eq!(processes[1].len(), clients, "each client has a child");
    let before = processes.each_ref().map(|pids| processor_time(pids));
    let mut sides: [Side; 4] = Default::default();
    let (rounds, length) = plan.rounds();
    for _ in 0..rounds {
        sides[0].turn(&mut ours, length);
        sides[1].turn(&mut http, length);
        sides[2].turn(&mut pipes, length);
        sides[3].turn(&mut native, length);
    }
    let after = processes.each_ref().map(|pids| processor_time(pids));
    tell(clients, &sides, std::array::from_fn(|at| after[at] - before[at]), table);
}

/// `used` is the time on a processor: of the bridge, its children, and the native server.
fn tell(clients: usize, sides: &[Side; 4], used: [Duration; 3], table: &mut Table) {
    let [ours, http, pipe, native] = sides;
    let name = load::name("pooled", clients);
    for (percent, part) in [("p50", 0.5), ("p99", 0.99)] {
        let floor = zip(&http.quantiles(part), &pipe.quantiles(part), |http, pipe| http + pipe);
        let goal = match (clients, percent) {
            (1, "p50") => Goal::AtMost(2.0),
            _ => Goal::None,
        };
        table.compare(&format!("{name}: {percent}"), &ours.quantiles(part), &floor, micros, goal);
    }
    // One after the other, two things take the sum of their times.
    let floor = zip(&http.rates(), &pipe.rates(), |http, pipe| 1.0 / (1.0 / http + 1.0 / pipe));
    table.compare(&format!("{name}: calls"), &ours.rates(), &floor, a_second, Goal::None);
    let per_call = |used: Duration, side: &Side| used.as_secs_f64() / side.calls() as f64;
    let (bridge, child) = (per_call(used[0], ours), per_call(used[1], ours));
    let native = per_call(used[2], native);
    table.compare(&format!("{name}: CPU a call, bridge"), &[bridge], &[native], micros, Goal::None);
    let goal = if clients == 1 { Goal::AtMost(3.0) } else { Goal::None };
    let what = format!("{name}: CPU a call, with child");
    table.compare(&what, &[bridge + child], &[native], micros, goal);
}
