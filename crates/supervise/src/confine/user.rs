//! Whose a child is: another user, and no capabilities.

use libc::c_int;

use crate::confinement::User;
use crate::unix::errno;

/// Gives the streams of this process, which are pipes that we made, to `user`: programs open them
/// by name as well, as `/dev/stdout`, and may only open what is theirs. Runs between fork and exec.
pub(crate) fn give_streams(user: User) {
    for stream in 0..3 {
        // SAFETY: no memory is involved. One that stays ours still works, but for that.
        unsafe { libc::fchown(stream, user.uid, user.gid) };
    }
}

/// Makes this process that of `user`, for good. Runs between fork and exec.
///
/// The calls are made directly: the C library would first look for threads to take along.
pub(crate) fn become_user(user: User) -> Result<(), c_int> {
    let User { uid, gid } = user;
    // SAFETY: no memory is involved; no groups are read from the null pointer.
    unsafe {
        let none = std::ptr::null::<libc::gid_t>();
        if libc::syscall(libc::SYS_setgroups, 0usize, none) == -1
            || libc::syscall(libc::SYS_setresgid, gid, gid, gid) == -1
            || libc::syscall(libc::SYS_setresuid, uid, uid, uid) == -1
        {
            return Err(errno());
        }
    }
    Ok(())
}

/// Gives up every capability this process has, for good: no child can gain privileges, so what
/// it could have had by being root is lost with what it has. Runs between fork and exec.
pub(crate) fn drop_capabilities() -> Result<(), c_int> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // Effective, permitted and inheritable, twice 32 of each.
    let none = [0u32; 6];
    // SAFETY: the call reads a header and, for that version, six numbers.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if result == -1 { Err(errno()) } else { Ok(()) }
}
