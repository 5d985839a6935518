//! The one writer of records: everything about jobs that no answer has to wait for.
//!
//! Work is done in the order it came. A slot is held for each record that is not at its end, so that
//! a disk that does not keep up is noticed by new calls, and nothing piles up.

use std::fmt;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Span;

/// Records that may be unfinished at once.
const MAX_OPEN: usize = 4096;

/// What is to be done, and the request that it is for.
type Work = (Span, Box<dyn FnOnce() -> io::Result<()> + Send>);

/// Hands work to the writer.
#[derive(Debug, Clone)]
pub struct Writer {
    // A sender may not be shared between threads in every version of the library we build with.
    sender: Arc<Mutex<Sender<Work>>>,
    slots: Arc<Semaphore>,
    waiting: Arc<Mutex<Vec<Weak<Undone>>>>,
}

/// Work until somebody has taken it on.
type Undone = Mutex<Option<Work>>;

/// Work that is not done yet. Dropped, it never is.
#[derive(Clone)]
pub struct Later(Arc<Undone>);

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Starts the writer.
    ///
    /// # Errors
    ///
    /// When no thread can be had.
    pub fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Work>();
        thread::Builder::new().name("records".to_owned()).spawn(move || {
            for (span, work) in receiver {
                let _in_request = span.enter();
                if let Err(error) = work() {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a record was not written"
                    );
                }
            }
        })?;
        let (sender, waiting) = (Arc::new(Mutex::new(sender)), Arc::default());
        Ok(Self { sender, slots: Arc::new(Semaphore::new(MAX_OPEN)), waiting })
    }

    /// A slot for one record, if the disk keeps up.
    pub fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Does this after all that came before it.
    pub fn write(&self, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
        self.send((Span::current(), Box::new(work)));
    }

    fn send(&self, work: Work) {
        // The writer ends only when every sender is gone.
        drop(lock(&self.sender).send(work));
    }

    /// Does this with the next [`Writer::catch_up`], unless it is taken back before: what a short
    /// call needs no more when it is over should not take its processors either.
    pub fn write_later(&self, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Later {
        let later = Later(Arc::new(Mutex::new(Some((Span::current(), Box::new(work))))));
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= 2 * MAX_OPEN {
            waiting.retain(|work| work.strong_count() > 0);
        }
        waiting.push(Arc::downgrade(&later.0));
        later
    }

    /// Takes work back that was not done. False if it was.
    pub fn take_back(&self, later: &Later) -> bool {
        lock(&later.0).take().is_some()
    }

    /// Does all that waits, for calls that take long.
    pub fn catch_up(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for work in waiting.iter().filter_map(Weak::upgrade) {
            // Held until it is handed over: what follows it must come after it.
            let mut work = lock(&work);
            if let Some(work) = work.take() {
                self.send(work);
            }
        }
    }

    /// Waits until everything that came before is written.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.write(move || {
            let _ = done.send(());
            Ok(())
        });
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
            writer.write(move || {
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
        writer.write(move || {
            drop(slot);
            Ok(())
        });
        writer.flush().await;
        assert!(writer.slot().is_some());
    }

    #[tokio::test]
    async fn what_waits_is_done_once_and_before_what_follows_it_or_taken_back() {
        let writer = Writer::start().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let seen = Arc::clone(&seen);
            move || {
                seen.lock().unwrap().push(what);
                Ok(())
            }
        };
        let soon = writer.write_later(note("begin a"));
        let long = writer.write_later(note("begin b"));
        drop(writer.write_later(note("never")));
        writer.flush().await;
        assert!(seen.lock().unwrap().is_empty());
        assert!(writer.take_back(&soon));
        writer.write(note("all of a"));
        writer.catch_up();
        writer.catch_up();
        assert!(!writer.take_back(&long));
        writer.write(note("end b"));
        writer.flush().await;
        assert_eq!(*seen.lock().unwrap(), ["all of a", "begin b", "end b"]);
    }
}
