//! What a probe saw of the jobs directory when it looked last.

use std::time::{Duration, Instant};

/// What was wrong with the jobs directory when it was looked at last, after what could be mended was.
#[derive(Debug, Default)]
pub struct LastLook(Option<(Instant, Option<String>)>);

impl LastLook {
    /// Looks now, unless the last look is younger than this. Its age counts from its end: on a slow disk those
    /// who waited for it are served by it.
    pub fn look(
        &mut self,
        max_age: Duration,
        now: impl Fn() -> Instant,
        look: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        match &self.0 {
            Some((at, fault)) if now().saturating_duration_since(*at) < max_age => fault.clone(),
            _ => {
                let fault = look();
                self.0.insert((now(), fault)).1.clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SHARED: Duration = Duration::from_secs(1);

    #[test]
    fn one_look_serves_all_who_ask_within_a_second() {
        let (mut last, began) = (LastLook::default(), Instant::now());
        let mut look = |max_age, after: u64, found: &str| {
            let now = began + Duration::from_millis(after);
            last.look(max_age, || now, || Some(found.to_owned())).unwrap()
        };
        assert_eq!(look(SHARED, 0, "first"), "first");
        assert_eq!(look(SHARED, 999, "second"), "first");
        assert_eq!(look(SHARED, 1000, "third"), "third");
        assert_eq!(look(Duration::ZERO, 1001, "fourth"), "fourth", "who looks closer");
        assert_eq!(look(SHARED, 1002, "fifth"), "fourth", "which serves the others, too");
    }

    #[test]
    fn a_slow_look_serves_those_who_waited_for_it() {
        let (mut last, clock) = (LastLook::default(), Cell::new(Instant::now()));
        let mut look = |found: &str| {
            let look = || {
                clock.set(clock.get() + 2 * SHARED);
                Some(found.to_owned())
            };
            last.look(SHARED, || clock.get(), look).unwrap()
        };
        assert_eq!(look("first"), "first");
        assert_eq!(look("second"), "first");
    }
}
