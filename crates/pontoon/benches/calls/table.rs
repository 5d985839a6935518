//! The table of results.

use std::time::Duration;

use crate::load::{median, zip};

/// Which way a ratio may go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// Only told.
    None,
}

/// The rows until now.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 6]>,
}

impl Table {
    /// A row with what was measured, its floor, and the median of the ratios of all turns.
    pub(crate) fn compare(
        &mut self,
        what: &str,
        ours: &[f64],
        floor: &[f64],
        show: fn(f64) -> String,
        goal: Goal,
    ) {
        let ratio = median(&zip(ours, floor, |ours, floor| ours / floor));
        self.push(
            what,
            show(median(ours)),
            show(median(floor)),
            format!("{ratio:.2}"),
            ratio,
            goal,
        );
    }

    /// A row with one value.
    pub(crate) fn tell(&mut self, what: &str, value: f64, show: fn(f64) -> String, goal: Goal) {
        self.push(what, show(value), String::new(), String::new(), value, goal);
    }

    fn push(
        &mut self,
        what: &str,
        ours: String,
        floor: String,
        ratio: String,
        value: f64,
        goal: Goal,
    ) {
        let (goal, verdict) = match goal {
            Goal::AtMost(limit) => (format!("<= {}", brief(limit)), value <= limit),
            Goal::AtLeast(limit) => (format!(">= {}", brief(limit)), value >= limit),
            Goal::None => (String::new(), true),
        };
        let verdict = match (goal.is_empty(), verdict) {
            (true, _) => "",
            (false, true) => "met",
            (false, false) => "MISSED",
        };
        self.rows.push([what.to_owned(), ours, floor, ratio, goal, verdict.to_owned()]);
    }

    /// Prints all rows.
    #[expect(clippy::print_stdout, reason = "the point of the program")]
    pub(crate) fn print(&self, took: Duration) {
        let head = ["what", "bridge", "floor", "ratio", "goal", ""].map(str::to_owned);
        let rule = ["---"; 6].map(str::to_owned);
        let rows = || [&head, &rule].into_iter().chain(&self.rows);
        let width =
            |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for row in rows() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        println!(
            "\nmeasured in turns, in {:.0} s; ratios are medians over the turns",
            took.as_secs_f64()
        );
    }
}

fn brief(limit: f64) -> String {
    match limit {
        limit if limit >= 1e6 => megabytes(limit),
        limit if limit >= 1e3 => kilobytes(limit),
        limit => limit.to_string(),
    }
}

/// Seconds as microseconds.
pub(crate) fn micros(seconds: f64) -> String {
    format!("{:.1} us", seconds * 1e6)
}

/// Seconds as milliseconds.
pub(crate) fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

/// A rate.
pub(crate) fn a_second(rate: f64) -> String {
    format!("{rate:.0}/s")
}

/// Bytes.
pub(crate) fn megabytes(bytes: f64) -> String {
    format!("{:.2} MB", bytes / 1e6)
}

/// Bytes.
pub(crate) fn kilobytes(bytes: f64) -> String {
    format!("{:.1} kB", bytes / 1e3)
}

/// A plain ratio.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}
