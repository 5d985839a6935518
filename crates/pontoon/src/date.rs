//! Points in time as text: ISO 8601 in UTC.
//!
//! Only years of four digits from 1970 on can be written so, and a clock may be off. A time outside is written as the nearest
//! one inside.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// To the second: `2026-11-15T00:00:00Z`.
pub fn to_seconds(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(nearest(time)).to_string()
}

/// To the microsecond: `2026-11-15T00:00:00.000000Z`.
pub fn to_micros(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(nearest(time)).to_string()
}

fn nearest(time: SystemTime) -> SystemTime {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    UNIX_EPOCH + time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: u64, expected: &str) {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(to_seconds(time), format!("{expected}Z"));
        assert_eq!(to_micros(time + Duration::from_micros(42)), format!("{expected}.000042Z"));
    }

    #[test]
    fn times_are_iso_8601() {
        check(0, "1970-01-01T00:00:00");
        check(951_782_399, "2000-02-28T23:59:59");
        check(951_782_400, "2000-02-29T00:00:00");
        check(1_794_700_800, "2026-11-15T00:00:00");
    }

    #[test]
    fn a_clock_that_is_off_stops_nothing() {
        assert_eq!(to_seconds(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        let late = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(to_seconds(late), "9999-12-31T23:59:59Z");
        assert_eq!(to_micros(late), "9999-12-31T23:59:59.000000Z");
    }
}
