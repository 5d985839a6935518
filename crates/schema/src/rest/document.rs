//! What a schema says, written as documents have it: without references, each schema of one type or with `anyOf`.

use std::collections::HashSet;

use super::meaning::{Kind, Meaning, NOTES, Object, Others};
use super::title::title;
use crate::node::{Member, Node, position, take};

/// The alternatives of any value. Clients take what has no type for a text.
const ANY: [&str; 4] = ["string", "number", "boolean", "null"];

/// Whether alternatives are those of any value.
pub(super) fn is_any_value(ways: &[Node<'_>]) -> bool {
    ways.len() == ANY.len() + 2 && any_value() == ways
}

fn any_value<'t>() -> Vec<Node<'t>> {
    let of = |word: &str| vec![Member::new("type", Node::text(word))];
    let mut object = of("object");
    object.push(Member::new("additionalProperties", Node::word("true")));
    let mut list = of("array");
    list.push(Member::new("items", Node::empty_object()));
    let mut ways: Vec<_> = ANY.iter().map(|word| Node::Object(of(word))).collect();
    ways.insert(3, Node::Object(list));
    ways.insert(3, Node::Object(object));
    ways
}

/// The schema of the arguments.
pub(super) fn arguments<'t>(meaning: &Meaning<'t>, name: &str) -> Node<'t> {
    let mut members = match schema(meaning) {
        Node::Object(members) => members,
        _ => Vec::new(),
    };
    take(&mut members, "title");
    members.insert(1, Member::new("title", Node::text(name)));
    if meaning.object.as_deref().is_some_and(|object| object.others == Others::Unsaid) {
        take(&mut members, "additionalProperties");
    }
    Node::Object(members)
}

pub(super) fn schema<'t>(meaning: &Meaning<'t>) -> Node<'t> {
    let mut members = Vec::new();
    match (meaning.kind, meaning.unions.first()) {
        (Some(kind), _) => members.push(Member::new("type", Node::text(kind.name()))),
        (None, Some(ways)) => {
            members.push(Member::new("anyOf", Node::List(ways.iter().map(schema).collect())));
        }
        (None, None) => members.push(Member::new("anyOf", Node::List(any_value()))),
    }
    let notes = NOTES.iter().filter_map(|name| position(&meaning.notes, name));
    members.extend(notes.map(|at| meaning.notes[at].clone()));
    if let Some(values) = &meaning.values {
        members.push(Member::new("enum", Node::List(values.clone())));
    }
    members.extend(meaning.facets.iter().cloned());
    match meaning.kind {
        Some(Kind::Object) => {
            let none = Object::default();
            object(meaning.object.as_deref().unwrap_or(&none), &mut members);
        }
        Some(Kind::List) => list(meaning, &mut members),
        _ => {}
    }
    Node::Object(members)
}

fn object<'t>(object: &Object<'t>, members: &mut Vec<Member<'t>>) {
    let by_name = |all: &[(String, Meaning<'t>)], is_told: bool| {
        let all = all.iter().map(|(name, meaning)| {
            let mut written = schema(meaning);
            if let Some(members) = written.as_members_mut().filter(|_| is_told) {
                if position(members, "title").is_none() {
                    members.insert(1, Member::new("title", Node::text(&title(name))));
                }
                if position(members, "description").is_none() {
                    members.insert(2, Member::new("description", Node::text("")));
                }
            }
            Member::new(name, written)
        });
        Node::Object(all.collect())
    };
    if !object.properties.is_empty() {
        members.push(Member::new("properties", by_name(&object.properties, true)));
    }
    if !object.required.is_empty() {
        // In the order of the properties, as clients of mcpo have them.
        let known: HashSet<&String> = object.properties.iter().map(|(name, _)| name).collect();
        let names = object.properties.iter().map(|(name, _)| name);
        let names = names.filter(|name| object.required.contains(*name));
        let others = object.required.iter().filter(|name| !known.contains(name));
        let names = names.chain(others).map(|name| Node::text(name));
        members.push(Member::new("required", Node::List(names.collect())));
    }
    if !object.patterns.is_empty() {
        members.push(Member::new("patternProperties", by_name(&object.patterns, false)));
    }
    let others = match &object.others {
        Others::None => Some(Node::word("false")),
        Others::Such(others) if others.is_anything() && others.notes.is_empty() => {
            Some(Node::word("true"))
        }
        Others::Such(others) => Some(schema(others)),
        Others::Unsaid if object.properties.is_empty() => Some(Node::word("true")),
        Others::Unsaid => None,
    };
    members.extend(others.map(|others| Member::new("additionalProperties", others)));
}

fn list<'t>(meaning: &Meaning<'t>, members: &mut Vec<Member<'t>>) {
    let list = meaning.list.as_deref();
    let first = list.map_or(&[][..], |list| &list.first);
    if !first.is_empty() {
        members.push(Member::new("prefixItems", Node::List(first.iter().map(schema).collect())));
    }
    let items = list.and_then(|list| list.items.as_ref());
    members.push(Member::new("items", schema(items.unwrap_or(&Meaning::default()))));
}
