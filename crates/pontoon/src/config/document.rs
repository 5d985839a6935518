//! The file as a tree whose values know their place, and the plain types read out of it.
//!
//! JSON with comments and trailing commas, nothing looser. What a value should have been is told
//! through the [`DocumentReader`], which goes on: one reading finds every mistake.

use std::path::Path;
use std::sync::Arc;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::remarks::{Position, RemarkPlace, Remarks, Weight};
use super::values::quoted;

/// Collects remarks about one text.
pub(super) struct DocumentReader<'a> {
    pub(super) path: Arc<Path>,
    pub(super) text: &'a str,
    pub(super) remarks: &'a mut Remarks,
}

/// A value and the way to it, such as `mcpServers.excel.timeout`.
#[derive(Debug, Clone)]
pub(super) struct DocumentNode<'a> {
    value: &'a Value<'a>,
    pub(super) key: String,
}

/// A named value of an object.
#[derive(Debug, Clone)]
pub(super) struct Member<'a> {
    pub(super) name: String,
    name_at: usize,
    pub(super) node: DocumentNode<'a>,
}

/// The whole text as one value, or `None` after telling why there is none.
pub(super) fn parse<'a>(reader: &mut DocumentReader<'a>) -> Option<Value<'a>> {
    if let Some(offset) = reader.text.find('\0') {
        reader.add(Weight::Mistake, offset, "", "the file has a NUL byte here");
        return None;
    }
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(reader.text, &CollectOptions::default(), &options) {
        Ok(parsed) => {
            if parsed.value.is_none() {
                reader.add(Weight::Mistake, 0, "", "the file is empty");
            }
            parsed.value
        }
        Err(error) => {
            let mut told = error.kind().to_string();
            // Only the first letter: "JSON" inside stays as it is.
            if let Some(first) = told.get_mut(..1) {
                first.make_ascii_lowercase();
            }
            let message = format!("not valid JSON: {told}");
            reader.add(Weight::Mistake, error.range().start, "", message);
            None
        }
    }
}

impl<'a> DocumentNode<'a> {
    pub(super) fn root(value: &'a Value<'a>) -> Self {
        Self { value, key: String::new() }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        self.value.as_string_lit().map(|text| &*text.value)
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        self.as_text() == Some(text)
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::NullKeyword(_))
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.value, Value::Object(_))
    }

    /// The value in words, for what was found instead of what was expected.
    fn described(&self) -> String {
        match self.value {
            Value::StringLit(text) => quoted(&text.value),
            Value::NumberLit(number) => number.value.to_owned(),
            Value::BooleanLit(boolean) => boolean.value.to_string(),
            Value::NullKeyword(_) => "null".to_owned(),
            Value::Object(_) | Value::Array(_) => self.kind().to_owned(),
        }
    }

    fn kind(&self) -> &'static str {
        match self.value {
            Value::StringLit(_) => "text",
            Value::NumberLit(_) => "a number",
            Value::BooleanLit(_) => "true or false",
            Value::NullKeyword(_) => "null",
            Value::Object(_) => "an object",
            Value::Array(_) => "a list",
        }
    }
}

