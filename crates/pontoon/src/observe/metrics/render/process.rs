//! What processes use: this one, by the names that every exporter gives them, and the children of each server.

use super::super::text::{Page, Type};
use crate::observe::processes::OwnUse;
use crate::observe::status::ProcessStatus;

/// This process.
pub(super) fn own(page: &mut Page, own: &OwnUse) {
    let help = "Total user and system CPU time spent in seconds.";
    let computed = own.computed.as_secs_f64();
    page.single("process_cpu_seconds_total", Type::Counter, help, computed);
    let mut tell = |name, help, value: u64| page.single(name, Type::Gauge, help, value);
    tell("process_open_fds", "Number of open file descriptors.", own.open_files);
    if let Some(most) = own.max_files {
        tell("process_max_fds", "Maximum number of open file descriptors.", most);
    }
    tell("process_virtual_memory_bytes", "Virtual memory size in bytes.", own.virtual_bytes);
    tell("process_resident_memory_bytes", "Resident memory size in bytes.", own.resident_bytes);
    tell("process_threads", "Number of OS threads in the process.", own.threads);
    let help = "Start time of the process since unix epoch in seconds.";
    page.single("process_start_time_seconds", Type::Gauge, help, own.started.as_secs_f64());
}

/// The children of each server.
pub(super) fn children(page: &mut Page, processes: &ProcessStatus) {
    let servers =
        || processes.children.iter().map(|(name, used)| (vec![("server", name.as_str())], used));
    page.family(
        "pontoon_child_cpu_seconds_total",
        Type::Counter,
        "Processor time of children and all they started, also of those that have ended.",
        servers().map(|(labels, used)| (labels, used.computed.as_secs_f64())),
    );
    page.family(
        "pontoon_child_memory_bytes",
        Type::Gauge,
        "Resident memory of living children and all they started; shared pages count for each.",
        servers().map(|(labels, used)| (labels, used.memory_bytes)),
    );
    page.family(
        "pontoon_child_processes",
        Type::Gauge,
        "Processes of living children: themselves and all they started.",
        servers().map(|(labels, used)| (labels, used.processes)),
    );
}
