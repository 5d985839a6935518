//! A `/proc` of its own for a child: with itself and what it started in it, and nobody else.
//!
//! Landlock gives rights to places, and the place of a process in `/proc` is not known before the
//! process is. Giving all of `/proc` would show the command lines of every process to every child,
//! and giving none breaks programs that ask for their own memory. So where the spawner may mount,
//! the child gets a `/proc` that hides whom it could not trace, and by Landlock that is everybody
//! it did not start. Elsewhere it gets its own place only, and what it starts gets none.

use libc::c_int;

use crate::unix::errno;

/// Mounts a `/proc` that only this process and its descendants see. Runs between fork and exec.
pub(crate) fn mount_own() -> Result<(), c_int> {
    let nothing = std::ptr::null();
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: plain system calls with strings that end with a zero, or null where that is allowed.
    let result = unsafe {
        // What is mounted outside later is to be seen inside, and not the other way round.
        match libc::unshare(libc::CLONE_NEWNS) {
            0 => match libc::mount(
                nothing,
                c"/".as_ptr(),
                nothing,
                libc::MS_REC | libc::MS_SLAVE,
                nothing.cast(),
            ) {
                0 => libc::mount(
                    c"proc".as_ptr(),
                    c"/proc".as_ptr(),
                    c"proc".as_ptr(),
                    flags,
                    c"hidepid=ptraceable".as_ptr().cast(),
                ),
                failed => failed,
            },
            failed => failed,
        }
    };
    if result == -1 { Err(errno()) } else { Ok(()) }
}
