//! The limits of a schema: the values that it lists, ranges, lengths and patterns. A value outside of them is refused in
//! the words of Pydantic.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::meaning::Meaning;
use crate::check::Check;
use crate::node::Node;

/// What is told of the listed values is no longer than this, about.
const MAX_EXPECTED: usize = 1000;

/// Which values are taken, of those that have the right type.
#[derive(Debug)]
pub(super) struct Limits {
    /// The values that are listed, if they are.
    values: Option<Vec<Node<'static>>>,
    bounds: Vec<Bound>,
}

/// One limit, and the number or pattern that it is.
#[derive(Debug)]
struct Bound {
    of: BoundKind,
    limit: String,
    size: f64,
    pattern: Option<OwnSchema>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundKind {
    Minimum,
    Maximum,
    Above,
    Below,
    Multiple,
    MinLength,
    MaxLength,
    Pattern,
    MinItems,
    MaxItems,
}

/// What is wrong with a value that has the right type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) kind: &'static str,
    pub(super) msg: String,
    /// The values that the sentence has, a JSON text.
    pub(super) ctx: String,
}

/// A schema as its server has it, compiled when it is first asked.
#[derive(Debug)]
pub(super) struct OwnSchema {
    text: String,
    check: OnceLock<Option<Check>>,
}

impl OwnSchema {
    pub(super) fn new(schema: &Node<'_>) -> Self {
        Self { text: schema.written(), check: OnceLock::new() }
    }

    /// Whether it takes a value, a JSON text, or that cannot be told.
    pub(super) fn takes(&self, value: &str) -> bool {
        let check = self.check.get_or_init(|| Check::new(&self.text));
        check.as_ref().is_none_or(|check| check.takes(value))
    }
}

impl Limits {
    /// The limits of a schema of one type, if it has any.
    pub(super) fn of(meaning: &Meaning<'_>) -> Option<Self> {
        let values = meaning.values.as_ref();
        let values = values.map(|values| values.iter().cloned().map(Node::into_owned).collect());
        let bound = |facet: &crate::node::Member<'_>| Bound::of(&facet.name(), &facet.value);
        let bounds: Vec<_> = meaning.facets.iter().filter_map(bound).collect();
        (values.is_some() || !bounds.is_empty()).then_some(Self { values, bounds })
    }

    /// How many comparisons a value needs.
    pub(super) fn weight(&self) -> usize {
        self.bounds.len() + self.values.as_ref().map_or(0, Vec::len)
    }

    /// What is wrong with a value of the right type.
    pub(super) fn breach(&self, value: &Node<'_>) -> Option<Breach> {
        if let Some(values) = &self.values
            && !values.iter().any(|it| is_same(it, value))
        {
            let expected = one_of(values);
            return Some(Breach {
                kind: "literal_error",
                msg: format!("Input should be {expected}"),
                ctx: json!({"expected": expected}).to_string(),
            });
        }
        self.bounds.iter().find_map(|bound| bound.breach(value))
    }
}

impl Bound {
    fn of(name: &str, limit: &Node<'_>) -> Option<Self> {
        let of = match name {
            "minimum" => BoundKind::Minimum,
            "maximum" => BoundKind::Maximum,
            "exclusiveMinimum" => BoundKind::Above,
            "exclusiveMaximum" => BoundKind::Below,
            "multipleOf" => BoundKind::Multiple,
            "minLength" => BoundKind::MinLength,
            "maxLength" => BoundKind::MaxLength,
            "pattern" => BoundKind::Pattern,
            "minItems" => BoundKind::MinItems,
            "maxItems" => BoundKind::MaxItems,
            _ => return None,
        };
        if of == BoundKind::Pattern {
            let pattern = limit.as_text()?.into_owned();
            let schema = Node::Plain(Cow::Owned(json!({"pattern": pattern}).to_string()));
            let pattern_of = Some(OwnSchema::new(&schema));
            return Some(Self { of, limit: pattern, size: 0.0, pattern: pattern_of });
        }
        let limit = limit.as_number()?.to_owned();
        let size = limit.parse().ok()?;
        Some(Self { of, limit, size, pattern: None })
    }

