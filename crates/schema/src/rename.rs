//! Names as a client takes them: of a tool and of its arguments. Each leads back to the one that the server knows.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::definitions::is_base;
use crate::fault::Fault;
use crate::node::{Member, Node, member, position, take};
use crate::notes::Notes;
use crate::profile::Names;
use crate::root;
use crate::walk::each_schema;

/// Keywords whose schemas are about the same arguments as the root: it has one of them, or several.
const ONE_IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
const MORE_IN_PLACE: [&str; 4] = ["allOf", "anyOf", "oneOf", "dependentSchemas"];

/// What speaks of names in another way than by them, or leads to where others may be told.
const UNFOLLOWED: [&str; 4] = ["$ref", "$dynamicRef", "patternProperties", "propertyNames"];

/// Renames arguments that have other letters than these. Gives the names that are shown, and what they stand for.
pub(crate) fn rename_keys(
    root: &mut Node<'_>,
    names: &Names,
    notes: &mut Notes,
) -> Vec<(String, String)> {
    let properties = root.as_members().and_then(|it| member(it, "properties")?.as_members());
    if properties.is_none_or(|all| all.iter().all(|it| names.fit(&it.name()))) {
        return Vec::new();
    }
    make_plain(root, notes);
    let Some(members) = root.as_members_mut() else { return Vec::new() };
    let mut taken = HashSet::new();
    each_in_place(members, &mut |members| taken.extend(told(members)));
    let Some(Node::Object(properties)) = member(members, "properties") else { return Vec::new() };
    let (mut renamed, mut known) = (Vec::new(), HashSet::new());
    for property in properties {
        let original = property.name().into_owned();
        if names.fit(&original) || !known.insert(property.name()) {
            continue;
        }
        let mut shown = names.fitted(&original);
        if taken.contains(&shown) {
            shown = names.marked(&original);
        }
        taken.insert(shown.clone());
        notes.inside("properties", |notes| {
            notes.inside(&original, |notes| notes.mend(Fault::Key, format!("is `{shown}`")));
        });
        renamed.push((shown, original));
    }
    let shown = renamed.iter().map(|(shown, original)| (original.as_str(), shown.as_str()));
    let shown: HashMap<_, _> = shown.collect();
    each_in_place(members, &mut |members| rename_told(members, &shown));
    cut_references(root, notes);
    renamed
}

/// Takes out at the root what speaks of the arguments in a way that cannot be renamed. Alternatives become one object.
fn make_plain(root: &mut Node<'_>, notes: &mut Notes) {
    let is_whole = |members: &[Member<'_>], keyword: &str| {
        member(members, keyword).is_none_or(|it| in_place(keyword, it).all(is_plain))
    };
    let Some(members) = root.as_members() else { return };
    let refers = ["$ref", "$dynamicRef"].iter().any(|it| position(members, it).is_some());
    if refers || ["allOf", "anyOf", "oneOf"].iter().any(|it| !is_whole(members, it)) {
        root::merge_unions(root, notes);
    }
    let Some(members) = root.as_members_mut() else { return };
    let is_condition_whole = ["if", "then", "else"].iter().all(|it| is_whole(members, it));
    let mut parts = vec!["$dynamicRef", "propertyNames"];
    parts.extend(["if", "then", "else"].into_iter().filter(|_| !is_condition_whole));
    parts.extend(["not", "dependentSchemas"].into_iter().filter(|it| !is_whole(members, it)));
    // What is about the other properties would be about more of them.
    if position(members, "patternProperties").is_some() {
        parts.extend(["patternProperties", "additionalProperties", "unevaluatedProperties"]);
    }
    for keyword in parts {
        if take(members, keyword).is_some() {
            notes.inside(keyword, |notes| {
                notes.enforce(Fault::Key, "speaks of other names: taken out")
            });
        }
    }
}

/// Whether a schema inside the root speaks of the arguments by their names alone, so that to rename them there is enough.
fn is_plain(node: &Node<'_>) -> bool {
    let Some(members) = node.as_members() else { return true };
    !is_base(members)
        && UNFOLLOWED.iter().all(|it| position(members, it).is_none())
        && members.iter().all(|it| in_place(&it.name(), &it.value).all(is_plain))
}

/// The schemas of a keyword that are about the same arguments.
fn in_place<'n, 't>(keyword: &str, value: &'n Node<'t>) -> impl Iterator<Item = &'n Node<'t>> {
    let one = Some(value).filter(|_| ONE_IN_PLACE.contains(&keyword));
    let (list, map) = match value {
        _ if !MORE_IN_PLACE.contains(&keyword) => (&[][..], &[][..]),
        Node::List(all) => (&all[..], &[][..]),
        Node::Object(all) => (&[][..], &all[..]),
        Node::Plain(_) | Node::Deep(_) => (&[][..], &[][..]),
    };
    one.into_iter().chain(list).chain(map.iter().map(|it| &it.value))
}

