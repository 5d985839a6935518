//! One launch in the spawner: fork, prepare, exec, and word of what went wrong on the way.
//!
//! The new process shares a pipe with the spawner that closes on exec. Its end without a word
//! means the program runs; otherwise it carries the step that failed and the error.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_char, c_int, pid_t};

use crate::cgroup::Fresh;
use crate::command::Packed;
use crate::confine::{Means, confine_child, harden_child, settle_child};
use crate::frame::Step;
use crate::orphans::Tag;
use crate::unix::{self, STREAMS, errno};

/// A process on its way to exec.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) pid: pid_t,
    pub(crate) is_trusted: bool,
    word: OwnedFd,
}

/// How a launch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Running,
    Failed(Step, c_int),
}

/// The word of a failed launch: step and error.
const WORD_BYTES: usize = 8;

impl Launch {
    /// Forks a process that runs `command` with `streams`.
    pub(crate) fn begin(
        command: &Packed<'_>,
        streams: &[OwnedFd; STREAMS],
        tag: Option<Tag>,
        means: &Means,
        cgroup: Option<&Fresh>,
    ) -> Result<Self, (Step, c_int)> {
        let fork = |error: io::Error| (Step::Fork, error.raw_os_error().unwrap_or(libc::EIO));
        let (word, mouth) = unix::pipe().map_err(fork)?;
        unix::set_nonblocking(&word).map_err(fork)?;
        // All memory is taken before the fork.
        let argv = pointers([command.program].iter().chain(&command.args));
        let envp = pointers(command.env.iter());
        let spawner = std::process::id().cast_signed();
        let prepared = Prepared { command, streams, tag, means, cgroup, spawner, argv, envp };
        // SAFETY: this process has one thread, so the copy may do what this one may. It runs
        // `become_program` only, which does not return here.
        match unix::check(unsafe { libc::fork() }).map_err(fork)? {
            0 => {
                let (step, error) = prepared.become_program();
                fail(&mouth, step, error)
            }
            pid => Ok(Self { pid, is_trusted: command.trusted, word }),
        }
    }

    /// The descriptor that becomes readable when [`Launch::outcome`] has one.
    pub(crate) fn descriptor(&self) -> c_int {
        self.word.as_raw_fd()
    }

    /// How the launch went, or `None` while it is under way.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let mut bytes = [0; WORD_BYTES];
        match unix::read(self.word.as_fd(), &mut bytes) {
            Ok(WORD_BYTES) => {
                let (step, error) = bytes.split_at(4);
                let number = |bytes: &[u8]| bytes.try_into().map(c_int::from_ne_bytes);
                let step = number(step).ok().and_then(Step::from_number).unwrap_or(Step::Exec);
                Some(Outcome::Failed(step, number(error).unwrap_or(libc::EIO)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(_) | Err(_) => Some(Outcome::Running),
        }
    }
}

/// An array as `execve` wants it, ended by a null pointer.
fn pointers<'a>(strings: impl Iterator<Item = &'a &'a CStr>) -> Vec<*const c_char> {
    strings.map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// All that a launch needs, made before the fork.
struct Prepared<'a> {
    command: &'a Packed<'a>,
    streams: &'a [OwnedFd; STREAMS],
    tag: Option<Tag>,
    means: &'a Means,
    cgroup: Option<&'a Fresh>,
    spawner: pid_t,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

impl Prepared<'_> {
    /// Turns the forked process into the program; returns what failed. System calls only.
    fn become_program(&self) -> (Step, c_int) {
        let Self { command, streams, tag, means, cgroup, spawner, argv, envp } = self;
        // SAFETY: plain system calls; every pointer is to a zero-ended string or a null-ended array
        // that was made before the fork and lives in this copy of the memory.
        unsafe {
            if libc::setpgid(0, 0) == -1 {
                return (Step::Group, errno());
            }
            die_with(*spawner);
            if let Some(tag) = tag
                && !tag.put_on()
            {
                return (Step::Limits, errno());
            }
            // The spawner has its own descriptors at 0 to 3, so none of the streams is overwritten.
            for (stream, place) in streams.iter().zip(0..) {
                if libc::dup2(stream.as_raw_fd(), place) == -1 {
                    return (Step::Streams, errno());
                }
            }
            harden_child(command, means);
            if let Err(failure) = settle_child(command, means, *cgroup) {
                return failure;
            }
            // Becoming another user undoes it.
            die_with(*spawner);
            if let Some(directory) = command.directory
                && libc::chdir(directory.as_ptr()) == -1
            {
                return (Step::Directory, errno());
            }
            // Each descriptor of the spawner is closed on exec by itself; this is the second lock.
            #[cfg(target_os = "linux")]
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            if let Err(failure) = confine_child(command, means) {
                return failure;
            }
            // The spawner blocks every signal and left no disposition but the default.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            unix::block_signals(&none);
            libc::execve(command.program.as_ptr(), argv.as_ptr(), envp.as_ptr());
            (Step::Exec, errno())
        }
    }
}

/// Makes this process end when the spawner does, and now if it has ended already.
fn die_with(spawner: pid_t) {
    // SAFETY: no memory is involved. Sound here because the parent is the one thread of a process,
    // and stays.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != spawner {
            libc::_exit(127);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = spawner;
}

/// Sends word of a failed step, and ends the process.
fn fail(mouth: &OwnedFd, step: Step, error: c_int) -> ! {
    let mut bytes = [0; WORD_BYTES];
    bytes[..4].copy_from_slice(&step.number().to_ne_bytes());
    bytes[4..].copy_from_slice(&error.to_ne_bytes());
    // SAFETY: writes from a buffer of that size, and leaves without running anything else of the
    // copied process. A write this small is whole or fails, and then the spawner is gone.
    unsafe {
        libc::write(mouth.as_raw_fd(), bytes.as_ptr().cast(), WORD_BYTES);
        libc::_exit(127)
    }
}
