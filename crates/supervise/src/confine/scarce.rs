//! Who goes first when memory is scarce: a server, and not the program that starts it.
//!
//! In a container all of them share one limit. At its end the system kills the largest process, which
//! may be the bridge, though it is the servers that grew.

use std::fs;

use libc::pid_t;

/// What a child has more than this program: as if it had half of all memory besides its own.
const MORE: i32 = 500;
/// The most that there is.
const MOST: i32 = 1000;

/// The score of children, as the kernel reads it.
#[derive(Debug, Default)]
pub(crate) struct Score(String);

impl Score {
    /// For the children of this process.
    pub(crate) fn look() -> Self {
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        Self::above(own.trim().parse().unwrap_or(0))
    }

    fn above(own: i32) -> Self {
        Self((own + MORE).min(MOST).to_string())
    }

    /// Gives it to a child that runs its program, and so to what that starts. A program that cannot be
    /// read keeps what it has.
    ///
    /// Not in the child before that: there the file belongs to root, unless others could look into
    /// this copy of the spawner meanwhile.
    pub(crate) fn give(&self, pid: pid_t) {
        let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_above_its_parent_where_there_is_an_above() {
        let check = |own, expected: &str| assert_eq!(Score::above(own).0, expected);
        check(0, "500");
        check(-900, "-400");
        check(997, "1000");
    }
}
