//! Big results, beside a plain HTTP server that sends as many bytes, a native server that writes them
//! as JSON, and the pipe.

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Http, HttpCaller, PipeCaller, tool_call};
use crate::load::{Side, median, zip};
use crate::native;
use crate::process::{self, size};
use crate::table::{Goal, Table, megabytes, millis, times};

const MIB: usize = 1024 * 1024;

/// Measures results of 1 and of 8 MiB.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let program = native::program();
    let bridge = Bridge::start(&plan.pontoon, "stateful", &program, &[native::STDIO]);
    let (_http_server, address) = native::start_http();
    let mut callers = [MIB, 8 * MIB].map(|bytes| {
        let body = tool_call("big", &format!("{{\"bytes\":{bytes}}}"));
        let mut ours = HttpCaller::new(Http::open(&bridge), &bridge.path(), &body);
        let length = ours.answer().len();
        assert!(length >= bytes, "the answer is too short: {length}");
        let http = HttpCaller::new(Http::connect(address), &format!("/{length}"), &body);
        let mut native = HttpCaller::new(Http::connect(address), "/mcp", &body);
        assert_eq!(native.answer().len(), length, "the native server answers the same");
        let pipe = PipeCaller::start(&mut process::command(&program, &[native::STDIO]), &body);
        ([ours], [http], [pipe], [native])
    });
    let mut sides: [[Side; 4]; 2] = Default::default();
    let (rounds, length) = plan.rounds();
    for _ in 0..rounds {
        for ((ours, http, pipe, native), sides) in callers.iter_mut().zip(&mut sides) {
            sides[0].turn(ours, length);
            sides[1].turn(http, length);
            sides[2].turn(pipe, length);
            sides[3].turn(native, length);
        }
    }
    let p50 = |side: &Side| side.quantiles(0.5);
    for (size, [ours, http, pipe, native]) in ["1 MiB", "8 MiB"].into_iter().zip(&sides) {
        let goal = if size == "8 MiB" { Goal::AtMost(1.43) } else { Goal::None };
        let what = format!("{size} result: p50 beside HTTP alone");
        table.compare(&what, &p50(ours), &p50(http), millis, goal);
        let what = format!("{size} result: p50 beside a native server");
        table.compare(&what, &p50(ours), &p50(native), millis, goal);
        let floor = zip(&p50(http), &p50(pipe), |http, pipe| http + pipe);
        let what = format!("{size} result: p50 beside HTTP and pipe");
        table.compare(&what, &p50(ours), &floor, millis, Goal::None);
    }
    let growth = |at: usize| {
        median(&zip(&p50(&sides[1][at]), &p50(&sides[0][at]), |big, small| big / small))
    };
    table.tell("8 MiB over 1 MiB: bridge", growth(0), times, Goal::AtMost(10.0));
    table.tell("8 MiB over 1 MiB: HTTP alone", growth(1), times, Goal::None);
    table.tell("8 MiB over 1 MiB: pipe alone", growth(2), times, Goal::None);
    table.tell(
        "8 MiB results: peak memory",
        size(bridge.id(), "VmHWM") as f64,
        megabytes,
        Goal::None,
    );
}
