//! The stop ladder: how a child is asked to end, then told, then made to.
//!
//! [`Descent`] decides, from the time it is given; [`descend`] waits and signals.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

/// How long a child may take at each step of being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// From the end of its input to SIGTERM.
    pub after_close: Duration,
    /// From SIGTERM to SIGKILL.
    pub after_terminate: Duration,
}

impl Default for Ladder {
    fn default() -> Self {
        Self { after_close: Duration::from_secs(2), after_terminate: Duration::from_secs(10) }
    }
}

/// After SIGKILL only a process stuck in the kernel remains; nobody waits for that for ever.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// One way down the ladder.
#[derive(Clone, Debug)]
pub(crate) struct Descent {
    ladder: Ladder,
    rung: Rung,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Rung {
    Closed,
    Terminated,
    Killed,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Wait for the child to end, until then.
    WaitUntil(Instant),
    /// Send SIGTERM to its group.
    Terminate,
    /// Send SIGKILL to its tree.
    Kill,
    /// Stop waiting.
    GiveUp,
}

impl Descent {
    /// Starts at the top: the input was just closed.
    pub(crate) fn new(ladder: Ladder, now: Instant) -> Self {
        Self { ladder, rung: Rung::Closed, since: now }
    }

    /// The next step for a child that is still running.
    pub(crate) fn step(&mut self, now: Instant) -> NextStep {
        let patience = match self.rung {
            Rung::Closed => self.ladder.after_close,
            Rung::Terminated => self.ladder.after_terminate,
            Rung::Killed => AFTER_KILL,
        };
        // A patience too long for the clock is a patience without end.
        if let Some(end) = self.since.checked_add(patience)
            && now >= end
        {
            self.since = now;
            let (rung, step) = match self.rung {
                Rung::Closed => (Rung::Terminated, NextStep::Terminate),
                Rung::Terminated => (Rung::Killed, NextStep::Kill),
                Rung::Killed => (Rung::Killed, NextStep::GiveUp),
            };
            self.rung = rung;
            return step;
        }
        let year = Duration::from_secs(365 * 24 * 3600);
        NextStep::WaitUntil(self.since.checked_add(patience).unwrap_or(now + year))
    }
}

/// Goes down the ladder until `exited` is done, or gives up. Cancel safe: `descent` knows where
/// it was.
pub(crate) async fn descend<T>(
    descent: &mut Descent,
    exited: impl Future<Output = T>,
    mut signal: impl FnMut(i32),
) -> Option<T> {
    let mut exited = pin!(exited);
    loop {
        match descent.step(tokio::time::Instant::now().into_std()) {
            NextStep::WaitUntil(then) => {
                if let Ok(exit) = tokio::time::timeout_at(then.into(), &mut exited).await {
                    return Some(exit);
                }
            }
            NextStep::Terminate => signal(libc::SIGTERM),
            NextStep::Kill => signal(libc::SIGKILL),
            NextStep::GiveUp => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a descent against steps at milliseconds after the start.
    fn check(close: u64, terminate: u64, steps: &[(u64, NextStep)]) {
        let start = origin();
        let ladder = Ladder { after_close: millis(close), after_terminate: millis(terminate) };
        let mut descent = Descent::new(ladder, start);
        for (at, step) in steps {
            assert_eq!(descent.step(start + millis(*at)), *step, "at {at} ms");
        }
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// One origin for a test, so that steps can be written as times after it.
    fn origin() -> Instant {
        use std::sync::LazyLock;
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        *ORIGIN
    }

    fn until(n: u64) -> NextStep {
        NextStep::WaitUntil(origin() + millis(n))
    }

    #[test]
    fn a_deaf_child_is_asked_then_killed() {
        check(
            20,
            100,
            &[
                (0, until(20)),
                (19, until(20)),
                (20, NextStep::Terminate),
                (20, until(120)),
                (120, NextStep::Kill),
                (120, until(5120)),
                (5120, NextStep::GiveUp),
            ],
        );
    }

    #[test]
    fn a_late_look_still_takes_every_step() {
        check(20, 100, &[(500, NextStep::Terminate), (500, until(600)), (600, NextStep::Kill)]);
    }

    #[test]
    fn no_patience_at_all_kills_at_once() {
        check(0, 0, &[(0, NextStep::Terminate), (0, NextStep::Kill), (0, until(5000))]);
    }

    #[test]
    fn endless_patience_does_not_overflow() {
        let now = origin();
        let ladder = Ladder { after_close: Duration::MAX, ..Ladder::default() };
        let step = Descent::new(ladder, now).step(now);
        assert!(matches!(step, NextStep::WaitUntil(then) if then > now));
    }
}
