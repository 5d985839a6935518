//! The root of the arguments: one object, where a client takes no alternatives there.
//!
//! The object has the properties of all alternatives and requires what all of them require. A property that several
//! describe in different ways is any of these. What it takes more than the original is for the original to refuse,
//! which is still enforced.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::definitions::{Definitions, reference};
use crate::fault::Fault;
use crate::node::{Member, Node, describe, member, set, take};
use crate::notes::Notes;

/// Schemas inside schemas, and references, are followed this far, and no more of them in all.
const MAX_STEPS: usize = 12;
const MAX_SCHEMAS: usize = 2000;

/// So many JSON values are copied at most, and so many ways to describe one property kept.
const MAX_COPIED: usize = 20_000;
const MAX_WAYS: usize = 20;

/// So many alternatives are named in the description.
const MAX_NAMED: usize = 20;

/// Makes one object of the alternatives at the root.
pub(crate) fn merge_unions(root: &mut Node<'_>, notes: &mut Notes) {
    let Some(members) = root.as_members() else { return };
    let present: Vec<_> =
        UNIONS.into_iter().filter(|name| member(members, name).is_some()).collect();
    if present.is_empty() {
        return;
    }
    let mut reading = RootReading::over(root);
    let object = reading.object(root, 0);
    let sentences: Vec<_> =
        ["oneOf", "anyOf"].into_iter().filter_map(|union| reading.sentence(root, union)).collect();
    let Some(members) = root.as_members_mut() else { return };
    present.iter().for_each(|name| drop(take(members, name)));
    write(members, object);
    sentences.iter().for_each(|sentence| describe(members, sentence));
    for name in present {
        notes.inside(name, |notes| match name {
            "$ref" => notes.mend(Fault::RootUnion, "what it refers to stands here"),
            _ => notes.enforce(Fault::RootUnion, "one object with the properties of all"),
        });
    }
}

/// Which arguments are needed together, where each alternative at the root needs some.
pub(crate) fn needs(root: &Node<'_>) -> Option<String> {
    let mut reading = RootReading::over(root);
    let needed = ["oneOf", "anyOf"].into_iter().filter_map(|union| {
        let mut all = branches(root.as_members()?, union).iter();
        let is_free = all.any(|branch| reading.alternative(branch).is_empty());
        if is_free { None } else { reading.sentence(root, union) }
    });
    Some(needed.collect::<Vec<_>>().join(" ")).filter(|needs| !needs.is_empty())
}

/// Takes out conditions at the root.
pub(crate) fn drop_conditions(root: &mut Node<'_>, notes: &mut Notes) {
    let Some(members) = root.as_members() else { return };
    let present: Vec<_> =
        CONDITIONS.into_iter().filter(|name| member(members, name).is_some()).collect();
    if present.is_empty() {
        return;
    }
    let mut reading = RootReading::over(root);
    let mut object = reading.object(root, 0);
    for branch in ["then", "else"] {
        if let Some(branch) = member(members, branch) {
            let optional = RootObject { required: BTreeSet::new(), ..reading.object(branch, 1) };
            object.add_alternative_properties(optional);
        }
    }
    let Some(members) = root.as_members_mut() else { return };
    present.iter().for_each(|name| drop(take(members, name)));
    // It counted the properties that a condition knows.
    take(members, "unevaluatedProperties");
    write(members, object);
    for name in present {
        notes.inside(name, |notes| notes.enforce(Fault::RootCondition, "taken out"));
    }
}

const UNIONS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];
const CONDITIONS: [&str; 6] =
    ["if", "then", "else", "not", "dependentSchemas", "dependentRequired"];

/// What is known of an object.
#[derive(Debug, Default)]
struct RootObject<'t> {
    properties: Vec<(String, Node<'t>)>,
    required: BTreeSet<String>,
}

impl<'t> RootObject<'t> {
    /// Also this one.
    fn add(&mut self, other: RootObject<'t>) {
        for (name, schema) in other.properties {
            match self.properties.iter_mut().find(|(it, _)| *it == name) {
                None => self.properties.push((name, schema)),
                Some((_, known)) => join(known, schema, "allOf"),
            }
        }
        self.required.extend(other.required);
    }

    /// Or these properties.
    fn add_alternative_properties(&mut self, other: RootObject<'t>) {
        for (name, schema) in other.properties {
            match self.properties.iter_mut().find(|(it, _)| *it == name) {
                None => self.properties.push((name, schema)),
                Some((_, known)) => join(known, schema, "anyOf"),
            }
        }
    }
}

