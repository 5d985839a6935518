//! Calls by tool. Only names that the server's catalogue has, and not too many of them, are told one by one: a label is
//! kept for as long as the bridge runs, so a client must not be able to make one.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use super::histogram::{Counter, Histogram};
use super::outcome::CallEnding;
use crate::lock::unpoisoned;

/// Tools of one server that are told one by one; calls of more are counted together.
pub(super) const MAX_TOOLS: usize = 100;

/// A longer name is told with the others.
const MAX_NAME: usize = 128;

/// How the calls of tools that are counted together are labelled.
pub(super) const OTHER: &str = "other";

/// How the calls of one tool ended, and how long they took.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    pub(super) endings: [Counter; CallEnding::ALL.len()],
    pub(super) durations: Histogram,
}

impl ToolMetrics {
    /// A call ended, after this long.
    pub(super) fn call_ended(&self, ending: CallEnding, took: Duration) {
        self.endings[ending as usize].bump();
        self.durations.note(took);
    }
}

/// The tools of one server that were called.
#[derive(Debug, Default)]
pub(super) struct Tools {
    named: RwLock<BTreeMap<String, Arc<ToolMetrics>>>,
    pub(super) other: Arc<ToolMetrics>,
}

impl Tools {
    /// The numbers of a tool, which the server must be known to offer to have its own.
    pub(super) fn of(&self, name: &str, is_offered: impl FnOnce() -> bool) -> Arc<ToolMetrics> {
        if let Some(tool) = unpoisoned(self.named.read()).get(name) {
            return Arc::clone(tool);
        }
        if name.len() > MAX_NAME || name == OTHER || !is_offered() {
            return Arc::clone(&self.other);
        }
        let mut named = unpoisoned(self.named.write());
        match named.len() >= MAX_TOOLS && !named.contains_key(name) {
            true => Arc::clone(&self.other),
            false => Arc::clone(named.entry(name.to_owned()).or_default()),
        }
    }

    /// Every tool that was called, with what they are counted under.
    pub(super) fn all(&self) -> Vec<(String, Arc<ToolMetrics>)> {
        let named = unpoisoned(self.named.read());
        let named = named.iter().map(|(name, tool)| (name.clone(), Arc::clone(tool)));
        named.chain([(OTHER.to_owned(), Arc::clone(&self.other))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_that_are_offered_and_not_too_many_have_numbers_of_their_own() {
        let tools = Tools::default();
        let is_own = |name: &str, is_offered: bool| {
            !Arc::ptr_eq(&tools.of(name, || is_offered), &tools.other)
        };
        assert!(!is_own("made_up", false));
        assert!(is_own("greet", true));
        assert!(is_own("greet", false), "it is known already");
        assert!(!is_own(OTHER, true), "that would be two series of one name");
        assert!(!is_own(&"x".repeat(MAX_NAME + 1), true));
        let names: Vec<_> = (1..MAX_TOOLS).map(|number| format!("tool{number}")).collect();
        assert!(names.iter().all(|name| is_own(name, true)));
        assert!(!is_own("one_more", true) && is_own("greet", true));
        assert_eq!(tools.all().len(), MAX_TOOLS + 1);
    }
}
