//! What is heard, compared with what a transcript says: by meaning, with gaps.

use std::collections::HashMap;

use serde_json::Value;

/// The values that a transcript has given a name.
pub type Captures = HashMap<String, Value>;

/// Compares `got` with `pattern`, noting values for each `"$name"`.
///
/// # Errors
///
/// The place and the difference.
pub fn matches(pattern: &Value, got: &Value, captures: &mut Captures) -> Result<(), String> {
    at("", pattern, got, captures)
}

fn at(place: &str, pattern: &Value, got: &Value, captures: &mut Captures) -> Result<(), String> {
    match (pattern, got) {
        (Value::String(text), _) if text == "…" => Ok(()),
        (Value::String(text), _) if text.starts_with('$') => {
            let known = captures.entry(text.clone()).or_insert_with(|| got.clone());
            if known == got { Ok(()) } else { Err(differ(place, known, got)) }
        }
        (Value::String(wanted), Value::String(text)) if wanted.contains('…') => {
            let (head, tail) = wanted.split_once('…').unwrap_or((wanted, ""));
            let middle = text.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
            if middle.is_some() { Ok(()) } else { Err(differ(place, pattern, got)) }
        }
        (Value::Object(wanted), Value::Object(members)) => {
            for (key, pattern) in wanted.iter().filter(|(key, _)| *key != "…") {
                let place = format!("{place}/{key}");
                let got = members.get(key).ok_or_else(|| format!("{place} is missing in {got}"))?;
                at(&place, pattern, got, captures)?;
            }
            match members.keys().find(|key| !wanted.contains_key(*key)) {
                Some(more) if !wanted.contains_key("…") => {
                    Err(format!("{place}/{more} in {got}"))
                }
                _ => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
            wanted.iter().zip(items).enumerate().try_for_each(|(n, (pattern, got))| {
                at(&format!("{place}/{n}"), pattern, got, captures)
            })
        }
        _ if pattern == got => Ok(()),
        _ => Err(differ(place, pattern, got)),
    }
}

fn differ(place: &str, wanted: &Value, got: &Value) -> String {
    format!("{place}: wanted {wanted}, got {got}")
}

/// `message` with the named values in their places.
pub fn fill(message: &Value, captures: &Captures) -> Value {
    match message {
        Value::String(text) => captures.get(text).cloned().unwrap_or_else(|| message.clone()),
        Value::Array(items) => items.iter().map(|item| fill(item, captures)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), fill(value, captures))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pattern: &Value, got: &Value, wanted: Result<(), &str>) {
        let outcome = matches(pattern, got, &mut Captures::new());
        assert_eq!(outcome, wanted.map_err(str::to_owned), "{pattern} against {got}");
    }

    #[test]
    fn order_of_members_does_not_count_but_every_member_does() {
        check(&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1}), Ok(()));
        check(&json!({"a": 1}), &json!({"a": 1, "b": 2}), Err(r#"/b in {"a":1,"b":2}"#));
        check(&json!({"a": 1, "b": 2}), &json!({"a": 1}), Err(r#"/b is missing in {"a":1}"#));
        check(&json!({"a": 1, "…": "…"}), &json!({"a": 1, "b": 2}), Ok(()));
    }

    #[test]
    fn gaps_fit_anything_where_they_stand() {
        check(&json!(["…", 2]), &json!([{"x": 1}, 2]), Ok(()));
        check(&json!("a…z"), &json!("abcz"), Ok(()));
        check(&json!("a…z"), &json!("abc"), Err(r#": wanted "a…z", got "abc""#));
        check(&json!("ab…ba"), &json!("aba"), Err(r#": wanted "ab…ba", got "aba""#));
    }

    #[test]
    fn types_and_lengths_count() {
        check(&json!(1), &json!("1"), Err(r#": wanted 1, got "1""#));
        check(&json!([1]), &json!([1, 1]), Err(": wanted [1], got [1,1]"));
        check(&json!({"a": null}), &json!({}), Err("/a is missing in {}"));
    }

    #[test]
    fn a_captured_value_is_said_again_with_its_type() {
        let mut captures = Captures::new();
        matches(&json!({"id": "$x"}), &json!({"id": 7}), &mut captures).unwrap();
        assert_eq!(
            fill(&json!({"id": "$x", "y": ["$x", "$z"]}), &captures),
            json!({"id": 7, "y": [7, "$z"]})
        );
        assert!(matches(&json!("$x"), &json!(8), &mut captures).is_err());
    }
}
