//! Whether what a result says in its texts is all that its structured content says.
//!
//! Servers repeat their structure as a text for clients that know no structure: as its JSON, as a table, or, where it is
//! `{"result": ...}` alone, as the value in it. A structure that says more than the texts must not be lost with them.

use std::collections::HashSet;

use serde_json::Value;

/// The words of a structure are searched for in this many letters at most. A structure that would need more is taken to
/// say more.
const MAX_LOOKS: usize = 1 << 22;

/// A structure, or texts, longer than this are not read as JSON: that takes time, and many times their memory.
const MAX_READ: usize = 64 << 10;

/// Whether each word and number of a structure, a JSON text, is in these texts. A yes or no beside them is taken to be
/// told with them, for texts say it in words of their own.
pub(super) fn is_told(structured: &[u8], texts: &[String]) -> bool {
    let length: usize = texts.iter().map(String::len).sum();
    if structured.len() > MAX_READ {
        // Texts that repeat it have its length, but for escapes, names and spaces; those that sum it up are short.
        return length >= structured.len() / 2;
    }
    let Ok(structured) = serde_json::from_slice::<Value>(structured) else { return false };
    let read = |text: &String| serde_json::from_str(text).ok();
    let values: Vec<Value> = match length {
        ..=MAX_READ => texts.iter().filter_map(read).collect(),
        _ => Vec::new(),
    };
    if values.contains(&structured) {
        return true;
    }
    let (mut wanted, mut known) = (HashSet::new(), HashSet::new());
    add_words(&structured, &mut wanted);
    if wanted.is_empty() && says_yes_or_no(&structured) {
        return false;
    }
    values.iter().for_each(|value| add_words(value, &mut known));
    let mut looks_left = MAX_LOOKS;
    wanted.difference(&known).all(|word| {
        let left = looks_left.checked_sub(length);
        looks_left = left.unwrap_or(0);
        left.is_some() && texts.iter().any(|text| has_word(text, word))
    })
}

/// The texts and numbers in a value.
fn add_words(value: &Value, words: &mut HashSet<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::String(text) => drop(words.insert(text.trim().to_owned())),
        Value::Number(_) => drop(words.insert(value.to_string())),
        Value::Array(items) => items.iter().for_each(|item| add_words(item, words)),
        Value::Object(members) => members.values().for_each(|member| add_words(member, words)),
    }
}

fn says_yes_or_no(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::Array(items) => items.iter().any(says_yes_or_no),
        Value::Object(members) => members.values().any(says_yes_or_no),
        _ => false,
    }
}

/// Whether a word stands in a text, and not as a part of a longer one: 3 is not in 13, -3 or 3.5.
fn has_word(text: &str, word: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let is_number = word.ends_with(is_digit);
    let is_part = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
    let is_whole = |at: usize| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let goes_on = before.ends_with(['-', '.'])
            || after.strip_prefix('.').is_some_and(|rest| rest.starts_with(is_digit));
        !(is_number && goes_on
            || is_part(before.chars().next_back())
            || is_part(after.chars().next()))
    };
    word.is_empty() || text.match_indices(word).any(|(at, _)| is_whole(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(structured: &str, texts: &[&str], expected: bool) {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(is_told(structured.as_bytes(), &texts), expected, "{structured} {texts:?}");
    }

    #[test]
    fn a_structure_that_is_repeated_is_told() {
        check(r#"{"sum":3,"of":null}"#, &[r#"{ "of": null, "sum": 3 }"#], true);
        check(r#"{"result":"two\nlines"}"#, &["two\nlines"], true);
        check(r#"{"result":["a",2]}"#, &["a", "2"], true);
        check(r#"{"rows":[{"name":"Ada","age":36}]}"#, &["| name | age |\n| Ada | 36 |"], true);
        check(r#"{"text":"a \"word\""}"#, &[r#"{"other":["a \"word\""]}"#], true);
        check(r#"{"city":"東京"}"#, &["今日は東京です"], true);
        check(r#"{"t":21.5,"n":-3}"#, &["It is 21.5, was -3."], true);
        check(r#"{"success":true,"message":"It is deleted"}"#, &["It is deleted"], true);
        check("{}", &["done"], true);
    }

    #[test]
    fn a_structure_that_says_more_is_not() {
        for (structured, text) in [
            (r#"{"sum":3}"#, "three"),
            (r#"{"sum":3}"#, "13 or 3.5 or 0.3 or -3 or 3a"),
            (r#"{"rows":["a","b"]}"#, "Found 2 rows: a"),
            (r#"{"name":"an"}"#, "banana"),
            (r#"{"is_done":false}"#, "well"),
            (r#"{"found":[true,{"is":false}]}"#, "well"),
        ] {
            check(structured, &[text], false);
        }
        check(r#"{"sum":3}"#, &[], false);
        check("{", &["{"], false);
    }

    #[test]
    fn a_long_structure_is_told_by_texts_that_are_as_long() {
        let words: Vec<_> = (0..100_000).map(|number| format!("w{number}")).collect();
        let structured = serde_json::json!({"words": words}).to_string();
        check(&structured, &[&words.join(" ")], true);
        check(&structured, &["100,000 words"], false);
        check(&structured, &[], false);
    }

    #[test]
    fn words_are_searched_for_in_so_much_text_and_no_more() {
        let long = "x ".repeat(MAX_READ);
        check(r#"{"sum":3}"#, &[&format!("{long}3")], true);
        check(r#"{"sum":3}"#, &[&long], false);
        let words: Vec<_> = (0..100).map(|number| format!("w{number}")).collect();
        let structured = serde_json::json!({"words": words}).to_string();
        check(&structured, &[&format!("{long}{}", words.join(" "))], false);
    }
}
