//! What a call costs the bridge, counted and not timed, so that it cannot creep up unseen.
//!
//! One client calls again and again on one connection, a kept child or one for each call. The limits have room for
//! what differs from machine to machine, and hardly more. A change that makes a call cheaper lowers them.

use std::fs;
use std::path::PathBuf;

use pontoon_tests::client::{Client, Era, Speaker};
use pontoon_tests::rig::{Binaries, Plan, Rig, Server};
use serde_json::{Value, json};

use crate::binaries;

/// Calls before anything is counted.
const WARM_UP: u64 = 50;

/// An `echo` of some bytes, and a result of 1 MiB.
fn small() -> (&'static str, Value) {
    ("echo", json!({"text": "Hello, Ada!"}))
}

const MIB: u64 = 1024 * 1024;

fn large() -> (&'static str, Value) {
    ("big", json!({"bytes": MIB}))
}

/// A bridge before a server of the legacy era, whose answers are translated for a modern client.
fn plan(pontoon: PathBuf, mode: &str) -> Plan {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_cheap-server"));
    let server = Server::new("cheap", &program, &["--era", "legacy"]).with("mode", mode);
    // As many threads as anywhere else: they wake each other.
    Plan::new(Binaries { pontoon, ..binaries() }, [server])
        .variable("MCPO_LOG_LEVEL", "error")
        .variable("TOKIO_WORKER_THREADS", "2")
}

fn call(client: &mut Client, calls: u64, (tool, arguments): &(&str, Value)) {
    for id in 0..calls {
        let response = client.call(id, tool, arguments.clone());
        // A large text is not parsed: that would take most of the test.
        let text = &response.body[response.body.len().saturating_sub(300)..];
        let text = String::from_utf8_lossy(text);
        assert!(text.contains("Hello, Ada!") || text.contains("a line of words"), "{text}");
    }
}

fn stop(rig: Rig, client: Client) {
    client.end();
    rig.stop();
}

/// How often the bridge allocated in its life with this many calls, and how many bytes.
fn allocated(era: Era, mode: &str, calls: u64, what: &(&str, Value)) -> [f64; 2] {
    let counts = tempfile::tempdir().unwrap();
    let pontoon = PathBuf::from(env!("CARGO_BIN_EXE_counting-pontoon"));
    let plan = plan(pontoon, mode);
    let rig = plan.variable("PONTOON_COUNTS", counts.path().to_str().unwrap()).start();
    let pid = rig.pid();
    let mut client = Client::new(era, &rig.endpoint("cheap"));
    call(&mut client, WARM_UP, &small());
    call(&mut client, calls, what);
    stop(rig, client);
    let text = fs::read_to_string(counts.path().join(pid.to_string())).unwrap();
    let (times, bytes) = text.split_once(' ').unwrap();
    [times, bytes].map(|number| number.parse().unwrap())
}

/// What one call allocates: what the start and the end cost is in a life without calls too.
fn allocated_a_call(era: Era, mode: &str, calls: u64, what: &(&str, Value)) -> [f64; 2] {
    let (few, many) = (allocated(era, mode, 0, what), allocated(era, mode, calls, what));
    std::array::from_fn(|at| (many[at] - few[at]) / calls as f64)
}

#[test]
fn a_call_allocates_no_more_than_it_did() {
    // Measured: 51 and 23 kB for a legacy client, 64 and 26 kB for a modern one.
    for (era, most) in [(Era::Legacy, [55.0, 25e3]), (Era::Modern, [68.0, 28e3])] {
        check_allocated(era, "stateful", 500, most);
    }
}

#[test]
fn a_call_with_a_process_of_its_own_allocates_no_more_than_it_did() {
    // Measured: 241 and 93 kB; how many variables there are to inherit differs.
    check_allocated(Era::Legacy, "stateless", 100, [270.0, 105e3]);
}

#[track_caller]
fn check_allocated(era: Era, mode: &str, calls: u64, most: [f64; 2]) {
    let found = allocated_a_call(era, mode, calls, &small());
    println!("{era:?}, {mode}: {:.1} allocations a call, {:.0} bytes", found[0], found[1]);
    assert!(found[0] < most[0] && found[1] < most[1], "{era:?}: {found:?}, at most {most:?}");
}

#[test]
fn a_large_result_is_copied_no_more_often_than_it_was() {
    // 4.0 was measured for both: an answer is put into the other era without a copy.
    for (era, most) in [(Era::Legacy, 4.4), (Era::Modern, 4.4)] {
        let [times, bytes] = allocated_a_call(era, "stateful", 20, &large());
        let copies = bytes / MIB as f64;
        println!("{era:?}: {times:.1} allocations a result, {copies:.2} of its size");
        assert!(copies < most, "{era:?}: {copies:.2} times its size, at most {most}");
    }
}

/// How often the bridge called one of the family of `read` until now, of `write`, and how often its threads
/// waited. `None` where the system does not count that.
fn waited(rig: &Rig) -> Option<[f64; 3]> {
    let number = |text: &str, field: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().parse().unwrap()
    };
    let place = format!("/proc/{}", rig.pid());
    let io = fs::read_to_string(format!("{place}/io")).ok()?;
    let threads = fs::read_dir(format!("{place}/task")).unwrap();
    // A thread may end meanwhile.
    let waits = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        Some(number(&status, "voluntary_ctxt_switches:"))
    });
    Some([number(&io, "syscr:"), number(&io, "syscw:"), waits.sum()])
}

#[test]
fn a_call_reads_writes_and_waits_no_more_than_it_did() {
    const CALLS: u64 = 1000;
    // Reads: 1.0, of the pipe; those of a socket are not counted. Writes: 2.1 to 2.3, to both, and some that
    // wake a thread. So one more a call is seen. Waits: 0.7 to 1.8 where processors are busy, fewer than there
    // are things to wait for.
    const MOST: [f64; 3] = [1.2, 2.6, 3.0];
    for era in [Era::Legacy, Era::Modern] {
        let rig = plan(binaries().pontoon, "stateful").start();
        let mut client = Client::new(era, &rig.endpoint("cheap"));
        call(&mut client, WARM_UP, &small());
        let before = waited(&rig);
        call(&mut client, CALLS, &small());
        let after = waited(&rig);
        stop(rig, client);
        let (Some(before), Some(after)) = (before, after) else {
            println!("skipped: this system does not count reads and writes");
            return;
        };
        let found: [f64; 3] = std::array::from_fn(|at| (after[at] - before[at]) / CALLS as f64);
        println!("{era:?}: {:.2} reads, {:.2} writes, {:.2} waits", found[0], found[1], found[2]);
        assert!(
            found.iter().zip(MOST).all(|(found, most)| *found < most),
            "{found:?}, at most {MOST:?}"
        );
    }
}
