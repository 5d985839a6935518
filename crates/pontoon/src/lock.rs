//! A lock that goes on after a panic.
//!
//! A panic while a lock is held poisons it in the standard library, and every later caller would have to panic too. Here that is
//! wrong: a panic costs the one call in which it happened, and the log tells of it. What the locks of this crate guard is changed
//! in steps that each leave it whole, so the next caller finds it in order. One that refused to go on would make an outage of
//! a single failed call.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time may use.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// A lock around this value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the value. It is free again when the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        unpoisoned(self.0.lock())
    }
}

/// What a `RwLock` or a `Condvar` gives, whether or not a panic has happened meanwhile.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Condvar, RwLock};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_panic_leaves_the_lock_usable() {
        let (lock, shared) = (Lock::new(1), RwLock::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let (mut guard, mut other) = (lock.lock(), unpoisoned(shared.write()));
            (*guard, *other) = (2, 2);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!((*lock.lock(), *unpoisoned(shared.read())), (2, 2));
        let waited = Condvar::new().wait_timeout(lock.lock(), Duration::ZERO);
        assert_eq!(*unpoisoned(waited).0, 2);
    }
}
