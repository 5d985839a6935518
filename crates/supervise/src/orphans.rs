//! Orphans: processes that lost their parent and were adopted by the spawner, and whose they are.
//!
//! Neither its group nor its environment says for sure which child an orphan came from: it may
//! have left the one and cleared the other. So each child wears a tag that is inherited by all it
//! starts and has no other effect: its limit of real-time computing, set to a number of years
//! nobody computes that is different for each child. A process can lower it, and not raise it
//! again; one that wears the tag of no living child has no reason to live.

use crate::frame::Number;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Orphans, Tag};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Orphans, Tag};

/// Whose an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no orphans to tell apart"))]
pub(crate) enum Owner {
    /// It came from the child of that number, or claims the number of none we started.
    Child(Number),
    /// It cannot be told.
    Unknown,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::hash::{BuildHasher, Hasher, RandomState};
    use std::io::Read;

    use libc::pid_t;

    use super::Owner;
    use crate::frame::Number;

    /// The mark of one child, worn by all that it starts.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Tag(libc::rlim_t);

    impl Tag {
        /// Tags this process. System calls only: it is called between fork and exec.
        pub(crate) fn put_on(self) -> bool {
            let limit = libc::rlimit { rlim_cur: self.0, rlim_max: self.0 };
            // SAFETY: the call only reads `limit`.
            unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit) == 0 }
        }
    }

    /// The adopted processes of this one.
    #[derive(Debug)]
    pub(crate) struct Orphans {
        /// What the number of a child is subtracted from to get its tag, where tags are possible.
        base: Option<libc::rlim_t>,
        text: Vec<u8>,
    }

    /// Below this a limit could have an effect, and tags would run out.
    const LOWEST_BASE: libc::rlim_t = 1 << 40;

    impl Orphans {
        /// Makes this process adopt the orphans among its descendants.
        pub(crate) fn adopt() -> Self {
            // SAFETY: no memory is involved.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the call writes one limit.
            unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) };
            // A spawner below a spawner must not use the tags of the upper one, so each begins at
            // a random place in the upper half of what it may use.
            let highest = limit.rlim_max.min(1 << 62);
            let random = RandomState::new().build_hasher().finish();
            let base = highest - random % (highest / 2).max(1);
            Self { base: (base >= LOWEST_BASE).then_some(base), text: Vec::new() }
        }

        /// The tag for a child, where the system allows tags.
        pub(crate) fn tag(&self, child: Number) -> Option<Tag> {
            self.base.map(|base| Tag(base.saturating_sub(child)))
        }

        /// Calls `each` with every process whose parent this process is, leaders included.
        pub(crate) fn for_each(&mut self, mut each: impl FnMut(pid_t)) {
            self.text.clear();
            let read = File::open("/proc/thread-self/children").and_then(|mut file| {
                loop {
                    let filled = self.text.len();
                    self.text.resize(filled + 4096, 0);
                    let size = file.read(&mut self.text[filled..])?;
                    self.text.truncate(filled + size);
                    if size == 0 {
                        return Ok(());
                    }
                }
            });
            if read.is_ok() {
                parse_numbers(&self.text).for_each(each);
            } else {
                // A kernel built without that file: ask every process for its parent.
                let us = std::process::id().cast_signed();
                let Ok(processes) = std::fs::read_dir("/proc") else { return };
                let pids = processes
                    .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<pid_t>().ok());
                pids.filter(|pid| parent_of(*pid) == Some(us)).for_each(&mut each);
            }
        }

        /// Whose the orphan `pid` is.
        pub(crate) fn owner(&self, pid: pid_t) -> Owner {
            let Some(base) = self.base else { return Owner::Unknown };
            let mut text = [0; 4096];
            let limits = File::open(format!("/proc/{pid}/limits"))
                .and_then(|mut file| file.read(&mut text))
                .map(|size| &text[..size]);
            let Ok(limits) = limits else { return Owner::Unknown };
            // Without a limit it wears no tag, and like a wrong one that is the tag of nobody.
            Owner::Child(hard_limit(limits).map_or(0, |limit| base.wrapping_sub(limit)))
        }
    }

    impl Orphans {
        /// Whether a process has not ended: one that has waits for its parent.
        pub(crate) fn is_running(pid: pid_t) -> bool {
            let text = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name =
                text.iter().rposition(|byte| *byte == b')').map_or(text.len(), |at| at + 2);
            text.get(after_name).is_some_and(|state| !b"ZX".contains(state))
        }
    }

    /// The hard limit of real-time computing in the text of `/proc/PID/limits`.
    fn hard_limit(text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    fn parse_numbers(text: &[u8]) -> impl Iterator<Item = pid_t> {
        text.split(|byte| *byte == b' ').filter_map(|word| {
            let digits = word.iter().take_while(|byte| byte.is_ascii_digit());
            let digit = |byte: &u8| pid_t::from(byte - b'0');
            digits.map(digit).reduce(|number, digit| number.wrapping_mul(10).wrapping_add(digit))
        })
    }

    /// The parent of `pid`, from the fourth field of its `stat`.
    fn parent_of(pid: pid_t) -> Option<pid_t> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses and may contain anything, also `)`.
        let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
        let text = std::str::from_utf8(&text[after_name..]).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_hard_limit_is_found_in_the_text_of_the_kernel() {
            let text =
                b"Limit                     Soft Limit           Hard Limit           Units\n\
                Max realtime priority     0                    0                    \n\
                Max realtime timeout      12                   4611686018427387904  us        \n";
            assert_eq!(hard_limit(text), Some(1 << 62));
            assert_eq!(hard_limit(b"Max realtime timeout  unlimited unlimited us"), None);
            assert_eq!(hard_limit(b""), None);
        }

        #[test]
        fn children_are_read_as_numbers() {
            assert_eq!(parse_numbers(b"12 345 \n").collect::<Vec<_>>(), [12, 345]);
            assert_eq!(parse_numbers(b"").count(), 0);
        }

        #[test]
        fn the_parent_is_found_behind_any_name() {
            // SAFETY: no memory is involved.
            let parent = unsafe { libc::getppid() };
            assert_eq!(parent_of(std::process::id().cast_signed()), Some(parent));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use libc::pid_t;

    use super::Owner;
    use crate::frame::Number;

    /// Nothing marks a child here.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Tag {}

    impl Tag {
        pub(crate) fn put_on(self) -> bool {
            match self {}
        }
    }

    /// Nothing is adopted here: orphans go to the first process of the system.
    #[derive(Debug)]
    pub(crate) struct Orphans;

    impl Orphans {
        pub(crate) fn adopt() -> Self {
            Self
        }

        pub(crate) fn tag(&self, _child: Number) -> Option<Tag> {
            None
        }

        pub(crate) fn for_each(&mut self, _each: impl FnMut(pid_t)) {}

        pub(crate) fn owner(&self, _pid: pid_t) -> Owner {
            Owner::Unknown
        }

        pub(crate) fn is_running(_pid: pid_t) -> bool {
            false
        }
    }
}
