//! A network of its own for a child, with nothing in it but a loopback.

use std::ffi::CStr;

use libc::c_int;

use crate::unix::errno;

/// How a child gets a network of its own here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// The spawner may make one.
    Own,
    /// Only together with a user namespace, in which the child keeps its user and group. These are
    /// the lines that say so.
    WithUser { uid_map: Vec<u8>, gid_map: Vec<u8> },
}

impl Namespace {
    /// A network together with a user namespace for the user of this process.
    pub(crate) fn with_user() -> Self {
        // SAFETY: these calls cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let line = |id: u32| format!("{id} {id} 1\n").into_bytes();
        Self::WithUser { uid_map: line(uid), gid_map: line(gid) }
    }

    /// Moves this process into a new network. Runs between fork and exec.
    pub(crate) fn enter(&self) -> Result<(), c_int> {
        match self {
            Self::Own => unshare(libc::CLONE_NEWNET)?,
            Self::WithUser { uid_map, gid_map } => {
                // The files below belong to root while this is off, as it is in the spawner.
                set_dumpable(true);
                let entered = unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
                    .and_then(|()| write(c"/proc/self/setgroups", b"deny"))
                    .and_then(|()| write(c"/proc/self/uid_map", uid_map))
                    .and_then(|()| write(c"/proc/self/gid_map", gid_map));
                set_dumpable(false);
                entered?;
            }
        }
        bring_up_loopback()
    }
}

fn unshare(flags: c_int) -> Result<(), c_int> {
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(flags) } == -1 { Err(errno()) } else { Ok(()) }
}

fn set_dumpable(is_dumpable: bool) {
    // SAFETY: no memory is involved, and with these arguments the call cannot fail.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, c_int::from(is_dumpable), 0, 0, 0) };
}

fn write(path: &CStr, bytes: &[u8]) -> Result<(), c_int> {
    // SAFETY: the path ends with a zero, and the call reads no more than `bytes`. The descriptor
    // is closed where it was opened.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd == -1 {
            return Err(errno());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let error = errno();
        libc::close(fd);
        if written == -1 { Err(error) } else { Ok(()) }
    }
}

/// Servers may listen on their loopback, and talk to themselves.
fn bring_up_loopback() -> Result<(), c_int> {
    // SAFETY: an all-zero request is valid, and the call reads one of that size. The descriptor is
    // closed where it was opened.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket == -1 {
            // No IPv4 at all: then there is nothing to bring up.
            return Ok(());
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *place = byte.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request);
        let error = errno();
        libc::close(socket);
        if result == -1 { Err(error) } else { Ok(()) }
    }
}
