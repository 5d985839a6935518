//! Polls a future again at once when it woke itself, in place of a trip through the scheduler.
//!
//! hyper hands a body over between two halves of one task, which wakes the task while it runs. The
//! scheduler takes that for new work and wakes another thread to help: for a small call that costs
//! more than the call.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// It is not polled more often than this in one go, so that others get their turn.
const TRIES: usize = 4;

/// A future that is polled again when it woke itself.
pub struct Repoll<F> {
    future: Pin<Box<F>>,
    note: Arc<WakeNote>,
    waker: Waker,
}

/// What the future wakes. While it is polled, a wake is only noted.
struct WakeNote {
    is_polling: AtomicBool,
    is_woken: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for WakeNote {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Noted first: a poll that ends now looks for the note afterwards.
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        }
    }
}

impl<F: Future> Repoll<F> {
    /// The same future.
    pub fn new(future: F) -> Self {
        let note = Arc::new(WakeNote {
            is_polling: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            task: Mutex::new(Waker::noop().clone()),
        });
        Self { future: Box::pin(future), waker: Waker::from(Arc::clone(&note)), note }
    }

    /// The future inside.
    pub fn inner(&mut self) -> Pin<&mut F> {
        self.future.as_mut()
    }
}

impl<F: Future> Future for Repoll<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.note.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
        let mut inner = Context::from_waker(&this.waker);
        for _ in 0..TRIES {
            this.note.is_polling.store(true, Ordering::SeqCst);
            this.note.is_woken.store(false, Ordering::SeqCst);
            let polled = this.future.as_mut().poll(&mut inner);
            this.note.is_polling.store(false, Ordering::SeqCst);
            if polled.is_ready() || !this.note.is_woken.load(Ordering::SeqCst) {
                return polled;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Counts how often the scheduler was woken.
    #[derive(Default)]
    struct Scheduler(AtomicUsize);

    impl Wake for Scheduler {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls a future that wakes itself `times` before it is ready; gives wakes and readiness.
    fn check(times: usize) -> (usize, bool) {
        let mut left = times;
        let mut future = Repoll::new(std::future::poll_fn(move |context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let scheduler = Arc::new(Scheduler::default());
        let waker = Waker::from(Arc::clone(&scheduler));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        (scheduler.0.load(Ordering::SeqCst), polled.is_ready())
    }

    #[test]
    fn a_future_that_wakes_itself_costs_no_trip_through_the_scheduler() {
        assert_eq!(check(0), (0, true));
        assert_eq!(check(TRIES - 1), (0, true));
    }

    #[test]
    fn one_that_never_stops_lets_others_have_their_turn() {
        assert_eq!(check(1000), (1, false));
    }

    #[test]
    fn a_wake_from_outside_reaches_the_scheduler() {
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let inside = Arc::clone(&slot);
        let mut future = Repoll::new(std::future::poll_fn(move |context: &mut Context<'_>| {
            *inside.lock().unwrap() = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
        let scheduler = Arc::new(Scheduler::default());
        let waker = Waker::from(Arc::clone(&scheduler));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        slot.lock().unwrap().take().unwrap().wake();
        assert_eq!(scheduler.0.load(Ordering::SeqCst), 1);
    }
}
