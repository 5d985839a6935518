//! JSON as a tree that keeps the text of what it does not take apart: numbers, words and texts stay as they were
//! written, members in their order.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::cursor::Cursor;

/// How deep a tree goes; what is nested deeper is kept as text.
pub(crate) const MAX_DEPTH: usize = 64;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'t> {
    /// An object.
    Object(Vec<Member<'t>>),
    /// A list.
    List(Vec<Node<'t>>),
    /// A text, a number, a word.
    Plain(Cow<'t, str>),
    /// What is nested too deep to be taken apart.
    Deep(Cow<'t, str>),
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member<'t> {
    /// Its key, with the quotes.
    key: Cow<'t, str>,
    pub(crate) value: Node<'t>,
}

impl<'t> Member<'t> {
    pub(crate) fn new(name: &str, value: Node<'t>) -> Self {
        Self { key: Cow::Owned(quoted(name)), value }
    }

    /// A member of which the key is a node already.
    pub(crate) fn from_nodes(key: Node<'t>, value: Node<'t>) -> Option<Self> {
        match key {
            Node::Plain(key) if key.starts_with('"') => Some(Self { key, value }),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        unquoted(&self.key).unwrap_or(Cow::Borrowed(""))
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        match self.key.len() == name.len() + 2 {
            true => self.key[1..].starts_with(name) || self.name() == name,
            false => self.key.contains('\\') && self.name() == name,
        }
    }

    pub(crate) fn rename(&mut self, name: &str) {
        self.key = Cow::Owned(quoted(name));
    }
}

impl<'t> Node<'t> {
    /// The value that `text` is; `None` if it is no JSON.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(text).ok()?;
        let mut cursor = Cursor::new(text);
        cursor.space();
        Some(value(&mut cursor, 0))
    }

    pub(crate) fn word(text: &'static str) -> Self {
        Self::Plain(Cow::Borrowed(text))
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Plain(Cow::Owned(quoted(text)))
    }

    pub(crate) fn empty_object() -> Self {
        Self::Object(Vec::new())
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Plain(text) if text == "null")
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Plain(text) if text == "true" => Some(true),
            Self::Plain(text) if text == "false" => Some(false),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Plain(text) => unquoted(text),
            _ => None,
        }
    }

    /// The number as it was written, if it is one.
    pub(crate) fn as_number(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text.as_ref()).filter(|text| is_number(text)),
            _ => None,
        }
    }

    pub(crate) fn as_members(&self) -> Option<&[Member<'t>]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub(crate) fn as_members_mut(&mut self) -> Option<&mut Vec<Member<'t>>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The same, without what it was read from.
    pub(crate) fn into_owned(self) -> Node<'static> {
        let owned = |text: Cow<'t, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Object(members) => Node::Object(
                members
                    .into_iter()
                    .map(|it| Member { key: owned(it.key), value: it.value.into_owned() })
                    .collect(),
            ),
            Self::List(items) => Node::List(items.into_iter().map(Node::into_owned).collect()),
            Self::Plain(text) => Node::Plain(owned(text)),
            Self::Deep(text) => Node::Deep(owned(text)),
        }
    }

    /// How many values it has, itself included.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Object(members) => 1 + members.iter().map(|it| it.value.size()).sum::<usize>(),
            Self::List(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Self::Plain(_) => 1,
            Self::Deep(text) => text.len(),
        }
    }

    /// Its text.
    pub(crate) fn written(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Plain(text) => out.push_str(text),
            Self::Deep(text) => out.push_str(text),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, member) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    out.push_str(&member.key);
                    out.push(':');
                    member.value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Where the member of this name stands: the last one, which is what most readers of JSON take.
pub(crate) fn position(members: &[Member<'_>], name: &str) -> Option<usize> {
    members.iter().rposition(|member| member.is_named(name))
}

/// The member of this name.
pub(crate) fn member<'n, 't>(members: &'n [Member<'t>], name: &str) -> Option<&'n Node<'t>> {
    position(members, name).map(|at| &members[at].value)
}

