//! What a client wants of a file: all of it, a part, or only to know that it has not changed.
//!
//! Plain functions over headers, as RFC 9110 (13 and 14) has them.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use hyper::{HeaderMap, Method};

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// A strong entity tag, in its quotes.
    pub tag: String,
    /// When the file was changed, in whole seconds; `None` where HTTP cannot say it.
    pub modified: Option<SystemTime>,
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedPart {
    /// All of it (200).
    Whole,
    /// A part (206).
    Part(Range<u64>),
    /// Nothing, the client has it (304).
    Nothing,
    /// Nothing, it is not what the client believes (412).
    Other,
    /// Nothing, the part is beyond the end (416).
    Beyond,
}

/// `time` in whole seconds, if HTTP can say it: not before 1970, and not in the future.
pub fn http_time(time: SystemTime, now: SystemTime) -> Option<SystemTime> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    (time <= now).then(|| UNIX_EPOCH + Duration::from_secs(seconds))
}

/// What a request wants of a file of this size.
pub fn wanted(
    method: &Method,
    headers: &HeaderMap,
    version: &Version,
    size: u64,
    now: SystemTime,
) -> WantedPart {
    if !is_expected(headers, version) {
        return WantedPart::Other;
    }
    if is_known(headers, version) {
        return WantedPart::Nothing;
    }
    // A range means something for GET alone, and only for the state that the client has a part of.
    if *method != Method::GET || !is_same(headers, version, now) {
        return WantedPart::Whole;
    }
    let mut ranges = headers.get_all(RANGE).iter();
    match (ranges.next().and_then(|value| value.to_str().ok()), ranges.next()) {
        (Some(range), None) => part(range, size),
        _ => WantedPart::Whole,
    }
}

/// `If-Match`, else `If-Unmodified-Since`.
fn is_expected(headers: &HeaderMap, version: &Version) -> bool {
    if headers.contains_key(IF_MATCH) {
        return tags(headers, &IF_MATCH).any(|tag| tag == "*" || tag == version.tag);
    }
    match (date(headers, &IF_UNMODIFIED_SINCE), version.modified) {
        (Some(since), Some(modified)) => modified <= since,
        _ => true,
    }
}

/// `If-None-Match`, else `If-Modified-Since`.
fn is_known(headers: &HeaderMap, version: &Version) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        // Compared weakly: for a client that asks whether to fetch, nearly the same is the same.
        return tags(headers, &IF_NONE_MATCH)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == version.tag);
    }
    match (date(headers, &IF_MODIFIED_SINCE), version.modified) {
        (Some(since), Some(modified)) => modified <= since,
        _ => false,
    }
}

/// `If-Range`: whether a part that the client has belongs to this state.
fn is_same(headers: &HeaderMap, version: &Version, now: SystemTime) -> bool {
    let mut values = headers.get_all(IF_RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return !headers.contains_key(IF_RANGE);
    };
    let value = value.to_str().unwrap_or_default().trim();
    if value.ends_with('"') {
        return value == version.tag;
    }
    // Within its second a file can change again, so a date says something only afterwards.
    let is_settled = |time: SystemTime| time + Duration::from_secs(1) < now;
    httpdate::parse_http_date(value).ok() == version.modified.filter(|time| is_settled(*time))
        && version.modified.is_some()
}

fn tags<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()
}

