//! Other bridges in front of the same server, under the same load, in turns with ours.
//!
//! `scripts/bench-peers.sh` installs them and runs this section. A floor is not measured here.

use std::path::Path;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{HttpCaller, tool_call};
use crate::load::{Side, order};
use crate::peer::{
    Kind, MCP_PROXY, MCPO, Peer, SUPERGATEWAY_STATEFUL, SUPERGATEWAY_STATELESS,
    SUPERGATEWAY_WEBSOCKET,
};
use crate::pooled::{KEPT, SHARED};
use crate::process;
use crate::server::Server;
use crate::table::{Goal, Table, a_second, micros, millis};
use crate::websocket::SocketCaller;

/// A mode of the bridge, and the peers that are beside it.
struct Match {
    /// How it is called in the table, and in the configuration.
    name: &'static str,
    mode: &'static str,
    clients: &'static [usize],
    /// How many times their calls a second ours shall be, with more than one client.
    peers: &'static [(Kind, Goal)],
}

const MATCHES: [Match; 3] = [
    Match {
        name: KEPT.name,
        mode: KEPT.mode,
        clients: &[1, 16, 64],
        peers: &[
            (MCP_PROXY, Goal::AtLeast(1.4)),
            (MCPO, Goal::AtLeast(15.0)),
            (SUPERGATEWAY_STATEFUL, Goal::None),
        ],
    },
    Match {
        name: SHARED.name,
        mode: SHARED.mode,
        clients: &[1, 16, 64],
        peers: &[(MCP_PROXY, Goal::AtLeast(2.0)), (MCPO, Goal::None)],
    },
    Match {
        name: "stateless",
        mode: "stateless",
        clients: &[1, 8],
        peers: &[(SUPERGATEWAY_STATELESS, Goal::AtLeast(10.0))],
    },
];

/// Measures all peers that can be compared, if they are installed.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let Some(installed) = &plan.peers else { return };
    for one in &MATCHES {
        for clients in one.clients {
            Run::start(plan, installed, one, *clients).measure(plan, one, table);
        }
    }
    big(plan, installed, table);
}

/// The same over WebSockets: each mode of ours that keeps children beside the one of the peer, which has one child.
pub(crate) fn measure_websocket(plan: &Plan, table: &mut Table) {
    const CLIENTS: usize = 16;
    let Some(installed) = &plan.peers else { return };
    let server = Server::cheap(&plan.cheap, &[]);
    let peer = Peer::start(&SUPERGATEWAY_WEBSOCKET, installed, &plan.cheap);
    let mut theirs: Vec<_> = (0..CLIENTS).map(|_| peer.socket_client(&server.call)).collect();
    for kept in [KEPT, SHARED] {
        let start = |build| Bridge::start(build, kept.mode, &server);
        let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
        let all_of = |bridge: &Bridge| {
            let open = |_| SocketCaller::to_bridge(bridge, &server.call);
            (0..CLIENTS).map(open).collect()
        };
        let mut ours: Vec<Vec<_>> = bridges.iter().map(all_of).collect();
        let mut callers = ours.iter_mut().flatten().chain(&mut theirs);
        assert!(callers.all(|caller| caller.answer().contains(server.answer)), "a wrong answer");
        let pids =
            |bridge: &Bridge| [[vec![bridge.id(), bridge.spawner()], bridge.servers()].concat()];
        let pids: Vec<_> = bridges.iter().map(pids).collect();
        let their_pids = [peer.processes()];

        let mut sides: Vec<_> = ours.iter().map(|_| Side::default()).collect();
        let mut their_side = Side::default();
        let (rounds, length) = plan.rounds();
        for round in 0..rounds {
            for at in order(sides.len(), round) {
                sides[at].counted_turn(&mut ours[at], length, &pids[at]);
            }
            their_side.counted_turn(&mut theirs, length, &their_pids);
        }
        sides.iter_mut().zip(&pids).for_each(|(side, pids)| side.read(pids));
        their_side.read(&their_pids);
        let name = server.row(&format!("websocket, {}", kept.name), CLIENTS);
        let (rates, beside) = (sides.iter().map(Side::rates).collect::<Vec<_>>(), peer.kind.name);
        let what = format!("{name}: calls, beside {beside}");
        table.compare(&what, &rates, &their_side.rates(), a_second, Goal::None);
        let used: Vec<_> = sides.iter().map(|side| side.used(&[0])).collect();
        let what = format!("{name}: CPU a call, with children, beside {beside}");
        table.compare(&what, &used, &their_side.used(&[0]), micros, Goal::None);
    }
}

const TEXT: &str = "Hello, Ada!";

/// A bridge of ours or of others, its clients, and what they did.
struct Lane {
    callers: Vec<HttpCaller>,
    side: Side,
    /// Its processes, its children included: the first is its own.
    pids: [Vec<u32>; 1],
}

