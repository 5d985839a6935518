//! What the bridge costs: each number beside a floor, measured in turns in the same run.
//!
//! `cargo bench -p pontoon --bench calls [-- --quick] [--only pooled] [--pontoon FILE]...`. Everything
//! runs on loopback, is started here and is stopped here, also by Ctrl-C. What the rows mean is told in
//! `docs/benchmarks.md`. This file reads the command line; each section has a file of its own.

#![forbid(unsafe_code)]

mod big;
mod bridge;
mod client;
mod connect;
mod load;
mod memory;
mod native;
mod peer;
mod peers;
mod pooled;
mod process;
mod relay;
mod server;
mod spares;
mod stateless;
mod table;
mod websocket;
mod without;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::server::Server;
use crate::table::Table;

/// Measures the bridge against its floors.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter: about a minute, with more noise.
    #[arg(long)]
    quick: bool,
    /// Only this: pooled or pooled-1, -16, -64, shared or shared-16, -64, websocket or websocket-16, -shared, connect, stateless or stateless-1, -8, spares,
    /// memory, big, healing, lines, peers or peers-http, -websocket.
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Only in front of this server: cheap or demo.
    #[arg(long, value_name = "NAME", default_value = "")]
    server: String,
    /// The bridge to measure, in place of the one that was just built. Several are compared in turns,
    /// each with the first.
    #[arg(long, value_name = "FILE")]
    pontoon: Vec<PathBuf>,
    /// Where `scripts/bench-peers.sh` has installed other bridges; without it there is no section `peers`.
    #[arg(long, value_name = "DIRECTORY")]
    peers: Option<PathBuf>,
    /// Cargo says this when it measures; without it, it only tests that this can be built.
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the HTTP server of the floor.
    #[arg(long, hide = true)]
    be_http_server: bool,
    /// Be the WebSocket server of the floor.
    #[arg(long, hide = true)]
    be_websocket_server: bool,
    /// Be a relay between WebSockets and children of this command.
    #[arg(long, hide = true, num_args = 1.., value_name = "COMMAND", allow_hyphen_values = true)]
    be_websocket_relay: Vec<String>,
}

/// What every section needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The builds of the bridge, of which the first is the one that the others are compared with.
    pub(crate) builds: Vec<PathBuf>,
    /// The program of the server that costs nothing.
    pub(crate) cheap: PathBuf,
    /// The servers that calls are measured with.
    pub(crate) servers: Vec<Server>,
    /// Where other bridges are installed.
    pub(crate) peers: Option<PathBuf>,
    pub(crate) is_quick: bool,
}

impl Plan {
    /// How often the sides take turns, and how long a turn is: short, so that what else the machine
    /// does falls on both sides alike.
    pub(crate) fn rounds(&self) -> (usize, Duration) {
        match self.is_quick {
            true => (16, Duration::from_millis(40)),
            false => (60, Duration::from_millis(60)),
        }
    }
}

type Section = (&'static str, fn(&Plan, &mut Table));

const SECTIONS: [Section; 17] = [
    ("pooled-1", |plan, table| pooled::measure(plan, &pooled::KEPT, 1, table)),
    ("pooled-16", |plan, table| pooled::measure(plan, &pooled::KEPT, 16, table)),
    ("pooled-64", |plan, table| pooled::measure(plan, &pooled::KEPT, 64, table)),
    ("shared-16", |plan, table| pooled::measure(plan, &pooled::SHARED, 16, table)),
    ("shared-64", |plan, table| pooled::measure(plan, &pooled::SHARED, 64, table)),
    ("websocket-16", |plan, table| websocket::measure(plan, &pooled::KEPT, 16, table)),
    ("websocket-shared", |plan, table| websocket::measure(plan, &pooled::SHARED, 16, table)),
    ("connect", connect::measure),
    ("stateless-1", |plan, table| stateless::measure(plan, 1, table)),
    ("stateless-8", |plan, table| stateless::measure(plan, 8, table)),
    ("spares", spares::measure),
    ("memory", memory::measure),
    ("big", big::measure),
    ("healing", |plan, table| without::measure(plan, &without::HEALING, table)),
    ("lines", |plan, table| without::measure(plan, &without::CALL_LINES, table)),
    ("peers-http", peers::measure),
    ("peers-websocket", peers::measure_websocket),
];

fn main() -> ExitCode {
    let options = Options::parse();
    if options.be_http_server {
        return native::serve_http();
    }
    if options.be_websocket_server {
        return websocket::serve();
    }
    if !options.be_websocket_relay.is_empty() {
        return relay::serve(&options.be_websocket_relay);
    }
    if !options.bench {
        return ExitCode::SUCCESS;
    }
    let directory = process::end_all_on_a_signal();
    let plan = plan(&options, server::build_cheap(directory.path()));
    let began = Instant::now();
    let mut table = Table::new(&plan.builds);
    for (name, measure) in SECTIONS {
        let group = name.split_once('-').map_or(name, |(group, _)| group);
        if ["", name, group].contains(&options.only.as_str()) {
            measure(&plan, &mut table);
        }
    }
    table.print(began.elapsed());
    let left = process::left();
    assert!(left.is_empty(), "processes are left: {left:?}");
    ExitCode::SUCCESS
}

fn plan(options: &Options, cheap: PathBuf) -> Plan {
    let mut builds = options.pontoon.clone();
    if builds.is_empty() {
        builds.push(PathBuf::from(env!("CARGO_BIN_EXE_pontoon")));
    }
    let mut servers = vec![Server::cheap(&cheap, &[]), Server::demo(&builds[0])];
    servers.retain(|server| ["", server.name].contains(&options.server.as_str()));
    Plan { builds, cheap, servers, peers: options.peers.clone(), is_quick: options.quick }
}
