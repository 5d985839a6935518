//! The sessions' workspaces of this process, and what is remembered of those that are not in use.
//!
//! A fresh process for each call means that a workspace is let go of between two calls. What was told of it
//! is kept, so that what a call left which was never answered is told to the next. It is kept in memory
//! and for a number of workspaces only: of one that was forgotten, and after a restart of the bridge of any,
//! what lies there counts as told.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::changes::Changes;
use super::workspace::SessionWorkspace;

/// How many workspaces that are not in use are remembered.
const MAX_IDLE: usize = 1000;

/// How many bytes what is remembered of them may take.
const MAX_IDLE_BYTES: usize = 16 << 20;

/// The workspaces by name.
#[derive(Debug, Default)]
pub(super) struct Workspaces {
    known: HashMap<String, KnownWorkspace>,
    /// How often one was opened.
    opened: u64,
}

#[derive(Debug)]
struct KnownWorkspace {
    /// Dead while it is not in use.
    workspace: Weak<SessionWorkspace>,
    changes: Arc<Changes>,
    /// When it was opened, among the others.
    turn: u64,
}

impl Workspaces {
    /// The workspace, if it is in use.
    pub(super) fn get(&self, name: &str) -> Option<Arc<SessionWorkspace>> {
        self.known.get(name).and_then(|known| known.workspace.upgrade())
    }

    pub(super) fn is_in_use(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(KnownWorkspace::is_in_use)
    }

    /// What was told of a workspace, if that is remembered.
    pub(super) fn changes(&self, name: &str) -> Option<Arc<Changes>> {
        self.known.get(name).map(|known| Arc::clone(&known.changes))
    }

    /// Adds a workspace that is in use now.
    pub(super) fn add(&mut self, workspace: &Arc<SessionWorkspace>, changes: &Arc<Changes>) {
        self.opened += 1;
        let known = KnownWorkspace {
            workspace: Arc::downgrade(workspace),
            changes: Arc::clone(changes),
            turn: self.opened,
        };
        self.known.insert(workspace.name().to_owned(), known);
        self.trim(MAX_IDLE, MAX_IDLE_BYTES);
    }

    /// Forgets a workspace that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Those that are in use.
    pub(super) fn in_use(&self) -> Vec<Arc<SessionWorkspace>> {
        self.known.values().filter_map(|known| known.workspace.upgrade()).collect()
    }

    /// Forgets those that are not in use and too much to remember, the longest unused first.
    fn trim(&mut self, most: usize, most_bytes: usize) {
        let idle = self.known.iter().filter(|(_, known)| !known.is_in_use());
        let mut idle: Vec<(u64, usize)> =
            idle.map(|(_, known)| (known.turn, known.changes.weight())).collect();
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

impl KnownWorkspace {
    fn is_in_use(&self) -> bool {
        self.workspace.strong_count() > 0
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
        let open = |key: &str| store.workspace("excel", key).unwrap();
        let names: Vec<String> = ["a", "b", "c"].map(|key| open(key).name().to_owned()).into();
        let used = open("d");
        std::fs::write(used.files().join("file"), "").unwrap();
        drop(open("a"));
        let known = |workspaces: &Workspaces| {
            names.iter().map(|name| workspaces.changes(name).is_some()).collect::<Vec<_>>()
        };
        let mut workspaces = store.0.workspaces();
        workspaces.trim(3, usize::MAX);
        assert_eq!(known(&workspaces), [true, true, true]);
        workspaces.trim(2, usize::MAX);
        assert_eq!(known(&workspaces), [true, false, true], "b was not used for longest");
        let one = workspaces.changes(&names[0]).unwrap().weight();
        workspaces.trim(2, one);
        assert_eq!(known(&workspaces), [true, false, false]);
        workspaces.trim(2, 0);
        assert_eq!(known(&workspaces), [false, false, false]);
        assert!(workspaces.is_in_use(used.name()), "what is used is not forgotten");
    }
}
