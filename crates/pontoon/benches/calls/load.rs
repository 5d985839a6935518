//! Load: callers that call as often as they can for a while, and the times they took.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Caller;
use crate::process::processor_time;

/// What one side did, over all its turns.
#[derive(Debug, Default)]
pub(crate) struct Side {
    turns: Vec<Turn>,
    /// The processor time of each group of its processes when each turn began, and after the last.
    readings: Vec<Vec<Duration>>,
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

    /// A turn of which the time on a processor is counted, apart for each group of processes. What they do
    /// after it, until their next turn, belongs to it.
    pub(crate) fn counted_turn<C: Caller>(
        &mut self,
        callers: &mut [C],
        length: Duration,
        groups: &[Vec<u32>],
    ) {
        self.read(groups);
        self.turn(callers, length);
    }

    /// Reads the time on a processor, once more after the last turn.
    pub(crate) fn read(&mut self, groups: &[Vec<u32>]) {
        self.readings.push(groups.iter().map(|pids| processor_time(pids)).collect());
    }

    /// In each turn, the seconds on a processor that a call took of these groups.
    pub(crate) fn used(&self, groups: &[usize]) -> Vec<f64> {
        let sum = |reading: &[Duration]| groups.iter().map(|at| reading[*at]).sum::<Duration>();
        let spans = self.readings.windows(2).map(|pair| sum(&pair[1]) - sum(&pair[0]));
        let used = |(span, turn): (Duration, &Turn)| span.as_secs_f64() / turn.times.len() as f64;
        spans.zip(&self.turns).map(used).collect()
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

    /// What a call took of this time on a processor, in seconds.
    pub(crate) fn per_call(&self, used: Duration) -> f64 {
        used.as_secs_f64() / self.calls() as f64
    }
}

/// The order of `count` sides in a round: each begins as often as the others.
pub(crate) fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
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
