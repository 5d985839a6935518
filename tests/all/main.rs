//! Every test that runs the real binary, one module a subject.
//!
//! What several modules need to set up a bridge is here; how to run and talk to one is in the kit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say so by failing")]

mod access;
mod bare;
mod call_lines;
mod children;
mod claude;
mod cli;
mod connect;
mod cors;
#[cfg(target_os = "linux")]
mod cost;
mod deadline;
mod disk;
mod doctor;
mod eras;
mod fairness;
mod files;
mod first_minute;
mod health;
mod host;
mod hostile;
mod input;
mod instructions;
#[cfg(target_os = "linux")]
mod isolation;
mod jobs;
mod journal;
mod learning;
mod limits;
mod links;
mod logs;
mod metrics;
mod model;
mod odd_files;
mod questions;
mod reached;
mod receipts;
mod refusals;
mod reload;
mod restart;
mod sessions;
mod shared;
mod shutdown;
mod soak;
mod spares;
mod sse;
mod stand_in;
mod stateful;
mod storage;
mod stress;
mod tidy;
mod tls;
mod told;
mod traces;
mod transcripts;
mod unchanged;
mod websocket;
mod workspace;

use std::path::Path;

use pontoon_tests::rig::{Binaries, Plan, Rig, Server};

fn binaries() -> Binaries {
    pontoon_tests::binaries!()
}

/// A bridge in front of these servers.
fn rig(servers: impl IntoIterator<Item = Server>) -> Rig {
    plan(servers).start()
}

fn plan(servers: impl IntoIterator<Item = Server>) -> Plan {
    Plan::new(binaries(), servers)
}

/// The well-behaved server, called `fixture`.
fn fixture(mode: &str) -> Server {
    Server::new("fixture", &binaries().fixture_server, &[]).with("mode", mode)
}

/// The well-behaved server, of one era alone.
fn fixture_of(era: &str, mode: &str) -> Server {
    Server::new("fixture", &binaries().fixture_server, &["--era", era]).with("mode", mode)
}

/// The badly behaved server, called `rude`.
fn rude(how: &str, mode: &str) -> Server {
    Server::new("rude", &binaries().rude_server, &["--how", how]).with("mode", mode)
}

/// A server that a shell starts, called `shell`; `FIXTURE` stands for the well-behaved one.
fn shell(script: &str, mode: &str) -> Server {
    let fixture = binaries().fixture_server.display().to_string();
    let script = script.replace("FIXTURE", &fixture);
    Server::new("shell", Path::new("/bin/sh"), &["-c", &script]).with("mode", mode)
}

/// Runs an ignored test of this program in a directory that is a file system of 8 MiB, which ends with
/// it. Where nothing can be mounted, that is told.
#[allow(clippy::disallowed_methods, reason = "a test of ours that needs a mount of its own")]
fn on_a_small_disk(test: &str) {
    let place = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=8m none \"$1\" || exit 77; \
                  cd \"$1\" && exec \"$2\" --exact \"$3\" --ignored";
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(place.path());
    let output = command.arg(std::env::current_exe().unwrap()).arg(test).output();
    match output {
        Ok(output) if output.status.code() == Some(77) => {
            println!("skipped: no file system can be mounted here: {output:?}");
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => println!("skipped: there is no unshare: {error}"),
    }
}
