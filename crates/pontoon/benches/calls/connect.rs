//! `pontoon connect`: a call to an application through it, its start while the application is away, its memory, and how
//! soon it notices that the application is back.
//!
//! The floor of a call is the same call over a WebSocket to the same application, and one over a pipe to a server that
//! costs nothing. The floor of a start is that of an empty program.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Plan;
use crate::client::{Caller, PipeCaller};
use crate::load::{Side, order, zip};
use crate::native;
use crate::process::{self, Running, size};
use crate::server::Server;
use crate::table::{Goal, Table, megabytes, micros, millis};
use crate::websocket::SocketCaller;

/// Where nothing listens.
const AWAY: &str = "ws://127.0.0.1:1";

/// How many starts make a turn.
const STARTS: usize = 8;

/// How often the application comes back.
const RECONNECTS: usize = 40;

/// Measures calls, starts, memory and reconnects.
pub(crate) fn measure(plan: &Plan, table: &mut Table) {
    measure_calls(plan, table);
    measure_starts(plan, table);
    measure_reconnects(plan, table);
}

/// A bridge to this address, with a home of its own.
fn connect(build: &Path, url: &str, home: &TempDir) -> Command {
    let mut command = process::command(build, &["connect", url, "--no-share"]);
    command.env("HOME", home.path()).env_remove("XDG_STATE_HOME");
    command
}

fn measure_calls(plan: &Plan, table: &mut Table) {
    let server = Server::cheap(&plan.cheap, &[]);
    let (_native, address) = native::start(&["--be-websocket-server"]);
    let (home, url) = (process::directory(), format!("ws://{address}"));
    let bridge =
        |build: &PathBuf| vec![PipeCaller::start(&mut connect(build, &url, &home), &server.call)];
    let mut ours: Vec<_> = plan.builds.iter().map(bridge).collect();
    let mut straight = [SocketCaller::open(address, "/", &server.call)];
    let mut pipe = [PipeCaller::start(&mut server.command(), &server.call)];
    let lengths: Vec<_> = ours.iter_mut().flatten().map(Caller::call).collect();
    let expected = straight[0].call();
    assert!(lengths.iter().all(|length| *length == expected), "{lengths:?}: not {expected}");

    let mut sides: Vec<Side> = ours.iter().map(|_| Side::default()).collect();
    let [mut on_socket, mut on_pipe]: [Side; 2] = Default::default();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for at in order(sides.len(), round) {
            sides[at].turn(&mut ours[at], length);
        }
        on_socket.turn(&mut straight, length);
        on_pipe.turn(&mut pipe, length);
    }
    for (part, name, goal) in [(0.5, "p50", Goal::AtMost(2.0)), (0.99, "p99", Goal::None)] {
        let ours: Vec<_> = sides.iter().map(|side| side.quantiles(part)).collect();
        let floor = zip(&on_socket.quantiles(part), &on_pipe.quantiles(part), |a, b| a + b);
        table.compare(&format!("connect, a call: {name}"), &ours, &floor, micros, goal);
    }
    let memory: Vec<_> =
        ours.iter().map(|ours| size(ours[0].running.id(), "VmRSS") as f64).collect();
    table.tell("connect, memory", &memory, megabytes, Goal::AtMost(10e6));
}

fn measure_starts(plan: &Plan, table: &mut Table) {
    let (home, folder) = (process::directory(), process::directory());
    let empty = build_empty(folder.path());
    let start = |build: &PathBuf| {
        let mut command = connect(build, AWAY, &home);
        let began = Instant::now();
        let caller = PipeCaller::start(&mut command, "");
        let took = began.elapsed();
        caller.end();
        took
    };
    let end = || {
        let began = Instant::now();
        let mut running = Running::start(&mut process::command(&empty, &[]));
        assert!(running.0.wait().expect("a child of ours").success());
        began.elapsed()
    };
    let middle = |measure: &dyn Fn() -> Duration| {
        let mut times: Vec<_> = (0..STARTS).map(|_| measure().as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        times[STARTS / 2]
    };
    let mut ours: Vec<Vec<f64>> = plan.builds.iter().map(|_| Vec::new()).collect();
    let mut floor = Vec::new();
    for round in 0..plan.rounds().0 / 2 {
        for at in order(ours.len(), round) {
            ours[at].push(middle(&|| start(&plan.builds[at])));
        }
        floor.push(middle(&end));
    }
    let what = "connect, from its start to `initialize` answered, the application away";
    table.compare(what, &ours, &floor, millis, Goal::AtMost(3.0));
}

/// From when the port is open until the first bytes of the dial are there. The application has just gone, or never came;
/// what it answers is not measured.
fn measure_reconnects(plan: &Plan, table: &mut Table) {
    for build in &plan.builds {
        let home = process::directory();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let mut command = connect(build, &format!("ws://{address}"), &home);
        // It looks for the application once it has a client.
        let _bridge = PipeCaller::start(&mut command, "");
        let mut times: Vec<_> = (0..RECONNECTS).map(|round| reconnect(address, round)).collect();
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[RECONNECTS / 2], times[RECONNECTS - 1]);
        let what = "connect, from the port opened to the first bytes of the dial: median, longest";
        table.note(what, format!("{}, {}", millis(median), millis(most)));
    }
}

/// Opens the port at a moment that is another each time, and closes it once the bridge has come.
fn reconnect(address: SocketAddr, round: usize) -> f64 {
    // Away for 0.3 s to 1.3 s, spread evenly, so that the port opens anywhere between two tries.
    thread::sleep(Duration::from_millis(300 + (round as u64 * 617) % 1000));
    let listener = TcpListener::bind(address).expect("the port was ours");
    let opened = Instant::now();
    let (mut stream, _) = listener.accept().expect("the bridge dials");
    let mut first = [0];
    stream.read_exact(&mut first).expect("it speaks first");
    opened.elapsed().as_secs_f64()
}

/// A program that does nothing, linked statically.
fn build_empty(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("empty.rs"), folder.join("empty"));
    std::fs::write(&source, "fn main() {}").expect("a folder of ours");
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut rustc = process::command(Path::new(&rustc), &["-O", "-C", "relocation-model=static"]);
    rustc.args(["-C", "target-feature=+crt-static", "-o"]).args([&program, &source]);
    let output = rustc.output().expect("rustc is needed, as cargo has it");
    assert!(output.status.success(), "the empty program could not be built: {rustc:?}");
    program
}
