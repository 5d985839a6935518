//! The words of older drafts, and of OpenAPI, in those of draft 2020-12.

use crate::definitions::reference;
use crate::fault::Fault;
use crate::node::{Member, Node, member, position, set, take};
use crate::notes::Notes;
use crate::type_words;
use crate::walk::each_schema;

/// Brings the members of a schema up to date.
pub(crate) fn update(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    limits(members, notes);
    tuple(members, notes);
    dependencies(members, notes);
    renamed(members, notes);
    nullable(members, notes);
}

/// Takes out what stands beside references where `$schema` names a draft that ignores it: its server takes what that
/// would refuse.
pub(crate) fn drop_ignored(root: &mut Node<'_>) {
    let dialect = root.as_members().and_then(|members| member(members, "$schema"));
    if !dialect.and_then(Node::as_text).is_some_and(|it| ignores_siblings(&it)) {
        return;
    }
    let mut is_root = true;
    each_schema(root, &mut Notes::default(), &mut |members, _| {
        // Arguments are always an object, and other references may lead to definitions.
        let is_type = std::mem::take(&mut is_root);
        if reference(members).is_some() {
            members.retain(|member| {
                let name = member.name();
                matches!(&*name, "$ref" | "$schema" | "definitions" | "$defs")
                    || is_type && name == "type"
            });
        }
    });
}

/// Whether this is a draft before 2019-09.
fn ignores_siblings(dialect: &str) -> bool {
    ["draft-07", "draft-06", "draft-05", "draft-04", "draft-03"]
        .iter()
        .any(|draft| dialect.contains(&format!("json-schema.org/{draft}/")))
}

/// A limit that is exclusive or not.
fn limits(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(at) = position(members, exclusive) else { continue };
        let Some(is_exclusive) = members[at].value.as_bool() else { continue };
        let limit = position(members, limit).filter(|_| is_exclusive);
        match limit.filter(|limit| members[*limit].value.as_number().is_some()) {
            Some(limit) => {
                members[at].value = members[limit].value.clone();
                members.remove(limit);
            }
            None => drop(members.remove(at)),
        }
        notes.inside(exclusive, |notes| notes.mend(Fault::OldLimit, "is the limit itself"));
    }
}

/// The schemas of single items.
fn tuple(members: &mut [Member<'_>], notes: &mut Notes) {
    let Some(at) = position(members, "items") else { return };
    let Node::List(items) = &members[at].value else { return };
    let is_schema = |item: &Node<'_>| matches!(item, Node::Object(_)) || item.as_bool().is_some();
    let is_tuple = !items.is_empty() && items.iter().all(is_schema);
    if !is_tuple || position(members, "prefixItems").is_some() {
        return;
    }
    members[at].rename("prefixItems");
    if let Some(rest) = position(members, "additionalItems") {
        members[rest].rename("items");
    }
    notes.inside("items", |notes| notes.mend(Fault::Tuple, "is `prefixItems`"));
}

/// What a property needs beside it: names, or a schema.
fn dependencies(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(value) = take(members, "dependencies") else { return };
    let Node::Object(all) = value else {
        return notes.inside("dependencies", |notes| match value.is_null() {
            true => notes.mend(Fault::OldWord, "null says nothing: taken out"),
            false => notes.widen(Fault::OldWord, "has no meaning: taken out"),
        });
    };
    for one in all {
        let is_schema = matches!(one.value, Node::Object(_)) || one.value.as_bool().is_some();
        let keyword = if is_schema { "dependentSchemas" } else { "dependentRequired" };
        let at = position(members, keyword).unwrap_or_else(|| {
            members.push(Member::new(keyword, Node::empty_object()));
            members.len() - 1
        });
        if let Node::Object(known) = &mut members[at].value
            && position(known, &one.name()).is_none()
        {
            known.push(one);
        }
    }
    notes.inside("dependencies", |notes| {
        notes.mend(Fault::OldWord, "is `dependentRequired` and `dependentSchemas`");
    });
}

/// Keywords that have another name now.
fn renamed(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    for (old, new, fits) in [
        ("id", "$id", is_address as fn(&Node<'_>) -> bool),
        ("divisibleBy", "multipleOf", is_number),
    ] {
        let Some(at) = position(members, old).filter(|at| fits(&members[*at].value)) else {
            continue;
        };
        if position(members, new).is_none() {
            members[at].rename(new);
            notes.inside(old, |notes| notes.mend(Fault::OldWord, format!("is `{new}`")));
        }
    }
    extends(members, notes);
}

/// What a schema extends has to hold as well.
fn extends(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "extends").filter(|at| is_schema(&members[*at].value)) else {
        return;
    };
    let more = match members.remove(at).value {
        Node::List(all) => all,
        one => vec![one],
    };
    match position(members, "allOf").map(|at| &mut members[at].value) {
        Some(Node::List(all)) => all.extend(more),
        _ => set(members, "allOf", Node::List(more)),
    }
    notes.inside("extends", |notes| notes.mend(Fault::OldWord, "is `allOf`"));
}

/// A property may be called `id`; only an address is the name of a schema.
fn is_address(value: &Node<'_>) -> bool {
    value.as_text().is_some_and(|text| text.contains("://"))
}

fn is_number(value: &Node<'_>) -> bool {
    value.as_number().is_some()
}

fn is_schema(value: &Node<'_>) -> bool {
    matches!(value, Node::Object(_) | Node::List(_))
}

/// Null as one of the types, as OpenAPI 3.0 has it.
fn nullable(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "nullable") else { return };
    let Some(is_nullable) = members[at].value.as_bool() else { return };
    members.remove(at);
    let types = position(members, "type").filter(|_| is_nullable);
    if let Some(types) = types {
        type_words::add_null(&mut members[types].value);
    }
    // Null has to be one of the values too.
    if let Some(values) = position(members, "enum").filter(|_| is_nullable)
        && let Node::List(values) = &mut members[values].value
        && !values.is_empty()
        && !values.iter().any(Node::is_null)
    {
        values.push(Node::word("null"));
    }
    if is_nullable && types.is_none() {
        null_beside(members);
    }
    notes.inside("nullable", |notes| notes.mend(Fault::Nullable, "is told by the type"));
}

/// Null beside what a schema without a type refers to, or is one of.
fn null_beside(members: &mut Vec<Member<'_>>) {
    let null = || Node::Object(vec![Member::new("type", Node::text("null"))]);
    if let Some(at) = position(members, "anyOf") {
        if let Node::List(all) = &mut members[at].value {
            all.push(null());
        }
        return;
    }
    let one = ["$ref", "allOf", "oneOf"].into_iter().find_map(|keyword| position(members, keyword));
    if let Some(at) = one {
        let keyword = members[at].name().into_owned();
        let value = std::mem::replace(&mut members[at].value, Node::empty_object());
        let one = Node::Object(vec![Member::new(&keyword, value)]);
        members[at].value = Node::List(vec![one, null()]);
        members[at].rename("anyOf");
    }
}
