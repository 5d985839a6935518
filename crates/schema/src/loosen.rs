//! Keywords that take less where a schema inside them takes more: `not`, `if`, `oneOf` and their like.
//!
//! A repair that takes a keyword out makes a schema take more values. Most schemas around it take more then, too, and
//! so do those that refer to it. But `not` would take fewer, and of two alternatives of `oneOf` that take all, none is
//! the only one. So each repair notes where a schema takes more, and afterwards this makes `oneOf` `anyOf`, and takes
//! the others out.

use std::collections::{HashMap, HashSet};

use crate::definitions::{is_base, unescaped};
use crate::fault::Fault;
use crate::node::{Member, Node, member, position, take};
use crate::notes::{Effect, Notes, PlaceMark};
use crate::walk::{each_schema, each_schema_from_inside};

/// Keywords whose schemas are about the same value, or that decide which of its parts were looked at.
const IN_PLACE: [&str; 15] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "dependentSchemas",
    "dependencies",
    "additionalProperties",
    "patternProperties",
    "prefixItems",
];

/// Loosens what would take less, now that so much was noted as taking more. Nothing is noted any more afterwards, but
/// for what is taken out here.
pub(crate) fn loosen(root: &mut Node<'_>, notes: &mut Notes, effect: Effect) {
    if !notes.has_wider() {
        return;
    }
    follow_references(root, notes);
    let wider = notes.take_wider();
    each_schema_from_inside(root, notes, &mut |members, notes| {
        loosen_members(members, &wider, notes, effect);
    });
}

fn loosen_members(
    members: &mut Vec<Member<'_>>,
    wider: &HashMap<PlaceMark, Fault>,
    notes: &mut Notes,
    effect: Effect,
) {
    let here = notes.mark();
    let fault = |keyword: &str| wider.get(&here.inside(keyword)).copied();
    let first = |keywords: &[&str]| keywords.iter().find_map(|keyword| fault(keyword));
    let mut go = |members: &mut Vec<Member<'_>>, keyword: &str, fault: Option<Fault>, what| {
        if let Some(fault) = fault
            && take(members, keyword).is_some()
        {
            notes.inside(keyword, |notes| notes.repair(effect, fault, what));
        }
    };
    const INVERTED: &str = "would take less, for what stands in it takes more: taken out";
    const REST: &str = "is about the rest of what takes more: taken out";
    go(members, "not", fault("not"), INVERTED);
    if fault("if").is_some() {
        go(members, "if", fault("if"), INVERTED);
        take(members, "then");
        take(members, "else");
    }
    let limits = ["contains", "minContains", "maxContains"];
    if first(&limits).is_some() {
        go(members, "contains", first(&limits), INVERTED);
        take(members, "minContains");
        take(members, "maxContains");
    }
    if position(members, "prefixItems").is_none() {
        go(members, "items", fault("prefixItems"), REST);
    }
    for rest in ["unevaluatedProperties", "unevaluatedItems"] {
        go(members, rest, first(&IN_PLACE), REST);
    }
    let Some((fault, at)) = fault("oneOf").zip(position(members, "oneOf")) else { return };
    let what = match position(members, "anyOf") {
        None => {
            members[at].rename("anyOf");
            "is `anyOf`, for one of them takes more"
        }
        Some(_) => {
            take(members, "oneOf");
            "two of them may take one value now: taken out"
        }
    };
    notes.inside("oneOf", |notes| notes.repair(effect, fault, what));
}

/// A schema that refers to one that takes more takes more itself.
fn follow_references(root: &mut Node<'_>, notes: &mut Notes) {
    let top = notes.mark();
    let (mut bases, mut parents) = (HashSet::from([top]), HashMap::new());
    let mut referring: HashMap<PlaceMark, Vec<PlaceMark>> = HashMap::new();
    each_schema(root, notes, &mut |members, notes| {
        if is_base(members) {
            bases.insert(notes.mark());
        }
        for keyword in ["$ref", "$dynamicRef"] {
            let Some(to) = member(members, keyword).and_then(Node::as_text) else { continue };
            notes.inside(keyword, |notes| {
                // What a name leads to is not known here: it may be anything.
                let base = notes.marks().rev().find(|mark| bases.contains(mark)).unwrap_or(top);
                let target = target(&to, base).unwrap_or(top);
                referring.entry(target).or_default().push(notes.mark());
                let mut inside = None;
                for mark in notes.marks().rev() {
                    let is_known = inside.is_some_and(|it| parents.insert(it, mark).is_some());
                    if is_known {
                        break;
                    }
                    inside = Some(mark);
                }
            });
        }
    });
    let mut work = notes.wider_places();
    while let Some((place, fault)) = work.pop() {
        for from in referring.remove(&place).unwrap_or_default() {
            let mut at = Some(from);
            while let Some(place) = at.filter(|place| notes.note_wider(*place, fault)) {
                work.push((place, fault));
                at = parents.get(&place).copied();
            }
        }
    }
}

/// The place that a pointer leads to from a base.
fn target(reference: &str, base: PlaceMark) -> Option<PlaceMark> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(base);
    }
    let parts = pointer.strip_prefix('/')?.split('/');
    Some(parts.fold(base, |place, part| place.inside(&unescaped(part))))
}
