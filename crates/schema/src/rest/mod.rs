//! What a tool's input schema means to clients that send its arguments as the body of a request.
//!
//! Such clients read the schema in an OpenAPI document, where it stands without references and alternatives at the
//! root, and get a 422 with a list of [`Misfit`]s for a body that does not fit. They know both from mcpo, whose words
//! these are. Values outside of what the document says are misfits, too, unless the schema as the server has it takes them.

mod body;
mod broken_json;
mod document;
mod field;
mod limits;
mod meaning;
mod misfit;
mod number;
mod reading;
mod settle;
mod title;

use std::borrow::Cow;

pub use misfit::{Misfit, Place};
pub use title::capitalised;

use self::body::BodyRefusal;
use self::field::Model;
use self::limits::OwnSchema;
use self::meaning::{Meaning, Object, Others};
use self::reading::Reading;
use crate::node::Node;
use crate::notes::Notes;
use crate::repair::{self, MAX_BYTES};
use crate::{older, root};

/// What a tool's input schema means to clients that send its arguments as the body of a request.
#[derive(Debug)]
pub struct RequestBody {
    schema: String,
    is_needed: bool,
    model: Model,
    /// The schema as it was written, where the model has limits.
    own: Option<OwnSchema>,
    needs: Option<String>,
}

impl RequestBody {
    /// What a schema, a JSON text, means; `name` is what documents call it, such as `get_time_form_model`. A text that
    /// is no JSON, or too large, is a schema of any object.
    ///
    /// ```
    /// use pontoon_schema::RequestBody;
    /// let schema = r#"{"type":"object","properties":{"by":{"type":["integer","null"],"default":1}}}"#;
    /// let body = RequestBody::of(schema, "move_form_model");
    /// assert_eq!(
    ///     body.schema(),
    ///     r#"{"type":"object","title":"move_form_model","properties":{"by":{"anyOf":[{"type":"integer"},{"type":"null"}],"title":"By","description":"","default":1}}}"#
    /// );
    /// assert_eq!(body.arguments(r#"{"by":"5"}"#).unwrap(), r#"{"by":5}"#);
    /// assert_eq!(body.arguments("{}").unwrap(), r#"{"by":1}"#);
    /// ```
    pub fn of(input_schema: &str, name: &str) -> Self {
        if input_schema.len() <= MAX_BYTES
            && let Some(mut node) = Node::parse(input_schema)
        {
            repair::make_valid(&mut node, &mut Notes::default());
            let meaning = settle::arguments(Reading::over(&node).read(&node));
            let mut body = Self::of_object(&meaning, name);
            if body.schema.len() <= MAX_BYTES {
                body.needs = root::needs(&node);
                body.own = body.model.has_limits().then(|| {
                    let mut own = node.clone();
                    older::drop_ignored(&mut own);
                    OwnSchema::new(&own)
                });
                return body;
            }
        }
        let any = Object { others: Others::Such(Box::default()), ..Object::default() };
        Self::of_object(
            &settle::arguments(Meaning { object: Some(Box::new(any)), ..Meaning::default() }),
            name,
        )
    }

    fn of_object(meaning: &Meaning<'_>, name: &str) -> Self {
        let none = Object::default();
        let object = meaning.object.as_deref().unwrap_or(&none);
        let takes_others = matches!(object.others, Others::Such(_)) || !object.patterns.is_empty();
        Self {
            schema: document::arguments(meaning, name).written(),
            is_needed: takes_others || !object.properties.is_empty(),
            model: Model::of(object, name.to_owned()),
            own: None,
            needs: None,
        }
    }

    /// Whether the operation has a body: the tool has properties, or says that it takes any.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// The schema as the document has it, a JSON text without references.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// What a model should know of the alternatives at the root, which the document cannot say: a sentence that names the
    /// properties that are needed together.
    ///
    /// ```
    /// use pontoon_schema::RequestBody;
    /// let schema = r#"{"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}"#;
    /// let body = RequestBody::of(schema, "find_form_model");
    /// assert_eq!(body.needs(), Some("Give at least one of: `a`; `b`."));
    /// ```
    pub fn needs(&self) -> Option<&str> {
        self.needs.as_deref()
    }

    /// The arguments to send to the server for a body, which is empty or a JSON text.
    ///
    /// Numbers and words that are written as texts are what they were meant as, and what is not there has its default.
    /// All else stays as it is, null included where the schema takes it. Members that the schema does not know are left
    /// to the server, unless it says that there are none: then they are left out.
    ///
    /// # Errors
    ///
    /// What does not fit, in the words of mcpo: at most a hundred misfits, without the values of very large ones.
    pub fn arguments<'t>(&self, body: &'t str) -> Result<Cow<'t, str>, Vec<Misfit>> {
        let needs_nothing = self.model.fields.is_empty();
        if body.trim_ascii().is_empty() && needs_nothing {
            return Ok(Cow::Borrowed("{}"));
        }
        let is_json = Misfit::is_json(body);
        if !is_json && !self.is_needed {
            return Ok(Cow::Borrowed("{}"));
        }
        if is_json && self.model.suits(body) {
            return Ok(Cow::Borrowed(body));
        }
        let Some(node) = Node::parse(body) else {
            return Err(vec![match body.is_empty() {
                true => Misfit::missing_body(),
                false => Misfit::of_text(body).unwrap_or_else(Misfit::missing_body),
            }]);
        };
        match node {
            Node::Object(_) => {}
            _ if !self.is_needed => return Ok(Cow::Borrowed("{}")),
            node if node.is_null() => return Err(vec![Misfit::missing_body()]),
            _ => {}
        }
        let fitted = |has_limits| {
            let fitted = body::arguments(&self.model, &node, has_limits)?;
            Ok(fitted.map_or(Cow::Borrowed(body), |node| Cow::Owned(node.written())))
        };
        fitted(true).or_else(|refusal: BodyRefusal| {
            // What the document says may be less than what its server takes.
            let is_taken = |text: &str| self.own.as_ref().is_none_or(|own| own.takes(text));
            let other = if refusal.has_breach { fitted(false).ok() } else { None };
            other.filter(|text| is_taken(body) || is_taken(text)).ok_or(refusal.misfits)
        })
    }
}
