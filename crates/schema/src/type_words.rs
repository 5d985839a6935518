//! The names of types: what JSON Schema calls them, and what other languages do.

use crate::node::Node;

/// The types that JSON Schema knows.
const TYPES: [&str; 7] = ["object", "string", "number", "integer", "boolean", "array", "null"];

/// What others call them.
const SYNONYMS: [(&str, &str); 9] = [
    ("int", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("str", "string"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("map", "object"),
    ("list", "array"),
    ("none", "null"),
];

/// What the value of `type` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WordMeaning {
    /// It is as it should be.
    Proper,
    /// These types, in other words; one of them, or several.
    Types(Vec<&'static str>),
    /// Every type.
    Anything,
    /// This cannot be known.
    Unknown,
}

/// What the value of `type` means.
pub(crate) fn meaning(value: &Node<'_>) -> WordMeaning {
    match value {
        Node::List(items) => {
            let mut types = Vec::new();
            let mut is_proper = !items.is_empty();
            for item in items {
                match of_word(item) {
                    Some(Word::Type(word)) => {
                        is_proper &= is_spelt(item, word) && !types.contains(&word);
                        if !types.contains(&word) {
                            types.push(word);
                        }
                    }
                    Some(Word::Any) => return WordMeaning::Anything,
                    None => return WordMeaning::Unknown,
                }
            }
            match (is_proper, types.is_empty()) {
                (true, _) => WordMeaning::Proper,
                (false, true) => WordMeaning::Anything,
                (false, false) => WordMeaning::Types(types),
            }
        }
        value if value.is_null() => WordMeaning::Anything,
        value => match of_word(value) {
            Some(Word::Type(word)) if is_spelt(value, word) => WordMeaning::Proper,
            Some(Word::Type(word)) => WordMeaning::Types(vec![word]),
            Some(Word::Any) => WordMeaning::Anything,
            None => WordMeaning::Unknown,
        },
    }
}

/// The type that a text names.
pub(crate) fn named(node: &Node<'_>) -> Option<&'static str> {
    match of_word(node).filter(|_| !node.is_null())? {
        Word::Type(word) => Some(word),
        Word::Any => None,
    }
}

/// Puts null beside the types, if it is not there.
pub(crate) fn add_null(value: &mut Node<'_>) {
    let null = || Node::text("null");
    match value {
        Node::List(types) if types.iter().any(|it| it.is_null() || is_spelt(it, "null")) => {}
        Node::List(types) => types.push(null()),
        value if is_spelt(value, "null") => {}
        value => *value = Node::List(vec![value.clone(), null()]),
    }
}

/// The types as `type` holds them.
pub(crate) fn node_of(types: &[&'static str]) -> Node<'static> {
    match types {
        [one] => Node::text(one),
        several => Node::List(several.iter().map(|word| Node::text(word)).collect()),
    }
}

enum Word {
    Type(&'static str),
    Any,
}

/// The type that a word means; a null in a list of types means the type of null.
fn of_word(node: &Node<'_>) -> Option<Word> {
    if node.is_null() {
        return Some(Word::Type("null"));
    }
    let text = node.as_text()?;
    let text = text.trim().to_ascii_lowercase();
    if text == "any" {
        return Some(Word::Any);
    }
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == text).map(|(_, word)| *word);
    synonym.or_else(|| TYPES.into_iter().find(|word| *word == text)).map(Word::Type)
}

fn is_spelt(node: &Node<'_>, word: &str) -> bool {
    node.as_text().is_some_and(|text| text == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &WordMeaning) {
        assert_eq!(meaning(&Node::parse(value).unwrap()), *expected, "{value}");
    }

    #[test]
    fn types_are_known_by_their_names_and_by_others() {
        for proper in ["\"object\"", "[\"string\",\"null\"]", "[\"integer\"]"] {
            check(proper, &WordMeaning::Proper);
        }
        check("\"int\"", &WordMeaning::Types(vec!["integer"]));
        check("\"STRING\"", &WordMeaning::Types(vec!["string"]));
        check("[\"str\",null]", &WordMeaning::Types(vec!["string", "null"]));
        check("[\"string\",\"string\"]", &WordMeaning::Types(vec!["string"]));
        for anything in ["null", "\"any\"", "[]", "[\"string\",\"any\"]"] {
            check(anything, &WordMeaning::Anything);
        }
        for unknown in ["\"file\"", "[\"string\",\"file\"]", "1", "true", "{}", "[1]"] {
            check(unknown, &WordMeaning::Unknown);
        }
    }
}
