//! The validator's word: what it takes is valid.

use jsonschema::Validator;
use serde_json::Value;

use crate::definitions::Definitions;
use crate::node::Node;

/// A schema of more bytes is not compiled.
const MAX_BYTES: usize = 256 << 10;

/// Nor one of more levels: the validator goes down all of them, on a stack that has an end.
pub(crate) const MAX_LEVELS: usize = 300;

/// No value is tried that would take more steps: so many places of the schema for each byte of the value.
const MAX_STEPS: usize = 1 << 26;

/// A schema that was compiled.
#[derive(Debug)]
pub(crate) struct Compiled {
    validator: Validator,
    /// How deep the validator goes for each level of a value.
    levels: usize,
    /// How many places it may look at for a value, if that can be told: one that refers to itself goes through itself
    /// again and again.
    places: Option<usize>,
}

/// What came of compiling a schema.
pub(crate) enum Outcome {
    Compiled(Box<Compiled>),
    Invalid,
    /// It is too much to be tried, or has a number that no reader takes.
    Untried,
}

/// Whether values can be checked with a schema, if it is valid.
pub(crate) fn can_check(schema: &Node<'_>) -> bool {
    let reach = Definitions::of(schema).reach();
    reach.has_end && reach.levels <= MAX_LEVELS && schema.written().len() <= MAX_BYTES
}

/// Compiles a schema, references included.
pub(crate) fn compile(schema: &Node<'_>) -> Outcome {
    let reach = Definitions::of(schema).reach();
    let text = schema.written();
    if text.len() > MAX_BYTES || reach.levels > MAX_LEVELS {
        return Outcome::Untried;
    }
    let Ok(schema) = serde_json::from_str::<Value>(&text) else { return Outcome::Untried };
    match jsonschema::draft202012::new(&schema) {
        Ok(validator) => {
            let places = Some(reach.places).filter(|_| reach.has_end);
            Outcome::Compiled(Box::new(Compiled { validator, levels: reach.levels, places }))
        }
        Err(_) => Outcome::Invalid,
    }
}

impl Compiled {
    /// Whether it can be told what is wrong with values.
    pub(crate) fn tells(&self) -> bool {
        self.places.is_some()
    }

    /// A value, a JSON text, if it can be told what is wrong with it.
    fn tried(&self, value: &str) -> Option<Value> {
        if self.places?.saturating_mul(value.len()) > MAX_STEPS {
            return None;
        }
        let value: Value = serde_json::from_str(value).ok()?;
        Some(value).filter(|value| self.levels * depth(value) <= MAX_LEVELS)
    }

    /// Whether nothing is wrong with a value, a JSON text, as far as that can be told.
    pub(crate) fn takes(&self, value: &str) -> bool {
        self.tried(value).is_none_or(|value| self.validator.is_valid(&value))
    }

    /// What is wrong with a value, a JSON text, and where. Nothing, where that cannot be told.
    pub(crate) fn problem(&self, value: &str) -> Option<(String, String)> {
        let value = self.tried(value)?;
        let error = self.validator.validate(&value).err()?;
        Some((error.to_string(), error.instance_path().to_string()))
    }
}

fn depth(value: &Value) -> usize {
    let inside = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => None,
    };
    1 + inside.unwrap_or(0)
}
