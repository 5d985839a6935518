//! How long to wait before an application is looked for again: growing pauses, never the same for two bridges.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause on this machine, where a look costs next to nothing and a person has just started the
/// application.
const LONGEST_HERE: Duration = Duration::from_millis(250);

/// The same after a long time in vain.
const LONGEST_HERE_LATER: Duration = Duration::from_secs(1);

/// How many looks in vain are a long time.
const MANY: u32 = 2000;

/// The longest pause elsewhere.
const LONGEST_AWAY: Duration = Duration::from_secs(30);

/// The pauses between looks at one application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    is_local: bool,
    tries: u32,
}

impl Backoff {
    pub(crate) fn new(is_local: bool) -> Self {
        Self { is_local, tries: 0 }
    }

    /// Begins with short pauses again.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// The pause after another look in vain. `chance` is from zero to one.
    pub(crate) fn next(&mut self, chance: f64) -> Duration {
        let longest = match (self.is_local, self.tries >= MANY) {
            (true, false) => LONGEST_HERE,
            (true, true) => LONGEST_HERE_LATER,
            (false, _) => LONGEST_AWAY,
        };
        let grown = FIRST.saturating_mul(1 << self.tries.min(16)).min(longest);
        self.tries = self.tries.saturating_add(1);
        // Never none at all, or a refusal that comes at once would be asked for without an end.
        grown.mul_f64(0.1 + 0.9 * chance.clamp(0.0, 1.0))
    }
}

/// A number from zero to one that is another each time.
pub(crate) fn chance() -> f64 {
    f64::from(u32::from_le_bytes(
        *uuid::Uuid::new_v4().as_bytes().first_chunk().expect("sixteen bytes"),
    )) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_local: bool, expected_ms: &[u128]) {
        let mut backoff = Backoff::new(is_local);
        let pauses: Vec<_> = expected_ms.iter().map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(pauses, expected_ms);
    }

    #[test]
    fn pauses_grow_and_stay_short_on_this_machine() {
        check(true, &[100, 200, 250, 250, 250]);
        check(false, &[100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn after_a_long_time_in_vain_pauses_are_longer_and_begin_anew_with_a_connection() {
        let mut backoff = Backoff::new(true);
        for _ in 0..MANY {
            backoff.next(1.0);
        }
        assert_eq!(backoff.next(1.0), LONGEST_HERE_LATER);
        backoff.reset();
        assert_eq!(backoff.next(1.0), FIRST);
    }

    #[test]
    fn pauses_differ_by_chance_and_are_never_nothing() {
        let pause = |chance| Backoff::new(false).next(chance);
        assert_eq!((pause(0.0), pause(1.0)), (FIRST / 10, FIRST));
        assert!((0.0..=1.0).contains(&chance()));
    }
}
