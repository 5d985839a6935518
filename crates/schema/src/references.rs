//! References that lead nowhere, or to other documents.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::definitions::Definitions;
use crate::fault::Fault;
use crate::node::{Node, member, position};
use crate::notes::{Effect, Notes};
use crate::walk::{each_schema, each_schema_of_base, look, look_in_base};

/// Takes out references that lead nowhere: because they never did, or because what they lead to was left out for a
/// client, and is still enforced.
pub(crate) fn mend(root: &mut Node<'_>, notes: &mut Notes, effect: Effect) {
    let lost = lost(root);
    if lost.is_empty() {
        return;
    }
    each_schema_of_base(root, notes, &mut |members, notes| {
        for keyword in ["$ref", "$dynamicRef"] {
            let Some(at) = position(members, keyword) else { continue };
            let to = members[at].value.as_text().unwrap_or_default().into_owned();
            let Some(fault) = lost.get(&to) else { continue };
            members.remove(at);
            let (fault, what) = match effect {
                Effect::Enforced => (Fault::Unsupported, format!("`{to}` is not shown: any value")),
                Effect::Same | Effect::Wider => (*fault, format!("`{to}`: taken out")),
            };
            notes.inside(keyword, |notes| notes.repair(effect, fault, what));
        }
    });
}

/// Takes out every reference: what they refer to could not be read by a validator.
pub(crate) fn remove(root: &mut Node<'_>, notes: &mut Notes, effect: Effect) {
    each_schema(root, notes, &mut |members, notes| {
        for keyword in ["$ref", "$dynamicRef", "$id", "$anchor", "$dynamicAnchor"] {
            let Some(at) = position(members, keyword) else { continue };
            members.remove(at);
            notes.inside(keyword, |notes| notes.repair(effect, Fault::Dangling, "taken out"));
        }
    });
}

/// The references that lead nowhere.
fn lost(root: &Node<'_>) -> HashMap<String, Fault> {
    let (mut references, mut names) = (HashSet::new(), HashSet::new());
    let text = |members, name| member(members, name).and_then(Node::as_text).map(Cow::into_owned);
    // Those inside a schema with an address of its own are for the validator to judge.
    look_in_base(root, &mut |members| {
        let text = |name| text(members, name);
        references.extend(text("$ref").into_iter().chain(text("$dynamicRef")));
    });
    look(root, &mut |members| {
        let text = |name| text(members, name);
        names.extend(text("$id"));
        let anchors = text("$anchor").into_iter().chain(text("$dynamicAnchor"));
        names.extend(anchors.map(|anchor| format!("#{anchor}")));
    });
    // Names are addresses, and some end as the reference does.
    let reversed = |name: &str| name.trim_end_matches('#').chars().rev().collect::<String>();
    let ends: BTreeSet<_> = names.iter().map(|name| reversed(name)).collect();
    let is_end = |to: &str| {
        let end = reversed(to);
        let next = ends.range(end.clone()..).next();
        !to.is_empty() && next.is_some_and(|name| name.starts_with(&end))
    };
    let definitions = Definitions::of(root);
    let is_there = |to: &str| {
        definitions
            .resolve(to)
            .is_some_and(|node| matches!(node, Node::Object(_)) || node.as_bool().is_some())
            || names.contains(to)
            || is_end(to)
    };
    let lost = references.into_iter().filter(|to| !is_there(to));
    lost.map(|to| {
        let fault = if to.starts_with('#') { Fault::Dangling } else { Fault::Remote };
        (to, fault)
    })
    .collect()
}
