//! The system calls both sides need, as safe functions: descriptors, sockets, signals, waiting.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::Exit;

/// The descriptors that travel with an order to spawn.
pub(crate) const STREAMS: usize = 3;

/// The result of a call that returns -1 and sets `errno` when it fails.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number of the last error of this thread.
pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The result of `call`, tried again while signals interrupt it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A connected pair of stream sockets, both non-blocking and closed on exec.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    #[cfg(not(target_os = "linux"))]
    let kind = libc::SOCK_STREAM;
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors the call writes.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    let pair = own(fds);
    #[cfg(not(target_os = "linux"))]
    for fd in [&pair.0, &pair.1] {
        set_close_on_exec(fd)?;
        set_nonblocking(fd)?;
    }
    Ok(pair)
}

/// A pipe, its reading end first, both closed on exec.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    #[cfg(target_os = "linux")]
    // SAFETY: `fds` has room for the two descriptors the call writes.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    check(unsafe { libc::pipe(fds.as_mut_ptr()) })?;
    let pair = own(fds);
    #[cfg(not(target_os = "linux"))]
    for fd in [&pair.0, &pair.1] {
        set_close_on_exec(fd)?;
    }
    Ok(pair)
}

fn own(fds: [RawFd; 2]) -> (OwnedFd, OwnedFd) {
    // SAFETY: the kernel just made these descriptors and nothing else owns them.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

/// Makes reads and writes return instead of waiting. Only for descriptors we made: other flags
/// are lost.
pub(crate) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: sets a flag of a descriptor that is open as long as `fd` is.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn set_close_on_exec(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: sets a flag of a descriptor that is open as long as `fd` is.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(())
}

/// Ends the sending side of a socket, whoever else holds a copy of it.
pub(crate) fn shut_down_sending(socket: &OwnedFd) {
    // SAFETY: no memory is involved. A peer that is gone already is no news.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}

/// Room for the control message of [`STREAMS`] descriptors, aligned as its header wants it.
type Control = [u64; 8];

/// Sends some of `bytes`, and all of `fds` with the first of them.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 8];
    let mut message = empty_message(&mut part);
    if !fds.is_empty() {
        debug_assert_eq!(fds.len(), STREAMS);
        let size = u32::try_from(size_of::<[RawFd; STREAMS]>()).unwrap_or(0);
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the space for three descriptors is smaller than `control`, so the header and
        // data that are written lie inside it; `RawFd` and `OwnedFd` look the same in memory.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            let data: *mut RawFd = libc::CMSG_DATA(header).cast();
            for (index, fd) in fds.iter().take(STREAMS).enumerate() {
                data.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // Elsewhere the caller has SIGPIPE ignored (every Rust program) or blocked (the spawner).
    #[cfg(not(target_os = "linux"))]
    let flags = libc::MSG_DONTWAIT;
    retry(|| {
        // SAFETY: `message` points to `part` and `control`, which live until after the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    })
}

/// Receives up to `bytes.len()` bytes, zero at the end, and adds descriptors that came along.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 8];
    let mut message = empty_message(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = libc::MSG_DONTWAIT;
    let received = retry(|| {
        // SAFETY: `message` points to `part` and `control`, which live until after the call, and
        // `part` to `bytes`, which is ours to write.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    })?;
    #[cfg(not(target_os = "linux"))]
    let first = fds.len();
    // SAFETY: the kernel filled `control` up to `msg_controllen`, and the macros walk no further.
    // Each descriptor in it is new and nothing else owns it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data: *const RawFd = libc::CMSG_DATA(header).cast();
                let size = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..size / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for fd in &fds[first..] {
        set_close_on_exec(fd)?;
    }
    Ok(received)
}

fn empty_message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all zeros is a message without address, data and control, padding included.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = ptr::from_mut(part);
    message.msg_iovlen = 1;
    message
}

/// Reads some bytes, zero at the end.
pub(crate) fn read(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: the call writes at most `bytes.len()` bytes into `bytes`.
        let size = unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        usize::try_from(size).map_err(|_| io::Error::last_os_error())
    })
}

/// Waits until there is something to read, or an end.
///
/// # Errors
///
/// `TimedOut` at the deadline.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    retry(|| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Up, so that the last look is not before the deadline.
        let left = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
        // SAFETY: the call reads and writes the one entry.
        match check(unsafe { libc::poll(&raw mut wanted, 1, left) })? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    })
}

/// Signals one process. The caller must be its parent and not have reaped it.
pub(crate) fn signal_process(pid: pid_t, signal: c_int) -> io::Result<()> {
    debug_assert!(pid > 1, "a signal to everyone");
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// Signals a process group. The caller must be the parent of its leader and not have reaped it.
pub(crate) fn signal_group(leader: pid_t, signal: c_int) -> io::Result<()> {
    debug_assert!(leader > 1, "a signal to everyone");
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(-leader, signal) })?;
    Ok(())
}

/// What [`peek_ended`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// This child has ended, is not reaped yet, and stays so.
    Child(pid_t),
    /// All children run.
    None,
    /// There are no children.
    NoChildren,
}

/// Looks for a child of this process that has ended, and does not reap it.
pub(crate) fn peek_ended() -> Ended {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let found = retry(|| {
        // SAFETY: the call fills `info`, which is valid as all zeros when it does not.
        check(unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) })
    });
    if found.is_err() {
        return Ended::NoChildren;
    }
    // SAFETY: zeroed above, and filled for a child by the call when it found one.
    match unsafe { info.assume_init().si_pid() } {
        0 => Ended::None,
        pid => Ended::Child(pid),
    }
}

/// Reaps `pid`, a child of this process, and says how it ended.
pub(crate) fn reap(pid: pid_t) -> Exit {
    reap_counted(pid).0
}

/// The same, and how long it and what it waited for had computed.
pub(crate) fn reap_counted(pid: pid_t) -> (Exit, Duration) {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let waited = retry(|| {
        // SAFETY: the call writes one status and one usage.
        check(unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) })
    });
    // SAFETY: it is all numbers, and zeros if the call failed.
    let usage = unsafe { usage.assume_init() };
    let time = |it: libc::timeval| {
        let micros = Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or(0));
        Duration::from_secs(u64::try_from(it.tv_sec).unwrap_or(0)) + micros
    };
    let computed = time(usage.ru_utime) + time(usage.ru_stime);
    let exit = match waited {
        Ok(_) if libc::WIFEXITED(status) => Exit::Code(libc::WEXITSTATUS(status)),
        Ok(_) if libc::WIFSIGNALED(status) => Exit::Signal(libc::WTERMSIG(status)),
        _ => Exit::Unknown,
    };
    (exit, computed)
}

/// A set of all signals.
pub(crate) fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initialises `set`.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Whether a child has ended, or something else made the kernel say so, since SIGCHLD was let in.
pub(crate) fn is_child_signal_pending() -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call writes one set, and an empty one is valid if it does not.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), libc::SIGCHLD) == 1
    }
}

/// Makes `mask` the blocked signals of this thread, and gives those blocked before.
pub(crate) fn block_signals(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::zeroed();
    // SAFETY: reads one set and writes the other; with a valid `how` it cannot fail.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}
