//! What was healed, for each server: counted, and logged once for each kind.

use pontoon_wire::heal::{Heal, Heals};

use crate::lock::Lock;

/// The heals of one server.
#[derive(Debug)]
pub struct HealLog {
    server: String,
    total: Lock<Heals>,
}

impl HealLog {
    /// No heals yet.
    pub fn new(server: &str) -> Self {
        Self { server: server.to_owned(), total: Lock::default() }
    }

    /// Whose heals these are.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Adds what one conversation counted, and leaves that at zero.
    pub fn add(&self, heals: &mut Heals) {
        if heals.take_fresh().is_empty() && heals.is_empty() {
            return;
        }
        let mut total = self.total.lock();
        for (heal, times) in heals.take() {
            (0..times).for_each(|_| total.note(heal));
        }
        for heal in total.take_fresh() {
            tracing::warn!(
                server = %self.server, code = heal.code(), meaning = heal.meaning(),
                "the server breaks the protocol; repaired where possible, told once"
            );
        }
    }

    /// Notes one heal that was made outside a conversation.
    pub fn note(&self, heal: Heal) {
        let mut heals = Heals::default();
        heals.note(heal);
        self.add(&mut heals);
    }

    /// How often each heal was needed.
    pub fn counts(&self) -> Vec<(Heal, u64)> {
        let total = self.total.lock();
        let counts = Heal::ALL.iter().map(|heal| (*heal, total.count(*heal)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
