//! Pauses between starts that fail: each failure in a row makes the next start wait longer.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::call::CallError;
use crate::clock::now;
use crate::lock::Lock;

/// They grow up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause after this many failures in a row.
pub(super) fn pause_after(failures: u32) -> Duration {
    (Duration::from_secs(1) * 2u32.pow(failures.clamp(1, 7) - 1)).min(LONGEST_PAUSE)
}

/// The pauses of a process that everybody needs: without them each call of each client would start it in vain.
#[derive(Debug, Default)]
pub(crate) struct StartPauses {
    failed: Lock<Option<FailedStarts>>,
}

/// Starts that failed, in a row.
#[derive(Debug)]
struct FailedStarts {
    count: u32,
    /// No other is tried before.
    until: Instant,
    /// Why the last one failed.
    why: String,
}

impl StartPauses {
    /// What comes of the start, which is not begun in a pause: then its caller hears why the last one failed.
    pub(crate) async fn start<T>(
        &self,
        start: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.check(now())?;
        let started = start.await;
        // Anything else says nothing of the server, nor does a start: what counts is that it answers then.
        if let Err(CallError::ServerFailed(why)) = &started {
            self.fail(why, now());
        }
        started
    }

    /// Says that the last one was well.
    pub(crate) fn recover(&self) {
        *self.failed.lock() = None;
    }

    fn check(&self, now: Instant) -> Result<(), CallError> {
        let failed = self.failed.lock();
        let Some(FailedStarts { until, why, .. }) = failed.as_ref().filter(|it| it.until > now)
        else {
            return Ok(());
        };
        let seconds = until.saturating_duration_since(now).as_secs_f64().ceil();
        let text =
            format!("{why}; this call was not made, and the next start is tried in {seconds} s");
        Err(CallError::ServerFailed(text))
    }

    /// Says that it failed, and why.
    pub(crate) fn fail(&self, why: &str, now: Instant) {
        let mut failed = self.failed.lock();
        let count = failed.as_ref().map_or(1, |it| it.count.saturating_add(1));
        *failed =
            Some(FailedStarts { count, until: now + pause_after(count), why: why.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_fails_again_and_again_is_tried_ever_more_rarely() {
        let pauses = StartPauses::default();
        let fail = || async { Err::<(), _>(CallError::ServerFailed("it is broken".to_owned())) };
        let mut tries = Vec::new();
        let began = now();
        for _ in 0..20 {
            let told = pauses.start(fail()).await.unwrap_err().to_string();
            assert!(told.starts_with("it is broken"), "{told}");
            if told == "it is broken" {
                tries.push((now() - began).as_secs());
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(tries, [0, 1, 3, 7, 15]);
        let told = pauses.start(fail()).await.unwrap_err().to_string();
        assert!(
            told.ends_with("this call was not made, and the next start is tried in 11 s"),
            "{told}"
        );
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(pauses.start(async { Ok(()) }).await.is_ok());
        pauses.recover();
        assert!(pauses.start(fail()).await.is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pauses.start(async { Ok(()) }).await.is_ok(), "one that was well makes all good");
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_nothing_of_the_server_makes_no_pause() {
        let pauses = StartPauses::default();
        assert!(pauses.start(async { Err::<(), _>(CallError::Stopping) }).await.is_err());
        assert!(pauses.start(async { Ok(()) }).await.is_ok());
    }
}
