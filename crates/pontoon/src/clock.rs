//! The clock of a call: one deadline, set when its request was accepted, for everything until its answer.
//!
//! Whatever a call waits for says so here, so that a client whose time is over hears what took it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::CallError;

/// The time as the runtime sees it, so that a test can stop it.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago that was, by the same clock.
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is not known yet what the server offers.
    Learning,
    /// As many calls run as may.
    Turn,
    /// As many calls run on the conversation's process as may.
    Place,
    /// Its process starts.
    Starting,
    /// The server works on it.
    Answering,
}

const STAGES: usize = 5;

/// How many times its time a call may take, if it makes progress.
const LONGEST: u32 = 10;

/// What the process of a call complained of last.
pub type LastWords = Box<dyn Fn() -> String + Send>;

/// Until when a call has to be answered, and what takes its time.
#[derive(Debug)]
pub struct Clock {
    timeout: Duration,
    course: Mutex<Course>,
}

struct Course {
    began: Instant,
    /// When the work began, from which progress gives more time.
    first: Instant,
    /// Whether progress has given it more time.
    is_extended: bool,
    stage: Stage,
    since: Instant,
    /// How long each stage took that is over.
    spent: [Duration; STAGES],
    last_words: Option<LastWords>,
}

impl fmt::Debug for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Course").field("began", &self.began).field("stage", &self.stage).finish()
    }
}

impl Course {
    fn enter(&mut self, stage: Stage, now: Instant) {
        self.spent[self.stage as usize] += now.saturating_duration_since(self.since);
        (self.stage, self.since) = (stage, now);
    }
}

