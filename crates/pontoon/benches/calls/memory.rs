//! Resident memory: idle, and for each idle session.

use std::thread;
use std::time::Duration;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::Http;
use crate::process::size;
use crate::table::{Goal, Table, kilobytes, megabytes};

const SESSIONS: usize = 1000;

/// Sessions that also hold a connection and its stream open: each takes a descriptor here too.
const LISTENING: usize = 400;

/// Measures a fresh bridge.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    let bridge = Bridge::start(&plan.pontoon, "stateful", &plan.pontoon, &["demo"]);
    // What was freed at the start may go back to the system first.
    thread::sleep(Duration::from_millis(500));
    let resident = |pid| size(pid, "VmRSS") as f64;
    let anonymous = || size(bridge.id(), "RssAnon") as f64;
    let idle = resident(bridge.id());
    table.tell("memory: idle", idle, megabytes, Goal::AtMost(10e6));
    table.tell("memory: idle, without file pages", anonymous(), megabytes, Goal::None);
    table.tell("memory: idle, its helper", resident(bridge.spawner()), megabytes, Goal::None);

    // One connection for all: what it costs is not counted for each.
    let mut http = Http::open(&bridge);
    let before = anonymous();
    (0..SESSIONS).for_each(|_| http.open_session(&bridge));
    let each = (anonymous() - before) / SESSIONS as f64;
    table.tell("memory: with 1000 sessions", resident(bridge.id()), megabytes, Goal::None);
    table.tell("memory: each session", each, kilobytes, Goal::AtMost(40e3));

    let before = anonymous();
    let listening: Vec<_> = (0..LISTENING)
        .map(|_| {
            let mut http = Http::open(&bridge);
            http.listen(&bridge);
            http
        })
        .collect();
    let each = (anonymous() - before) / LISTENING as f64;
    let what = "memory: each session with an open stream";
    table.tell(what, each, kilobytes, Goal::AtMost(40e3));
    drop(listening);
}
