//! Refusals in the log: who was refused, from where and why.
//!
//! Whoever is refused may try again as fast as the network lets them, so one line a second is written for
//! each reason, and how many more there were.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::lock::Lock;

/// A reason is told once in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// More reasons than these are told as one. Statuses and codes are ours, so there are fewer.
const MAX_REASONS: usize = 64;

/// The longest text that is logged, in characters: part of it may be the client's.
const MAX_WHY: usize = 300;

/// What was refused of late.
#[derive(Debug, Default)]
pub struct Refusals {
    reasons: Lock<HashMap<Reason, LastRefusal>>,
}

/// Why something was refused, as far as lines are counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reason {
    status: u16,
    code: i64,
}

#[derive(Debug)]
struct LastRefusal {
    at: Instant,
    /// How many were refused since then.
    more: u64,
}

/// One refusal.
#[derive(Clone, Copy)]
pub struct RefusalNote<'a> {
    /// The HTTP status that was sent, or says the same.
    pub status: u16,
    /// The code of the JSON-RPC error.
    pub code: i64,
    /// The server that was meant.
    pub server: &'a str,
    /// Who asked.
    pub who: &'a dyn Display,
    /// Where from.
    pub from: IpAddr,
    /// What the client was told.
    pub why: &'a str,
}

impl Refusals {
    /// Logs a refusal, unless one for the same reason was logged a moment ago.
    pub fn tell(&self, refusal: &RefusalNote<'_>) {
        let RefusalNote { status, code, server, who, from, why } = *refusal;
        let Some(more) = self.count(Reason { status, code }, Instant::now()) else { return };
        let why: String = why.chars().take(MAX_WHY).collect();
        tracing::warn!(%who, %from, server, status, why, more, "refused");
    }

    /// Logs what was counted and not yet told.
    pub fn flush(&self) {
        for (reason, more) in self.take_untold(Instant::now()) {
            tracing::warn!(status = reason.status, more, "refused more of the same");
        }
    }

    /// How many more there were since the last line, if it is time for another.
    fn count(&self, reason: Reason, now: Instant) -> Option<u64> {
        let mut reasons = self.reasons.lock();
        let is_known = reasons.len() < MAX_REASONS || reasons.contains_key(&reason);
        let reason = if is_known { reason } else { Reason { status: 0, code: 0 } };
        match reasons.get_mut(&reason) {
            Some(told) if now.saturating_duration_since(told.at) < PAUSE => {
                told.more += 1;
                None
            }
            told => {
                let more = told.map_or(0, |told| told.more);
                reasons.insert(reason, LastRefusal { at: now, more: 0 });
                Some(more)
            }
        }
    }

    fn take_untold(&self, now: Instant) -> Vec<(Reason, u64)> {
        let is_due = |told: &LastRefusal| now.saturating_duration_since(told.at) >= PAUSE;
        let mut untold = Vec::new();
        self.reasons.lock().retain(|reason, told| {
            if is_due(told) && told.more > 0 {
                untold.push((*reason, told.more));
                *told = LastRefusal { at: now, more: 0 };
            }
            !is_due(told)
        });
        untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: i64) -> Reason {
        Reason { status: 401, code }
    }

    #[test]
    fn each_reason_has_a_line_a_second_and_the_rest_is_counted() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(refusals.count(reason(1), at(0)), Some(0));
        assert_eq!(refusals.count(reason(1), at(1)), None);
        assert_eq!(refusals.count(reason(2), at(2)), Some(0), "another reason");
        assert_eq!(refusals.count(reason(1), at(999)), None);
        assert_eq!(refusals.count(reason(1), at(1000)), Some(2));
        assert_eq!(refusals.count(reason(1), at(1001)), None);
        assert_eq!(refusals.take_untold(at(1500)), []);
        assert_eq!(refusals.take_untold(at(2000)), [(reason(1), 1)]);
        assert_eq!(refusals.count(reason(1), at(2001)), None, "that was a line as well");
        assert_eq!(refusals.take_untold(at(3000)), [(reason(1), 1)]);
        assert_eq!(refusals.take_untold(at(9000)), []);
        assert!(refusals.reasons.lock().is_empty(), "what is over is forgotten");
    }

    #[test]
    fn there_are_only_so_many_reasons() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let told = (0..1000).filter_map(|code| refusals.count(reason(code), now)).count();
        assert_eq!(told, MAX_REASONS + 1);
    }
}
