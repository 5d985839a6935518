//! A schema by itself, to check values with: what a tool promises to give back.

use crate::fit::Want;
use crate::node::Node;
use crate::valid::{self, Compiled, Outcome};

/// A schema that values can be checked with.
#[derive(Debug)]
pub struct Check {
    compiled: Box<Compiled>,
    want: Option<Want>,
}

impl Check {
    /// The check that a schema, a JSON text, is. `None` if it is not valid, or too much to be tried: one that refers
    /// to itself, or that is very large or deep.
    pub fn new(schema: &str) -> Option<Self> {
        let schema = Node::parse(schema)?;
        match valid::compile(&schema) {
            Outcome::Compiled(compiled) if compiled.tells() => {
                Some(Self { compiled, want: Want::of(&schema) })
            }
            Outcome::Compiled(_) | Outcome::Invalid | Outcome::Untried => None,
        }
    }

    /// Whether nothing is wrong with a value, a JSON text. What is too much to be tried is taken as well.
    ///
    /// ```
    /// use pontoon_schema::Check;
    /// let check = Check::new(r#"{"type": "object", "required": ["words"]}"#).unwrap();
    /// assert!(check.takes(r#"{"words": 3}"#));
    /// assert!(!check.takes("{}"));
    /// assert!(Check::new(r#"{"type": 7}"#).is_none());
    /// ```
    pub fn takes(&self, value: &str) -> bool {
        self.compiled.takes(value)
    }

    /// A value that it does not take, a JSON text, in the types it wants, as arguments are fitted: a number for the
    /// text of one, and nothing for a null that may be left out. `None` if it does not take that either.
    ///
    /// ```
    /// use pontoon_schema::Check;
    /// let schema = r#"{"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}"#;
    /// let check = Check::new(schema).unwrap();
    /// assert_eq!(check.fitted(r#"{"n": "1", "s": null}"#).unwrap(), r#"{"n":1}"#);
    /// assert_eq!(check.fitted(r#"{"n": "one"}"#), None);
    /// ```
    pub fn fitted(&self, value: &str) -> Option<String> {
        let mut node = Node::parse(value)?;
        let is_changed = self.want.as_ref()?.fit(&mut node);
        Some(node.written()).filter(|fitted| is_changed && self.takes(fitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_fitted_as_a_whole_or_not_at_all() {
        let schema = r#"{"properties":{"n":{"type":"integer"},"s":{"type":"string"}}}"#;
        let check = Check::new(schema).unwrap();
        assert_eq!(check.fitted(r#"{"n":"1"}"#).unwrap(), r#"{"n":1}"#);
        for other in [r#"{"n":"1","s":5}"#, r#"{"n":1}"#, "{"] {
            assert_eq!(check.fitted(other), None, "{other}");
        }
    }

    #[test]
    fn a_value_that_would_take_too_many_steps_is_not_tried() {
        let properties: Vec<_> =
            (0..4000).map(|n| format!(r#""p{n}":{{"type":"integer"}}"#)).collect();
        let schema = format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(","));
        let check = Check::new(&schema).unwrap();
        assert!(!check.takes(r#"{"p0":"x"}"#));
        assert!(check.takes(&format!(r#"{{"p0":"{}"}}"#, "x".repeat(20_000))));
    }
}
