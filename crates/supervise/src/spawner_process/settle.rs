//! How a process becomes the spawner: it drops what it has of the program.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::c_int;

use crate::confine::{Ordinary, confine_spawner};

/// Cuts the ties to the program: session, signals, descriptors. Gives the socket in its new place, and
/// what was given up that a trusted child is to have.
pub(super) fn settle_in(socket: OwnedFd) -> (OwnedFd, Ordinary) {
    /// Children count on 0, 1 and 2 being free to overwrite, and this one comes next.
    const SOCKET: RawFd = 3;
    // SAFETY: this process has one thread, and every descriptor that is closed or replaced here
    // belongs to code of the program that never runs in this process.
    let socket = unsafe {
        // One that was run has its session already.
        libc::setsid();
        reset_signals();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        libc::dup2(null, 0);
        libc::dup2(null, 1);
        let from = socket.into_raw_fd();
        if from != SOCKET {
            libc::dup2(from, SOCKET);
        }
        libc::fcntl(SOCKET, libc::F_SETFD, libc::FD_CLOEXEC);
        close_from(SOCKET + 1);
        // Not named like the program: whoever kills that by name must not kill this with it.
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_NAME, c"child-spawner".as_ptr());
        OwnedFd::from_raw_fd(SOCKET)
    };
    (socket, confine_spawner())
}

/// Default dispositions, which children inherit, but for the one signal that must wake us.
///
/// # Safety
///
/// Handlers of the program must not be needed any more.
unsafe fn reset_signals() {
    extern "C" fn wake(_signal: c_int) {}
    // SAFETY: an all-zero action is the default one; the handler does nothing at all.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
        action.sa_sigaction = wake as extern "C" fn(c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut());
    }
}

/// Closes every descriptor from `first` on.
///
/// # Safety
///
/// Nothing in this process may own one of them.
unsafe fn close_from(first: RawFd) {
    // SAFETY: the caller vouches for it.
    unsafe {
        #[cfg(target_os = "linux")]
        if libc::syscall(libc::SYS_close_range, first, c_int::MAX, 0) == 0 {
            return;
        }
        let highest = c_int::try_from(libc::sysconf(libc::_SC_OPEN_MAX)).unwrap_or(65_536);
        for fd in first..highest.clamp(1024, 65_536) {
            libc::close(fd);
        }
    }
}
