//! What the bridge costs: each number beside a floor, measured in turns in the same run.
//!
//! `cargo bench -p pontoon --bench calls [-- --quick] [--only pooled] [--pontoon FILE]`. Everything
//! runs on loopback, is started here and is stopped here. What the rows mean is told in
//! `docs/benchmarks.md`. This file reads the command line; each section has a file of its own.

#![forbid(unsafe_code)]

mod big;
mod bridge;
mod client;
mod load;
mod memory;
mod native;
mod pooled;
mod process;
mod spares;
mod stateless;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::table::Table;

/// Measures the bridge against its floors.
#[derive(Debug, Parser)]
struct Options {
    /// Shorter: about 20 seconds, with more noise.
    #[arg(long)]
    quick: bool,
    /// Only this: pooled or pooled-1, -16, -64, stateless or stateless-1, -8, spares, memory, big.
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// The bridge to measure, in place of the one that was just built.
    #[arg(long, value_name = "FILE")]
    pontoon: Option<PathBuf>,
    /// Cargo says this when it measures; without it, it only tests that this can be built.
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the HTTP server of the floor.
    #[arg(long, hide = true)]
    be_http_server: bool,
    /// Be a stdio server with long answers.
    #[arg(long, hide = true)]
    be_stdio_server: bool,
    /// How long the stdio server takes to start.
    #[arg(long, hide = true, default_value_t = 0)]
    start_ms: u64,
}

/// What every section needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pontoon: PathBuf,
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

const SECTIONS: [Section; 8] = [
    ("pooled-1", |plan, table| pooled::measure(plan, 1, table)),
    ("pooled-16", |plan, table| pooled::measure(plan, 16, table)),
    ("pooled-64", |plan, table| pooled::measure(plan, 64, table)),
    ("stateless-1", |plan, table| stateless::measure(plan, 1, table)),
    ("stateless-8", |plan, table| stateless::measure(plan, 8, table)),
    ("spares", spares::measure),
    ("memory", memory::measure),
    ("big", big::measure),
];

fn main() -> ExitCode {
    let options = Options::parse();
    if options.be_http_server {
        return native::serve_http();
    }
    if options.be_stdio_server {
        return native::serve_stdio(Duration::from_millis(options.start_ms));
    }
    if !options.bench {
        return ExitCode::SUCCESS;
    }
    let built = PathBuf::from(env!("CARGO_BIN_EXE_pontoon"));
    let plan = Plan { pontoon: options.pontoon.unwrap_or(built), is_quick: options.quick };
    let began = Instant::now();
    let mut table = Table::default();
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
