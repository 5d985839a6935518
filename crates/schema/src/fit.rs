//! Arguments as the server wants them.
//!
//! Models send `"[1,2]"` for a list, `"42"` for a number and null for what they leave out. Such a value is changed only
//! where the schema takes no text, or no null, at all: then it would be refused as it is. What the schema takes is
//! never touched, and numbers keep the text they were written in.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::cursor::Cursor;
use crate::definitions::{Definitions, reference};
use crate::node::{Member, Node, is_number, member};

/// The most schemas that are looked at for one tool, and how far references are followed.
const MAX_SCHEMAS: usize = 5000;
const MAX_STEPS: usize = 16;

/// What a schema wants of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Want {
    types: Types,
    properties: HashMap<String, Property>,
    items: Option<Box<Want>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Property {
    want: Want,
    is_required: bool,
}

impl Want {
    /// What the arguments' schema wants; `None` if it takes anything as it comes.
    pub(crate) fn of(root: &Node<'_>) -> Option<Self> {
        let mut look = Look { definitions: &Definitions::of(root), left: MAX_SCHEMAS };
        look.want(root, 0).filter(|want| !want.properties.is_empty())
    }

    /// Whether nothing needs a closer look in this text, of a JSON value: every part of it is of a type that is wanted
    /// there. This is what calls mostly are, so it goes over the text once and makes nothing of it.
    pub(crate) fn suits(&self, text: &str) -> bool {
        let mut cursor = Cursor::new(text);
        cursor.space();
        self.suits_next(&mut cursor) == Some(true)
    }

    /// The same for the value that comes next. `None` where the text is no JSON.
    fn suits_next(&self, cursor: &mut Cursor<'_>) -> Option<bool> {
        match cursor.peek()? {
            b'"' if !self.types.has(Types::TEXT) => return Some(false),
            b'n' if !self.types.has(Types::NULL) => return Some(false),
            b'{' if !self.properties.is_empty() => {
                while cursor.next_item(b'}') {
                    let key = cursor.skip().strip_prefix('"')?.strip_suffix('"')?;
                    cursor.colon()?;
                    // A name with an escape may be any name.
                    let property = self.properties.get(key).filter(|_| !key.contains('\\'));
                    match property {
                        Some(property) if property.want.suits_next(cursor)? => {}
                        None if !key.contains('\\') => drop(cursor.skip()),
                        _ => return Some(false),
                    }
                }
            }
            b'[' if self.items.is_some() => {
                let items = self.items.as_ref()?;
                while cursor.next_item(b']') {
                    if !items.suits_next(cursor)? {
                        return Some(false);
                    }
                }
            }
            _ => drop(cursor.skip()),
        }
        Some(true)
    }

    /// Whether a value would be changed, or something inside it.
    fn matters(&self) -> bool {
        self.types != Types::ALL || !self.properties.is_empty() || self.items.is_some()
    }

    /// Changes what the schema would refuse as it is. True if anything was changed.
    pub(crate) fn fit(&self, node: &mut Node<'_>) -> bool {
        let mut is_changed = false;
        if let Some(text) = node.as_text().filter(|_| !self.types.has(Types::TEXT))
            && let Some(meant) = self.meant(&text)
        {
            *node = meant;
            is_changed = true;
        }
        match node {
            Node::Object(members) if !self.properties.is_empty() => {
                let before = members.len();
                members.retain_mut(|member| {
                    let Some(property) = self.properties.get(&*member.name()) else { return true };
                    is_changed |= property.want.fit(&mut member.value);
                    let is_left_out = member.value.is_null()
                        && !property.is_required
                        && !property.want.types.has(Types::NULL);
                    !is_left_out
                });
                is_changed | (members.len() < before)
            }
            Node::List(items) => {
                let Some(want) = &self.items else { return is_changed };
                items.iter_mut().fold(is_changed, |is_changed, item| want.fit(item) | is_changed)
            }
            _ => is_changed,
        }
    }

    /// The value that a text was meant as, if it is of a wanted type.
    fn meant(&self, text: &str) -> Option<Node<'static>> {
        let text = text.trim();
        let wanted = match text {
            "true" | "True" | "false" | "False" => Types::BOOL,
            "null" | "None" => Types::NULL,
            _ if text.starts_with('{') => Types::OBJECT,
            _ if text.starts_with('[') => Types::LIST,
            _ if is_integer(text) => Types::INTEGER,
            _ if is_number(text) => Types::NUMBER,
            _ => return None,
        };
        if !self.types.has(wanted) {
            return None;
        }
        match text {
            "true" | "True" => Some(Node::word("true")),
            "false" | "False" => Some(Node::word("false")),
            "null" | "None" => Some(Node::word("null")),
            _ => Node::parse(text).map(Node::into_owned),
        }
    }
}

