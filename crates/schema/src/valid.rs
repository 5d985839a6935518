//! The validator's word: what it takes is valid.

use jsonschema::Validator;
use serde_json::Value;

/// A schema of more bytes is not compiled.
const MAX_BYTES: usize = 256 << 10;

/// A validator for this schema, if it is valid.
pub(crate) fn compiled(schema: &str) -> Option<Validator> {
    let schema: Value = serde_json::from_str(schema).ok()?;
    jsonschema::draft202012::new(&schema).ok()
}

/// Whether a schema can be compiled, references included. One that is too large to be tried can.
pub(crate) fn compiles(schema: &str) -> bool {
    if schema.len() > MAX_BYTES {
        return true;
    }
    // A number that is too large for this reader is not for it to judge.
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return true };
    jsonschema::draft202012::new(&schema).is_ok()
}

/// Whether a schema takes a value; `None` if that cannot be told.
pub(crate) fn takes(schema: &str, value: &str) -> Option<bool> {
    let value: Value = serde_json::from_str(value).ok()?;
    Some(compiled(schema)?.is_valid(&value))
}
