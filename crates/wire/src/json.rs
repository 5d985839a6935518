//! Walking over JSON text that the scanner has checked, without building values.
//!
//! For the few places where the bridge looks deeper than the envelope: lists of tools, maps of
//! questions. All positions are into the text that was given.

use std::ops::Range;

/// One member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key with its quotes.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// The members of the object that stands at `object`; nothing if it is no object.
pub fn entries(text: &[u8], object: Range<usize>) -> impl Iterator<Item = Entry> {
    let mut at = open(text, &object, b'{');
    std::iter::from_fn(move || {
        let start = next_item(text, at?, object.end)?;
        let key = start..skip(text, start);
        let value_at = space(text, space(text, key.end) + 1);
        let value = value_at..skip(text, value_at);
        at = Some(value.end);
        Some(Entry { key, value })
    })
}

/// The values of the array that stands at `array`; nothing if it is no array.
pub fn elements(text: &[u8], array: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = open(text, &array, b'[');
    std::iter::from_fn(move || {
        let start = next_item(text, at?, array.end)?;
        let element = start..skip(text, start);
        at = Some(element.end);
        Some(element)
    })
}

/// The value of the member `name` of the object `text`.
pub fn find<'t>(text: &'t [u8], name: &str) -> Option<&'t [u8]> {
    let mut entries = entries(text, 0..text.len());
    let is_it = |key: &[u8]| crate::message::string_value(key).is_some_and(|key| key == name);
    entries.find(|entry| is_it(&text[entry.key.clone()])).map(|entry| &text[entry.value])
}

fn open(text: &[u8], value: &Range<usize>, brace: u8) -> Option<usize> {
    let start = space(text, value.start);
    (text.get(start) == Some(&brace)).then_some(start + 1)
}

/// Where the next item begins, past a comma; `None` at the closing brace.
fn next_item(text: &[u8], at: usize, end: usize) -> Option<usize> {
    let mut at = space(text, at);
    if text.get(at) == Some(&b',') {
        at = space(text, at + 1);
    }
    (at < end && !matches!(text.get(at), None | Some(b'}' | b']'))).then_some(at)
}

fn space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// One past the end of the value that begins at `at`.
fn skip(text: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => at = skip_string(text, at),
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(b'}' | b']') => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            Some(b',' | b':' | b' ' | b'\t' | b'\n' | b'\r') => at += 1,
            Some(_) => {
                let rest = &text[at..];
                let is_end = |byte: &u8| {
                    matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\n' | b'\r')
                };
                at += rest.iter().position(is_end).unwrap_or(rest.len());
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

/// One past the end of the string that begins at `at`: a quote ends it unless an odd number of backslashes is before it.
/// Most texts have far more escapes than escaped quotes, so only quotes are searched for.
fn skip_string(text: &[u8], at: usize) -> usize {
    let start = at + 1;
    let mut at = start;
    while let Some(found) = memchr::memchr(b'"', text.get(at..).unwrap_or_default()) {
        let quote = at + found;
        let escapes = text[start..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        at = quote + 1;
        if escapes % 2 == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_are_walked() {
        let text = br#" { "a" : [1, {"b":"]}"} ,"x\"" , null] , "c":{} ,"d":-1.5e3}"#;
        let found: Vec<_> = entries(text, 0..text.len())
            .map(|entry| {
                let part =
                    |range: Range<usize>| std::str::from_utf8(&text[range]).unwrap().to_owned();
                (part(entry.key), part(entry.value))
            })
            .collect();
        let expected = [
            (r#""a""#, r#"[1, {"b":"]}"} ,"x\"" , null]"#),
            (r#""c""#, "{}"),
            (r#""d""#, "-1.5e3"),
        ];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let array = find(text, "a").unwrap();
        let parts: Vec<_> = elements(array, 0..array.len()).map(|range| &array[range]).collect();
        assert_eq!(parts, [b"1".as_slice(), br#"{"b":"]}"}"#, br#""x\"""#, b"null"]);
    }

    #[test]
    fn a_string_ends_at_its_own_quote() {
        for (text, end) in [
            (r#""""#, 2),
            (r#""a", "b""#, 3),
            (r#""\\" "#, 4),
            (r#""\\\"" "#, 6),
            (r#""\"\"\\\\\"\\", "a""#, 14),
            (r#""a\n\n\"b\\n" "#, 13),
            (r#""no end\""#, 9),
            (r#"""#, 1),
        ] {
            assert_eq!(skip_string(text.as_bytes(), 0), end, "{text}");
        }
    }

    #[test]
    fn empty_and_foreign_values_have_nothing_in_them() {
        assert_eq!(entries(b"{ }", 0..3).count(), 0);
        assert_eq!(entries(b"[1]", 0..3).count(), 0);
        assert_eq!(elements(b"[]", 0..2).count(), 0);
        assert_eq!(elements(b"12", 0..2).count(), 0);
    }
}
