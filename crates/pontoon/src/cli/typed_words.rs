//! What was typed as `KEY=VALUE`, as the values that a tool or a question wants.

use serde_json::Value;

/// Words typed as key=value.
pub(super) fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let none =
        |word: &str| format!("{word:?} is no argument: write it as key=value, such as name=Ada");
    words
        .iter()
        .map(|word| {
            word.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| none(word))
        })
        .collect()
}

/// A typed word as the value that the tool's schema wants.
pub(super) fn fit(schema: &Value, word: &str) -> Value {
    let text = || Value::String(word.to_owned());
    if schema["type"] == "string" {
        return text();
    }
    serde_json::from_str(word).unwrap_or_else(|_| text())
}
