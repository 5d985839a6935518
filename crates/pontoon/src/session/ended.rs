//! The end of sessions, and those that have ended here though their ids are still good; of these the oldest
//! are forgotten first.

use std::collections::{HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;

use super::Sessions;
use super::legacy::Session;
use crate::config::Mode;

/// Sessions without a sign of life end after this.
const SESSION_LIFE: Duration = Duration::from_secs(1800);

/// How long a session with a server of this mode lives without a sign of life. A process that is kept for
/// it ends with it, so it lives no shorter than that may be idle.
pub(super) fn life(mode: Option<Mode>) -> Duration {
    match mode {
        Some(Mode::Stateful { idle, .. }) => SESSION_LIFE.max(idle),
        Some(Mode::Stateless) | None => SESSION_LIFE,
    }
}

/// How many are remembered. A client that ends a session does not come back with its id; this is for
/// the one that does.
const MAX_ENDED: usize = 50_000;

/// Sessions by a short name.
#[derive(Debug, Default)]
pub(super) struct Ended {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Ended {
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

impl Sessions {
    /// Ends a session at its client's wish.
    pub fn close(&self, session: &Session) {
        // In this order: a request that misses it in the table finds that it has ended.
        self.bury(session);
        self.lock().remove(&session.id);
        self.end(session);
    }

    /// Lets go of a session that its client has not used for long, or that has to make room. With a
    /// process for each request the client loses nothing, so it may go on when it is back. Else
    /// the process that kept its state goes with it, and it has to open another.
    ///
    /// To be called before it leaves the table; then it is to be ended.
    pub(super) fn let_go(&self, session: &Session) {
        let entries = self.entries();
        let entry = entries.get(session.server.as_str());
        if entry.is_none_or(|entry| entry.back.server.mode != Mode::Stateless) {
            self.bury(session);
        }
    }

    /// Sees that the id of a session is not good here any more.
    pub(super) fn bury(&self, session: &Session) {
        let short = self.ids.short(&session.id);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).add(short);
    }

    pub(super) fn has_ended(&self, id: &str) -> bool {
        let short = self.ids.short(id);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(short)
    }

    /// Ends a session: its calls, its streams, and the children that are its own.
    pub(super) fn end(&self, session: &Session) {
        session.end();
        if let Some(entry) = self.entries().get(session.server.as_str()) {
            entry.back.end_session(&session.id);
        }
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
        let mut ended = Ended::default();
        for session in 0..=MAX_ENDED as u64 {
            ended.add(session);
            ended.add(session);
        }
        assert_eq!((ended.known.len(), ended.order.len()), (MAX_ENDED, MAX_ENDED));
        assert!(!ended.contains(0) && ended.contains(1) && ended.contains(MAX_ENDED as u64));
    }
}