/// Puts a member in: in the place of the one with this name, or at the end.
pub(crate) fn set<'t>(members: &mut Vec<Member<'t>>, name: &str, value: Node<'t>) {
    match position(members, name) {
        Some(at) => members[at].value = value,
        None => members.push(Member::new(name, value)),
    }
}

/// Takes all members of this name out, and gives the one that counted.
pub(crate) fn take<'t>(members: &mut Vec<Member<'t>>, name: &str) -> Option<Node<'t>> {
    let taken = members.remove(position(members, name)?);
    members.retain(|member| !member.is_named(name));
    Some(taken.value)
}

/// Adds a sentence to the description, if it does not say so already.
pub(crate) fn describe(members: &mut Vec<Member<'_>>, sentence: &str) {
    let before = member(members, "description").and_then(Node::as_text).unwrap_or_default();
    if before.contains(sentence) {
        return;
    }
    let space = if before.is_empty() || before.ends_with(char::is_whitespace) { "" } else { " " };
    let description = Node::text(&format!("{before}{space}{sentence}"));
    set(members, "description", description);
}

/// Whether a text is a JSON number.
pub(crate) fn is_number(text: &str) -> bool {
    let begins = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    begins
        && serde_json::from_str::<&RawValue>(text).is_ok()
        && !text.ends_with(char::is_whitespace)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn unquoted(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    match inside.contains('\\') {
        false => Some(Cow::Borrowed(inside)),
        true => serde_json::from_str(raw).ok().map(Cow::Owned),
    }
}

/// Takes JSON apart that was checked before.
fn value<'t>(cursor: &mut Cursor<'t>, depth: usize) -> Node<'t> {
    match cursor.peek() {
        Some(b'{' | b'[') if depth >= MAX_DEPTH => Node::Deep(Cow::Borrowed(cursor.skip())),
        Some(b'{') => {
            let mut members = Vec::new();
            while cursor.next_item(b'}') {
                let key = Cow::Borrowed(cursor.skip());
                cursor.colon();
                members.push(Member { key, value: value(cursor, depth + 1) });
            }
            Node::Object(members)
        }
        Some(b'[') => {
            let mut items = Vec::new();
            while cursor.next_item(b']') {
                items.push(value(cursor, depth + 1));
            }
            Node::List(items)
        }
        _ => Node::Plain(Cow::Borrowed(cursor.skip())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut written = String::new();
        Node::parse(text).unwrap().write(&mut written);
        assert_eq!(written, expected);
    }

    #[test]
    fn a_tree_keeps_texts_numbers_and_order() {
        check(
            r#" { "b" : [ 1.0 , 12345678901234567890.10e+5, "\u0041\"]" ] , "a":{ } ,"\u0061":[],"":null } "#,
            r#"{"b":[1.0,12345678901234567890.10e+5,"\u0041\"]"],"a":{},"\u0061":[],"":null}"#,
        );
        check("[[],[[]],{\"a\":[{}]}]", "[[],[[]],{\"a\":[{}]}]");
        check(" -0 ", "-0");
    }

    #[test]
    fn what_is_no_json_is_no_tree() {
        for text in ["", "{", "{\"a\":}", "[1,]", "nul", "{} {}"] {
            assert!(Node::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_nested_deeper_is_kept_as_it_is() {
        let deep = format!("{}[ 1 ]{}", "[".repeat(100), "]".repeat(100));
        check(&deep, &deep);
        let deeper = format!("{}{}", "[".repeat(300_000), "]".repeat(300_000));
        check(&deeper, &deeper);
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let Some(Node::Object(members)) = Node::parse(r#"{"a":1,"\u0061":2,"b":3}"#) else {
            panic!()
        };
        assert_eq!(position(&members, "a"), Some(1));
        assert_eq!(position(&members, "c"), None);
    }

    #[test]
    fn numbers_are_told_from_other_texts() {
        for text in ["0", "-1.5e3", "12"] {
            assert!(is_number(text), "{text}");
        }
        for text in ["", "01", "1 ", "one", "-", "NaN"] {
            assert!(!is_number(text), "{text}");
        }
    }
}
