//! A schema by itself, to check values with: what a tool promises to give back.

use crate::node::Node;
use crate::valid::{self, Compiled, Outcome};

/// A schema that values can be checked with.
#[derive(Debug)]
pub struct Check(Box<Compiled>);

impl Check {
    /// The check that a schema, a JSON text, is. `None` if it is not valid, or too much to be tried: one that refers
    /// to itself, or that is very large or deep.
    pub fn new(schema: &str) -> Option<Self> {
        match valid::compile(&Node::parse(schema)?) {
            Outcome::Compiled(compiled) => Some(Self(compiled)).filter(|it| it.0.tells()),
            Outcome::Invalid | Outcome::Untried => None,
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
        self.0.problem(value).is_none()
    }
}
