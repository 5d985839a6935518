//! Durations and sizes as people write them: `30s`, `5m`, `10MiB`.
//!
//! One number and one unit; a number alone is seconds or bytes. What was expected is told in
//! words, and whoever asked says where it stood.

use std::time::Duration;

/// A year: more is a slip of the pen, and far more would overflow the clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const A_DURATION: &str = "seconds such as 300 or \"5m\"";
const A_POSSIBLE_DURATION: &str = "a time from 1ms to 365d";
const WHOLE_SECONDS: &str = "whole seconds such as 60 or \"5m\"";
const A_SIZE: &str = "bytes such as 1048576 or \"10MiB\"";

/// The duration that `text` writes, such as `30s`, `1.5h` or `300`; else what was expected.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = number_and_unit(text).ok_or(A_DURATION)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return Err(A_DURATION),
    };
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| A_POSSIBLE_DURATION)?;
    if duration < Duration::from_millis(1) || duration > LONGEST {
        return Err(A_POSSIBLE_DURATION);
    }
    Ok(duration)
}

/// The same, or none at all.
pub(super) fn wait(text: &str) -> Result<Duration, &'static str> {
    if is_zero(text) { Ok(Duration::ZERO) } else { duration(text) }
}

/// The same, in steps that the system can count.
pub(super) fn whole_seconds(text: &str) -> Result<Duration, &'static str> {
    let duration = duration(text)?;
    if duration.subsec_nanos() == 0 { Ok(duration) } else { Err(WHOLE_SECONDS) }
}

/// The number of bytes that `text` writes, such as `10MiB` or `4096`; else what was expected.
///
/// `K` and `M` alone are refused, because half of their readers take them for the other half's.
pub(super) fn bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| A_SIZE)?;
    let unit: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(A_SIZE),
    };
    number.checked_mul(unit).filter(|&bytes| bytes > 0).ok_or(A_SIZE)
}

/// The same for what lies in memory.
pub(super) fn size(text: &str) -> Result<usize, &'static str> {
    usize::try_from(bytes(text)?).map_err(|_| A_SIZE)
}

/// The same, or none at all.
pub(super) fn space(text: &str) -> Result<u64, &'static str> {
    if is_zero(text) { Ok(0) } else { bytes(text) }
}

/// How many there may be.
pub(super) fn count(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|&count| count > 0).ok_or("a whole number from 1")
}

/// How many processes are kept ready. Thousands would be a slip of the pen.
pub(super) fn spares(text: &str) -> Result<usize, &'static str> {
    let expected = "a whole number from 0 to 1000 or \"auto\"";
    text.parse().ok().filter(|&count| count <= 1000).ok_or(expected)
}

fn is_zero(text: &str) -> bool {
    text == "0"
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, milliseconds: Result<u64, &'static str>) {
        assert_eq!(duration(text), milliseconds.map(Duration::from_millis), "{text:?}");
    }

    fn check_size(text: &str, bytes: Result<usize, &'static str>) {
        assert_eq!(size(text), bytes, "{text:?}");
    }

    #[test]
    fn a_number_alone_is_seconds() {
        check("300", Ok(300_000));
        check("0.5", Ok(500));
    }

    #[test]
    fn each_unit_of_time_is_known() {
        check("250ms", Ok(250));
        check("30s", Ok(30_000));
        check("5m", Ok(300_000));
        check("5 min", Ok(300_000));
        check("1.5h", Ok(5_400_000));
        check("2d", Ok(172_800_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "soon", "5 weeks", "s", "1h30m", "--1", "1e3", "inf", "NaN"] {
            check(text, Err(A_DURATION));
        }
        for text in ["0", "-5", "0.1ms", "366d", "99999999999999999999999999"] {
            check(text, Err(A_POSSIBLE_DURATION));
        }
    }

    #[test]
    fn none_at_all_is_allowed_where_it_means_something() {
        assert_eq!(wait("0"), Ok(Duration::ZERO));
        assert_eq!(wait("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(wait("-1"), Err(A_POSSIBLE_DURATION));
        assert_eq!((space("0"), space("1KiB")), (Ok(0), Ok(1024)));
    }

    #[test]
    fn the_time_to_compute_is_in_whole_seconds() {
        assert_eq!(whole_seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(whole_seconds("1.5"), Err(WHOLE_SECONDS));
    }

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!(count("7"), Ok(7));
        for text in ["", "0", "-1", "1.5", "many", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text:?}");
        }
        assert_eq!((spares("0"), spares("1000")), (Ok(0), Ok(1000)));
        for text in ["", "1001", "-1", "AUTO"] {
            assert!(spares(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        check_size("4096", Ok(4096));
        check_size("10MiB", Ok(10 << 20));
        check_size("10 MiB", Ok(10 << 20));
        check_size("64KiB", Ok(64 << 10));
        check_size("2GB", Ok(2_000_000_000));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "0", "big", "10M", "-1", "1.5MiB", "99999999999999999999", "99999999999999GiB"]
        {
            check_size(text, Err(A_SIZE));
        }
    }
}
