//! Sessions that have ended here, though their ids are still good: so many, the oldest are forgotten first.

use std::collections::{HashSet, VecDeque};

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

#[cfg(test)]
mod tests {
    use super::*;

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
