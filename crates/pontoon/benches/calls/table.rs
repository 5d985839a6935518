//! The table of results: a row for each number and build of the bridge.

use std::path::PathBuf;
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

const HEAD: [&str; 8] =
    ["what", "build", "bridge", "floor or peer", "ratio", "goal", "", "of the first build"];

/// The rows until now.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// What the builds are called: nothing, where there is one.
    builds: Vec<String>,
    rows: Vec<[String; HEAD.len()]>,
}

impl Table {
    /// A table for these builds of the bridge.
    pub(crate) fn new(builds: &[PathBuf]) -> Self {
        let name = |build: &PathBuf| match builds.len() {
            1 => String::new(),
            _ => build.display().to_string(),
        };
        Self { builds: builds.iter().map(name).collect(), rows: Vec::new() }
    }

    /// For each build, a row with the median of what was measured, of the floor, and of the ratios of all
    /// turns. `ours` has the turns of each build.
    pub(crate) fn compare(
        &mut self,
        what: &str,
        ours: &[Vec<f64>],
        floor: &[f64],
        show: fn(f64) -> String,
        goal: Goal,
    ) {
        for (at, turns) in ours.iter().enumerate() {
            let ratio = median(&zip(turns, floor, |ours, floor| ours / floor));
            let of_first = median(&zip(turns, &ours[0], |ours, first| ours / first));
            let shown = [show(median(turns)), show(median(floor)), format!("{ratio:.2}")];
            self.push(what, at, shown, of_first, ratio, goal);
        }
    }

    /// For each build, a row with one value.
    pub(crate) fn tell(&mut self, what: &str, ours: &[f64], show: fn(f64) -> String, goal: Goal) {
        for (at, value) in ours.iter().enumerate() {
            let shown = [show(*value), String::new(), String::new()];
            self.push(what, at, shown, value / ours[0], *value, goal);
        }
    }

    /// A row that is no build's.
    pub(crate) fn note(&mut self, what: &str, value: String) {
        let mut row = [const { String::new() }; HEAD.len()];
        (row[0], row[3]) = (what.to_owned(), value);
        self.rows.push(row);
    }

    fn push(
        &mut self,
        what: &str,
        build: usize,
        [ours, floor, ratio]: [String; 3],
        of_first: f64,
        value: f64,
        goal: Goal,
    ) {
        let (goal, is_met) = match goal {
            Goal::AtMost(limit) => (format!("<= {}", brief(limit)), value <= limit),
            Goal::AtLeast(limit) => (format!(">= {}", brief(limit)), value >= limit),
            Goal::None => (String::new(), true),
        };
        let verdict = match (goal.is_empty(), is_met) {
            (true, _) => "",
            (false, true) => "met",
            (false, false) => "MISSED",
        };
        let of_first = if build == 0 { String::new() } else { format!("{of_first:.2}") };
        let (name, verdict) = (self.builds[build].clone(), verdict.to_owned());
        self.rows.push([what.to_owned(), name, ours, floor, ratio, goal, verdict, of_first]);
    }

    /// Prints all rows, without the columns in which nothing stands.
    #[expect(clippy::print_stdout, reason = "the point of the program")]
    pub(crate) fn print(&self, took: Duration) {
        let (head, rule) = (HEAD.map(str::to_owned), HEAD.map(|_| "---".to_owned()));
        let rows = || [&head, &rule].into_iter().chain(&self.rows);
        let width =
            |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let is_used = |column: &usize| self.rows.iter().any(|row| !row[*column].is_empty());
        let columns: Vec<_> = (0..HEAD.len()).filter(is_used).map(|at| (at, width(at))).collect();
        for row in rows() {
            let cells = columns.iter().map(|&(at, width)| format!("{:<width$}", row[at]));
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
