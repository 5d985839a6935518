//! What something costs a call, beside the same bridge without it: healing that finds nothing to heal, and the line in
//! the log that tells of each call.

use std::path::Path;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::HttpCaller;
use crate::load::{Side, order};
use crate::pooled::KEPT;
use crate::server::Server;
use crate::table::{Goal, Table, a_second, micros};

/// Something that a bridge can do without.
pub(crate) struct Extra {
    name: &'static str,
    with: StartBridge,
    without: StartBridge,
    /// How much longer a call may take, and how much more of a processor the bridge may need for it.
    goals: [Goal; 2],
}

type StartBridge = fn(&Path, &str, &Server) -> Bridge;

/// Beside `"heal": "off"` and `"profile": "none"`.
pub(crate) const HEALING: Extra = Extra {
    name: "healing",
    with: Bridge::start,
    without: Bridge::without_healing,
    goals: [Goal::None, Goal::AtMost(1.03)],
};

/// Beside `--log-level=warn`, at which a call that works has no line. The log is a file.
pub(crate) const CALL_LINES: Extra = Extra {
    name: "call lines",
    with: Bridge::with_call_lines,
    without: Bridge::start,
    goals: [Goal::AtMost(1.03), Goal::None],
};

/// Measures one client and many, in front of the server that costs nothing.
pub(crate) fn measure(plan: &Plan, extra: &Extra, table: &mut Table) {
    for server in plan.servers.iter().filter(|server| server.name == "cheap") {
        for clients in [1, 16] {
            measure_with(plan, extra, server, clients, table);
        }
    }
}

fn measure_with(plan: &Plan, extra: &Extra, server: &Server, clients: usize, table: &mut Table) {
    let without = (extra.without)(&plan.builds[0], KEPT.mode, server);
    let with = plan.builds.iter().map(|build| (extra.with)(build, KEPT.mode, server));
    let bridges: Vec<_> = with.chain([without]).collect();
    let all_of = |bridge: &Bridge| (0..clients).map(|_| bridge.client(&server.call)).collect();
    let mut callers: Vec<Vec<_>> = bridges.iter().map(all_of).collect();
    let answers: Vec<_> = callers.iter_mut().flatten().map(HttpCaller::answer).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let pids: Vec<_> = bridges.iter().map(|bridge| [vec![bridge.id()]]).collect();
    let mut sides: Vec<Side> = bridges.iter().map(|_| Side::default()).collect();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for at in order(sides.len(), round) {
            sides[at].counted_turn(&mut callers[at], length, &pids[at]);
        }
    }
    sides.iter_mut().zip(&pids).for_each(|(side, pids)| side.read(pids));
    let without = sides.pop().expect("it is the last one of them");

    let name = server.row(extra.name, clients);
    let ours: Vec<_> = sides.iter().map(|side| side.quantiles(0.5)).collect();
    table.compare(&format!("{name}: p50"), &ours, &without.quantiles(0.5), micros, extra.goals[0]);
    let ours: Vec<_> = sides.iter().map(Side::rates).collect();
    table.compare(&format!("{name}: calls"), &ours, &without.rates(), a_second, Goal::None);
    let ours: Vec<_> = sides.iter().map(|side| side.used(&[0])).collect();
    let what = format!("{name}: CPU a call, bridge");
    table.compare(&what, &ours, &without.used(&[0]), micros, extra.goals[1]);
}
