//! The one writer of records: everything about jobs that no answer has to wait for.
//!
//! Work is done in the order it came, some milliseconds after the first of it: waking a thread for
//! every call would cost a call more than its record. A slot is held for each call until its record is
//! written, so that a disk that does not keep up is noticed by new calls, and nothing piles up.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Span;

/// Calls whose records may be unwritten at once.
const MAX_OPEN: usize = 4096;

/// How much may wait to be written before new calls have to.
const MAX_BYTES: usize = 64 << 20;

/// How long work gathers after the first of it.
const GATHER: Duration = Duration::from_millis(20);

/// What is to be done, and the request that it is for.
struct Work {
    span: Span,
    /// About what it keeps in memory.
    bytes: usize,
    run: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// Hands work to the writer, which ends with the last of these.
#[derive(Debug, Clone)]
pub struct Writer {
    desk: Arc<Desk>,
    slots: Arc<Semaphore>,
}

/// Keeps the writer at work.
#[derive(Debug)]
struct Desk(Arc<Inbox>);

#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    news: Condvar,
}

#[derive(Default)]
struct InboxState {
    work: VecDeque<Work>,
    /// Of all that is not done yet.
    bytes: usize,
    is_asleep: bool,
    is_urgent: bool,
    is_closed: bool,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Desk {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.news.notify_one();
    }
}

impl Inbox {
    /// What has gathered; nothing when there will be no more.
    fn next(&self) -> VecDeque<Work> {
        let wait = |state| self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        let mut state = lock(&self.state);
        while state.work.is_empty() && !state.is_closed {
            state.is_asleep = true;
            state = wait(state);
        }
        state.is_asleep = false;
        let has_time = |state: &mut InboxState| !state.is_urgent && !state.is_closed;
        let gathered = self.news.wait_timeout_while(state, GATHER, has_time);
        let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        state.is_urgent = false;
        std::mem::take(&mut state.work)
    }

    fn add(&self, work: Work, is_urgent: bool) {
        let is_woken = {
            let mut state = lock(&self.state);
            state.bytes += work.bytes;
            state.work.push_back(work);
            state.is_urgent |= is_urgent;
            std::mem::take(&mut state.is_asleep) || is_urgent
        };
        if is_woken {
            self.news.notify_one();
        }
    }

    fn work(&self) {
        loop {
            let gathered = self.next();
            if gathered.is_empty() {
                return;
            }
            for Work { span, bytes, run } in gathered {
                let _in_request = span.enter();
                if let Err(error) = run() {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a record was not written"
                    );
                }
                lock(&self.state).bytes -= bytes;
            }
        }
    }
}

impl Writer {
    /// Starts the writer.
    ///
    /// # Errors
    ///
    /// When no thread can be had.
    pub fn start() -> io::Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let desk = Arc::new(Desk(Arc::clone(&inbox)));
        thread::Builder::new().name("records".to_owned()).spawn(move || inbox.work())?;
        Ok(Self { desk, slots: Arc::new(Semaphore::new(MAX_OPEN)) })
    }

    /// A slot for the record of one call, if the disk keeps up.
    pub fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let has_room = lock(&self.desk.0.state).bytes < MAX_BYTES;
        has_room.then(|| Arc::clone(&self.slots).try_acquire_owned().ok()).flatten()
    }

    /// Does this after all that came before it. It keeps about so many bytes in memory until then.
    pub fn write(&self, bytes: usize, run: impl FnOnce() -> io::Result<()> + Send + 'static) {
        self.desk.0.add(Work { span: Span::current(), bytes, run: Box::new(run) }, false);
    }

    /// Waits until everything that came before is written.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let tell = move || {
            let _ = done.send(());
            Ok(())
        };
        self.desk.0.add(Work { span: Span::none(), bytes: 0, run: Box::new(tell) }, true);
        drop(written.await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_order_and_a_failure_stops_nothing() {
        let writer = Writer::start().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let seen = Arc::clone(&seen);
            writer.write(0, move || {
                seen.lock().unwrap().push(number);
                if number % 7 == 0 { Err(io::Error::other("full")) } else { Ok(()) }
            });
        }
        writer.flush().await;
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_slot_comes_back_with_the_end_of_its_record() {
        let writer = Writer::start().unwrap();
        let mut slots: Vec<_> = (0..MAX_OPEN).map(|_| writer.slot().unwrap()).collect();
        assert!(writer.slot().is_none());
        let slot = slots.pop().unwrap();
        writer.write(0, move || {
            drop(slot);
            Ok(())
        });
        writer.flush().await;
        assert!(writer.slot().is_some());
    }

    #[tokio::test]
    async fn a_disk_that_does_not_keep_up_is_noticed_by_what_it_keeps_in_memory() {
        let writer = Writer::start().unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        writer.write(MAX_BYTES, move || {
            let _ = gate.recv();
            Ok(())
        });
        assert!(writer.slot().is_none());
        open.send(()).unwrap();
        writer.flush().await;
        assert!(writer.slot().is_some());
    }

    #[tokio::test]
    async fn the_writer_does_what_it_was_given_and_ends_with_its_last_handle() {
        let writer = Writer::start().unwrap();
        let (done, was_done) = std::sync::mpsc::channel();
        writer.write(0, move || done.send(1).map_err(io::Error::other));
        let inbox = Arc::downgrade(&writer.desk.0);
        drop(writer.clone());
        drop(writer);
        assert_eq!(was_done.recv(), Ok(1));
        while inbox.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
