//! Limits that the system keeps for each process by itself.

use libc::c_int;

use crate::command::Limits;
#[cfg(target_os = "linux")]
use crate::confinement::Restriction;
use crate::frame::Step;
use crate::unix::errno;

/// Sets the limits of this process. Those of memory and processes only where no cgroup keeps them.
/// Runs between fork and exec, and late: with few descriptors left, other steps could fail.
pub(crate) fn limit(limits: &Limits, has_cgroup: bool) -> Result<(), (Step, c_int)> {
    let Limits { open_files, memory_bytes, processes, cpu_seconds, file_size_bytes } = limits;
    #[cfg(target_os = "linux")]
    if !has_cgroup {
        set(libc::RLIMIT_DATA as c_int, *memory_bytes, 0)
            .map_err(|error| (Step::Restrict(Restriction::Memory), error))?;
        set(libc::RLIMIT_NPROC as c_int, *processes, 0)
            .map_err(|error| (Step::Restrict(Restriction::Processes), error))?;
    }
    // Elsewhere nobody asks: what is not supported is refused before.
    #[cfg(not(target_os = "linux"))]
    let _ = (memory_bytes, processes, has_cgroup);
    // A process that ends at the first sign says why; one that does not is killed at the second.
    set(libc::RLIMIT_CPU as c_int, *cpu_seconds, 1)
        .and_then(|()| set(libc::RLIMIT_FSIZE as c_int, *file_size_bytes, 0))
        .and_then(|()| set(libc::RLIMIT_NOFILE as c_int, *open_files, 0))
        .map_err(|error| (Step::Limits, error))
}

/// Sets one limit, the hard one `beyond` more.
fn set(resource: c_int, limit: Option<u64>, beyond: u64) -> Result<(), c_int> {
    let Some(limit) = limit else { return Ok(()) };
    let (soft, hard) = (limit as libc::rlim_t, limit.saturating_add(beyond) as libc::rlim_t);
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the call only reads `limit`.
    let result = unsafe { libc::setrlimit(resource as _, &raw const limit) };
    if result == -1 { Err(errno()) } else { Ok(()) }
}
