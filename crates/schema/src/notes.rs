//! What is noted on a walk over a tool: where it is, what was found, what was done.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use crate::fault::Fault;

/// No more findings than these are told of one tool.
pub const MAX_FINDINGS: usize = 100;

/// A fault of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// Where it stands, as a JSON pointer from the tool.
    pub place: String,
    /// What was done about it, if anything was.
    pub repair: Option<Repair>,
}

/// What was done about a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// In words.
    pub what: String,
    /// What became of the values that the schema takes.
    pub effect: Effect,
}

/// What a repair does to the values that a schema takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The same are taken as before.
    Same,
    /// More are taken: what stood there had no meaning that could be kept.
    Wider,
    /// More are taken by what clients see; what stood there before is still enforced.
    Enforced,
}

/// A place in a tool, as a number of its own: pointers to many places would be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct PlaceMark(u64);

impl PlaceMark {
    /// The place of a member or an item.
    pub(crate) fn inside(self, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.0, name).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A walk over one tool.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Where it is, as a JSON pointer.
    place: String,
    /// The same place by its number, after those around it.
    marks: Vec<PlaceMark>,
    /// Where more is taken than before, each with all around it, and why.
    wider: HashMap<PlaceMark, Fault>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) is_changed: bool,
    /// Whether what clients see takes more than what is enforced.
    pub(crate) is_to_enforce: bool,
}

impl Notes {
    /// Goes to a member, and comes back.
    pub(crate) fn inside<T>(&mut self, name: &str, go: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place.len();
        self.marks.push(self.mark().inside(name));
        self.place.push('/');
        for letter in name.chars() {
            match letter {
                '~' => self.place.push_str("~0"),
                '/' => self.place.push_str("~1"),
                letter => self.place.push(letter),
            }
        }
        let gone = go(self);
        self.place.truncate(before);
        self.marks.pop();
        gone
    }

    /// The place where it is.
    pub(crate) fn mark(&self) -> PlaceMark {
        self.marks.last().copied().unwrap_or_default()
    }

    /// That place after those around it.
    pub(crate) fn marks(&self) -> impl DoubleEndedIterator<Item = PlaceMark> {
        std::iter::once(PlaceMark::default()).chain(self.marks.iter().copied())
    }

    /// Whether more is taken somewhere.
    pub(crate) fn has_wider(&self) -> bool {
        !self.wider.is_empty()
    }

    /// Where more is taken, and why.
    pub(crate) fn wider_places(&self) -> Vec<(PlaceMark, Fault)> {
        self.wider.iter().map(|(place, fault)| (*place, *fault)).collect()
    }

    /// The same, and nothing of it is noted any more.
    pub(crate) fn take_wider(&mut self) -> HashMap<PlaceMark, Fault> {
        std::mem::take(&mut self.wider)
    }

    /// Notes that more is taken at a place. False if that was noted before.
    pub(crate) fn note_wider(&mut self, place: PlaceMark, fault: Fault) -> bool {
        match self.wider.entry(place) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(fault);
                true
            }
        }
    }

    /// Notes that more is taken here, and so in all that is around it.
    fn note_wider_here(&mut self, fault: Fault) {
        for at in (0..self.marks.len()).rev() {
            if !self.note_wider(self.marks[at], fault) {
                return;
            }
        }
        self.note_wider(PlaceMark::default(), fault);
    }

    /// The names on the way to where it is, as the pointer has them.
    pub(crate) fn path(&self) -> impl Iterator<Item = &str> {
        self.place.split('/').skip(1)
    }

    /// The fault is gone, with this effect.
    pub(crate) fn repair(&mut self, effect: Effect, fault: Fault, what: impl Into<String>) {
        match effect {
            Effect::Same => self.mend(fault, what),
            Effect::Wider => self.widen(fault, what),
            Effect::Enforced => self.enforce(fault, what),
        }
    }

    /// The fault was put right, and nothing is lost.
    pub(crate) fn mend(&mut self, fault: Fault, what: impl Into<String>) {
        self.repaired(fault, what, Effect::Same);
    }

    /// The fault is gone, and more is taken than before.
    pub(crate) fn widen(&mut self, fault: Fault, what: impl Into<String>) {
        self.note_wider_here(fault);
        self.repaired(fault, what, Effect::Wider);
    }

    /// It is gone for clients, and enforced.
    pub(crate) fn enforce(&mut self, fault: Fault, what: impl Into<String>) {
        self.is_to_enforce = true;
        self.note_wider_here(fault);
        self.repaired(fault, what, Effect::Enforced);
    }

    /// What was to be enforced cannot be: it is too much to be checked, and left to the server.
    pub(crate) fn leave_to_server(&mut self) {
        let repairs = self.findings.iter_mut().filter_map(|finding| finding.repair.as_mut());
        for repair in repairs.filter(|repair| repair.effect == Effect::Enforced) {
            repair.effect = Effect::Wider;
        }
    }

    /// It is there.
    pub(crate) fn tell(&mut self, fault: Fault) {
        self.find(fault, None);
    }

    fn repaired(&mut self, fault: Fault, what: impl Into<String>, effect: Effect) {
        self.is_changed = true;
        self.find(fault, Some(Repair { what: what.into(), effect }));
    }

    fn find(&mut self, fault: Fault, repair: Option<Repair>) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { fault, place: self.place.clone(), repair });
        }
    }
}
