//! What a call of a repaired tool needs: its own name, its own arguments, and the check that its clients do not see.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::fit::{self, Want};
use crate::node::Node;
use crate::valid::{self, Compiled, Outcome};

/// What a call of one tool needs.
#[derive(Debug, Default)]
pub struct Plan {
    /// The name that the server knows, if clients see another one.
    pub name: Option<String>,
    /// The arguments that clients see with other names: shown, original.
    pub(crate) keys: Vec<(String, String)>,
    pub(crate) want: Option<Want>,
    pub(crate) enforced: Option<Enforced>,
}

/// A schema that is enforced, compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Enforced {
    schema: Node<'static>,
    compiled: OnceLock<Option<Box<Compiled>>>,
}

impl Enforced {
    pub(crate) fn new(schema: Node<'_>) -> Self {
        Self { schema: schema.into_owned(), compiled: OnceLock::new() }
    }

    fn problem(&self, arguments: &str) -> Option<(String, String)> {
        let compile = || match valid::compile(&self.schema) {
            Outcome::Compiled(compiled) => Some(compiled),
            Outcome::Invalid | Outcome::Untried => None,
        };
        self.compiled.get_or_init(compile).as_ref()?.problem(arguments)
    }
}

/// Arguments that the tool does not take, though what clients see of its schema does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the arguments do not fit this tool: {problem}{}{place}", if place.is_empty() { "" } else { ", at " })]
pub struct Refusal {
    /// What is wrong with them.
    pub problem: String,
    /// Where, as a JSON pointer into the arguments.
    pub place: String,
}

impl Plan {
    /// Whether a call needs nothing at all.
    pub fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.keys.is_empty()
            && self.want.is_none()
            && self.enforced.is_none()
    }

    /// Leaves arguments of another type than the tool takes as they are.
    pub fn leave_types(&mut self) {
        self.want = None;
    }

    /// Whether clients see the tool and its arguments under their own names.
    pub fn is_plain(&self) -> bool {
        self.name.is_none() && self.keys.is_empty()
    }

    /// The arguments by the names that the server knows, a JSON object, and no otherwise changed.
    pub fn with_own_names<'t>(&self, arguments: &'t str) -> Cow<'t, str> {
        let Some(mut node) = Node::parse(arguments).filter(|_| !self.keys.is_empty()) else {
            return Cow::Borrowed(arguments);
        };
        let Node::Object(members) = &mut node else { return Cow::Borrowed(arguments) };
        match fit::rename(members, &self.keys) {
            true => Cow::Owned(node.written()),
            false => Cow::Borrowed(arguments),
        }
    }

    /// The arguments as the server wants them, a JSON object. What is no object is given back as it is.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the original schema, which clients do not see, does not take them.
    ///
    /// ```
    /// use pontoon_schema::{Profile, repair};
    /// let tool = r#"{"name":"move","inputSchema":{"type":"object","properties":{"to":{"type":"array"},"by":{"type":"integer"}}}}"#;
    /// let plan = repair(tool, Profile::common()).plan;
    /// assert_eq!(plan.arguments(r#"{"to":"[1, 2.50]","by":null}"#).unwrap(), r#"{"to":[1,2.50]}"#);
    /// assert_eq!(plan.arguments(r#"{ "to": [] }"#).unwrap(), r#"{ "to": [] }"#);
    /// ```
    pub fn arguments<'t>(&self, arguments: &'t str) -> Result<Cow<'t, str>, Refusal> {
        let is_well =
            self.keys.is_empty() && self.want.as_ref().is_none_or(|it| it.suits(arguments));
        let fitted = match is_well {
            true => Cow::Borrowed(arguments),
            false => self.fitted(arguments),
        };
        self.check(&fitted)?;
        Ok(fitted)
    }

    /// The arguments with the server's names and types.
    fn fitted<'t>(&self, arguments: &'t str) -> Cow<'t, str> {
        let Some(mut node) = Node::parse(arguments) else { return Cow::Borrowed(arguments) };
        let Node::Object(members) = &mut node else { return Cow::Borrowed(arguments) };
        let is_renamed = fit::rename(members, &self.keys);
        let is_fitted = self.want.as_ref().is_some_and(|want| want.fit(&mut node));
        match is_renamed || is_fitted {
            true => Cow::Owned(node.written()),
            false => Cow::Borrowed(arguments),
        }
    }

    fn check(&self, arguments: &str) -> Result<(), Refusal> {
        let problem = self.enforced.as_ref().and_then(|enforced| enforced.problem(arguments));
        match problem {
            None => Ok(()),
            Some((problem, place)) => Err(Refusal { problem: shortened(&problem), place }),
        }
    }
}

/// So long a text that a model can go by it.
fn shortened(text: &str) -> String {
    const MAX: usize = 500;
    match text.char_indices().nth(MAX) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
