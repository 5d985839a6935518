//! The end of sessions, and those that have ended here though their ids are still good; of these the oldest
//! are forgotten first.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::config::Mode;

/// Sessions without a sign of life end after this.
const SESSION_LIFE: Duration = Duration::from_secs(1800);

/// How long a session with a server of this mode lives without a sign of life. A process that is kept for
/// it ends with it, so it lives no shorter than that may be idle.
pub(super) fn life(mode: Option<Mode>) -> Duration {
    match mode {
        Some(Mode::Stateful { idle, .. }) => SESSION_LIFE.max(idle),
        Some(Mode::Stateless | Mode::Shared { .. }) | None => SESSION_LIFE,
    }
}

/// How many are remembered. A client that ends a session does not come back with its id; this is for
/// the one that does.
const MAX_ENDED: usize = 50_000;

/// Sessions by a short name.
#[derive(Debug, Default)]
pub(super) struct EndedSessions {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl EndedSessions {
    /// Remembers one.
    pub(super) fn add(&mut self, session: u64) {
        if !self.known.insert(session) {
            return;
        }
        self.order.push_back(session);
        if self.order.len() > MAX_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether this one has ended, as far as is remembered.
    pub(super) fn contains(&self, session: u64) -> bool {
        self.known.contains(&session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_as_long_as_its_process_may_be_idle() {
        let stateful = |idle| Some(Mode::Stateful { idle, per_address: 1, per_client: 1 });
        assert_eq!(life(stateful(4 * SESSION_LIFE)), 4 * SESSION_LIFE);
        assert_eq!(life(stateful(SESSION_LIFE / 4)), SESSION_LIFE);
        assert_eq!((life(Some(Mode::Stateless)), life(None)), (SESSION_LIFE, SESSION_LIFE));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut ended = EndedSessions::default();
        for session in 0..=MAX_ENDED as u64 {
            ended.add(session);
            ended.add(session);
        }
        assert_eq!((ended.known.len(), ended.order.len()), (MAX_ENDED, MAX_ENDED));
        assert!(!ended.contains(0) && ended.contains(1) && ended.contains(MAX_ENDED as u64));
    }
}
