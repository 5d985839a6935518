//! What a schema says, apart from how it is written: the way between any schema and the form that documents have.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::node::{Member, Node, member, position};

/// So many ways to describe one property are kept.
const MAX_WAYS: usize = 20;

/// So few names are looked for one by one.
const FEW: usize = 8;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Text,
    Integer,
    Number,
    Bool,
    Null,
    List,
    Object,
}

impl Kind {
    /// The type of this name.
    pub(super) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "string" => Self::Text,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Bool,
            "null" => Self::Null,
            "array" => Self::List,
            "object" => Self::Object,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Bool => "boolean",
            Self::Null => "null",
            Self::List => "array",
            Self::Object => "object",
        }
    }

    /// The type of a value.
    pub(super) fn of(value: &Node<'_>) -> Self {
        match value {
            Node::Object(_) => Self::Object,
            Node::List(_) => Self::List,
            Node::Deep(text) if text.starts_with('{') => Self::Object,
            Node::Deep(_) => Self::List,
            value if value.is_null() => Self::Null,
            value if value.as_bool().is_some() => Self::Bool,
            Node::Plain(text) if text.starts_with('"') => Self::Text,
            Node::Plain(text) if text.contains(['.', 'e', 'E']) => Self::Number,
            Node::Plain(_) => Self::Integer,
        }
    }

    /// Whether every value of that type is of this one, too.
    pub(super) fn holds(self, other: Self) -> bool {
        self == other || (self, other) == (Self::Number, Self::Integer)
    }

    /// The values that are of both types; `None` if there are none.
    fn and(self, other: Self) -> Option<Self> {
        match (self.holds(other), other.holds(self)) {
            (true, _) => Some(other),
            (_, true) => Some(self),
            _ => None,
        }
    }

    /// Whether a keyword speaks of values of this type.
    pub(super) fn has(self, keyword: &str) -> bool {
        let keywords: &[&str] = match self {
            Self::Text => &[
                "minLength",
                "maxLength",
                "pattern",
                "format",
                "contentEncoding",
                "contentMediaType",
            ],
            Self::Integer | Self::Number => &[
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "exclusiveMaximum",
                "multipleOf",
                "format",
            ],
            Self::List => &["minItems", "maxItems", "uniqueItems"],
            Self::Object => &["minProperties", "maxProperties", "dependentRequired"],
            Self::Bool | Self::Null => &[],
        };
        keywords.contains(&keyword)
    }
}

/// Keywords that say nothing about which values are taken.
pub(super) const NOTES: [&str; 7] =
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// What a schema says.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Meaning<'t> {
    /// It takes no value at all.
    pub(super) is_never: bool,
    /// Its type, if it says one.
    pub(super) kind: Option<Kind>,
    /// Whether it is shown and not always meant: any value is taken.
    pub(super) is_open: bool,
    /// For readers: a title, a description.
    pub(super) notes: Vec<Member<'t>>,
    /// The values that it lists.
    pub(super) values: Option<Vec<Node<'t>>>,
    /// Limits and formats.
    pub(super) facets: Vec<Member<'t>>,
    pub(super) object: Option<Box<Object<'t>>>,
    pub(super) list: Option<Box<List<'t>>>,
    /// One of each of these is said as well.
    pub(super) unions: Vec<Vec<Meaning<'t>>>,
}

/// What it says of objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object<'t> {
    pub(super) properties: Vec<(String, Meaning<'t>)>,
    pub(super) required: BTreeSet<String>,
    pub(super) others: Others<'t>,
    /// Properties by patterns of their names.
    pub(super) patterns: Vec<(String, Meaning<'t>)>,
}

/// What it says of other properties.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Others<'t> {
    /// Nothing.
    #[default]
    Unsaid,
    /// There are none.
    None,
    /// They are such.
    Such(Box<Meaning<'t>>),
}

/// What it says of lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct List<'t> {
    pub(super) first: Vec<Meaning<'t>>,
    pub(super) items: Option<Meaning<'t>>,
}

impl<'t> Meaning<'t> {
    pub(super) fn never() -> Self {
        Self { is_never: true, ..Self::default() }
    }

