//! One span: a part of what was done for a request.
//!
//! It holds names, numbers and ids, and nothing that a client or a server wrote into arguments, results or errors.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::observe::trace::Trace;

/// A text in a span is cut off here: names of tools come from clients.
const LONGEST_TEXT: usize = 256;

/// What a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A part of our own work.
    #[default]
    Internal = 1,
    /// A request that we answer.
    Server = 2,
    /// A request that we make.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
}

/// A part of what was done for a request.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Its trace, its own id, and whose part it is.
    pub trace: Trace,
    /// What it is called.
    pub name: Cow<'static, str>,
    /// What it stands for.
    pub kind: Kind,
    /// When it began, since 1970.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// What is known of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Another trace in which the request stands: that of its transport.
    pub link: Option<(u128, u64)>,
    /// In a word, why it failed.
    pub error: Option<Cow<'static, str>>,
}

impl Span {
    /// One that begins now.
    pub fn begin(trace: Trace, name: impl Into<Cow<'static, str>>, kind: Kind) -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = cut(name.into());
        let (attributes, link, error) = (Vec::new(), None, None);
        Self { trace, name, kind, began, ended: began, attributes, link, error }
    }

    /// Says a text of it.
    pub fn tell(&mut self, key: &'static str, value: impl Into<Cow<'static, str>>) {
        self.attributes.push((key, SpanValue::Text(cut(value.into()))));
    }

    /// Says a number of it.
    pub fn count(&mut self, key: &'static str, value: i64) {
        self.attributes.push((key, SpanValue::Number(value)));
    }

    /// Gives it its name, once that is known.
    pub fn rename(&mut self, name: &'static str) {
        self.name = Cow::Borrowed(name);
    }
}

/// A text no longer than a span may hold.
fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= LONGEST_TEXT {
        return text;
    }
    let mut end = LONGEST_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}…", &text[..end]))
}