impl DocumentReader<'_> {
    /// Reads with remarks that are looked at, together with what was read, before they join the others.
    pub(super) fn apart<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> T,
        look: impl FnOnce(T, &mut Remarks) -> T,
    ) -> T {
        let before = std::mem::take(self.remarks);
        let read = read(self);
        let read = look(read, self.remarks);
        let own = std::mem::replace(self.remarks, before);
        self.remarks.take(own);
        read
    }

    /// A remark about what stands at the byte `offset`.
    pub(super) fn add(
        &mut self,
        weight: Weight,
        offset: usize,
        key: &str,
        message: impl Into<String>,
    ) {
        let position = Some(Position::of(self.text, offset));
        let place = RemarkPlace::File { path: Arc::clone(&self.path), position };
        self.remarks.add(weight, place, key, message);
    }

    /// A remark about a value.
    pub(super) fn about(
        &mut self,
        weight: Weight,
        node: &DocumentNode<'_>,
        message: impl Into<String>,
    ) {
        self.add(weight, node.value.start(), &node.key, message);
    }

    /// A remark about the name of a member.
    pub(super) fn about_name(
        &mut self,
        weight: Weight,
        member: &Member<'_>,
        message: impl Into<String>,
    ) {
        self.add(weight, member.name_at, &member.node.key, message);
    }

    /// The mistake that `node` is not `expected`, with what it is instead.
    pub(super) fn expected(&mut self, expected: &str, node: &DocumentNode<'_>) {
        let found = node.described();
        self.about(Weight::Mistake, node, format!("expected {expected}, found {found}"));
    }

    /// The same without the value, which may be a secret.
    fn expected_kind(&mut self, expected: &str, node: &DocumentNode<'_>) {
        let found = node.kind();
        self.about(Weight::Mistake, node, format!("expected {expected}, found {found}"));
    }

    /// The members of an object, each name once.
    pub(super) fn members<'n>(&mut self, node: &DocumentNode<'n>) -> Option<Vec<Member<'n>>> {
        let Value::Object(object) = node.value else {
            self.expected_kind("an object in braces", node);
            return None;
        };
        let mut members: Vec<Member<'n>> = Vec::new();
        for member in all_members(object, &node.key) {
            match members.iter().find(|other| other.name == member.name) {
                Some(first) => {
                    let Position { line, .. } = Position::of(self.text, first.name_at);
                    let message = format!("written twice, first in line {line}");
                    self.about_name(Weight::Mistake, &member, message);
                }
                None => members.push(member),
            }
        }
        Some(members)
    }

    /// The items of a list.
    pub(super) fn items<'n>(
        &mut self,
        node: &DocumentNode<'n>,
        expected: &str,
    ) -> Option<Vec<DocumentNode<'n>>> {
        let Value::Array(array) = node.value else {
            self.expected_kind(expected, node);
            return None;
        };
        let item = |(index, value)| DocumentNode { value, key: format!("{}[{index}]", node.key) };
        Some(array.elements.iter().enumerate().map(item).collect())
    }

    /// A text; never with a NUL, which no program, argument or variable can hold.
    pub(super) fn text(&mut self, node: &DocumentNode<'_>) -> Option<String> {
        match node.value {
            Value::StringLit(text) if text.value.contains('\0') => {
                self.about(Weight::Mistake, node, "the text has a NUL character, `\\u0000`");
                None
            }
            Value::StringLit(text) => Some(text.value.clone().into_owned()),
            _ => {
                self.expected_kind("text in quotes", node);
                None
            }
        }
    }

    /// A text that says something.
    pub(super) fn filled_text(&mut self, node: &DocumentNode<'_>) -> Option<String> {
        let text = self.text(node)?;
        if text.is_empty() {
            self.about(Weight::Mistake, node, "is empty");
            return None;
        }
        Some(text)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &DocumentNode<'_>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let found = match node.value {
            Value::StringLit(text) => words.iter().find(|(word, _)| *word == text.value),
            _ => None,
        };
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.expected(&words.join(" or "), node);
        }
        found.map(|&(_, meaning)| meaning)
    }

    /// A yes or no.
    pub(super) fn boolean(&mut self, node: &DocumentNode<'_>) -> Option<bool> {
        match node.value {
            Value::BooleanLit(boolean) => Some(boolean.value),
            _ => {
                self.expected("true or false", node);
                None
            }
        }
    }

    /// A number or text in a unit, read by `parse`, which else says what it expected.
    pub(super) fn measure<T>(
        &mut self,
        node: &DocumentNode<'_>,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let measure = match node.value {
            Value::StringLit(text) => parse(&text.value),
            Value::NumberLit(number) => parse(number.value),
            // Text that is no measure, so that the expectation is told.
            _ => parse(""),
        };
        measure.map_err(|expected| self.expected(expected, node)).ok()
    }
}

fn all_members<'a>(object: &'a Object<'a>, key: &str) -> impl Iterator<Item = Member<'a>> {
    object.properties.iter().map(move |property| {
        let name = property.name.as_str().to_owned();
        let node = DocumentNode { value: &property.value, key: joined(key, &name) };
        Member { name, name_at: property.start(), node }
    })
}

/// The way to a member; names that would be taken for a way themselves stand in quotes.
fn joined(key: &str, name: &str) -> String {
    let is_plain =
        |name: &str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
    let name = if !name.is_empty() && is_plain(name) { name.to_owned() } else { quoted(name) };
    if key.is_empty() { name } else { format!("{key}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` as an object of texts and compares what is told.
    fn check(text: &str, told: &[&str]) {
        let mut remarks = Remarks::default();
        let mut reader =
            DocumentReader { path: Path::new("f").into(), text, remarks: &mut remarks };
        if let Some(value) = parse(&mut reader) {
            for member in reader.members(&DocumentNode::root(&value)).unwrap_or_default() {
                reader.text(&member.node);
            }
        }
        let lines: Vec<String> = remarks.iter().map(ToString::to_string).collect();
        assert_eq!(lines, told);
    }

    #[test]
    fn comments_and_trailing_commas_are_allowed() {
        check("// one\n{ /* two */ \"a\": \"b\", // three\n}\n// end", &[]);
    }

    #[test]
    fn nothing_looser_is_allowed() {
        check("{'a': \"b\"}", &["f:1:2: not valid JSON: single-quoted strings are not allowed"]);
        check("{\"a\": \"b\"\n \"c\": \"d\"}", &["f:1:10: not valid JSON: expected comma"]);
        check("{\"a\": \"b\"", &["f:1:1: not valid JSON: unterminated object"]);
        check("{} {}", &["f:1:4: not valid JSON: text cannot contain more than one JSON value"]);
    }

    #[test]
    fn an_empty_file_and_a_nul_are_told() {
        check(" // nothing\n", &["f:1:1: the file is empty"]);
        check("{\n\0}", &["f:2:1: the file has a NUL byte here"]);
        check("{\"a\": \"\\u0000\"}", &["f:1:7: a: the text has a NUL character, `\\u0000`"]);
    }

    #[test]
    fn a_key_written_twice_is_told_with_both_places() {
        check("{\"a\": \"b\",\n\"a\": 5}", &["f:2:1: a: written twice, first in line 1"]);
    }

    #[test]
    fn the_kind_is_told_without_the_value() {
        check("[]", &["f:1:1: expected an object in braces, found a list"]);
        check("{\"a.b\": 1234}", &["f:1:9: \"a.b\": expected text in quotes, found a number"]);
    }

    #[test]
    fn deep_nesting_is_refused() {
        check(&"[".repeat(100_000), &["f:1:513: not valid JSON: maximum nesting depth exceeded"]);
    }
}
