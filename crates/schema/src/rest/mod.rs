//! What a tool's input schema means to clients that send its arguments as the body of a request.
//!
//! Such clients read the schema in an OpenAPI document, where it stands without references and alternatives at the
//! root, and get a 422 with a list of [`Misfit`]s for a body that does not fit. They know both from mcpo, whose words
//! these are; the values that a schema allows are for the server to check.

mod misfit;

use std::borrow::Cow;

pub use misfit::{Misfit, Place};

use crate::node::{Node, member, set};
use crate::notes::Notes;
use crate::repair;

/// What a tool's input schema means to clients that send its arguments as the body of a request.
#[derive(Debug)]
pub struct RequestBody {
    schema: String,
    is_needed: bool,
}

impl RequestBody {
    /// What a schema, a JSON text, means; `name` is what documents call it, such as `get_time_form_model`. A text that
    /// is no JSON is a schema of any object.
    pub fn of(input_schema: &str, name: &str) -> Self {
        let mut node = Node::parse(input_schema).unwrap_or(Node::word("null"));
        repair::make_valid(&mut node, &mut Notes::default());
        let Node::Object(mut members) = node else {
            return Self { schema: "{}".to_owned(), is_needed: false };
        };
        set(&mut members, "title", Node::text(name));
        let has_properties = member(&members, "properties")
            .and_then(Node::as_members)
            .is_some_and(|properties| !properties.is_empty());
        Self { schema: Node::Object(members).written(), is_needed: has_properties }
    }

    /// Whether the operation has a body: the tool has properties, or says that it takes any.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// The schema as the document has it, a JSON text without references.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The arguments to send to the server for a body, which is empty or a JSON text.
    ///
    /// # Errors
    ///
    /// What does not fit, in the words of mcpo.
    pub fn arguments<'t>(&self, body: &'t str) -> Result<Cow<'t, str>, Vec<Misfit>> {
        match body.trim_start() {
            "" if self.is_needed => Err(vec![Misfit::missing_body()]),
            "" => Ok(Cow::Borrowed("{}")),
            _ => Ok(Cow::Borrowed(body)),
        }
    }
}
