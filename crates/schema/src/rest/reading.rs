//! Schemas read: what each says, with all that it refers to.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::document::is_any_value;
use super::meaning::{Kind, List, Meaning, NOTES, Object, Others};
use crate::definitions::{Definitions, reference};
use crate::node::{Member, Node, member, take};
use crate::walk::look;

/// How often a reference may lead to what it stands in, and how many references inside each other are followed.
const MAX_ROUNDS: usize = 2;
const MAX_FOLLOWED: usize = 24;

/// How deep schemas may stand in each other, references and alternatives included.
const MAX_DEPTH: usize = 100;

/// So many bytes are put in the place of references.
const MAX_PUT_IN: usize = 256 << 10;

/// A reading of a schema.
pub(super) struct Reading<'n, 't> {
    definitions: Definitions<'n, 't>,
    /// Schemas by the names that they have.
    named: HashMap<String, &'n [Member<'t>]>,
    /// The references that are being followed.
    followed: Vec<String>,
    /// How long what they lead to is.
    lengths: HashMap<String, usize>,
    bytes_left: usize,
    depth: usize,
    /// How many schemas around have an address of their own: references in them are not followed.
    elsewhere: usize,
}

impl<'n, 't> Reading<'n, 't> {
    pub(super) fn over(root: &'n Node<'t>) -> Self {
        let mut named = HashMap::new();
        look(root, &mut |members| {
            for (keyword, before) in [("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", "")] {
                if let Some(name) = member(members, keyword).and_then(Node::as_text) {
                    named.entry(format!("{before}{name}")).or_insert(members);
                }
            }
        });
        Self {
            definitions: Definitions::of(root),
            named,
            followed: Vec::new(),
            lengths: HashMap::new(),
            bytes_left: MAX_PUT_IN,
            depth: 0,
            elsewhere: 0,
        }
    }