/// Visits the root and every schema inside it that is about the same arguments.
fn each_in_place<'t>(members: &mut Vec<Member<'t>>, visit: &mut dyn FnMut(&mut Vec<Member<'t>>)) {
    visit(members);
    for member in members {
        let keyword = member.name().into_owned();
        let mut go = |node: &mut Node<'t>| {
            if let Node::Object(members) = node {
                each_in_place(members, visit);
            }
        };
        match &mut member.value {
            value if ONE_IN_PLACE.contains(&keyword.as_str()) => go(value),
            _ if !MORE_IN_PLACE.contains(&keyword.as_str()) => {}
            Node::List(all) => all.iter_mut().for_each(go),
            Node::Object(all) => all.iter_mut().for_each(|it| go(&mut it.value)),
            Node::Plain(_) | Node::Deep(_) => {}
        }
    }
}

/// The names of arguments that a schema speaks of, without those inside it.
fn told(members: &[Member<'_>]) -> Vec<String> {
    let texts = |node: &Node<'_>| match node {
        Node::List(all) => all.iter().filter_map(Node::as_text).map(Cow::into_owned).collect(),
        _ => Vec::new(),
    };
    let mut names = member(members, "required").map(texts).unwrap_or_default();
    for keyword in ["properties", "dependentRequired", "dependentSchemas"] {
        for one in member(members, keyword).and_then(Node::as_members).unwrap_or_default() {
            names.push(one.name().into_owned());
            names.extend(texts(&one.value));
        }
    }
    names
}

/// Gives the arguments their names in all that a schema says of them, without those inside it.
fn rename_told(members: &mut [Member<'_>], shown: &HashMap<&str, &str>) {
    let rename_texts = |node: &mut Node<'_>| {
        let Node::List(all) = node else { return };
        for name in all {
            if let Some(shown) = name.as_text().and_then(|it| shown.get(&*it)) {
                *name = Node::text(shown);
            }
        }
    };
    for member in members {
        let keyword = member.name().into_owned();
        match (keyword.as_str(), &mut member.value) {
            ("required", names) => rename_texts(names),
            ("properties" | "dependentRequired" | "dependentSchemas", Node::Object(all)) => {
                for one in all {
                    if let Some(shown) = shown.get(&*one.name()).copied() {
                        one.rename(shown);
                    }
                    rename_texts(&mut one.value);
                }
            }
            _ => {}
        }
    }
}

/// Takes out references to the root, and to what is about the same arguments: they are about values whose members
/// have the server's names.
fn cut_references(root: &mut Node<'_>, notes: &mut Notes) {
    let Some(members) = root.as_members() else { return };
    let mut whole = vec!["#".to_owned()];
    for anchor in ["$anchor", "$dynamicAnchor"] {
        let name = member(members, anchor).and_then(Node::as_text);
        whole.extend(name.map(|name| format!("#{name}")));
    }
    let is_inside = |to: &str| {
        let keyword = to.strip_prefix("#/").and_then(|it| it.split('/').next());
        keyword.is_some_and(|it| ONE_IN_PLACE.contains(&it) || MORE_IN_PLACE.contains(&it))
    };
    each_schema(root, notes, &mut |members, notes| {
        for keyword in ["$ref", "$dynamicRef"] {
            let to = member(members, keyword).and_then(Node::as_text);
            if to.is_some_and(|to| whole.iter().any(|it| *it == to) || is_inside(&to)) {
                take(members, keyword);
                notes.inside(keyword, |notes| {
                    notes.enforce(Fault::Key, "leads to what has other names: taken out")
                });
            }
        }
    });
}

/// The tool's name as it is shown, if it is another one.
pub(crate) fn rename_tool(
    members: &mut Vec<Member<'_>>,
    names: &Names,
    notes: &mut Notes,
) -> Option<String> {
    let at = position(members, "name")?;
    let original = members[at].value.as_text()?.into_owned();
    if original.is_empty() || names.fit(&original) {
        return None;
    }
    let shown = names.marked(&original);
    members[at].value = Node::text(&shown);
    if member(members, "title").is_none() {
        members.insert(at + 1, Member::new("title", Node::text(&original)));
    }
    let fault = if names.has_letters(&original) { Fault::NameLength } else { Fault::NameLetters };
    notes.inside("name", |notes| notes.mend(fault, format!("is `{shown}`")));
    Some(original)
}