impl Lane {
    fn new(mut callers: Vec<HttpCaller>, pids: impl FnOnce() -> Vec<u32>) -> Self {
        assert!(callers.iter_mut().all(|caller| caller.answer().contains(TEXT)), "a wrong answer");
        // The calls just made have started the children.
        Self { callers, side: Side::default(), pids: [pids()] }
    }
}

/// Everything that takes turns: ours come first.
struct Run {
    clients: usize,
    lanes: Vec<Lane>,
    _bridges: Vec<Bridge>,
    _peers: Vec<Peer>,
}

impl Run {
    fn start(plan: &Plan, installed: &Path, one: &Match, clients: usize) -> Self {
        let server = Server::cheap(&plan.cheap, &[]);
        let start = |build| Bridge::start(build, one.mode, &server);
        let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
        let start = |(kind, _): &'static (Kind, Goal)| Peer::start(kind, installed, &plan.cheap);
        let peers: Vec<_> = one.peers.iter().map(start).collect();
        let ours = bridges.iter().map(|bridge| {
            let callers = (0..clients).map(|_| bridge.client(&server.call)).collect();
            Lane::new(callers, || [vec![bridge.id(), bridge.spawner()], bridge.servers()].concat())
        });
        let theirs = peers.iter().map(|peer| {
            let callers = (0..clients).map(|_| peer.client(TEXT)).collect();
            Lane::new(callers, || peer.processes())
        });
        let lanes = ours.chain(theirs).collect();
        Self { clients, lanes, _bridges: bridges, _peers: peers }
    }

    fn measure(mut self, plan: &Plan, one: &Match, table: &mut Table) {
        // Some need many milliseconds for a call, so their turns are longer.
        let (rounds, length) = plan.rounds();
        for round in 0..rounds / 4 {
            for at in order(self.lanes.len(), round) {
                let Lane { callers, side, pids } = &mut self.lanes[at];
                side.counted_turn(callers, length * 4, pids);
                if one.mode == "stateless" {
                    // The last children end after their answers; the next side must not pay for them.
                    process::wait_for_few_below(pids[0][0], 1);
                }
            }
        }
        self.lanes.iter_mut().for_each(|lane| lane.side.read(&lane.pids));
        let (ours, theirs) = self.lanes.split_at(plan.builds.len());
        let server = Server::cheap(&plan.cheap, &[]);
        let name = server.row(one.name, self.clients);
        for ((peer, goal), lane) in one.peers.iter().zip(theirs) {
            let goal = if self.clients > 1 { *goal } else { Goal::None };
            let rates: Vec<_> = ours.iter().map(|lane| lane.side.rates()).collect();
            let what = |what| format!("{name}: {what}, beside {}", peer.name);
            table.compare(&what("calls"), &rates, &lane.side.rates(), a_second, goal);
            let p50: Vec<_> = ours.iter().map(|lane| lane.side.quantiles(0.5)).collect();
            table.compare(&what("p50"), &p50, &lane.side.quantiles(0.5), millis, Goal::None);
            // The children of a stateless bridge come and go.
            if one.mode != "stateless" {
                let what = what("CPU a call, with children");
                let used: Vec<_> = ours.iter().map(|lane| lane.side.used(&[0])).collect();
                table.compare(&what, &used, &lane.side.used(&[0]), micros, Goal::None);
            }
        }
    }
}

/// Results of 8 MiB for one legacy client.
fn big(plan: &Plan, installed: &Path, table: &mut Table) {
    const BYTES: usize = 8 * 1024 * 1024;
    let server = Server::cheap(&plan.cheap, &[]);
    let start = |build| Bridge::start(build, KEPT.mode, &server);
    let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
    let start = |(kind, _): &'static (Kind, Goal)| Peer::start(kind, installed, &plan.cheap);
    let peers: Vec<_> = MATCHES[0].peers.iter().map(start).collect();
    let call = tool_call("big", &format!("{{\"bytes\":{BYTES}}}"));
    let ours = bridges.iter().map(|bridge| bridge.client(&call));
    let mut callers: Vec<_> = ours.chain(peers.iter().map(|peer| peer.big_client(BYTES))).collect();
    let lengths: Vec<_> = callers.iter_mut().map(|caller| caller.answer().len()).collect();
    assert!(lengths.iter().all(|length| *length >= BYTES), "too short: {lengths:?}");
    let mut sides: Vec<_> = callers.iter().map(|_| Side::default()).collect();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds / 4 {
        for at in order(sides.len(), round) {
            sides[at].turn(&mut callers[at..=at], length * 4);
        }
    }
    let p50: Vec<_> = sides.iter().map(|side| side.quantiles(0.5)).collect();
    let (ours, theirs) = p50.split_at(bridges.len());
    for (peer, theirs) in peers.iter().zip(theirs) {
        let what = format!("8 MiB result: p50, beside {}", peer.kind.name);
        table.compare(&what, ours, theirs, millis, Goal::None);
    }
}
