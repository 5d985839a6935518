//! Resident memory: idle, and for each idle session.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::Http;
use crate::process::size;
use crate::server::Server;
use crate::table::{Goal, Table, kilobytes, megabytes};

const SESSIONS: usize = 1000;

/// Sessions that also hold a connection and its stream open: each takes a descriptor here too.
const LISTENING: usize = 400;

/// Measures a fresh bridge of each build.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let server = Server::demo(&plan.builds[0]);
    let all: Vec<_> = plan.builds.iter().map(|build| of_build(build, &server)).collect();
    for (at, (what, show, goal)) in ROWS.into_iter().enumerate() {
        let ours: Vec<_> = all.iter().map(|values| values[at]).collect();
        table.tell(&format!("memory: {what}"), &ours, show, goal);
    }
}

type Row = (&'static str, fn(f64) -> String, Goal);

const ROWS: [Row; 6] = [
    ("idle", megabytes, Goal::AtMost(10e6)),
    ("idle, without file pages", megabytes, Goal::None),
    ("idle, its helper", megabytes, Goal::None),
    ("with 1000 sessions", megabytes, Goal::None),
    ("each session", kilobytes, Goal::AtMost(40e3)),
    ("each session with an open stream", kilobytes, Goal::AtMost(40e3)),
];

fn of_build(build: &Path, server: &Server) -> [f64; ROWS.len()] {
    let bridge = Bridge::start(build, "stateful", server);
    // What was freed at the start may go back to the system first.
    thread::sleep(Duration::from_millis(500));
    let resident = |pid| size(pid, "VmRSS") as f64;
    let anonymous = || size(bridge.id(), "RssAnon") as f64;
    let idle = [resident(bridge.id()), anonymous(), resident(bridge.spawner())];

    // One connection for all: what it costs is not counted for each.
    let mut http = Http::open(bridge.address(), &bridge.path());
    let before = anonymous();
    (0..SESSIONS).for_each(|_| http.open_session(&bridge.path()));
    let each = (anonymous() - before) / SESSIONS as f64;
    let with_sessions = resident(bridge.id());

    let before = anonymous();
    let listening: Vec<_> = (0..LISTENING)
        .map(|_| {
            let mut http = Http::open(bridge.address(), &bridge.path());
            http.listen(&bridge.path());
            http
        })
        .collect();
    let each_listening = (anonymous() - before) / listening.len() as f64;
    [idle[0], idle[1], idle[2], with_sessions, each, each_listening]
}
