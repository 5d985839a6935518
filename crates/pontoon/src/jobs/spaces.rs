//! The sessions' spaces of this process, and what is remembered of those that nobody uses just now.
//!
//! A fresh process for each call means that a space is let go of between two calls. What was seen in it
//! is kept, so that what a call left which was never answered is told to the next. It is kept in memory
//! and for so many spaces only: of one that was forgotten, and after a restart of the bridge of any,
//! what lies there counts as seen.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::looks::Looks;
use super::session_space::SessionSpace;

/// So many spaces that nobody uses are remembered.
const MAX_IDLE: usize = 1000;

/// So many bytes what is remembered of them may take.
const MAX_IDLE_BYTES: usize = 16 << 20;

/// The spaces by name.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    known: HashMap<String, Known>,
    /// How often one was opened.
    opened: u64,
}

#[derive(Debug)]
struct Known {
    /// Dead while nobody uses it.
    space: Weak<SessionSpace>,
    looks: Arc<Looks>,
    /// When it was opened, among the others.
    turn: u64,
}

impl Spaces {
    /// The space, if somebody uses it.
    pub(super) fn get(&self, name: &str) -> Option<Arc<SessionSpace>> {
        self.known.get(name).and_then(|known| known.space.upgrade())
    }

    pub(super) fn is_in_use(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(Known::is_in_use)
    }

    /// What was seen in a space, if that is remembered.
    pub(super) fn looks(&self, name: &str) -> Option<Arc<Looks>> {
        self.known.get(name).map(|known| Arc::clone(&known.looks))
    }

    /// Adds a space that is in use now.
    pub(super) fn add(&mut self, space: &Arc<SessionSpace>, looks: &Arc<Looks>) {
        self.opened += 1;
        let known =
            Known { space: Arc::downgrade(space), looks: Arc::clone(looks), turn: self.opened };
        self.known.insert(space.name().to_owned(), known);
        self.trim(MAX_IDLE, MAX_IDLE_BYTES);
    }

    /// Forgets a space that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Those that are in use.
    pub(super) fn in_use(&self) -> Vec<Arc<SessionSpace>> {
        self.known.values().filter_map(|known| known.space.upgrade()).collect()
    }

    /// Forgets those that nobody uses and that are too much to remember, the longest unused first.
    fn trim(&mut self, most: usize, most_bytes: usize) {
        let idle = self.known.iter().filter(|(_, known)| !known.is_in_use());
        let mut idle: Vec<(u64, usize)> =
            idle.map(|(_, known)| (known.turn, known.looks.weight())).collect();
        if idle.len() <= most && idle.iter().map(|(_, weight)| weight).sum::<usize>() <= most_bytes
        {
            return;
        }
        idle.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = most_bytes;
        let fits = |(_, weight): &&(u64, usize)| {
            let fits = *weight <= left;
            left = left.saturating_sub(*weight);
            fits
        };
        let kept = idle.iter().take(most).take_while(fits).last().map_or(u64::MAX, |it| it.0);
        self.known.retain(|_, known| known.is_in_use() || known.turn >= kept);
    }
}

impl Known {
    fn is_in_use(&self) -> bool {
        self.space.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Store, StoreOptions};

    #[test]
    fn only_so_much_is_remembered_and_the_longest_unused_goes_first() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
        let open = |key: &str| store.session_space("excel", key).unwrap();
        let names: Vec<String> = ["a", "b", "c"].map(|key| open(key).name().to_owned()).into();
        let used = open("d");
        std::fs::write(used.files().join("file"), "").unwrap();
        drop(open("a"));
        let known = |spaces: &Spaces| {
            names.iter().map(|name| spaces.looks(name).is_some()).collect::<Vec<_>>()
        };
        let mut spaces = store.0.spaces();
        spaces.trim(3, usize::MAX);
        assert_eq!(known(&spaces), [true, true, true]);
        spaces.trim(2, usize::MAX);
        assert_eq!(known(&spaces), [true, false, true], "b was not used for longest");
        let one = spaces.looks(&names[0]).unwrap().weight();
        spaces.trim(2, one);
        assert_eq!(known(&spaces), [true, false, false]);
        spaces.trim(2, 0);
        assert_eq!(known(&spaces), [false, false, false]);
        assert!(spaces.is_in_use(used.name()), "what is used is not forgotten");
    }
}
