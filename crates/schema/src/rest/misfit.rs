//! What is wrong with the body of a request, as clients of mcpo are told.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{body, broken_json};

/// One thing that is wrong with a body: an entry of `detail` in the answer with status 422.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Which kind of thing, such as `missing`.
    pub kind: Cow<'static, str>,
    /// Where: `body` first, then names and indexes.
    pub loc: Vec<Place>,
    /// The same as a sentence.
    pub msg: Cow<'static, str>,
    /// What stands there, a JSON text.
    pub input: String,
    /// The values that the sentence has, a JSON text.
    pub ctx: Option<String>,
}

/// A step on the way to a place in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A name: of a member, or of an alternative.
    Name(String),
    /// An index in a list, or in the text.
    Index(usize),
}

impl Misfit {
    /// There is no body at all.
    pub(crate) fn missing_body() -> Self {
        Self {
            kind: Cow::Borrowed("missing"),
            loc: vec![Place::Name("body".to_owned())],
            msg: Cow::Borrowed("Field required"),
            input: "null".to_owned(),
            ctx: None,
        }
    }

    /// The arguments do not fit together, for this reason; the body was this JSON text.
    pub fn of_value(why: &str, body: &str) -> Self {
        Self {
            kind: Cow::Borrowed("value_error"),
            loc: vec![Place::Name("body".to_owned())],
            msg: Cow::Owned(why.to_owned()),
            input: body::repeated(body),
            ctx: None,
        }
    }

    /// What is wrong with a text that should be JSON: where it is not, and why. `None` if it is.
    ///
    /// ```
    /// use pontoon_schema::Misfit;
    /// assert_eq!(Misfit::of_text("[1, 2]"), None);
    /// let broken = Misfit::of_text("[1,").unwrap();
    /// assert_eq!(broken.ctx.unwrap(), r#"{"error":"Expecting value"}"#);
    /// ```
    pub fn of_text(text: &str) -> Option<Self> {
        if Self::is_json(text) {
            return None;
        }
        let (at, why) = broken_json::problem(text).unwrap_or((0, "Expecting value"));
        Some(Self {
            kind: Cow::Borrowed("json_invalid"),
            loc: vec![Place::Name("body".to_owned()), Place::Index(at)],
            msg: Cow::Borrowed("JSON decode error"),
            input: "{}".to_owned(),
            ctx: Some(format!("{{\"error\":{}}}", Value::from(why))),
        })
    }

    pub(super) fn is_json(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok()
    }

    /// These as the `detail` of a response, a JSON list.
    pub fn list(misfits: &[Self]) -> String {
        let mut out = String::from("[");
        for (at, misfit) in misfits.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            misfit.write(&mut out);
        }
        out.push(']');
        out
    }

    /// Writes it as the entry of `detail` that it is.
    ///
    /// ```
    /// use pontoon_schema::RequestBody;
    /// let schema = r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#;
    /// let misfits = RequestBody::of(schema, "t_form_model").arguments("").unwrap_err();
    /// let mut written = String::new();
    /// misfits[0].write(&mut written);
    /// assert_eq!(written, r#"{"type":"missing","loc":["body"],"msg":"Field required","input":null}"#);
    /// ```
    pub fn write(&self, out: &mut String) {
        let text = |text: &str| Value::from(text).to_string();
        out.push_str("{\"type\":");
        out.push_str(&text(&self.kind));
        out.push_str(",\"loc\":[");
        for (at, place) in self.loc.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            match place {
                Place::Name(name) => out.push_str(&text(name)),
                Place::Index(index) => out.push_str(&index.to_string()),
            }
        }
        out.push_str("],\"msg\":");
        out.push_str(&text(&self.msg));
        out.push_str(",\"input\":");
        out.push_str(&self.input);
        if let Some(ctx) = &self.ctx {
            out.push_str(",\"ctx\":");
            out.push_str(ctx);
        }
        out.push('}');
    }
}
