//! Counters and histograms: a few atomic additions, no lock, no memory taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn bump(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper ends of the buckets, from a cached answer to the longest tool, in seconds as they
/// are written; the last bucket takes the rest.
pub(super) const BOUNDS: [(u64, &str); 18] = [
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (10_000_000, "10"),
    (30_000_000, "30"),
    (60_000_000, "60"),
    (120_000_000, "120"),
    (300_000_000, "300"),
    (600_000_000, "600"),
];

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS.len() + 1],
    micros: Counter,
}

impl Histogram {
    /// Notes how long one took.
    pub fn note(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.buckets[bucket].bump();
        self.micros.add(micros);
    }

    /// How many took no longer than each bound and, last, how many there were.
    pub(super) fn cumulative(&self) -> [u64; BOUNDS.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|at| {
            sum += self.buckets[at].count();
            sum
        })
    }

    /// The time they took together.
    pub(super) fn seconds(&self) -> f64 {
        Duration::from_micros(self.micros.count()).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket, by its upper end in seconds, into which one of so many microseconds falls.
    fn check(micros: u64, bucket: &str) {
        let histogram = Histogram::default();
        histogram.note(Duration::from_micros(micros));
        let counts = histogram.cumulative();
        let first = counts.iter().position(|count| *count == 1).unwrap();
        assert_eq!(BOUNDS.get(first).map_or("more", |(_, seconds)| seconds), bucket);
        assert_eq!(counts.last(), Some(&1));
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        check(0, "0.001");
        check(1_000, "0.001");
        check(1_001, "0.0025");
        check(600_000_000, "600");
        check(600_000_001, "more");
        check(u64::MAX, "more");
    }

    #[test]
    fn bounds_are_written_as_they_are_compared_and_grow() {
        for (micros, seconds) in BOUNDS {
            let read: f64 = seconds.parse().unwrap();
            assert_eq!((read * 1e6).round() as u64, micros);
        }
        assert!(BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
