//! What a child may not do: set once in the spawner where children inherit it, else in each child
//! between fork and exec.
//!
//! Further restrictions (another user, Landlock, seccomp, a cgroup) belong in [`confine_child`].

use libc::c_int;

use crate::command::Limits;
use crate::frame::Step;
use crate::unix::errno;

/// Restricts the spawner, and so every child to come.
pub(crate) fn confine_spawner() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls without memory but `none`, which they only read. None of them can fail
    // in a way that is worth not starting for: lowering a limit is always allowed.
    unsafe {
        libc::umask(0o077);
        // A core dump would write the secrets of a child into its directory.
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        #[cfg(target_os = "linux")]
        {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            // A child of the same user can otherwise read and change the memory of the spawner.
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        }
    }
}

/// Restricts a child. Runs between fork and exec: system calls only, no allocation, no locks.
pub(crate) fn confine_child(limits: &Limits) -> Result<(), (Step, c_int)> {
    if let Some(open_files) = limits.open_files {
        let open_files = open_files as libc::rlim_t;
        let limit = libc::rlimit { rlim_cur: open_files, rlim_max: open_files };
        // SAFETY: the call only reads `limit`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == -1 {
            return Err((Step::Limits, errno()));
        }
    }
    Ok(())
}
