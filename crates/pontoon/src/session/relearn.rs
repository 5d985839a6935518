//! When a server is learnt again that said that its lists changed.
//!
//! Soon, but not again and again for one that says so with each call and changes nothing.

use std::time::{Duration, Instant};

use crate::back::conversation::list_changes::{Burst, SETTLE};

/// The pauses of a server whose lists are ever the same grow up to this.
const LONGEST: Duration = Duration::from_secs(60);

/// How often a server is believed that its lists changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relearning {
    pause: Duration,
}

impl Default for Relearning {
    fn default() -> Self {
        Self { pause: SETTLE }
    }
}

impl Relearning {
    /// Takes note that a server that said so was looked at, and whether its lists were the same.
    pub(super) fn looked(&mut self, is_same: bool) {
        self.pause = if is_same { (2 * self.pause).min(LONGEST) } else { SETTLE };
    }

    /// When a server is looked at that was looked at then and said then that its lists changed; `None` if it
    /// said so before. A burst is a reason to look once, unless it does not end.
    pub(super) fn due(&self, looked: Instant, said: Burst) -> Option<Instant> {
        let settled = (said.last + SETTLE).min(said.began + 2 * SETTLE);
        (said.last > looked).then(|| (looked + self.pause).max(settled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::back::conversation::list_changes::ListChanges;

    fn once(at: Instant) -> Burst {
        Burst { began: at, last: at }
    }

    #[test]
    fn a_server_is_looked_at_soon_and_ever_more_rarely_if_nothing_changed() {
        let second = Duration::from_secs(1);
        let (mut again, mut looked) = (Relearning::default(), Instant::now());
        let mut pauses = Vec::new();
        for is_same in [true, true, true, false].into_iter().chain([true; 7]) {
            // It says so right after it was looked at.
            let due = again.due(looked, once(looked + second / 2)).unwrap();
            pauses.push((due - looked).as_secs_f32());
            looked = due;
            again.looked(is_same);
        }
        assert_eq!(pauses[..5], [2.5, 4.0, 8.0, 16.0, 2.5]);
        assert_eq!(pauses[5..], [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        let late = looked + 1000 * second;
        assert_eq!(
            again.due(looked, once(late)),
            Some(late + SETTLE),
            "one that was quiet for long"
        );
        assert_eq!(again.due(looked, once(looked - second)), None, "what was said before is known");
    }

    #[test]
    fn a_server_that_says_so_all_the_time_is_looked_at_nevertheless() {
        let (mut again, began, changes) =
            (Relearning::default(), Instant::now(), ListChanges::default());
        let (mut looked, mut looks) = (began, Vec::new());
        for second in 1..40 {
            let now = began + Duration::from_secs(second);
            changes.note(now);
            if changes.last().and_then(|said| again.due(looked, said)).is_some_and(|it| it <= now) {
                looked = now;
                again.looked(true);
                looks.push(second);
            }
        }
        assert_eq!(looks, [5, 9, 17, 33]);
        let late = began + Duration::from_secs(100);
        changes.note(late);
        assert_eq!(changes.last(), Some(once(late)), "after a silence another burst begins");
    }
}
