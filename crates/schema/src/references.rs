//! References: to what is there, to what is not, to other documents, and to themselves.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::fault::Fault;
use crate::node::{Member, Node, member, position};
use crate::notes::Notes;
use crate::walk::{each_schema, look};

/// The most schemas that are looked at to find out whether one refers to itself.
const MAX_LOOKS: usize = 200_000;

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
    let is_there = |to: &str| {
        resolve(root, to)
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

/// What a reference inside the same schema leads to.
pub(crate) fn resolve<'n, 't>(root: &'n Node<'t>, reference: &str) -> Option<&'n Node<'t>> {
    let pointer = reference.strip_prefix('#')?;
    let mut node = root;
    if pointer.is_empty() {
        return Some(node);
    }
    for part in pointer.strip_prefix('/')?.split('/') {
        let part = unescaped(part);
        node = match node {
            Node::Object(members) => member(members, &part)?,
            Node::List(items) => items.get(part.parse::<usize>().ok()?)?,
            Node::Plain(_) | Node::Deep(_) => return None,
        };
    }
    Some(node)
}

/// A part of a pointer in a reference, which is an address too.
fn unescaped(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |at: usize| after.get(at).and_then(|it| (*it as char).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).replace("~1", "/").replace("~0", "~")
}

/// Whether a reference leads back to itself.
pub(crate) fn is_recursive(root: &Node<'_>) -> bool {
    let mut looks = 0;
    let mut edges: HashMap<String, Vec<String>> = HashMap::new();
    let mut to_do = references_in(root, &mut looks);
    while let Some(reference) = to_do.pop() {
        if edges.contains_key(&reference) || looks > MAX_LOOKS {
            continue;
        }
        let inside =
            resolve(root, &reference).map_or_else(Vec::new, |it| references_in(it, &mut looks));
        to_do.extend(inside.iter().cloned());
        edges.insert(reference, inside);
    }
    looks > MAX_LOOKS || has_circle(&edges)
}

fn references_in(node: &Node<'_>, looks: &mut usize) -> Vec<String> {
    let mut found = Vec::new();
    look(node, &mut |members| {
        *looks += 1;
        found.extend(reference(members));
    });
    found
}

/// What a schema refers to.
pub(crate) fn reference(members: &[Member<'_>]) -> Option<String> {
    member(members, "$ref").and_then(Node::as_text).map(Cow::into_owned)
}

/// Whether one can go in a circle: nodes that lead nowhere else are taken away until none is left.
fn has_circle(edges: &HashMap<String, Vec<String>>) -> bool {
    let mut waits: HashMap<&str, usize> = HashMap::new();
    let mut comes_from: HashMap<&str, Vec<&str>> = HashMap::new();
    for (from, all) in edges {
        waits.insert(from, all.len());
        all.iter().for_each(|to| comes_from.entry(to).or_default().push(from));
    }
    let mut free: Vec<&str> =
        waits.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    let mut taken = 0;
    while let Some(name) = free.pop() {
        taken += 1;
        for from in comes_from.get(name).into_iter().flatten() {
            let left = waits.entry(from).or_default();
            *left -= 1;
            if *left == 0 {
                free.push(from);
            }
        }
    }
    taken < edges.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_by_pointers_as_addresses_write_them() {
        let root = Node::parse(r#"{"$defs":{"a/b":{"x":[1,{"y":true}]},"ü~":false}}"#).unwrap();
        for there in ["#", "#/$defs/a~1b", "#/$defs/a~1b/x/1/y", "#/%24defs/%C3%BC~0"] {
            assert!(resolve(&root, there).is_some(), "{there}");
        }
        for lost in ["", "a", "#a", "#/$defs/c", "#/$defs/a~1b/x/2", "#/$defs/a~1b/x/1/y/z", "#/%2"]
        {
            assert!(resolve(&root, lost).is_none(), "{lost}");
        }
    }

    #[test]
    fn circles_are_found_and_ladders_are_none() {
        let check = |text: &str, expected| {
            assert_eq!(is_recursive(&Node::parse(text).unwrap()), expected, "{text}");
        };
        check(r##"{"properties":{"a":{"$ref":"#"}}}"##, true);
        check(
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}"##,
            true,
        );
        check(
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{}}}"##,
            false,
        );
        let ladder: Vec<_> = (0..5000)
            .map(|n| format!(r##""d{n}":{{"items":{{"$ref":"#/$defs/d{}"}},"not":{{"$ref":"#/$defs/d{}"}}}}"##, n + 1, n + 2))
            .collect();
        let ladder = format!(r#"{{"$defs":{{{},"d5000":true,"d5001":true}}}}"#, ladder.join(","));
        check(&ladder, false);
    }
}