impl Clock {
    /// Gives the call another time in all, from when it began.
    pub fn set_time(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// A clock that began `now` and ends after `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        let course = Course {
            began: now,
            first: now,
            is_extended: false,
            stage: Stage::Learning,
            since: now,
            spent: [Duration::ZERO; STAGES],
            last_words: None,
        };
        Self { timeout, course: Mutex::new(course) }
    }

    /// When the call has to be answered.
    pub fn deadline(&self) -> Instant {
        self.lock().began + self.timeout
    }

    /// Says what the call waits for from now on.
    pub fn enter(&self, stage: Stage) {
        self.lock().enter(stage, now());
    }

    /// Says where the words of the process are that starts for it.
    pub fn listen_to(&self, last_words: LastWords) {
        self.lock().last_words = Some(last_words);
    }

    /// Gives the call its whole time again, because there is progress; in all no more than ten times as much.
    pub fn extend(&self) {
        let (now, longest) = (now(), self.timeout.saturating_mul(LONGEST - 1));
        let mut course = self.lock();
        course.began = now.min(course.first + longest).max(course.began);
        course.is_extended = true;
    }

    /// Begins anew, after a person has answered a question: how long that took is not the call's.
    pub fn restart(&self) {
        self.restart_at(now());
    }

    /// Goes on as the clock of `other`, the request by which a person's answers came.
    pub fn follow(&self, other: &Self) {
        let began = other.lock().began;
        self.restart_at(began);
    }

    fn restart_at(&self, began: Instant) {
        let mut course = self.lock();
        (course.began, course.since) = (began, began);
        (course.first, course.is_extended) = (began, false);
        course.spent = [Duration::ZERO; STAGES];
    }

    /// What `work` gives, if that comes in time. A timer is set only if it does not come at once.
    pub async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.deadline().into(), work).await.ok()
    }

    /// What a client hears whose time is over.
    pub fn timed_out(&self, server: &str) -> CallError {
        let (seconds, note) = (self.timeout.as_secs(), self.note(now()));
        CallError::TimedOut { server: server.to_owned(), seconds, note }
    }

    /// What took the time, if the server did not.
    fn note(&self, now: Instant) -> String {
        let mut course = self.lock();
        let stage = course.stage;
        course.enter(stage, now);
        let most = |stage: Stage| course.spent[stage as usize] >= self.timeout / 2;
        let seconds = |stage: Stage| course.spent[stage as usize].as_secs_f64();
        match stage {
            Stage::Answering if course.is_extended => {
                let all = now.saturating_duration_since(course.first).as_secs();
                format!("; it had that time again with each progress, {all} s in all")
            }
            Stage::Learning => ": it is being started for the first time".to_owned(),
            Stage::Turn => ": the call was still waiting for a free slot".to_owned(),
            Stage::Place => {
                ": the call was still waiting for others of its conversation (max_in_flight)"
                    .to_owned()
            }
            Stage::Starting => {
                let words = course.last_words.as_ref().map(|words| words()).unwrap_or_default();
                format!(": its process was not ready for it{words}")
            }
            Stage::Answering if most(Stage::Learning) => {
                format!(": it was known after {:.1} s", seconds(Stage::Learning))
            }
            Stage::Answering if most(Stage::Turn) => {
                format!(": the call had waited {:.1} s for a free slot", seconds(Stage::Turn))
            }
            Stage::Answering if most(Stage::Place) => format!(
                ": the call had waited {:.1} s for others of its conversation (max_in_flight)",
                seconds(Stage::Place)
            ),
            Stage::Answering if most(Stage::Starting) => {
                format!(": its process was ready after {:.1} s", seconds(Stage::Starting))
            }
            Stage::Answering => String::new(),
        }
    }

    /// What the call waits for.
    pub fn stage(&self) -> Stage {
        self.lock().stage
    }

    fn lock(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told after stages that took so many seconds each, of ten.
    fn check(stages: &[(Stage, u64)], expected: &str) {
        let mut now = Instant::now();
        let clock = Clock::new(Duration::from_secs(10), now);
        for (stage, seconds) in stages {
            clock.lock().enter(*stage, now);
            now += Duration::from_secs(*seconds);
        }
        assert_eq!(clock.note(now), expected, "{stages:?}");
    }

    #[test]
    fn what_took_the_time_is_told() {
        check(&[(Stage::Answering, 10)], "");
        check(&[(Stage::Turn, 2), (Stage::Starting, 2), (Stage::Answering, 6)], "");
        check(&[(Stage::Turn, 10)], ": the call was still waiting for a free slot");
        check(&[(Stage::Turn, 9), (Stage::Starting, 1)], ": its process was not ready for it");
        let told = ": its process was ready after 7.0 s";
        check(&[(Stage::Turn, 1), (Stage::Starting, 7), (Stage::Answering, 2)], told);
        let told = ": the call had waited 6.0 s for a free slot";
        check(&[(Stage::Turn, 6), (Stage::Starting, 2), (Stage::Answering, 2)], told);
    }

    #[test]
    fn the_time_of_a_person_is_not_the_calls() {
        let (now, timeout) = (Instant::now(), Duration::from_secs(10));
        let (clock, next) = (Clock::new(timeout, now), Clock::new(timeout, now + timeout));
        assert_eq!(clock.deadline(), now + timeout);
        clock.follow(&next);
        assert_eq!(clock.deadline(), next.deadline());
    }

    #[tokio::test(start_paused = true)]
    async fn progress_gives_a_call_its_time_again_up_to_ten_times() {
        let timeout = Duration::from_secs(10);
        let began = now();
        let clock = Clock::new(timeout, began);
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(8)).await;
            clock.extend();
        }
        assert_eq!(clock.deadline(), began + 10 * timeout);
        clock.restart();
        assert_eq!(clock.deadline(), now() + timeout);
        tokio::time::advance(Duration::from_secs(8)).await;
        clock.extend();
        assert_eq!(clock.deadline(), now() + timeout);
    }

    #[tokio::test]
    async fn what_is_there_comes_also_when_the_time_is_over() {
        let clock = Clock::new(Duration::ZERO, Instant::now());
        assert_eq!(clock.bound(async { 1 }).await, Some(1));
        assert_eq!(clock.bound(std::future::pending::<()>()).await, None);
    }
}
