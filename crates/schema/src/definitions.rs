//! What the references of a schema lead to, and how far.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::node::{Member, Node, member};

/// The most places that are looked at to find out how far references lead.
const MAX_LOOKS: usize = 200_000;

/// The definitions of a schema, found by the references to them.
pub(crate) struct Definitions<'n, 't> {
    root: &'n Node<'t>,
    /// Those at the usual places, by the references to them: there may be very many.
    usual: HashMap<String, &'n Node<'t>>,
}

/// How far references lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Whether a reference leads back to itself, as far as references were followed.
    pub(crate) is_recursive: bool,
    /// Whether all references were followed, and none leads back to itself: then it has an end.
    pub(crate) has_end: bool,
    /// How deep the schema is nested with all that it refers to, each circle gone through once.
    pub(crate) levels: usize,
    /// How many places it has with all that it refers to, as often as it does.
    pub(crate) places: usize,
}

/// What a schema refers to.
pub(crate) fn reference(members: &[Member<'_>]) -> Option<String> {
    member(members, "$ref").and_then(Node::as_text).map(Cow::into_owned)
}

/// Whether a schema has an address of its own. References in it are read from there, not from the root.
pub(crate) fn is_base(members: &[Member<'_>]) -> bool {
    let address = member(members, "$id").and_then(Node::as_text);
    address.is_some_and(|address| !address.starts_with('#'))
}

impl<'n, 't> Definitions<'n, 't> {
    pub(crate) fn of(root: &'n Node<'t>) -> Self {
        let mut usual = HashMap::new();
        for keyword in ["$defs", "definitions"] {
            let all = root.as_members().and_then(|members| member(members, keyword));
            for definition in all.and_then(Node::as_members).unwrap_or_default() {
                let name = definition.name();
                if !name.contains(['~', '/', '%']) {
                    usual.insert(format!("#/{keyword}/{name}"), &definition.value);
                }
            }
        }
        Self { root, usual }
    }

    /// Whether references in this schema lead elsewhere than those of the root: they are not followed.
    pub(crate) fn is_elsewhere(&self, members: &[Member<'_>]) -> bool {
        let is_root = self.root.as_members().is_some_and(|root| std::ptr::addr_eq(root, members));
        !is_root && is_base(members)
    }

    /// What a reference inside the schema leads to.
    pub(crate) fn resolve(&self, reference: &str) -> Option<&'n Node<'t>> {
        if let Some(definition) = self.usual.get(reference) {
            return Some(definition);
        }
        let pointer = reference.strip_prefix('#')?;
        if pointer.is_empty() {
            return Some(self.root);
        }
        // There may be very many definitions: what is inside one begins there.
        let inside = reference.match_indices('/').nth(2).and_then(|(at, _)| {
            let definition = self.usual.get(&reference[..at])?;
            Some((*definition, &reference[at..]))
        });
        let (mut node, pointer) = inside.unwrap_or((self.root, pointer));
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

    /// How far references lead. What is too much to be looked at is as if it were recursive.
    pub(crate) fn reach(&self) -> Reach {
        let mut places: Vec<ReferencePlace> = vec![ReferencePlace::of(self.root)];
        let mut numbers = HashMap::from([("#".to_owned(), 0)]);
        let (mut next, mut looks, mut is_followed) = (0, 0, true);
        while let Some(place) = places.get(next) {
            looks += place.looks;
            if looks > MAX_LOOKS {
                let (levels, places) = (usize::MAX, usize::MAX);
                return Reach { is_recursive: true, has_end: false, levels, places };
            }
            let references = place.references.clone();
            for (level, reference) in references {
                let number = *numbers.entry(reference).or_insert_with_key(|reference| {
                    let place = self.resolve(reference).map(ReferencePlace::of);
                    is_followed &= place.is_some();
                    places.push(place.unwrap_or_default());
                    places.len() - 1
                });
                places[next].leads_to.push((level, number));
            }
            next += 1;
        }
        if !is_followed || places.iter().any(|place| place.has_names) {
            // Where references by name lead is not known here: as far as all of them together may.
            let depth = places.iter().map(|place| place.depth).max().unwrap_or(0);
            let levels = depth.saturating_mul(numbers.len() + 1);
            return Reach { has_end: false, levels, places: usize::MAX, ..reach(&places) };
        }
        reach(&places)
    }
}

/// A schema that something refers to, or the root.
#[derive(Debug, Default)]
struct ReferencePlace {
    depth: usize,
    looks: usize,
    /// At which level, and to what it refers.
    references: Vec<(usize, String)>,
    /// Whether it has names that references may use, or references that are found by what called it.
    has_names: bool,
    leads_to: Vec<(usize, usize)>,
}

impl ReferencePlace {
    fn of(node: &Node<'_>) -> Self {
        let mut place = Self::default();
        place.look(node, 1);
        place
    }

    fn look(&mut self, node: &Node<'_>, level: usize) {
        self.looks += 1;
        self.depth = self.depth.max(level);
        match node {
            Node::Object(members) => {
                self.references.extend(reference(members).map(|to| (level, to)));
                let names = ["$anchor", "$dynamicAnchor", "$dynamicRef"];
                self.has_names |=
                    members.iter().any(|it| names.iter().any(|name| it.is_named(name)));
                self.has_names |= level > 1 && members.iter().any(|it| it.is_named("$id"));
                // Definitions are reached by their references.
                let inside = members.iter().filter(|it| !it.is_named("$defs"));
                inside.for_each(|it| self.look(&it.value, level + 1));
            }
            Node::List(items) => items.iter().for_each(|it| self.look(it, level + 1)),
            Node::Plain(_) | Node::Deep(_) => {}
        }
    }
}

/// Takes away, again and again, the places that lead to none that is left. What stays goes in circles.
fn reach(places: &[ReferencePlace]) -> Reach {
    let mut waits: Vec<usize> = places.iter().map(|place| place.leads_to.len()).collect();
    let mut comes_from: Vec<Vec<(usize, usize)>> = vec![Vec::new(); places.len()];
    for (from, place) in places.iter().enumerate() {
        place.leads_to.iter().for_each(|(level, to)| comes_from[*to].push((*level, from)));
    }
    let mut levels: Vec<usize> = places.iter().map(|place| place.depth).collect();
    let mut free: Vec<usize> = (0..places.len()).filter(|at| waits[*at] == 0).collect();
    let mut left = places.len();
    let mut sizes: Vec<usize> = places.iter().map(|place| place.looks).collect();
    while let Some(at) = free.pop() {
        left -= 1;
        for (level, from) in &comes_from[at] {
            levels[*from] = levels[*from].max(level + levels[at]);
            sizes[*from] = sizes[*from].saturating_add(sizes[at]);
            waits[*from] -= 1;
            if waits[*from] == 0 {
                free.push(*from);
            }
        }
    }
    let circles = (0..places.len()).filter(|at| waits[*at] > 0).map(|at| levels[at]).sum();
    let levels = levels[0].max(circles);
    Reach { is_recursive: left > 0, has_end: left == 0, levels, places: sizes[0] }
}

/// A part of a pointer in a reference, which is an address too.
pub(crate) fn unescaped(part: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_by_pointers_as_addresses_write_them() {
        let root =
            Node::parse(r#"{"$defs":{"a/b":{"x":[1,{"y":true}]},"ü~":false,"c":{}}}"#).unwrap();
        let definitions = Definitions::of(&root);
        for there in [
            "#",
            "#/$defs/a~1b",
            "#/$defs/a~1b/x/1/y",
            "#/%24defs/%C3%BC~0",
            "#/$defs/c",
            "#/%24defs/c",
        ] {
            assert!(definitions.resolve(there).is_some(), "{there}");
        }
        for lost in ["", "a", "#a", "#/$defs/d", "#/$defs/a~1b/x/2", "#/$defs/a~1b/x/1/y/z", "#/%2"]
        {
            assert!(definitions.resolve(lost).is_none(), "{lost}");
        }
    }

    #[test]
    fn circles_are_found_and_ladders_are_none() {
        let check = |text: &str, is_recursive, levels| {
            let root = Node::parse(text).unwrap();
            let reach = Definitions::of(&root).reach();
            assert_eq!((reach.is_recursive, reach.levels), (is_recursive, levels), "{text}");
        };
        check(r#"{"properties":{"a":{"items":true}}}"#, false, 4);
        check(r##"{"properties":{"a":{"$ref":"#"}}}"##, true, 4);
        check(
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}"##,
            true,
            8,
        );
        check(
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{}}}"##,
            false,
            4,
        );
        let ladder: Vec<_> = (0..5000)
            .map(|n| format!(r##""d{n}":{{"items":{{"$ref":"#/$defs/d{}"}},"not":{{"$ref":"#/$defs/d{}"}}}}"##, n + 1, n + 2))
            .collect();
        let ladder = format!(
            r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d5000":true,"d5001":true}}}}"##,
            ladder.join(",")
        );
        check(&ladder, false, 10_002);
    }

    #[test]
    fn what_grows_with_each_reference_is_counted_as_often_as_it_stands_there() {
        let ladder: Vec<_> = (0..40)
            .map(|n| {
                format!(
                    r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}}"##,
                    n + 1
                )
            })
            .collect();
        let ladder =
            format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d40":{{}}}}}}"##, ladder.join(","));
        let root = Node::parse(&ladder).unwrap();
        assert!(Definitions::of(&root).reach().places > 1 << 40);
        for by_name in [
            r##"{"$ref":"#here","$defs":{"a":{"$anchor":"here"}}}"##,
            r##"{"$ref":"other","$defs":{"a":{"$id":"other"}}}"##,
            r##"{"$dynamicRef":"#here"}"##,
        ] {
            let root = Node::parse(by_name).unwrap();
            let reach = Definitions::of(&root).reach();
            assert_eq!((reach.is_recursive, reach.has_end), (false, false), "{by_name}");
        }
    }
}
