//! Memory of this program: how much it may have, and giving back what it no longer needs.

use std::fs;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use libc::c_int;

use crate::cgroup;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use crate::processors::processors;

/// How many bytes this program may use before the system ends it: the least of what the machine has, what
/// its cgroup and those above it allow, and its own limit. `None` where nothing tells.
pub fn memory_limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_of);
    cgroup::memory_limits().into_iter().chain(machine).chain(own_limit()).min()
}

/// `MemTotal`, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The limit on the address space of this process.
fn own_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one limit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Sees that large pieces of memory go back to the system when they are freed. To be called first.
///
/// glibc learns from the first large piece that is freed to keep the next ones, up to 32 MiB each, and
/// what is kept is also scattered: after a burst of large messages most of it would stay. With a fixed
/// limit each large piece is a mapping of its own, which also grows without being copied. Nor does it
/// make eight heaps for each processor, each with its own remains.
pub fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the allocator, before there are threads.
    unsafe {
        const LARGE: c_int = 256 * 1024;
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(
            libc::M_ARENA_MAX,
            c_int::try_from(processors().max(2)).unwrap_or(c_int::MAX),
        );
    }
}

/// Lets the system put large pages under memory that is about to be filled: it gives them in one step each, where
/// every small page costs one. Pages that are partly in it count as well. What is there stays as it is. Nothing changes where the system has no large pages.
pub fn prefer_large_pages<B>(memory: &mut [B]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let range = memory.as_mut_ptr_range();
        let before = range.start.addr() % PAGE;
        let bytes = (range.end.addr().next_multiple_of(PAGE)) - (range.start.addr() - before);
        // SAFETY: each of these pages has a byte of `memory`, so it is there. The advice changes nothing of what
        // can be read or written there.
        unsafe {
            libc::madvise(range.start.wrapping_byte_sub(before).cast(), bytes, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total_of("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24 << 20));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
        if cfg!(target_os = "linux") {
            assert!(memory_limit().is_some_and(|bytes| bytes > 1 << 20));
        }
    }

    #[test]
    fn memory_of_any_place_and_length_can_be_told_to_grow_by_large_pages() {
        let mut memory = vec![7_u8; 6 << 20];
        memory.reserve(6 << 20);
        prefer_large_pages(memory.spare_capacity_mut());
        for (start, length) in [(0, 0), (1, 1), (1, 4095), (3, 4096), (5, 10_000)] {
            prefer_large_pages(&mut memory.spare_capacity_mut()[start..][..length]);
        }
        memory.extend_from_within(..);
        assert!(memory.iter().all(|byte| *byte == 7));
    }
}
