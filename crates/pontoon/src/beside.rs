//! Work that keeps the processor busy for long: beside the tasks of the runtime, which would wait for it.
//!
//! `connect` has one thread for all its tasks. What is small is done at once, where it is asked for: that a thread is
//! woken for it would take longer.

/// Tools of more bytes than this are repaired beside the tasks: that takes more than a few milliseconds.
pub(crate) const LONG: usize = 64 << 10;

/// Does the work on a message of this length: beside the tasks if it is [`LONG`]. If the future is dropped meanwhile, the
/// thread ends its work all the same, and its result is dropped.
pub(crate) async fn beside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= LONG {
        return work();
    }
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn what_is_small_is_done_at_once_and_what_is_large_on_a_thread_of_its_own() {
        let here = thread::current().id();
        for (bytes, is_here) in [(0, true), (LONG, true), (LONG + 1, false)] {
            let thread = beside(bytes, || thread::current().id()).await;
            assert_eq!(thread == here, is_here, "{bytes}");
        }
    }

    #[tokio::test]
    #[should_panic(expected = "as it would here")]
    async fn a_panic_is_one_of_its_task() {
        beside(LONG + 1, || panic!("as it would here")).await;
    }
}
