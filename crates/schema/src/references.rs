//! References that lead nowhere, or to other documents.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::definitions::Definitions;
use crate::fault::Fault;
use crate::node::{Node, member, position};
use crate::notes::Notes;
use crate::walk::{each_schema, look};

/// Takes out references that lead nowhere.
pub(crate) fn mend(root: &mut Node<'_>, notes: &mut Notes) {
    take_lost(root, notes, |notes, to, fault| notes.widen(fault, format!("`{to}`: taken out")));
}

/// Takes out references to what was left out for a client.
pub(crate) fn cut(root: &mut Node<'_>, notes: &mut Notes) {
    take_lost(root, notes, |notes, to, _| {
        notes.enforce(Fault::Unsupported, format!("`{to}` is not shown: any value"));
    });
}

fn take_lost(root: &mut Node<'_>, notes: &mut Notes, note: impl Fn(&mut Notes, &str, Fault)) {
    let lost = lost(root);
    if lost.is_empty() {
        return;
    }
    each_schema(root, notes, &mut |members, notes| {
        for keyword in ["$ref", "$dynamicRef"] {
            let Some(at) = position(members, keyword) else { continue };
            let to = members[at].value.as_text().unwrap_or_default().into_owned();
            if let Some(fault) = lost.get(&to) {
                members.remove(at);
                notes.inside(keyword, |notes| note(notes, &to, *fault));
            }
        }
    });
}

/// Takes out every reference: what they refer to could not be read by a validator.
pub(crate) fn remove(root: &mut Node<'_>, notes: &mut Notes) {
    each_schema(root, notes, &mut |members, notes| {
        for keyword in ["$ref", "$dynamicRef", "$id", "$anchor", "$dynamicAnchor"] {
            let Some(at) = position(members, keyword) else { continue };
            members.remove(at);
            notes.inside(keyword, |notes| notes.widen(Fault::Dangling, "taken out"));
        }
    });
}

/// The references that lead nowhere.
fn lost(root: &Node<'_>) -> HashMap<String, Fault> {
    let (mut references, mut names) = (HashSet::new(), HashSet::new());
    look(root, &mut |members| {
        let text = |name| member(members, name).and_then(Node::as_text).map(Cow::into_owned);
        references.extend(text("$ref").into_iter().chain(text("$dynamicRef")));
        names.extend(text("$id"));
        let anchors = text("$anchor").into_iter().chain(text("$dynamicAnchor"));
        names.extend(anchors.map(|anchor| format!("#{anchor}")));
    });
    let definitions = Definitions::of(root);
    let is_there = |to: &str| {
        definitions
            .resolve(to)
            .is_some_and(|node| matches!(node, Node::Object(_)) || node.as_bool().is_some())
            || names.contains(to)
            || names.iter().any(|name| {
                !to.is_empty() && name.trim_end_matches('#').ends_with(to.trim_end_matches('#'))
            })
    };
    let lost = references.into_iter().filter(|to| !is_there(to));
    lost.map(|to| {
        let fault = if to.starts_with('#') { Fault::Dangling } else { Fault::Remote };
        (to, fault)
    })
    .collect()
}