    pub(super) fn of_kind(kind: Kind) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }

    /// Whether it takes any value.
    pub(super) fn is_anything(&self) -> bool {
        !self.is_never && self.kind.is_none() && !self.has_parts() && self.unions.is_empty()
    }

    /// Whether it says more than a type.
    pub(super) fn has_parts(&self) -> bool {
        self.values.is_some()
            || !self.facets.is_empty()
            || self.object.is_some()
            || self.list.is_some()
    }

    pub(super) fn note(&self, name: &str) -> Option<&Node<'t>> {
        member(&self.notes, name)
    }

    /// How much it is, about.
    pub(super) fn weight(&self) -> usize {
        let of_object = self.object.iter().map(|object| {
            let others = match &object.others {
                Others::Such(others) => others.weight(),
                _ => 0,
            };
            let all = object.properties.iter().chain(&object.patterns);
            others + all.map(|(_, it)| it.weight()).sum::<usize>()
        });
        let of_list = self.list.iter().flat_map(|list| list.first.iter().chain(&list.items));
        let inside = self.unions.iter().flatten().chain(of_list).map(Self::weight);
        1 + self.values.as_ref().map_or(0, Vec::len)
            + self.facets.len()
            + of_object.chain(inside).sum::<usize>()
    }

    /// Keeps its own notes, and takes those that it does not have.
    pub(super) fn add_notes(&mut self, notes: Vec<Member<'t>>) {
        for note in notes {
            if position(&self.notes, &note.name()).is_none() {
                self.notes.push(note);
            }
        }
    }

    /// What both say; the first alone if they contradict each other, which is `false`.
    pub(super) fn and(mut self, other: Self) -> (Self, bool) {
        if self.is_never || other.is_never {
            return (Self::never(), true);
        }
        let kind = match (self.kind, other.kind) {
            (Some(one), Some(two)) => match one.and(two) {
                Some(kind) => Some(kind),
                // What only seems to be of a type gives way.
                None if self.is_open => return (other, true),
                None => return (self, other.is_open),
            },
            (one, two) => one.or(two),
        };
        let values = match (self.values.take(), other.values) {
            (Some(mut one), Some(two)) => {
                let before = one.clone();
                let two: HashSet<_> = two.iter().map(Node::written).collect();
                one.retain(|it| two.contains(&it.written()));
                if one.is_empty() {
                    self.values = Some(before);
                    return (self, false);
                }
                Some(one)
            }
            (one, two) => one.or(two),
        };
        self.is_open |= other.is_open;
        self.add_notes(other.notes);
        for facet in other.facets {
            add_facet(&mut self.facets, facet);
        }
        let object = match (self.object, other.object) {
            (Some(one), Some(two)) => Some(Box::new(one.and(*two))),
            (one, two) => one.or(two),
        };
        let list = match (self.list, other.list) {
            (Some(one), Some(two)) => Some(Box::new(one.and(*two))),
            (one, two) => one.or(two),
        };
        self.unions.extend(other.unions);
        (Self { kind, values, object, list, ..self }, true)
    }

    /// What either says.
    pub(super) fn or(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        let mut ways = match self.unions.as_slice() {
            [_] if self.kind.is_none() && !self.has_parts() && self.notes.is_empty() => {
                self.unions.into_iter().next().unwrap_or_default()
            }
            _ => vec![self],
        };
        if !ways.contains(&other) {
            ways.push(other);
        }
        match ways.len() <= MAX_WAYS {
            true => Self { unions: vec![ways], ..Self::default() },
            false => Self::default(),
        }
    }
}

impl<'t> Object<'t> {
    pub(super) fn and(mut self, other: Self) -> Self {
        let places: Vec<_> = match other.properties.len() < FEW {
            true => other.properties.iter().map(|(name, _)| self.place(name)).collect(),
            false => {
                let known = self.places();
                other.properties.iter().map(|(name, _)| known.get(name).copied()).collect()
            }
        };
        for ((name, meaning), place) in other.properties.into_iter().zip(places) {
            match place {
                None => self.properties.push((name, meaning)),
                Some(at) => {
                    let before = std::mem::take(&mut self.properties[at].1);
                    self.properties[at].1 = before.and(meaning).0;
                }
            }
        }
        self.required.extend(other.required);
        self.others = match (self.others, other.others) {
            (Others::None, _) | (_, Others::None) => Others::None,
            (Others::Such(one), Others::Such(two)) => Others::Such(Box::new(one.and(*two).0)),
            (Others::Unsaid, others) | (others, Others::Unsaid) => others,
        };
        for (pattern, meaning) in other.patterns {
            if self.patterns.iter().all(|(it, _)| *it != pattern) {
                self.patterns.push((pattern, meaning));
            }
        }
        self
    }

    /// Adds properties that it may have, which take any value where they are not meant.
    pub(super) fn add_possible(&mut self, other: Self) {
        let known = self.places();
        for (name, mut meaning) in other.properties {
            if !known.contains_key(&name) {
                meaning.is_open = true;
                self.properties.push((name, meaning));
            }
        }
    }

    /// Whether it takes no other properties.
    pub(super) fn is_closed(&self) -> bool {
        self.others == Others::None && self.patterns.is_empty()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.properties.iter().position(|(it, _)| it == name)
    }

    pub(super) fn places(&self) -> HashMap<String, usize> {
        self.properties.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect()
    }
}

impl List<'_> {
    fn and(mut self, other: Self) -> Self {
        if self.first.is_empty() {
            self.first = other.first;
        } else if other.items.is_some() {
            // They speak of different items.
            return self;
        }
        self.items = match (self.items, other.items) {
            (Some(one), Some(two)) => Some(one.and(two).0),
            (one, two) => one.or(two),
        };
        self
    }
}

/// Puts a limit beside the others; of two the one that takes less.
pub(super) fn add_facet<'t>(facets: &mut Vec<Member<'t>>, facet: Member<'t>) {
    let Some(at) = position(facets, &facet.name()) else { return facets.push(facet) };
    let size = |node: &Node<'_>| node.as_number().and_then(|it| it.parse::<f64>().ok());
    let (known, new) = (size(&facets[at].value), size(&facet.value));
    let name = facet.name();
    let is_less = name.starts_with("max") || name.starts_with("exclusiveMax");
    let is_more = name.starts_with("min") || name.starts_with("exclusiveMin");
    let is_tighter = match (known, new) {
        (Some(known), Some(new)) => (is_less && new < known) || (is_more && new > known),
        _ => facet.value.as_bool() == Some(true),
    };
    if is_tighter {
        facets[at].value = facet.value.clone();
    }
}