    fn breach(&self, value: &Node<'_>) -> Option<Breach> {
        use BoundKind as Of;
        let Self { of, limit, size, pattern } = self;
        let measure = match (of, value) {
            (Of::MinItems | Of::MaxItems, Node::List(items)) => length(items.len()),
            (Of::MinItems | Of::MaxItems, _) => return None,
            (Of::MinLength | Of::MaxLength, value) => length(value.as_text()?.chars().count()),
            (Of::Pattern, _) => 0.0,
            (_, value) => value.as_number()?.parse().ok()?,
        };
        let is_within = match of {
            Of::Minimum | Of::MinLength | Of::MinItems => measure >= *size,
            Of::Maximum | Of::MaxLength | Of::MaxItems => measure <= *size,
            Of::Above => measure > *size,
            Of::Below => measure < *size,
            // Fractions are never quite what they are written as.
            Of::Multiple => {
                ((measure / size).round() * size - measure).abs() <= 1e-9 * measure.abs()
            }
            Of::Pattern => pattern.as_ref().is_none_or(|it| it.takes(&value.written())),
        };
        (!is_within).then(|| self.told(limit, measure))
    }

    /// Pydantic's words for a value that is not within.
    fn told(&self, limit: &str, measure: f64) -> Breach {
        let many = |one: &str| match limit {
            "1" => format!("1 {one}"),
            _ => format!("{limit} {one}s"),
        };
        let (kind, msg, name) = match self.of {
            BoundKind::Minimum => (
                "greater_than_equal",
                format!("Input should be greater than or equal to {limit}"),
                "ge",
            ),
            BoundKind::Maximum => {
                ("less_than_equal", format!("Input should be less than or equal to {limit}"), "le")
            }
            BoundKind::Above => {
                ("greater_than", format!("Input should be greater than {limit}"), "gt")
            }
            BoundKind::Below => ("less_than", format!("Input should be less than {limit}"), "lt"),
            BoundKind::Multiple => {
                ("multiple_of", format!("Input should be a multiple of {limit}"), "multiple_of")
            }
            BoundKind::MinLength => (
                "string_too_short",
                format!("String should have at least {}", many("character")),
                "min_length",
            ),
            BoundKind::MaxLength => (
                "string_too_long",
                format!("String should have at most {}", many("character")),
                "max_length",
            ),
            BoundKind::Pattern => {
                let msg = format!("String should match pattern '{limit}'");
                let ctx = json!({"pattern": limit}).to_string();
                return Breach { kind: "string_pattern_mismatch", msg, ctx };
            }
            BoundKind::MinItems | BoundKind::MaxItems => {
                return self.told_of_list(&many("item"), measure);
            }
        };
        Breach { kind, msg, ctx: format!("{{\"{name}\":{limit}}}") }
    }

    fn told_of_list(&self, many: &str, measure: f64) -> Breach {
        let (kind, how, name) = match self.of {
            BoundKind::MinItems => ("too_short", "least", "min_length"),
            _ => ("too_long", "most", "max_length"),
        };
        Breach {
            kind,
            msg: format!("List should have at {how} {many} after validation, not {measure}"),
            ctx: format!(
                "{{\"field_type\":\"List\",\"{name}\":{},\"actual_length\":{measure}}}",
                self.limit
            ),
        }
    }
}

/// As a number to compare; no list or text is so long that it would not be exact.
fn length(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Whether two values are one: 1 is 1.0.
fn is_same(one: &Node<'_>, other: &Node<'_>) -> bool {
    if let (Some(one), Some(other)) = (one.as_number(), other.as_number()) {
        return one == other || one.parse::<f64>().ok() == other.parse::<f64>().ok();
    }
    match (one, other) {
        (Node::Plain(one), Node::Plain(two)) if one == two => true,
        (Node::Plain(_), Node::Plain(_)) => {
            one.as_text().is_some() && one.as_text() == other.as_text()
        }
        (Node::Plain(_), _) | (_, Node::Plain(_)) => false,
        _ => {
            let value = |node: &Node<'_>| serde_json::from_str::<Value>(&node.written()).ok();
            value(one) == value(other)
        }
    }
}

/// Values as Python writes them: `'a', 'b' or 3`.
fn one_of(values: &[Node<'_>]) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut length = 0;
    for value in values {
        let value = in_python(value);
        length += value.len() + 2;
        if length > MAX_EXPECTED && !told.is_empty() {
            told.push(format!("one of {} more", values.len() - told.len()));
            break;
        }
        told.push(value);
    }
    match told.pop() {
        Some(last) if told.is_empty() => last,
        Some(last) => format!("{} or {last}", told.join(", ")),
        None => String::new(),
    }
}

fn in_python(value: &Node<'_>) -> String {
    match (value.as_text(), value.as_bool()) {
        (Some(text), _) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        (Some(text), _) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        (_, Some(true)) => "True".to_owned(),
        (_, Some(false)) => "False".to_owned(),
        _ if value.is_null() => "None".to_owned(),
        _ => value.written(),
    }
}
