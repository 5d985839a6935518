//! What the bridge process costs: a call through it, and its start, each beside a floor measured in turns.
//!
//! `cargo bench -p pontoon-host --bench bridge [-- --pontoon FILE] [--quick]`. Without a file this program is
//! its own bridge. It fails when a call takes 10 ms or a start 500 ms. What the rows mean is told in
//! `docs/benchmarks.md`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a bench")]

mod ready;
mod round_trip;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The limits of the project's first documents: a call, a start.
const LONGEST_CALL: Duration = Duration::from_millis(10);
const LONGEST_START: Duration = Duration::from_millis(500);

/// What is measured, and how long.
pub(crate) struct Plan {
    /// The bridge executable.
    pub(crate) pontoon: PathBuf,
    /// How often the sides take turns.
    pub(crate) turns: usize,
}

fn main() -> ExitCode {
    // This program is also the bridge, and the other ends of the floors.
    if let Some(exit) = pontoon_host::bridge::dispatch() {
        return exit;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["be-pipe"] => return round_trip::echo_stdio(),
        ["be-socket", path] => return round_trip::echo_socket(path),
        ["be-between", path] => return round_trip::pass_on(path),
        _ => {}
    }
    // Cargo says this when it measures; without it, it only tests that this can be built.
    if !args.iter().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let named = args.iter().skip_while(|arg| *arg != "--pontoon").nth(1).map(PathBuf::from);
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let plan = Plan {
        pontoon: named.unwrap_or_else(|| std::env::current_exe().unwrap()),
        turns: if is_quick { 10 } else { 40 },
    };
    println!("bridge: {}", plan.pontoon.display());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load: {}\n", load.trim());
    println!("| what | bridge | floor | ratio | goal |\n|---|---|---|---|---|");
    let call = round_trip::measure(&plan);
    let start = ready::measure(&plan);
    let mut exit = ExitCode::SUCCESS;
    for (what, took, limit) in
        [("p99 of a call", call, LONGEST_CALL), ("a start", start, LONGEST_START)]
    {
        if took > limit {
            println!("\n{what} took {took:?}, and may take {limit:?}");
            exit = ExitCode::FAILURE;
        }
    }
    exit
}

/// Runs an executable with pipes at its input and output.
pub(crate) fn start(program: &PathBuf, args: &[&str]) -> Child {
    #[expect(clippy::disallowed_methods, reason = "the bench is a client, and ends what it starts")]
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// This program in another role.
pub(crate) fn own() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Times what is measured again and again.
#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn take(&mut self, measure: impl FnOnce()) {
        let began = Instant::now();
        measure();
        self.0.push(began.elapsed());
    }

    /// The time below which this share of all times is.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        times[((times.len() - 1) as f64 * share).round() as usize]
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// The middle one.
pub(crate) fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Prints a row.
pub(crate) fn row(
    what: &str,
    bridge: Duration,
    floor: Option<Duration>,
    ratio: Option<f64>,
    goal: &str,
) {
    let micros = |time: Duration| format!("{:.1} us", time.as_secs_f64() * 1e6);
    let floor = floor.map(micros).unwrap_or_default();
    let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    println!("| {what} | {} | {floor} | {ratio} | {goal} |", micros(bridge));
}