    /// What a schema says.
    pub(super) fn read(&mut self, schema: &'n Node<'t>) -> Meaning<'t> {
        let Some(members) = schema.as_members() else {
            return match schema.as_bool() {
                Some(false) => Meaning::never(),
                _ => Meaning::default(),
            };
        };
        self.read_members(members)
    }

    fn read_members(&mut self, members: &'n [Member<'t>]) -> Meaning<'t> {
        if self.depth >= MAX_DEPTH {
            return cut(members);
        }
        let is_elsewhere = usize::from(self.definitions.is_elsewhere(members));
        self.depth += 1;
        self.elsewhere += is_elsewhere;
        let meaning = self.read_here(members);
        self.elsewhere -= is_elsewhere;
        self.depth -= 1;
        meaning
    }

    fn read_here(&mut self, members: &'n [Member<'t>]) -> Meaning<'t> {
        let mut meaning = own(members);
        meaning.object = self.object(members);
        meaning.list = self.list(members);
        let mut unions = self.types(members);
        for keyword in ["$ref", "$dynamicRef"] {
            let to = match keyword {
                "$ref" => reference(members),
                _ => member(members, keyword).and_then(Node::as_text).map(Cow::into_owned),
            };
            if let Some(to) = to.filter(|_| self.elsewhere == 0) {
                meaning = meaning.and(self.follow(&to)).0;
            }
        }
        for schema in schemas(members, "allOf") {
            meaning = meaning.and(self.read(schema)).0;
        }
        for keyword in ["anyOf", "oneOf"] {
            let all = schemas(members, keyword);
            if !all.is_empty() && !is_any_value(all) {
                unions.push(all.iter().map(|it| self.read(it)).collect());
            }
        }
        unions.append(&mut meaning.unions);
        meaning.unions = unions;
        self.conditions(members, &mut meaning);
        meaning
    }

    /// What a reference leads to; what comes after too many of them is any value of the type that it says.
    fn follow(&mut self, to: &str) -> Meaning<'t> {
        let target = match self.definitions.resolve(to) {
            None => self.named(to),
            Some(target) if target.as_members().is_none() => return self.read(target),
            Some(target) => target.as_members(),
        };
        let Some(target) = target else { return Meaning::default() };
        let rounds = self.followed.iter().filter(|it| *it == to).count();
        if rounds >= MAX_ROUNDS || self.followed.len() >= MAX_FOLLOWED {
            return cut(target);
        }
        let length = match self.lengths.get(to) {
            Some(length) => *length,
            None => {
                let length =
                    target.iter().map(|it| it.name().len() + it.value.written().len()).sum();
                self.lengths.insert(to.to_owned(), length);
                length
            }
        };
        match self.bytes_left.checked_sub(length) {
            None => return Meaning { notes: Vec::new(), ..cut(target) },
            Some(left) => self.bytes_left = left,
        }
        self.followed.push(to.to_owned());
        let meaning = self.read_members(target);
        self.followed.pop();
        meaning
    }

    /// The schema of a name; names are addresses, and some end as the reference does.
    fn named(&self, to: &str) -> Option<&'n [Member<'t>]> {
        let end = to.trim_end_matches('#');
        let ends = |name: &str| !end.is_empty() && name.trim_end_matches('#').ends_with(end);
        let by_end =
            || self.named.iter().filter(|(name, _)| ends(name)).min_by_key(|(name, _)| *name);
        self.named.get(to).or_else(|| by_end().map(|(_, it)| it)).copied()
    }

    /// Several types are as many alternatives.
    fn types(&self, members: &[Member<'t>]) -> Vec<Vec<Meaning<'t>>> {
        let Some(Node::List(words)) = member(members, "type") else { return Vec::new() };
        let kinds = words.iter().filter_map(|it| it.as_text().and_then(|it| Kind::named(&it)));
        let ways: Vec<_> = kinds.map(Meaning::of_kind).collect();
        if ways.is_empty() { Vec::new() } else { vec![ways] }
    }

    fn object(&mut self, members: &'n [Member<'t>]) -> Option<Box<Object<'t>>> {
        const KEYWORDS: [&str; 5] = [
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "unevaluatedProperties",
        ];
        if KEYWORDS.iter().all(|keyword| member(members, keyword).is_none()) {
            return None;
        }
        let properties = self.by_name(members, "properties");
        let required = match member(members, "required") {
            Some(Node::List(names)) => {
                names.iter().filter_map(Node::as_text).map(Cow::into_owned).collect()
            }
            _ => BTreeSet::new(),
        };
        // Alone it says the same as the other; beside alternatives it counts what they know.
        let is_alone = UNIONS.iter().all(|keyword| member(members, keyword).is_none());
        let others = member(members, "additionalProperties")
            .or_else(|| member(members, "unevaluatedProperties").filter(|_| is_alone));
        let others = match others {
            None => Others::Unsaid,
            Some(schema) => match self.read(schema) {
                meaning if meaning.is_never => Others::None,
                meaning => Others::Such(Box::new(meaning)),
            },
        };
        let patterns = self.by_name(members, "patternProperties");
        Some(Box::new(Object { properties, required, others, patterns }))
    }

    fn by_name(&mut self, members: &'n [Member<'t>], keyword: &str) -> Vec<(String, Meaning<'t>)> {
        let Some(Node::Object(all)) = member(members, keyword) else { return Vec::new() };
        let mut last = HashMap::new();
        for (at, member) in all.iter().enumerate() {
            last.insert(member.name(), at);
        }
        let counts = |at: usize, name: &Cow<'_, str>| last.get(name) == Some(&at);
        let all = all.iter().enumerate().filter(|(at, it)| counts(*at, &it.name()));
        let mut read = Vec::new();
        for (_, it) in all {
            let mut meaning = self.read(&it.value);
            let members = it.value.as_members().unwrap_or_default();
            if member(members, "title").is_none() {
                // What it refers to has the title of something else.
                take(&mut meaning.notes, "title");
            }
            read.push((it.name().into_owned(), meaning));
        }
        read
    }

    fn list(&mut self, members: &'n [Member<'t>]) -> Option<Box<List<'t>>> {
        let first: Vec<_> =
            schemas(members, "prefixItems").iter().map(|it| self.read(it)).collect();
        let items = member(members, "items").map(|items| self.read(items));
        let is_there = !first.is_empty() || items.is_some();
        is_there.then(|| Box::new(List { first, items }))
    }

    /// The properties of which conditions speak.
    fn conditions(&mut self, members: &'n [Member<'t>], meaning: &mut Meaning<'t>) {
        let branches = ["then", "else"].into_iter().filter_map(|keyword| member(members, keyword));
        let dependent = member(members, "dependentSchemas").and_then(Node::as_members);
        let branches = branches.chain(dependent.unwrap_or_default().iter().map(|it| &it.value));
        for branch in branches {
            if let Some(object) = self.read(branch).object {
                meaning.object.get_or_insert_default().add_possible(*object);
            }
        }
    }
}

const UNIONS: [&str; 7] =
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"];

/// What a schema says by itself, but for properties and items.
fn own<'t>(members: &[Member<'t>]) -> Meaning<'t> {
    let mut meaning = Meaning::default();
    if let Some(word) = member(members, "type").and_then(Node::as_text) {
        meaning.kind = Kind::named(&word);
    }
    for name in NOTES {
        if let Some(note) = member(members, name) {
            meaning.notes.push(Member::new(name, note.clone()));
        }
    }
    let kinds = [Kind::Text, Kind::Number, Kind::List, Kind::Object];
    for it in members {
        let name = it.name();
        let is_known = meaning.facets.iter().any(|facet| facet.is_named(&name));
        if kinds.iter().any(|kind| kind.has(&name))
            && !is_known
            && let Some(facet) = member(members, &name)
        {
            meaning.facets.push(Member::new(&name, facet.clone()));
        }
    }
    if let Some(Node::List(values)) = member(members, "enum")
        && !values.is_empty()
    {
        meaning.values = Some(values.clone());
    }
    if let Some(value) = member(members, "const") {
        let only = Meaning { values: Some(vec![value.clone()]), ..Meaning::default() };
        meaning = meaning.and(only).0;
    }
    meaning
}

/// What is left of a schema that is not looked into: its type, and what it says to readers.
fn cut<'t>(members: &[Member<'t>]) -> Meaning<'t> {
    let whole = own(members);
    Meaning { kind: whole.kind, notes: whole.notes, ..Meaning::default() }
}

fn schemas<'n, 't>(members: &'n [Member<'t>], keyword: &str) -> &'n [Node<'t>] {
    match member(members, keyword) {
        Some(Node::List(all)) => all,
        _ => &[],
    }
}
