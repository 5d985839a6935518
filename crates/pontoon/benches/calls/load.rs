//! Load: callers that call as often as they can for a while, and the times they took.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Caller;

/// What one side did, over all its turns.
#[derive(Debug, Default)]
pub(crate) struct Side {
    turns: Vec<Turn>,
}

/// What one side did in one turn.
#[derive(Debug)]
struct Turn {
    /// Sorted.
    times: Vec<Duration>,
    elapsed: Duration,
}

impl Side {
    /// Lets every caller call as often as it can for this long.
    pub(crate) fn turn<C: Caller>(&mut self, callers: &mut [C], length: Duration) {
        self.paced_turn(callers, length, Duration::ZERO);
    }

    /// Lets every caller call for this long, with a pause before each call that is not counted.
    pub(crate) fn paced_turn<C: Caller>(
        &mut self,
        callers: &mut [C],
        length: Duration,
        pause: Duration,
    ) {
        let barrier = Barrier::new(callers.len());
        let call_on = |caller: &mut C| {
            barrier.wait();
            let (began, mut times) = (Instant::now(), Vec::with_capacity(16 * 1024));
            let mut before = Duration::ZERO;
            while before < length {
                if !pause.is_zero() {
                    thread::sleep(pause);
                    before = began.elapsed();
                }
                caller.call();
                let now = began.elapsed();
                times.push(now - before);
                before = now;
            }
            (times, before)
        };
        let turns: Vec<(Vec<Duration>, Duration)> = thread::scope(|scope| {
            let threads: Vec<_> =
                callers.iter_mut().map(|caller| scope.spawn(|| call_on(caller))).collect();
            threads.into_iter().map(|it| it.join().expect("a caller panicked")).collect()
        });
        let elapsed = turns.iter().map(|(_, elapsed)| *elapsed).max().unwrap_or_default();
        let mut times: Vec<_> = turns.into_iter().flat_map(|(times, _)| times).collect();
        times.sort_unstable();
        self.turns.push(Turn { times, elapsed });
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> usize {
        self.turns.iter().map(|turn| turn.times.len()).sum()
    }

    /// In each turn, the time that this part of the calls stayed below, in seconds.
    pub(crate) fn quantiles(&self, part: f64) -> Vec<f64> {
        let at = |times: &[Duration]| times[((times.len() - 1) as f64 * part) as usize];
        self.turns.iter().map(|turn| at(&turn.times).as_secs_f64()).collect()
    }

    /// In each turn, how many calls were made in a second.
    pub(crate) fn rates(&self) -> Vec<f64> {
        let rate = |turn: &Turn| turn.times.len() as f64 / turn.elapsed.as_secs_f64();
        self.turns.iter().map(rate).collect()
    }
}

/// How a load is called in the table.
pub(crate) fn name(what: &str, clients: usize) -> String {
    match clients {
        1 => format!("{what}, 1 client"),
        _ => format!("{what}, {clients} clients"),
    }
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Joins the values of each turn of several sides.
pub(crate) fn zip(a: &[f64], b: &[f64], join: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| join(*a, *b)).collect()
}
