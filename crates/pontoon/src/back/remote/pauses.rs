//! How long to leave an application alone: after a look in vain, after a connection that it closed, and where another
//! client and we take each other's place again and again.

use std::time::Duration;

use super::backoff::Backoff;
use crate::back::conversation::websocket::SocketEnd;

/// A connection that lasted no longer was none: whatever ended it will do so again.
const SHORT: Duration = Duration::from_secs(1);

/// The least pause before an application is asked again that wants no connection from us now.
const UNWANTED: Duration = Duration::from_secs(5);

/// A connection that the application closed sooner may have had to make room for another client.
const EVICTED: Duration = Duration::from_secs(30);

/// How many of them in a row are no accident.
const CONTEST: u32 = 3;

/// The longest pause in a contest.
const LONGEST_TRUCE: Duration = Duration::from_secs(60);

/// The pauses between the connections to one application.
#[derive(Debug)]
pub(crate) struct Pauses {
    backoff: Backoff,
    /// The pauses that the user wants after connections that were closed with these codes.
    close_codes: Vec<(u16, Duration)>,
    /// Whether a look was in vain since the last connection: then the application was away.
    was_away: bool,
    /// How many connections in a row were short.
    short_ones: u32,
    /// How many connections in a row the application closed soon after it had taken them at once.
    evictions: u32,
}

impl Pauses {
    pub(crate) fn new(is_local: bool, close_codes: Vec<(u16, Duration)>) -> Self {
        let backoff = Backoff::new(is_local);
        Self { backoff, close_codes, was_away: false, short_ones: 0, evictions: 0 }
    }

    /// The pause after a look in vain, at an application that may want none of us. `chance` is from zero to one.
    pub(crate) fn after_failure(
        &mut self,
        end: Option<&SocketEnd>,
        is_unwanted: bool,
        chance: f64,
    ) -> Duration {
        self.was_away = true;
        let grown = self.backoff.next(chance);
        match end.and_then(|end| self.wanted(end)) {
            Some(pause) => pause,
            None if is_unwanted || end.is_some_and(wants_none) => grown.max(UNWANTED),
            None => grown,
        }
    }

    /// The pause after a connection that lasted this long; one that was of no use was closed by us.
    pub(crate) fn after_loss(
        &mut self,
        end: Option<&SocketEnd>,
        lasted: Duration,
        was_useless: bool,
        chance: f64,
    ) -> Duration {
        let was_away = std::mem::take(&mut self.was_away);
        let was_evicted = !was_useless && lasted < EVICTED && end.is_some_and(may_be_eviction);
        self.evictions = match (was_evicted, was_away) {
            (true, false) => self.evictions.saturating_add(1),
            (true, true) => 1,
            (false, _) => 0,
        };
        self.short_ones = match lasted < SHORT {
            true => self.short_ones.saturating_add(1),
            false => 0,
        };
        let was_short = lasted < SHORT || was_useless;
        if !was_short {
            self.backoff.reset();
        }
        match end {
            Some(end) if self.wanted(end).is_some() => self.wanted(end).unwrap_or_default(),
            _ if self.is_contested() => {
                let grown = UNWANTED.saturating_mul(1 << (self.evictions - CONTEST).min(8));
                // Never at the same moment as the other, or it would go on.
                grown.min(LONGEST_TRUCE).mul_f64(0.5 + 0.5 * chance)
            }
            Some(end) if wants_none(end) => UNWANTED,
            _ if was_short => self.backoff.next(chance),
            _ => Duration::ZERO,
        }
    }

    /// Whether the application closes one connection after the other, as it does if another client takes our place as
    /// soon as we took its.
    pub(crate) fn is_contested(&self) -> bool {
        self.evictions >= CONTEST
    }

    /// How many connections in a row came and went at once, whatever was found between them.
    pub(crate) fn short_ones(&self) -> u32 {
        self.short_ones
    }

    fn wanted(&self, end: &SocketEnd) -> Option<Duration> {
        let code = end.code?;
        self.close_codes.iter().find(|(wanted, _)| *wanted == code).map(|(_, pause)| *pause)
    }
}