/// Both schemas, joined by this keyword.
fn join<'t>(known: &mut Node<'t>, schema: Node<'t>, by: &str) {
    if schema.as_members().is_some_and(<[_]>::is_empty) {
        return;
    }
    if let Node::Object(members) = known
        && let [only] = members.as_mut_slice()
        && only.name() == by
        && let Node::List(all) = &mut only.value
    {
        if all.contains(&schema) {
            return;
        }
        match all.len() < MAX_WAYS {
            true => all.push(schema),
            false => *known = Node::empty_object(),
        }
        return;
    }
    if *known == schema {
        return;
    }
    let all = Node::List(vec![std::mem::replace(known, Node::empty_object()), schema]);
    *known = Node::Object(vec![Member::new(by, all)]);
}

/// A reading of a schema and all that it refers to.
struct RootReading<'n, 't> {
    definitions: Definitions<'n, 't>,
    left: usize,
    copies_left: usize,
}

impl<'n, 't> RootReading<'n, 't> {
    fn over(root: &'n Node<'t>) -> Self {
        Self { definitions: Definitions::of(root), left: MAX_SCHEMAS, copies_left: MAX_COPIED }
    }

    /// What a schema says of an object.
    fn object(&mut self, schema: &Node<'t>, steps: usize) -> RootObject<'t> {
        let mut object = RootObject::default();
        let Some(members) = schema.as_members() else { return object };
        if steps > MAX_STEPS || self.left == 0 || self.definitions.is_elsewhere(members) {
            return object;
        }
        self.left -= 1;
        if let Some(Node::Object(properties)) = member(members, "properties") {
            for property in properties {
                // What is too much to be copied is any value.
                let size = property.value.size();
                let schema = match size <= self.copies_left {
                    true => property.value.clone(),
                    false => Node::empty_object(),
                };
                self.copies_left = self.copies_left.saturating_sub(size);
                object.properties.push((property.name().into_owned(), schema));
            }
        }
        object.required = required(members);
        if let Some(target) = reference(members).and_then(|to| self.definitions.resolve(&to)) {
            object.add(self.object(target, steps + 1));
        }
        for all in branches(members, "allOf") {
            object.add(self.object(all, steps + 1));
        }
        for union in ["anyOf", "oneOf"] {
            let mut alternatives: Option<RootObject<'t>> = None;
            for branch in branches(members, union) {
                let branch = self.object(branch, steps + 1);
                match &mut alternatives {
                    None => alternatives = Some(branch),
                    Some(known) => {
                        known.required.retain(|name| branch.required.contains(name));
                        known.add_alternative_properties(branch);
                    }
                }
            }
            object.add(alternatives.unwrap_or_default());
        }
        object
    }

    /// What a model should know of the alternatives.
    fn sentence(&mut self, root: &Node<'t>, union: &str) -> Option<String> {
        let branches = branches(root.as_members()?, union);
        if branches.len() < 2 {
            return None;
        }
        let mut named: Vec<_> =
            branches.iter().take(MAX_NAMED).map(|it| self.alternative(it)).collect();
        named.retain(|it| !it.is_empty());
        let how = if union == "oneOf" { "exactly one" } else { "at least one" };
        (!named.is_empty()).then(|| format!("Give {how} of: {}.", named.join("; ")))
    }

    /// The arguments that an alternative needs, with their values where there is only one.
    fn alternative(&mut self, branch: &Node<'t>) -> String {
        let object = self.object(branch, 1);
        let value = |name: &str| {
            let (_, schema) = object.properties.iter().find(|(it, _)| it == name)?;
            let members = schema.as_members()?;
            let only = match member(members, "enum") {
                Some(Node::List(values)) if values.len() == 1 => values.first(),
                _ => member(members, "const"),
            };
            only.map(Node::written)
        };
        let names = object.required.iter().map(|name| match value(name) {
            Some(value) => format!("`{name}` = {value}"),
            None => format!("`{name}`"),
        });
        names.collect::<Vec<_>>().join(" and ")
    }
}

fn branches<'n, 't>(members: &'n [Member<'t>], union: &str) -> &'n [Node<'t>] {
    match member(members, union) {
        Some(Node::List(all)) => all,
        _ => &[],
    }
}

fn required(members: &[Member<'_>]) -> BTreeSet<String> {
    let Some(Node::List(names)) = member(members, "required") else { return BTreeSet::new() };
    names.iter().filter_map(Node::as_text).map(Cow::into_owned).collect()
}

fn write<'t>(members: &mut Vec<Member<'t>>, object: RootObject<'t>) {
    let all = object.properties.into_iter().map(|(name, schema)| Member::new(&name, schema));
    set(members, "properties", Node::Object(all.collect()));
    if !object.required.is_empty() {
        let names = object.required.iter().map(|name| Node::text(name));
        set(members, "required", Node::List(names.collect()));
    }
}
