//! When a server is learnt again that said that its lists changed.
//!
//! Soon, but not again and again for one that says so with each call and changes nothing.

use std::time::{Duration, Instant};

/// Changes come in bursts, and each burst is a reason to look once.
const SETTLE: Duration = Duration::from_secs(2);

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
    /// said so before.
    pub(super) fn due(&self, looked: Instant, said: Instant) -> Option<Instant> {
        (said > looked).then(|| (looked + self.pause).max(said + SETTLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_looked_at_soon_and_ever_more_rarely_if_nothing_changed() {
        let second = Duration::from_secs(1);
        let (mut again, mut looked) = (Relearning::default(), Instant::now());
        let mut pauses = Vec::new();
        for is_same in [true, true, true, false].into_iter().chain([true; 7]) {
            // It says so right after it was looked at.
            let due = again.due(looked, looked + second / 2).unwrap();
            pauses.push((due - looked).as_secs_f32());
            looked = due;
            again.looked(is_same);
        }
        assert_eq!(pauses[..5], [2.5, 4.0, 8.0, 16.0, 2.5]);
        assert_eq!(pauses[5..], [4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        let late = looked + 1000 * second;
        assert_eq!(again.due(looked, late), Some(late + SETTLE), "one that was quiet for long");
        assert_eq!(again.due(looked, looked - second), None, "what was said before is known");
    }
}
