//! Which questions of a server a client can answer.

use pontoon_wire::{Era, json, method};

/// Whether a client with these capabilities offered to answer questions of this kind.
pub(crate) fn can_answer(capabilities: &[u8], era: Era, method: &str) -> bool {
    let capability = match method {
        method::ELICIT => "elicitation",
        method::SAMPLE => "sampling",
        method::LIST_ROOTS => "roots",
        // An unknown question may be one the client understands.
        _ => return era == Era::Legacy,
    };
    json::find(capabilities, capability).is_some()
}

/// What a client can answer, to compare it with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Abilities {
    elicitation: bool,
    elicitation_by_url: bool,
    sampling: bool,
    sampling_with_tools: bool,
    roots: bool,
}

impl Abilities {
    /// Of a client with these capabilities.
    pub(crate) fn of(capabilities: &[u8]) -> Self {
        let elicitation = json::find(capabilities, "elicitation");
        let sampling = json::find(capabilities, "sampling");
        let has = |capability: Option<&[u8]>, member| {
            capability.is_some_and(|found| json::find(found, member).is_some())
        };
        Self {
            elicitation: elicitation.is_some(),
            elicitation_by_url: has(elicitation, "url"),
            sampling: sampling.is_some(),
            sampling_with_tools: has(sampling, "tools"),
            roots: json::find(capabilities, "roots").is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_what_it_offered_to_answer() {
        let able = br#"{"elicitation":{"url":{}},"roots":{}}"#;
        assert!(can_answer(able, Era::Modern, method::ELICIT));
        assert!(can_answer(able, Era::Modern, method::LIST_ROOTS));
        assert!(!can_answer(able, Era::Modern, method::SAMPLE));
        assert!(can_answer(able, Era::Legacy, "x/unknown"), "it may understand it");
        assert!(!can_answer(able, Era::Modern, "x/unknown"));
    }

    #[test]
    fn clients_that_can_answer_the_same_are_alike() {
        let of = |text: &str| Abilities::of(text.as_bytes());
        assert_eq!(of(r#"{"roots":{}}"#), of(r#"{"roots":{"listChanged":true},"x":1}"#));
        assert_ne!(of(r#"{"elicitation":{}}"#), of(r#"{"elicitation":{"url":{}}}"#));
        assert_ne!(of(r#"{"sampling":{}}"#), of(r#"{"sampling":{"tools":{}}}"#));
    }
}
