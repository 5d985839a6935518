//! A valid schema in the shape that a client takes.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::definitions::{Definitions, is_base, reference};
use crate::fault::Fault;
use crate::header;
use crate::node::{Member, Node, describe, member, position, set, take};
use crate::notes::{Notes, PlaceMark};
use crate::profile::Profile;
use crate::root;
use crate::walk::{each_schema, each_schema_of_base};

/// References inside what a reference leads to are followed this far, and schemas this large are made.
const MAX_STEPS: usize = 8;
const MAX_BYTES: usize = 256 << 10;

/// The schema of the arguments.
pub(crate) fn shape_arguments(node: &mut Node<'_>, profile: &Profile, notes: &mut Notes) {
    if profile.is_about(Fault::RootUnion) {
        root::merge_unions(node, notes);
    }
    if profile.is_about(Fault::RootCondition) {
        root::drop_conditions(node, notes);
    }
    if profile.is_about(Fault::NoProperties)
        && let Some(members) = node.as_members_mut()
        && position(members, "properties").is_none()
    {
        members.push(Member::new("properties", Node::empty_object()));
        notes.mend(Fault::NoProperties, "put in: `{}`");
    }
    shape(node, profile, notes, Fault::OldDialect);
}

/// The schema of results.
pub(crate) fn shape_results(node: &mut Node<'_>, profile: &Profile, notes: &mut Notes) {
    shape(node, profile, notes, Fault::OldDialectOutput);
}

fn shape(node: &mut Node<'_>, profile: &Profile, notes: &mut Notes, dialect: Fault) {
    if profile.is_about(dialect) {
        drop_dialect(node, dialect, notes);
    }
    if profile.is_about(Fault::Definitions) {
        rename_definitions(node, notes);
    }
    if profile.unsupported.iter().any(|keyword| keyword == "$ref") {
        inline(node, notes);
    }
    if profile.is_about(Fault::Header) {
        header::each_wrong(node, notes, &mut |members, notes| {
            take(members, header::KEYWORD);
            notes.inside(header::KEYWORD, |notes| notes.mend(Fault::Header, "taken out"));
        });
    }
    if profile.is_about(Fault::YesNo) {
        write_out_words(node, notes);
    }
    each_schema(node, notes, &mut |members, notes| {
        formats(members, profile, notes);
        unsupported(members, profile, notes);
        for (fault, change) in [
            (Fault::NoItems, add_items as fn(&mut Vec<Member<'_>>, &mut Notes)),
            (Fault::EnumEmpty, drop_empty_enum),
            (Fault::Const, const_as_enum),
            (Fault::EnumNumbers, describe_enum),
            (Fault::TypeList, split_types),
        ] {
            if profile.is_about(fault) {
                change(members, notes);
            }
        }
    });
}

/// What is required is one of the properties. This comes after all that is taken out: objects that are closed no more
/// get such a property, too.
pub(crate) fn require_known(node: &mut Node<'_>, profile: &Profile, notes: &mut Notes) {
    if profile.is_about(Fault::RequiredUnknown) {
        each_schema(node, notes, &mut |members, notes| add_required(members, notes));
    }
}

/// A yes or no in the place of a property's schema is an object that says the same.
fn write_out_words(node: &mut Node<'_>, notes: &mut Notes) {
    let Some(members) = node.as_members_mut() else { return };
    let Some(at) = position(members, "properties") else { return };
    let Node::Object(properties) = &mut members[at].value else { return };
    for property in properties {
        let Some(is_any) = property.value.as_bool() else { continue };
        property.value = match is_any {
            true => Node::empty_object(),
            false => Node::Object(vec![Member::new("not", Node::empty_object())]),
        };
        let name = property.name().into_owned();
        notes.inside("properties", |notes| {
            notes.inside(&name, |notes| notes.mend(Fault::YesNo, "is an object"));
        });
    }
}

/// Whether `$schema` names the draft that MCP means without it.
pub(crate) fn is_newest(dialect: &str) -> bool {
    dialect.contains("json-schema.org/draft/2020-12/schema")
}

/// Leaves out `$schema`, if it names another draft.
fn drop_dialect(node: &mut Node<'_>, fault: Fault, notes: &mut Notes) {
    let Some(members) = node.as_members_mut() else { return };
    let Some(dialect) = member(members, "$schema").and_then(Node::as_text) else { return };
    if !is_newest(&dialect) {
        take(members, "$schema");
        notes.inside("$schema", |notes| notes.mend(fault, "taken out"));
    }
}

/// `definitions` are `$defs`.
fn rename_definitions(root: &mut Node<'_>, notes: &mut Notes) {
    const OLD: &str = "#/definitions/";
    let Some(members) = root.as_members_mut() else { return };
    let Some(at) = position(members, "definitions") else { return };
    if position(members, "$defs").is_some() {
        return;
    }
    members[at].rename("$defs");
    notes.inside("definitions", |notes| notes.mend(Fault::Definitions, "is `$defs`"));
    each_schema_of_base(root, notes, &mut |members, _| {
        let Some(at) = position(members, "$ref") else { return };
        let renamed = members[at]
            .value
            .as_text()
            .and_then(|to| to.strip_prefix(OLD).map(|name| Node::text(&format!("#/$defs/{name}"))));
        if let Some(renamed) = renamed {
            members[at].value = renamed;
        }
    });
}

/// Puts what references lead to in their place. What refers to itself is any value there.
fn inline<'t>(root: &mut Node<'t>, notes: &mut Notes) {
    let whole = root.clone();
    let mut inlining = Inlining {
        definitions: Definitions::of(&whole),
        root: notes.mark(),
        bases: HashSet::new(),
        left: MAX_BYTES,
        is_changed: false,
    };
    inlining.inline(root, 0, notes);
    notes.is_changed |= inlining.is_changed;
    if let Some(members) = root.as_members_mut() {
        for definitions in ["$defs", "definitions"] {
            if take(members, definitions).is_some() {
                notes.is_changed = true;
            }
        }
    }
}

struct Inlining<'n, 't> {
    definitions: Definitions<'n, 't>,
    root: PlaceMark,
    /// The schemas that have an address of their own: references in them lead elsewhere than those of the root.
    bases: HashSet<PlaceMark>,
    left: usize,
    is_changed: bool,
}

impl<'t> Inlining<'_, 't> {
    fn inline(&mut self, node: &mut Node<'t>, steps: usize, notes: &mut Notes) {
        each_schema(node, notes, &mut |members, notes| {
            if notes.mark() != self.root && is_base(members) {
                self.bases.insert(notes.mark());
            }
            let Some(to) = reference(members) else { return };
            take(members, "$ref");
            self.is_changed = true;
            let is_elsewhere =
                !self.bases.is_empty() && notes.marks().any(|mark| self.bases.contains(&mark));
            let target = self.definitions.resolve(&to).filter(|_| steps < MAX_STEPS);
            let Some(mut target) = target.filter(|_| !is_elsewhere).cloned() else {
                return notes.enforce(Fault::Recursive, "cut: any value");
            };
            if let Some(members) = target.as_members_mut().filter(|it| is_base(it)) {
                if to != "#" {
                    return notes.enforce(Fault::Recursive, "cut: any value");
                }
                take(members, "$id");
            }
            self.left = self.left.saturating_sub(target.written().len());
            if self.left == 0 {
                return notes.enforce(Fault::TooLarge, "cut: any value");
            }
            self.inline(&mut target, steps + 1, notes);
            let Node::Object(inside) = target else { return };
            for member in inside {
                if position(members, &member.name()).is_none() && member.name() != "$defs" {
                    members.push(member);
                }
            }
        });
    }
}

