//! Every test that runs the real binary, one module a subject.
//!
//! What several modules need to set up a bridge is here; how to run and talk to one is in the kit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say so by failing")]

mod children;
mod cli;
mod eras;
mod hostile;
mod input;
mod limits;
mod sessions;
mod shutdown;
mod stress;
mod tidy;
mod transcripts;

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
