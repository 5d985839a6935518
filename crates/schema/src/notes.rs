//! What is noted on a walk over a tool: where it is, what was found, what was done.

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

/// A walk over one tool.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Where it is, as a JSON pointer.
    place: String,
    pub(crate) findings: Vec<Finding>,
    pub(crate) is_changed: bool,
    /// How often something was made wider.
    pub(crate) widened: usize,
    /// Whether what clients see takes more than what is enforced.
    pub(crate) is_to_enforce: bool,
}

impl Notes {
    /// Goes to a member, and comes back.
    pub(crate) fn inside<T>(&mut self, name: &str, go: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place.len();
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
        gone
    }

    /// The names on the way to where it is, as the pointer has them.
    pub(crate) fn path(&self) -> impl Iterator<Item = &str> {
        self.place.split('/').skip(1)
    }

    /// The fault was put right, and nothing is lost.
    pub(crate) fn mend(&mut self, fault: Fault, what: impl Into<String>) {
        self.repaired(fault, what, Effect::Same);
    }

    /// The fault is gone, and more is taken than before.
    pub(crate) fn widen(&mut self, fault: Fault, what: impl Into<String>) {
        self.widened += 1;
        self.repaired(fault, what, Effect::Wider);
    }

    /// It is gone for clients, and enforced.
    pub(crate) fn enforce(&mut self, fault: Fault, what: impl Into<String>) {
        self.is_to_enforce = true;
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