/// A list says what its items are.
fn add_items(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let is_list = member(members, "type").is_some_and(|types| match types {
        Node::List(types) => types.iter().any(|it| it.as_text().as_deref() == Some("array")),
        word => word.as_text().as_deref() == Some("array"),
    });
    if is_list && position(members, "items").is_none() {
        members.push(Member::new("items", Node::empty_object()));
        notes.mend(Fault::NoItems, "put in: `\"items\": {}`");
    }
}

fn add_required(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(Node::List(names)) = member(members, "required") else { return };
    let names: Vec<_> = names.iter().filter_map(Node::as_text).map(Cow::into_owned).collect();
    // Where other properties are refused, or left to another schema, one more would say something else.
    let is_closed = ["additionalProperties", "unevaluatedProperties"]
        .into_iter()
        .any(|keyword| position(members, keyword).is_some());
    if names.is_empty() || is_closed {
        return;
    }
    if position(members, "properties").is_none() {
        members.push(Member::new("properties", Node::empty_object()));
    }
    let Some(at) = position(members, "properties") else { return };
    let Node::Object(properties) = &mut members[at].value else { return };
    let mut known: HashSet<_> = properties.iter().map(|it| it.name().into_owned()).collect();
    for name in names {
        if known.insert(name.clone()) {
            properties.push(Member::new(&name, Node::empty_object()));
            let what = format!("`{name}` is put in, of any value");
            notes.inside("required", |notes| notes.mend(Fault::RequiredUnknown, what));
        }
    }
}

fn drop_empty_enum(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    if matches!(member(members, "enum"), Some(Node::List(values)) if values.is_empty()) {
        take(members, "enum");
        notes.inside("enum", |notes| notes.widen(Fault::EnumEmpty, "taken out"));
    }
}

