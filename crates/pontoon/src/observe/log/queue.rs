//! The way from a log line to where it is written: a bounded queue and one thread.
//!
//! A call that logs never waits. A disk that is full or a reader that stopped costs log lines, which
//! are counted and told, and never a call.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use crate::lock::{Lock, unpoisoned};
use crate::observe::metrics::Metrics;

/// Up to this many bytes wait to be written.
const MAX_WAITING: usize = 4 << 20;

/// Lines are put together up to this many bytes.
const MAX_BATCH: usize = 64 << 10;

/// One place where lines go.
#[derive(Debug)]
pub(super) struct LineQueue {
    queued: Lock<QueuedLines>,
    changed: Condvar,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct QueuedLines {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that were lost and not told yet.
    lost: u64,
    is_closed: bool,
    is_done: bool,
}

impl LineQueue {
    /// A queue whose lines go to `write`, many at once, each with its newline. `told` is the line
    /// that says how many were lost.
    pub(super) fn start(
        name: &str,
        metrics: &Arc<Metrics>,
        told: impl Fn(u64) -> String + Send + 'static,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let metrics = Arc::clone(metrics);
        let queue = Arc::new(Self { queued: Lock::default(), changed: Condvar::new(), metrics });
        let own = Arc::clone(&queue);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || own.work(told, write))?;
        Ok(queue)
    }

    /// Adds a line, without its newline, if there is room.
    pub(super) fn push(&self, line: String) {
        self.push_all([line]);
    }

    /// Adds lines, each without its newline, as far as there is room.
    pub(super) fn push_all(&self, lines: impl IntoIterator<Item = String>) {
        let mut queued = self.queued.lock();
        let lost = queued.lost;
        for line in lines {
            if queued.is_closed || queued.bytes + line.len() > MAX_WAITING {
                queued.lost += 1;
                continue;
            }
            queued.bytes += line.len();
            queued.lines.push_back(line);
        }
        let lost = queued.lost - lost;
        drop(queued);
        if lost > 0 {
            self.metrics.log_lines_dropped.add(lost);
        }
        self.changed.notify_all();
    }

    /// Takes no more lines, and waits until those that wait are written, but no longer than this.
    pub(super) fn finish(&self, patience: Duration) {
        let mut queued = self.queued.lock();
        queued.is_closed = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(queued, patience, |it| !it.is_done));
    }

    fn work(&self, told: impl Fn(u64) -> String, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut batch = String::new();
        while let Some((count, lost)) = self.next(&mut batch) {
            if lost > 0 {
                batch.insert_str(0, &format!("{}\n", told(lost)));
            }
            if write(batch.as_bytes()).is_err() {
                self.metrics.log_lines_dropped.add(count);
                self.queued.lock().lost += count + lost;
            }
        }
        self.queued.lock().is_done = true;
        self.changed.notify_all();
    }

    /// Puts the next lines into `batch`; how many they are, and how many were lost before. Waits
    /// for one; `None` at the end.
    fn next(&self, batch: &mut String) -> Option<(u64, u64)> {
        let is_idle = |it: &mut QueuedLines| it.lines.is_empty() && !it.is_closed;
        let mut queued = unpoisoned(self.changed.wait_while(self.queued.lock(), is_idle));
        batch.clear();
        let mut count = 0;
        while batch.len() < MAX_BATCH
            && let Some(line) = queued.lines.pop_front()
        {
            queued.bytes -= line.len();
            batch.push_str(&line);
            batch.push('\n');
            count += 1;
        }
        (count > 0).then(|| (count, std::mem::take(&mut queued.lost)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    fn told(lost: u64) -> String {
        format!("{lost} lost")
    }

    /// What is written of these lines by a writer that fails as often as told.
    fn check(lines: &[&str], mut failures: usize, expected: &[&str], dropped: u64) {
        let metrics = Arc::new(Metrics::default());
        let written = Arc::new(Mutex::new(String::new()));
        let (go, may_go) = mpsc::channel();
        let into = Arc::clone(&written);
        let (taken, took) = mpsc::channel();
        let queue = LineQueue::start("test", &metrics, told, move |bytes| {
            taken.send(()).unwrap();
            may_go.recv().unwrap();
            if failures > 0 {
                failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            into.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(())
        });
        let queue = queue.unwrap();
        // The writer has the first line in hand while the others come.
        queue.push(lines[0].into());
        took.recv().unwrap();
        lines[1..].iter().for_each(|line| queue.push((*line).into()));
        (0..lines.len()).for_each(|_| go.send(()).unwrap());
        queue.finish(Duration::from_secs(60));
        let written = written.lock().unwrap();
        assert_eq!(written.lines().collect::<Vec<_>>(), expected);
        assert_eq!(metrics.log_lines_dropped.count(), dropped);
    }

    #[test]
    fn lines_are_written_in_order_and_the_end_waits_for_them() {
        check(&["a", "b", "c"], 0, &["a", "b", "c"], 0);
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_told() {
        check(&["a", "b", "c"], 1, &["1 lost", "b", "c"], 1);
        check(&["a", "b"], 2, &[], 2);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told() {
        let large = "x".repeat(MAX_WAITING - 1);
        check(&["a", &large, "more", "b"], 0, &["a", "1 lost", &large, "b"], 1);
    }

    #[test]
    fn a_writer_that_hangs_holds_nobody_up_for_ever() {
        let metrics = Arc::new(Metrics::default());
        let (go, may_go) = mpsc::channel::<()>();
        let write = move |_: &[u8]| {
            let _ = may_go.recv();
            Ok(())
        };
        let queue = LineQueue::start("test", &metrics, told, write).unwrap();
        let large = "x".repeat(MAX_BATCH);
        (0..1000).for_each(|_| queue.push(large.clone()));
        queue.finish(Duration::from_millis(1));
        assert!(metrics.log_lines_dropped.count() > 900);
        drop(go);
    }
}
