//! What was found in an examination: a fault with its code, its places and its fix, or something that is well.

use pontoon_schema::{Fault, Severity};
use pontoon_wire::heal::Heal;
use serde::Serialize;

use super::aspect::Aspect;
use super::heal_words;
use super::sign::Sign;

/// Something that was looked at and is well, or good to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// What it is about.
    pub aspect: Aspect,
    /// Whether it is as it should be; else it was not looked at.
    pub was_checked: bool,
    /// In words.
    pub text: String,
}

/// A fault that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symptom {
    /// Its code, such as `H08` or `S003/map`.
    pub code: &'static str,
    /// What it is about.
    pub aspect: Aspect,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// What was seen.
    pub evidence: Option<String>,
    /// Where, in which tools.
    pub places: Vec<ToolPlace>,
    /// The clients that mind it.
    pub minds: Vec<String>,
    /// How its author puts it right.
    pub fix: String,
    /// What Pontoon does about it.
    pub here: String,
}

/// A place in a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolPlace {
    /// The name of the tool.
    pub tool: String,
    /// Where in it, as a JSON pointer.
    pub pointer: String,
}

impl Symptom {
    /// A fault of the protocol that was healed, or would be.
    pub fn of_heal(heal: Heal, evidence: Option<String>) -> Self {
        let (aspect, severity) = heal_words::of(heal);
        Self {
            code: heal.code(),
            aspect,
            severity,
            what: heal.meaning().to_owned(),
            evidence,
            places: Vec::new(),
            minds: vec![heal.minds().trim_end_matches('.').to_owned()],
            fix: heal.fix().to_owned(),
            here: heal.here().to_owned(),
        }
    }

    /// A fault that only an examination shows.
    pub fn of_sign(sign: Sign, evidence: Option<String>) -> Self {
        Self {
            code: sign.code(),
            aspect: sign.aspect(),
            severity: sign.severity(),
            what: sign.meaning().to_owned(),
            evidence,
            places: Vec::new(),
            minds: vec![sign.minds().trim_end_matches('.').to_owned()],
            fix: sign.fix().to_owned(),
            here: sign.here().to_owned(),
        }
    }

    /// A fault of a tool, or of the list of tools.
    pub fn of_fault(fault: Fault, evidence: Option<String>) -> Self {
        let is_of_list =
            matches!(fault, Fault::Pages | Fault::Order | Fault::NameTwice | Fault::TooMany);
        Self {
            code: fault.id(),
            aspect: if is_of_list { Aspect::Lists } else { Aspect::Schemas },
            severity: fault.severity(),
            what: fault.meaning().to_owned(),
            evidence,
            places: Vec::new(),
            minds: Vec::new(),
            fix: fault.fix().to_owned(),
            here: fault.here().to_owned(),
        }
    }
}