/// The one value; beside an `enum` that does not have it there is none, which is left to us.
fn const_as_enum(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "const") else { return };
    let value = std::mem::replace(&mut members[at].value, Node::empty_object());
    let others = position(members, "enum").map(|at| members.remove(at).value);
    let is_among = match &others {
        Some(Node::List(others)) => others.contains(&value),
        _ => true,
    };
    let Some(at) = position(members, "const") else { return };
    members[at].value = Node::List(vec![value]);
    members[at].rename("enum");
    notes.inside("const", |notes| match is_among {
        true => notes.mend(Fault::Const, "is an `enum` of one value"),
        false => notes.enforce(Fault::Const, "is an `enum` of one value, in place of another"),
    });
}

/// Values that are no texts are told in the description.
fn describe_enum(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let may_be_null = matches!(member(members, "type"), Some(Node::List(types))
        if types.iter().any(|it| it.as_text().as_deref() == Some("null")));
    let Some(at) = position(members, "enum") else { return };
    let Node::List(values) = &mut members[at].value else { return };
    let is_text = |value: &Node<'_>| value.as_text().is_some();
    if may_be_null && values.iter().any(is_text) && values.iter().any(Node::is_null) {
        values.retain(|value| !value.is_null());
        notes.inside("enum", |notes| notes.mend(Fault::EnumMixed, "null is told by the type"));
    }
    if values.iter().all(is_text) {
        return;
    }
    let values: Vec<_> = values.iter().map(Node::written).collect();
    describe(members, &format!("One of: {}.", values.join(", ")));
    take(members, "enum");
    notes.inside("enum", |notes| notes.enforce(Fault::EnumNumbers, "told in the description"));
}

/// One type, and `nullable`; several are `anyOf`.
fn split_types(members: &mut Vec<Member<'_>>, notes: &mut Notes) {
    let Some(at) = position(members, "type") else { return };
    let Node::List(types) = &members[at].value else { return };
    let words: Vec<_> = types.iter().filter_map(Node::as_text).map(Cow::into_owned).collect();
    let others: Vec<_> = words.iter().filter(|word| *word != "null").collect();
    let one = match others.as_slice() {
        [] => Some("null"),
        [one] => Some(one.as_str()),
        _ => None,
    };
    match one {
        Some(one) => {
            let is_nullable = words.len() > 1;
            members[at].value = Node::text(one);
            if is_nullable {
                members.insert(at + 1, Member::new("nullable", Node::word("true")));
            }
        }
        None => {
            let of_type = |word: &String| Node::Object(vec![Member::new("type", Node::text(word))]);
            let all = words.iter().map(of_type).collect();
            members.remove(at);
            if position(members, "anyOf").is_none() {
                members.push(Member::new("anyOf", Node::List(all)));
            }
        }
    }
    notes.inside("type", |notes| notes.enforce(Fault::TypeList, "one type"));
}

/// Formats that the client refuses.
fn formats(members: &mut Vec<Member<'_>>, profile: &Profile, notes: &mut Notes) {
    let Some(known) = &profile.formats else { return };
    let Some(format) = member(members, "format").and_then(Node::as_text).map(Cow::into_owned)
    else {
        return;
    };
    if !known.contains(&format) {
        take(members, "format");
        describe(members, &format!("Format: {format}."));
        notes.inside("format", |notes| notes.mend(Fault::Format, "told in the description"));
    }
}

/// Keywords that the client refuses.
fn unsupported(members: &mut Vec<Member<'_>>, profile: &Profile, notes: &mut Notes) {
    // Where nothing may stand beside a reference, a description may not either.
    let may_tell = reference(members).is_none() || !profile.is_about(Fault::Siblings);
    for keyword in &profile.unsupported {
        let Some(value) = take(members, keyword) else { continue };
        if may_tell && TOLD.contains(&keyword.as_str()) {
            describe(members, &format!("{keyword}: {}.", value.written()));
        }
        notes.inside(keyword, |notes| match ANNOTATIONS.contains(&keyword.as_str()) {
            true => notes.mend(Fault::Unsupported, "taken out"),
            false => notes.enforce(Fault::Unsupported, "taken out"),
        });
        // What speaks of the rest would speak of more without it.
        match keyword.as_str() {
            "prefixItems" => {
                if position(members, "items").is_some() {
                    set(members, "items", Node::empty_object());
                }
                take(members, "unevaluatedItems");
            }
            "patternProperties" => {
                take(members, "additionalProperties");
                take(members, "unevaluatedProperties");
            }
            "$ref" | "allOf" | "anyOf" | "oneOf" | "if" | "dependentSchemas" | "contains" => {
                take(members, "unevaluatedItems");
                take(members, "unevaluatedProperties");
            }
            _ => {}
        }
    }
}

/// Keywords that say nothing about which values are taken.
const ANNOTATIONS: [&str; 10] = [
    "$schema",
    "$id",
    "$comment",
    "default",
    "deprecated",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
    "$anchor",
];

/// Keywords that a model can go by when it reads them.
const TOLD: [&str; 8] = [
    "pattern",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "default",
    "minLength",
    "maxLength",
    "uniqueItems",
];
