//! What must never be logged or shown: what is configured, and what is learnt while the bridge runs.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use crate::lock::unpoisoned;
use crate::observe::redact::Redactor;

/// So many values that pass are remembered: a command may give another token for each connection.
const PASSING: usize = 16;

/// What must never be logged. It grows when the configuration changes, and when a token is read.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<RwLock<KnownSecrets>>);

#[derive(Debug, Default)]
struct KnownSecrets {
    lasting: Redactor,
    passing: VecDeque<Vec<u8>>,
    all: Redactor,
}

impl Secrets {
    /// These, to begin with.
    pub(super) fn new(redactor: Redactor) -> Self {
        let (lasting, all) = (redactor.clone(), redactor);
        Self(Arc::new(RwLock::new(KnownSecrets { lasting, passing: VecDeque::new(), all })))
    }

    /// Keeps these out of the log too, from now on.
    pub fn hide<'a>(&self, secrets: impl IntoIterator<Item = &'a [u8]>) {
        let mut known = unpoisoned(self.0.write());
        known.lasting.hide_more(secrets);
        known.put_together();
    }

    /// Keeps one out that may be followed by others: the last of them count.
    pub fn hide_passing(&self, secret: &[u8]) {
        if unpoisoned(self.0.read()).passing.iter().any(|known| known == secret) {
            return;
        }
        let mut known = unpoisoned(self.0.write());
        if known.passing.len() == PASSING {
            known.passing.pop_front();
        }
        known.passing.push_back(secret.to_owned());
        known.put_together();
    }

    /// What cleans a text of them.
    pub fn redactor(&self) -> SecretsInUse<'_> {
        SecretsInUse(unpoisoned(self.0.read()))
    }
}

impl KnownSecrets {
    fn put_together(&mut self) {
        self.all = self.lasting.clone();
        self.all.hide_more(self.passing.iter().map(Vec::as_slice));
    }
}

/// The secrets while a text is cleaned of them.
#[derive(Debug)]
pub struct SecretsInUse<'s>(RwLockReadGuard<'s, KnownSecrets>);

impl std::ops::Deref for SecretsInUse<'_> {
    type Target = Redactor;

    fn deref(&self) -> &Redactor {
        &self.0.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_stays_hidden_and_of_what_passes_the_last() {
        let secrets = Secrets::new(Redactor::new([b"lasting-1" as &[u8]]));
        (0..PASSING + 1).for_each(|n| secrets.hide_passing(format!("passing-{n:02}").as_bytes()));
        secrets.hide([b"lasting-2" as &[u8]]);
        let clean = |text: &str| secrets.redactor().value("text", text);
        for text in ["lasting-1", "lasting-2", "passing-01", "passing-16"] {
            assert_eq!(clean(text), "[hidden]", "{text}");
        }
        assert_eq!(clean("passing-00"), "passing-00");
    }
}
