//! What was healed, for each server: counted, and logged once for each kind.

use std::collections::{BTreeMap, BTreeSet};

use pontoon_schema::{Fault, Finding, Severity};
use pontoon_wire::heal::{Heal, HealMode, HealModes, Heals};
use tracing::Level;

use crate::lock::Lock;

/// The heals of one server.
#[derive(Debug)]
pub struct HealLog {
    server: String,
    modes: HealModes,
    total: Lock<Heals>,
    schemas: Lock<SchemaHeals>,
}

/// What was wrong with the schemas of a server's tools.
#[derive(Debug, Default)]
struct SchemaHeals {
    repaired: BTreeMap<&'static str, u64>,
    /// The codes of which one fault was bad enough for a warning, which was given.
    warned: BTreeSet<&'static str>,
    /// The faults that were left as they are, which were told.
    left: BTreeSet<&'static str>,
}

impl HealLog {
    /// No heals yet, and everything is to be repaired.
    pub fn new(server: &str) -> Self {
        Self::with_modes(server, HealModes::default())
    }

    /// The same, with what is to be done about each.
    pub fn with_modes(server: &str, modes: HealModes) -> Self {
        let (total, schemas) = (Lock::default(), Lock::default());
        Self { server: server.to_owned(), modes, total, schemas }
    }

    /// What is done about this one.
    pub fn mode(&self, heal: Heal) -> HealMode {
        self.modes.of(heal)
    }

    /// Whose heals these are.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Adds what one conversation counted.
    pub fn add(&self, counts: &[(Heal, u64)]) {
        let mut total = self.total.lock();
        counts.iter().for_each(|(heal, times)| total.add(*heal, *times));
        for heal in total.take_fresh() {
            tracing::warn!(
                server = %self.server, code = heal.code(), meaning = heal.meaning(),
                "the server breaks the protocol; repaired where possible, told once"
            );
        }
    }

    /// Notes one violation that was seen outside a conversation, and says whether to repair it. One that is off is not
    /// counted.
    pub fn found(&self, heal: Heal) -> bool {
        let mode = self.modes.of(heal);
        if mode != HealMode::Off {
            self.add(&[(heal, 1)]);
        }
        mode == HealMode::Repair
    }

    /// Notes one that is dealt with in one way only, unless it is off.
    pub fn note(&self, heal: Heal) {
        self.found(heal);
    }

    /// Notes a fault in the schema of a tool. Whatever was repaired is counted; what is only good to know is no reason
    /// for a warning, and none to speak of where it is left. Gives the level at which it was logged, if it was.
    pub fn note_schema(&self, tool: &str, finding: &Finding) -> Option<Level> {
        let is_bad = finding.fault.severity() > Severity::Information;
        let (server, place, fault) = (&self.server, &finding.place, finding.fault);
        let (code, meaning) = (fault.code(), fault.meaning());
        let mut schemas = self.schemas.lock();
        match &finding.repair {
            Some(repair) => {
                let count = schemas.repaired.entry(code).or_default();
                *count += 1;
                let is_new = match is_bad {
                    true => schemas.warned.insert(code),
                    false => *count == 1,
                };
                match (is_new, is_bad) {
                    (true, true) => tracing::warn!(
                        %server, code, meaning, tool, place, repair = repair.what,
                        "a tool's schema costs clients the tool; repaired unless that is switched off, told once"
                    ),
                    (true, false) => tracing::info!(
                        %server, code, meaning, tool, place, repair = repair.what,
                        "a tool is shown in the words of its clients, unless that is switched off; told once"
                    ),
                    (false, _) => return None,
                }
                Some(if is_bad { Level::WARN } else { Level::INFO })
            }
            None if is_bad && schemas.left.insert(code) => {
                tracing::warn!(
                    %server, code, meaning, tool, place,
                    "a tool is left as it is, though clients may refuse it; told once"
                );
                Some(Level::WARN)
            }
            None => None,
        }
    }

    /// Notes a fault of a whole list, which was read as far as it has anything new.
    pub fn note_list(&self, list: &str, fault: Fault, why: &str) {
        let (server, code, meaning) = (&self.server, fault.code(), fault.meaning());
        let mut schemas = self.schemas.lock();
        let count = schemas.repaired.entry(code).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!(
                %server, code, meaning, list, why,
                "a list of the server was read as far as it has anything new; told once"
            );
        }
    }

    /// Notes that the tools of a server came in another order than before.
    pub fn note_order(&self) {
        let (server, fault) = (&self.server, Fault::Order);
        let (code, meaning) = (fault.code(), fault.meaning());
        let mut schemas = self.schemas.lock();
        let count = schemas.repaired.entry(code).or_default();
        *count += 1;
        if *count == 1 {
            tracing::info!(
                %server, code, meaning,
                "clients see the tools in the order that was learnt first, unless that is switched off; told once"
            );
        }
    }

    /// Notes a fault that was put right in a call.
    pub fn note_fault(&self, fault: Fault) {
        *self.schemas.lock().repaired.entry(fault.code()).or_default() += 1;
    }

    /// How often each heal was needed, by its code.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let total = self.total.lock();
        let counts = Heal::ALL.iter().map(|heal| (heal.code(), total.count(*heal)));
        let schemas = self.schemas.lock();
        let repaired = schemas.repaired.iter().map(|(code, count)| (*code, *count));
        counts.filter(|(_, count)| *count > 0).chain(repaired).collect()
    }
}

#[cfg(test)]
mod tests {
    use pontoon_schema::{Effect, Repair};

    use super::*;

    #[test]
    fn heals_of_both_kinds_are_counted_by_their_codes() {
        let log = HealLog::new("demo");
        log.note(Heal::H08);
        let repair = Repair { what: "is `{}`".to_owned(), effect: Effect::Same };
        let finding = |fault, repair| Finding { fault, place: "/inputSchema".to_owned(), repair };
        log.note_schema("a", &finding(Fault::Map, Some(repair.clone())));
        log.note_schema("b", &finding(Fault::Map, Some(repair)));
        log.note_schema("b", &finding(Fault::TooLarge, None));
        assert_eq!(log.counts(), [("H08", 1), ("S003", 2)]);
    }

    #[test]
    fn a_fault_is_told_once_for_its_code_and_what_is_bad_though_less_was_told_before() {
        let log = HealLog::new("demo");
        let repair = Repair { what: "is `{}`".to_owned(), effect: Effect::Same };
        let note = |fault, repair| {
            log.note_schema("a", &Finding { fault, place: "/inputSchema".to_owned(), repair })
        };
        assert_eq!(note(Fault::Definitions, Some(repair.clone())), Some(Level::INFO));
        assert_eq!(note(Fault::Definitions, Some(repair.clone())), None);
        assert_eq!(note(Fault::Remote, Some(repair.clone())), Some(Level::WARN));
        assert_eq!(note(Fault::Remote, Some(repair)), None);
        assert_eq!(note(Fault::TooLarge, None), Some(Level::WARN));
        assert_eq!(note(Fault::TooLarge, None), None);
        assert_eq!(note(Fault::Siblings, None), None, "it is only good to know");
        assert_eq!(log.counts(), [("S011", 4)]);
    }
}
