//! Namespaces of its own for a child: a network with nothing in it but a loopback, a table of shared
//! memory and queues that ends with it, and a view of the file system.

use std::ffi::CStr;

use libc::c_int;

use crate::unix::errno;

/// The kinds of namespaces that a child may have.
pub(crate) const NETWORK: c_int = libc::CLONE_NEWNET;
pub(crate) const IPC: c_int = libc::CLONE_NEWIPC;
pub(crate) const MOUNTS: c_int = libc::CLONE_NEWNS;

/// Which namespaces a child can have here, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespaces {
    /// The kinds there can be, as flags of `unshare`.
    pub(crate) kinds: c_int,
    /// Set where they come only together with a user namespace.
    pub(crate) user: Option<UserMaps>,
}

/// The lines that keep a child's user and group in a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserMaps {
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
}

impl UserMaps {
    /// For the user and group of this process.
    pub(crate) fn of_this_process() -> Self {
        // SAFETY: these calls cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let line = |id: u32| format!("{id} {id} 1\n").into_bytes();
        Self { uid_map: line(uid), gid_map: line(gid) }
    }

    /// Moves this process into a new user namespace, in which it may make others. Runs between fork
    /// and exec.
    pub(crate) fn enter(&self) -> Result<(), c_int> {
        // The files below belong to root while this is off, as it is in the spawner.
        set_dumpable(true);
        let entered = unshare(libc::CLONE_NEWUSER)
            .and_then(|()| write(c"/proc/self/setgroups", b"deny"))
            .and_then(|()| write(c"/proc/self/uid_map", &self.uid_map))
            .and_then(|()| write(c"/proc/self/gid_map", &self.gid_map));
        set_dumpable(false);
        entered
    }
}

impl Namespaces {
    /// Whether there can be one of this kind.
    pub(crate) fn has(&self, kind: c_int) -> bool {
        self.kinds & kind != 0
    }

    /// Moves this process into new namespaces, of the wanted kinds that can be had. Runs between fork
    /// and exec.
    pub(crate) fn enter(&self, wanted: c_int) -> Result<(), c_int> {
        let kinds = self.kinds & wanted;
        if kinds == 0 {
            return Ok(());
        }
        if let Some(user) = &self.user {
            user.enter()?;
        }
        enter(kinds)
    }
}

/// Moves this process into new namespaces of these kinds.
pub(crate) fn enter(kinds: c_int) -> Result<(), c_int> {
    unshare(kinds)?;
    if kinds & NETWORK != 0 { bring_up_loopback() } else { Ok(()) }
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
            *place = *byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request);
        let error = errno();
        libc::close(socket);
        if result == -1 { Err(error) } else { Ok(()) }
    }
}
