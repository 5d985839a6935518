//! How a child ended.

use std::fmt;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It returned from `main` or called `exit`.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The kernel killed it, or a process below it that it could not do without, because the
    /// memory of its cgroup was used up.
    OutOfMemory,
    /// Nobody could tell: the spawner process ended first.
    Unknown,
}

impl Exit {
    /// Whether the child ended by itself and reported success.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(libc::SIGXCPU) => {
                f.write_str("was killed when its processor time was used up (SIGXCPU)")
            }
            Self::Signal(libc::SIGXFSZ) => {
                f.write_str("was killed when a file grew over its limit (SIGXFSZ)")
            }
            Self::Signal(signal) => match name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::OutOfMemory => f.write_str("was killed when its memory was used up"),
            Self::Unknown => f.write_str("ended in an unknown way"),
        }
    }
}

/// The signals that end a process in practice; others are told by number.
fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reads_as_a_sentence() {
        let check = |exit: Exit, text: &str| assert_eq!(exit.to_string(), text);
        check(Exit::Code(3), "exited with code 3");
        check(Exit::Signal(9), "was killed by signal 9 (SIGKILL)");
        check(Exit::Signal(63), "was killed by signal 63");
        check(
            Exit::Signal(libc::SIGXCPU),
            "was killed when its processor time was used up (SIGXCPU)",
        );
        check(Exit::Signal(libc::SIGXFSZ), "was killed when a file grew over its limit (SIGXFSZ)");
        check(Exit::OutOfMemory, "was killed when its memory was used up");
        check(Exit::Unknown, "ended in an unknown way");
    }
}