/// Whether an application closed a connection because it wants none from us, or not now.
fn wants_none(end: &SocketEnd) -> bool {
    matches!(end.code, Some(1008 | 1013 | 4401 | 4403))
}

/// Whether it may have closed it for another client: in order, not because it ends or is started anew, and not
/// because a message was too long.
fn may_be_eviction(end: &SocketEnd) -> bool {
    end.code.is_some_and(|code| !matches!(code, 1001 | 1009 | 1012)) && !wants_none(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn closed(code: u16) -> SocketEnd {
        SocketEnd { code: Some(code), words: String::new() }
    }

    fn pauses() -> Pauses {
        Pauses::new(true, vec![(4001, 3 * SECOND), (1008, SECOND)])
    }

    /// The pauses after as many connections of two seconds, each closed with this code.
    fn after(code: u16, times: usize) -> Vec<Duration> {
        let mut pauses = pauses();
        let end = closed(code);
        (0..times).map(|_| pauses.after_loss(Some(&end), 2 * SECOND, false, 1.0)).collect()
    }

    #[test]
    fn an_application_that_was_used_for_a_while_is_looked_for_at_once() {
        let lost = SocketEnd { code: None, words: String::new() };
        let mut pauses = pauses();
        for _ in 0..10 {
            assert_eq!(pauses.after_loss(Some(&lost), 2 * SECOND, false, 1.0), Duration::ZERO);
        }
        assert_eq!(
            after(1001, 5),
            [Duration::ZERO; 5],
            "one that is started anew, again and again"
        );
        assert!(pauses.after_loss(Some(&lost), SECOND / 2, false, 1.0) > Duration::ZERO);
    }

    #[test]
    fn one_that_closes_each_connection_soon_is_left_to_the_other_client_for_longer_and_longer() {
        assert_eq!(after(1000, 8).map_secs(), [0, 0, 5, 10, 20, 40, 60, 60]);
        let mut pauses = pauses();
        for _ in 0..3 {
            pauses.after_loss(Some(&closed(1000)), SECOND, false, 1.0);
        }
        assert!(pauses.is_contested());
        pauses.after_loss(Some(&closed(1000)), 60 * SECOND, false, 1.0);
        assert!(!pauses.is_contested(), "it has left us the place");
    }

    #[test]
    fn one_that_was_away_in_between_is_started_anew_and_not_contested() {
        let mut pauses = pauses();
        for _ in 0..10 {
            pauses.after_failure(None, false, 1.0);
            assert_eq!(
                pauses.after_loss(Some(&closed(1000)), 2 * SECOND, false, 1.0),
                Duration::ZERO
            );
        }
    }

    #[test]
    fn the_user_says_how_long_to_wait_after_a_code() {
        assert_eq!(after(4001, 5), [3 * SECOND; 5]);
        assert_eq!(after(4401, 2), [UNWANTED; 2]);
        assert_eq!(after(1008, 1), [SECOND]);
        let pause =
            |end: Option<&SocketEnd>, is_unwanted| pauses().after_failure(end, is_unwanted, 1.0);
        assert_eq!(pause(Some(&closed(4001)), false), 3 * SECOND);
        assert_eq!(pause(Some(&closed(1013)), false), UNWANTED);
        assert_eq!(pause(None, true), UNWANTED);
        assert!(pause(None, false) < SECOND);
    }

    #[test]
    fn connections_that_come_and_go_at_once_are_counted_until_one_lasts() {
        let mut pauses = pauses();
        for count in 1..5 {
            pauses.after_failure(None, false, 1.0);
            pauses.after_loss(None, SECOND / 2, count == 2, 1.0);
            assert_eq!(pauses.short_ones(), count);
        }
        pauses.after_loss(None, SECOND, false, 1.0);
        assert_eq!(pauses.short_ones(), 0);
    }

    trait MapSecs {
        fn map_secs(self) -> Vec<u64>;
    }

    impl MapSecs for Vec<Duration> {
        fn map_secs(self) -> Vec<u64> {
            self.iter().map(Duration::as_secs).collect()
        }
    }
}
