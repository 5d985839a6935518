//! The bridge with an allocator that counts, for the test of what a call costs.
//!
//! At its end it writes how often it allocated, and how many bytes, into `PONTOON_COUNTS/PID`. It cannot
//! tell before: nothing may run beside the bridge when that forks its spawner.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::path::Path;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let exit = pontoon::cli::main();
    if let Some(directory) = std::env::var_os("PONTOON_COUNTS") {
        let stats = ALLOCATOR.stats();
        let counts = [
            stats.allocations + stats.reallocations,
            stats.bytes_allocated + usize::try_from(stats.bytes_reallocated).unwrap_or(0),
        ];
        let file = Path::new(&directory).join(std::process::id().to_string());
        if std::fs::write(file, format!("{} {}", counts[0], counts[1])).is_err() {
            return ExitCode::FAILURE;
        }
    }
    exit
}
