//! How the spawner waits: for descriptors, for a process to end, or for time to pass.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;
use std::{io, ptr};

use libc::c_int;

use crate::unix;

/// Waits for the sets, for a process to end (then it is interrupted), or for the time to pass.
///
/// SIGCHLD is let through only here, so none is lost between looking and waiting.
pub(super) fn sleep(
    readable: &mut FdSet,
    writable: &mut FdSet,
    timeout: Option<Duration>,
) -> io::Result<c_int> {
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut mask = unix::all_signals();
    // SAFETY: all pointers are to values that live until after the call, or null.
    unix::check(unsafe {
        libc::sigdelset(&raw mut mask, libc::SIGCHLD);
        libc::pselect(
            readable.highest.max(writable.highest) + 1,
            &raw mut readable.set,
            &raw mut writable.set,
            ptr::null_mut(),
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            &raw const mask,
        )
    })
}

/// A set of descriptors to wait for.
///
/// Such a set holds numbers below 1,024. That is enough: the spawner has a descriptor for each
/// launch under way and three for an order on its way, and the program bounds both.
pub(super) struct FdSet {
    set: libc::fd_set,
    highest: RawFd,
}

impl FdSet {
    pub(super) fn new() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call initialises `set`.
        let set = unsafe {
            libc::FD_ZERO(set.as_mut_ptr());
            set.assume_init()
        };
        Self { set, highest: -1 }
    }

    pub(super) fn insert(&mut self, fd: RawFd) {
        assert!((0..1024).contains(&fd), "descriptor {fd} does not fit into a set");
        // SAFETY: `fd` is inside the set, as checked above.
        unsafe { libc::FD_SET(fd, &raw mut self.set) };
        self.highest = self.highest.max(fd);
    }

    pub(super) fn contains(&self, fd: RawFd) -> bool {
        // SAFETY: `fd` was inserted, so it is inside the set.
        unsafe { libc::FD_ISSET(fd, &raw const self.set) }
    }
}
