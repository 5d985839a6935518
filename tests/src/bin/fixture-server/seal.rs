//! Seals: a request state that only this process can have made.
//!
//! The key is random per process and never leaves it, so a state that was changed, or that
//! another child made, does not open. That is what makes a bridge keep a retry on its child.
//! Enough for a test server; a real one would take a real MAC.

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

/// The key of one process.
pub(crate) struct Seal(RandomState);

impl Seal {
    pub(crate) fn new() -> Self {
        Self(RandomState::new())
    }

    /// `state` as text that [`Self::open`] gives back.
    pub(crate) fn close(&self, state: &Value) -> String {
        let body: String = state.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        let tag = self.0.hash_one(&body);
        format!("{body}.{tag:016x}")
    }

    /// What was sealed, or `None` when this process did not make `sealed`.
    pub(crate) fn open(&self, sealed: &str) -> Option<Value> {
        let (body, tag) = sealed.split_once('.')?;
        if tag != format!("{:016x}", self.0.hash_one(body)) {
            return None;
        }
        let bytes: Option<Vec<u8>> = (0..body.len() / 2)
            .map(|at| u8::from_str_radix(body.get(at * 2..at * 2 + 2)?, 16).ok())
            .collect();
        serde_json::from_slice(&bytes?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_opens_as_it_was_sealed() {
        let seal = Seal::new();
        let state = json!({ "for": "ask", "answers": { "a": "ä\n" } });
        assert_eq!(seal.open(&seal.close(&state)), Some(state));
    }

    #[test]
    fn a_changed_state_stays_shut() {
        let seal = Seal::new();
        let sealed = seal.close(&json!({ "round": 1 }));
        assert_eq!(seal.open(&format!("{sealed}-TAMPERED")), None);
        assert_eq!(seal.open(&sealed.replacen('7', "6", 1)), None);
        assert_eq!(seal.open(""), None);
    }

    #[test]
    fn another_process_cannot_open_it() {
        assert_eq!(Seal::new().open(&Seal::new().close(&json!(1))), None);
    }
}