/// The one part that a range names. Several, or none that can be read, mean the whole.
fn part(range: &str, size: u64) -> WantedPart {
    let Some(part) = range.trim().strip_prefix("bytes=").map(str::trim) else {
        return WantedPart::Whole;
    };
    let Some((first, last)) = part.split_once('-') else { return WantedPart::Whole };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return WantedPart::Whole;
    }
    // A number too large to hold is beyond every end, and so is the largest one.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let found = match (first, last) {
        ("", "") => return WantedPart::Whole,
        ("", length) => size.saturating_sub(number(length))..size,
        (first, "") => number(first)..size,
        (first, last) if number(first) > number(last) => return WantedPart::Whole,
        (first, last) => number(first)..number(last).saturating_add(1).min(size),
    };
    match found.is_empty() {
        true => WantedPart::Beyond,
        false => WantedPart::Part(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "\"t1\"";
    /// 2026-11-15 00:00:00, the time of change in every test.
    const CHANGED: u64 = 1_794_700_800;
    const AT: &str = "Sun, 15 Nov 2026 00:00:00 GMT";
    const BEFORE: &str = "Sat, 14 Nov 2026 23:59:59 GMT";
    const AFTER: &str = "Sun, 15 Nov 2026 00:00:01 GMT";

    /// Asks an hour after the change for a file of ten bytes.
    #[track_caller]
    fn check(headers: &[(HeaderName, &str)], expected: &WantedPart) {
        check_at(3600, headers, expected);
    }

    #[track_caller]
    fn check_at(later: u64, headers: &[(HeaderName, &str)], expected: &WantedPart) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value.parse().unwrap());
        }
        let changed = UNIX_EPOCH + Duration::from_secs(CHANGED);
        let version = Version { tag: TAG.to_owned(), modified: Some(changed) };
        let now = changed + Duration::from_secs(later);
        let found = wanted(&Method::GET, &map, &version, 10, now);
        assert_eq!(found, *expected, "{headers:?}");
    }

    #[test]
    fn one_range_is_a_part() {
        let range = |text, expected| check(&[(RANGE, text)], expected);
        range("bytes=0-0", &WantedPart::Part(0..1));
        range("bytes=2-5", &WantedPart::Part(2..6));
        range("bytes=2-", &WantedPart::Part(2..10));
        range("bytes=-3", &WantedPart::Part(7..10));
        range("bytes=-30", &WantedPart::Part(0..10));
        range("bytes=9-99999999999999999999999", &WantedPart::Part(9..10));
        range("bytes= 9-18446744073709551615", &WantedPart::Part(9..10));
    }

    #[test]
    fn a_range_beyond_the_end_is_told() {
        let range = |text, expected| check(&[(RANGE, text)], expected);
        range("bytes=10-", &WantedPart::Beyond);
        range("bytes=10-12", &WantedPart::Beyond);
        range("bytes=-0", &WantedPart::Beyond);
        range("bytes=18446744073709551615-", &WantedPart::Beyond);
        range("bytes=99999999999999999999999-", &WantedPart::Beyond);
        assert_eq!(part("bytes=0-", 0), WantedPart::Beyond);
        assert_eq!(part("bytes=-5", 0), WantedPart::Beyond);
    }

    #[test]
    fn several_ranges_or_none_that_can_be_read_mean_the_whole() {
        for text in [
            "bytes=0-1,3-4",
            "bytes=5-2",
            "bytes=-",
            "bytes=",
            "bytes=a-b",
            "bytes=1",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=--1",
            "lines=1-2",
            "1-2",
            "bytes",
            "",
        ] {
            check(&[(RANGE, text)], &WantedPart::Whole);
        }
        check(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")], &WantedPart::Whole);
        check(&[], &WantedPart::Whole);
    }

    #[test]
    fn a_range_is_for_get_alone() {
        let headers = HeaderMap::from_iter([(RANGE, "bytes=0-1".parse().unwrap())]);
        let version = Version { tag: TAG.to_owned(), modified: None };
        let found = wanted(&Method::HEAD, &headers, &version, 10, SystemTime::now());
        assert_eq!(found, WantedPart::Whole);
    }

    #[test]
    fn a_part_is_sent_only_of_the_state_the_client_knows() {
        let resume = |same, expected| check(&[(RANGE, "bytes=5-"), (IF_RANGE, same)], expected);
        resume(TAG, &WantedPart::Part(5..10));
        resume("\"t2\"", &WantedPart::Whole);
        resume("W/\"t1\"", &WantedPart::Whole);
        resume(AT, &WantedPart::Part(5..10));
        resume(BEFORE, &WantedPart::Whole);
        resume(AFTER, &WantedPart::Whole);
        resume("rubbish", &WantedPart::Whole);
        let twice = [(RANGE, "bytes=5-"), (IF_RANGE, TAG), (IF_RANGE, TAG)];
        check(&twice, &WantedPart::Whole);
        check_at(1, &[(RANGE, "bytes=5-"), (IF_RANGE, AT)], &WantedPart::Whole);
    }

    #[test]
    fn a_client_that_has_it_gets_nothing() {
        check(&[(IF_NONE_MATCH, TAG)], &WantedPart::Nothing);
        check(&[(IF_NONE_MATCH, "W/\"t1\"")], &WantedPart::Nothing);
        check(&[(IF_NONE_MATCH, "\"t0\", \"t1\"")], &WantedPart::Nothing);
        check(&[(IF_NONE_MATCH, "*")], &WantedPart::Nothing);
        check(&[(IF_NONE_MATCH, "\"t2\"")], &WantedPart::Whole);
        check(&[(IF_MODIFIED_SINCE, AT)], &WantedPart::Nothing);
        check(&[(IF_MODIFIED_SINCE, AFTER)], &WantedPart::Nothing);
        check(&[(IF_MODIFIED_SINCE, BEFORE)], &WantedPart::Whole);
        check(&[(IF_MODIFIED_SINCE, "rubbish")], &WantedPart::Whole);
        check(&[(IF_NONE_MATCH, "\"t2\""), (IF_MODIFIED_SINCE, AT)], &WantedPart::Whole);
        check(&[(IF_NONE_MATCH, TAG), (RANGE, "bytes=0-1")], &WantedPart::Nothing);
    }

    #[test]
    fn a_client_that_expects_another_state_is_told() {
        check(&[(IF_MATCH, TAG)], &WantedPart::Whole);
        check(&[(IF_MATCH, "*")], &WantedPart::Whole);
        check(&[(IF_MATCH, "\"t2\", \"t1\""), (RANGE, "bytes=0-1")], &WantedPart::Part(0..2));
        check(&[(IF_MATCH, "\"t2\"")], &WantedPart::Other);
        check(&[(IF_MATCH, "W/\"t1\"")], &WantedPart::Other);
        check(&[(IF_UNMODIFIED_SINCE, AT)], &WantedPart::Whole);
        check(&[(IF_UNMODIFIED_SINCE, BEFORE)], &WantedPart::Other);
    }

    #[test]
    fn a_time_that_http_cannot_say_is_not_said() {
        let now = UNIX_EPOCH + Duration::from_secs(CHANGED);
        assert_eq!(http_time(now, now), Some(now));
        assert_eq!(
            http_time(now - Duration::from_millis(1), now),
            Some(now - Duration::from_secs(1))
        );
        assert_eq!(http_time(now + Duration::from_secs(1), now), None);
        assert_eq!(http_time(UNIX_EPOCH - Duration::from_secs(1), now), None);
        assert_eq!(http_time(UNIX_EPOCH + Duration::from_secs(1 << 40), now), None);
    }
}