fn is_integer(text: &str) -> bool {
    is_number(text) && !text.contains(['.', 'e', 'E'])
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

impl Types {
    const NULL: Self = Self(1);
    const BOOL: Self = Self(2);
    const INTEGER: Self = Self(4);
    /// Numbers that are not whole.
    const NUMBER: Self = Self(8);
    const TEXT: Self = Self(16);
    const LIST: Self = Self(32);
    const OBJECT: Self = Self(64);
    const ALL: Self = Self(127);
    const NONE: Self = Self(0);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn named(word: &str) -> Self {
        match word {
            "null" => Self::NULL,
            "boolean" => Self::BOOL,
            "integer" => Self::INTEGER,
            "number" => Self::INTEGER.or(Self::NUMBER),
            "string" => Self::TEXT,
            "array" => Self::LIST,
            "object" => Self::OBJECT,
            _ => Self::ALL,
        }
    }

    fn of(value: &Node<'_>) -> Self {
        match value {
            Node::Object(_) => Self::OBJECT,
            Node::List(_) => Self::LIST,
            Node::Deep(_) => Self::ALL,
            value if value.is_null() => Self::NULL,
            value if value.as_bool().is_some() => Self::BOOL,
            value if value.as_text().is_some() => Self::TEXT,
            _ => Self::INTEGER.or(Self::NUMBER),
        }
    }
}

struct Look<'d, 'n, 't> {
    definitions: &'d Definitions<'n, 't>,
    left: usize,
}

impl Look<'_, '_, '_> {
    /// What a schema wants; `None` if nothing would ever be changed.
    fn want(&mut self, schema: &Node<'_>, steps: usize) -> Option<Want> {
        let types = self.types(schema, steps);
        let mut want = Want { types, properties: HashMap::new(), items: None };
        self.inside(schema, &mut want, steps);
        Some(want).filter(Want::matters)
    }

    /// What a schema wants of the parts of a value. Only what holds in any case counts: no alternatives.
    fn inside(&mut self, schema: &Node<'_>, want: &mut Want, steps: usize) {
        let Some(members) = schema.as_members() else { return };
        if steps > MAX_STEPS || self.left == 0 || self.definitions.is_elsewhere(members) {
            return;
        }
        self.left -= 1;
        let required: HashSet<String> = match member(members, "required") {
            Some(Node::List(names)) => {
                names.iter().filter_map(Node::as_text).map(Cow::into_owned).collect()
            }
            _ => HashSet::new(),
        };
        if let Some(Node::Object(properties)) = member(members, "properties") {
            for property in properties {
                let name = property.name().into_owned();
                // What two schemas say of one property is left alone.
                if want.properties.contains_key(&name) {
                    want.properties.remove(&name);
                    continue;
                }
                if let Some(inside) = self.want(&property.value, steps + 1) {
                    let is_required = required.contains(&name);
                    want.properties.insert(name, Property { want: inside, is_required });
                }
            }
        }
        if let Some(items) = member(members, "items")
            && member(members, "prefixItems").is_none()
        {
            want.items = self.want(items, steps + 1).map(Box::new);
        }
        if let Some(to) = reference(members)
            && let Some(target) = self.definitions.resolve(&to)
        {
            self.inside(target, want, steps + 1);
        }
    }

    /// The types that a schema may take; all, where that is not known.
    fn types(&mut self, schema: &Node<'_>, steps: usize) -> Types {
        let Some(members) = schema.as_members() else { return Types::ALL };
        if steps > MAX_STEPS || self.left == 0 || self.definitions.is_elsewhere(members) {
            return Types::ALL;
        }
        self.left -= 1;
        let mut types = match member(members, "type") {
            Some(Node::List(words)) => words
                .iter()
                .map(|word| word.as_text().map_or(Types::ALL, |word| Types::named(&word)))
                .fold(Types::NONE, Types::or),
            Some(word) => word.as_text().map_or(Types::ALL, |word| Types::named(&word)),
            None => Types::ALL,
        };
        if let Some(Node::List(values)) = member(members, "enum") {
            types = types.and(values.iter().map(Types::of).fold(Types::NONE, Types::or));
        }
        if let Some(value) = member(members, "const") {
            types = types.and(Types::of(value));
        }
        if let Some(to) = reference(members) {
            types = types.and(match self.definitions.resolve(&to) {
                Some(target) => self.types(target, steps + 1),
                None => Types::ALL,
            });
        }
        if let Some(Node::List(all)) = member(members, "allOf") {
            types = all.iter().fold(types, |types, it| types.and(self.types(it, steps + 1)));
        }
        for union in ["anyOf", "oneOf"] {
            if let Some(Node::List(all)) =
                member(members, union).filter(|it| matches!(it, Node::List(all) if !all.is_empty()))
            {
                let any =
                    all.iter().fold(Types::NONE, |types, it| types.or(self.types(it, steps + 1)));
                types = types.and(any);
            }
        }
        types
    }
}

/// The names of arguments as the server knows them. True if any was another one. An argument that was given by the
/// server's own name as well stays what it is.
pub(crate) fn rename(members: &mut [Member<'_>], names: &[(String, String)]) -> bool {
    let last = members.iter().enumerate().map(|(at, it)| (it.name().into_owned(), at));
    let last: HashMap<_, _> = last.collect();
    let mut is_changed = false;
    for (shown, original) in names.iter().filter(|(_, original)| !last.contains_key(original)) {
        if let Some(at) = last.get(shown) {
            members[*at].rename(original);
            is_changed = true;
        }
    }
    is_changed
}
