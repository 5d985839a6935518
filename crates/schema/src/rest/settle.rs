//! What a schema says brought into one form: of one type, or one of several such alternatives.
//!
//! What that form cannot say is left to the server, so that it takes more values than the schema, never fewer; what it
//! shows without being sure of it takes any value.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::document;
use super::meaning::{Kind, Meaning, Object, Others, add_facet};
use crate::node::{Member, Node, take};

/// So many alternatives come of several unions, and so much is copied for them.
const MAX_WAYS: usize = 64;
const MAX_COPIED: usize = 20_000;

/// Schemas stand in each other this deep.
const MAX_LEVELS: usize = 13;

/// The object that the arguments are.
pub(super) fn arguments(meaning: Meaning<'_>) -> Meaning<'_> {
    let mut notes = meaning.notes.clone();
    notes.retain(|note| note.is_named("description"));
    let mut object = whole_object(meaning);
    settle_object(&mut object, &mut Settling { left: MAX_COPIED }, 0);
    Meaning {
        kind: Some(Kind::Object),
        notes,
        object: Some(Box::new(object)),
        ..Meaning::default()
    }
}

struct Settling {
    left: usize,
}

impl Settling {
    /// A schema in its form: of one type; alternatives of one type each; nothing, for any value.
    fn settle<'t>(&mut self, mut meaning: Meaning<'t>, level: usize) -> Meaning<'t> {
        let is_open = meaning.is_open;
        if level > MAX_LEVELS {
            meaning = Meaning { kind: meaning.kind, notes: meaning.notes, ..Meaning::default() };
        }
        let notes = std::mem::take(&mut meaning.notes);
        let Some(ways) = self.ways(meaning) else { return Meaning::never() };
        let mut settled: Vec<Meaning<'t>> = Vec::new();
        let mut places = HashMap::new();
        let mut is_joined = false;
        for mut way in ways.into_iter().flat_map(with_kinds) {
            if way.is_anything() {
                settled.clear();
                settled.push(Meaning { notes: way.notes, ..Meaning::default() });
                break;
            }
            self.settle_parts(&mut way, level);
            take(&mut way.notes, "default");
            if way.kind == Some(Kind::Null) {
                way.notes.clear();
            }
            let same = settled
                .iter_mut()
                .find(|it| it.kind == way.kind && is_list_of_values(it))
                .filter(|_| is_list_of_values(&way));
            if let Some(same) = same {
                same.is_open |= way.is_open;
                same.values.get_or_insert_default().extend(way.values.unwrap_or_default());
                is_joined = true;
                continue;
            }
            match places.entry(document::schema(&way).written()) {
                Entry::Vacant(place) => {
                    place.insert(settled.len());
                    settled.push(way);
                }
                // They look the same, and mean different things.
                Entry::Occupied(place) => {
                    settled[*place.get()].is_open |= settled[*place.get()] != way;
                }
            }
        }
        for values in settled.iter_mut().filter_map(|it| it.values.as_mut()).filter(|_| is_joined) {
            let mut seen = HashSet::new();
            values.retain(|it| seen.insert(it.written()));
        }
        let mut settled = together(settled, notes);
        settled.is_open |= is_open;
        settled
    }

    /// The alternatives that a schema has; `None` if it takes nothing.
    fn ways<'t>(&mut self, mut meaning: Meaning<'t>) -> Option<Vec<Meaning<'t>>> {
        if meaning.is_never {
            return None;
        }
        let unions = std::mem::take(&mut meaning.unions);
        let is_open = meaning.is_open;
        let mut ways = vec![meaning];
        for mut union in unions {
            union.retain(|it| !it.is_never);
            if union.is_empty() {
                return None;
            }
            if let [Meaning { kind: None | Some(Kind::Object), values: None, list: None, .. }] =
                ways.as_slice()
                && ways[0].object.is_some()
                && union.iter().all(is_about_objects)
            {
                let alternatives = union.into_iter().map(whole_object).collect();
                let base = ways[0].object.take().unwrap_or_default();
                ways[0].object = Some(Box::new(base.and(one_of(alternatives))));
                continue;
            }
            let mut all = Vec::new();
            for mut alternative in union {
                let notes = std::mem::take(&mut alternative.notes);
                let is_open = alternative.is_open;
                let mut inner = self.ways(alternative).unwrap_or_default();
                inner.iter_mut().for_each(|it| it.is_open |= is_open);
                if let [only] = inner.as_mut_slice() {
                    let own = std::mem::replace(&mut only.notes, notes);
                    only.add_notes(own);
                }
                all.append(&mut inner);
            }
            ways = self.product(ways, all);
        }
        ways.iter_mut().for_each(|it| it.is_open |= is_open);
        Some(ways)
    }

    /// Each with each, where that is possible at all.
    fn product<'t>(
        &mut self,
        ways: Vec<Meaning<'t>>,
        others: Vec<Meaning<'t>>,
    ) -> Vec<Meaning<'t>> {
        if let [only] = ways.as_slice()
            && only.is_anything()
        {
            return others;
        }
        let weight = |all: &[Meaning<'_>]| all.iter().map(Meaning::weight).sum::<usize>();
        let copied = weight(&ways).saturating_mul(others.len());
        let copied = copied.saturating_add(weight(&others).saturating_mul(ways.len()));
        if ways.len().saturating_mul(others.len()) > MAX_WAYS || copied > self.left {
            return ways;
        }
        self.left -= copied;
        let mut product = Vec::new();
        for way in &ways {
            for other in &others {
                let (both, is_possible) = way.clone().and(other.clone());
                if is_possible && !both.is_never {
                    product.push(both);
                }
            }
        }
        if product.is_empty() { ways } else { product }
    }

    fn settle_parts(&mut self, way: &mut Meaning<'_>, level: usize) {
        if let Some(object) = &mut way.object {
            settle_object(object, self, level);
        }
        let Some(list) = &mut way.list else { return };
        let items = list.items.take();
        let is_end = items.as_ref().is_some_and(|it| it.is_never);
        let mut items = match items {
            // Readers want to know what is in it all the same.
            Some(_) if is_end && !list.first.is_empty() => {
                let unions = vec![list.first.clone()];
                self.settle(Meaning { unions, ..Meaning::default() }, level + 1)
            }
            Some(items) => self.settle(items, level + 1),
            None => Meaning::default(),
        };
        if items.is_never || is_end {
            let max = Node::Plain(list.first.len().to_string().into());
            add_facet(&mut way.facets, Member::new("maxItems", max));
        }
        items.is_never = false;
        take(&mut items.notes, "default");
        list.items = Some(items);
        for first in &mut list.first {
            *first = self.settle(std::mem::take(first), level + 1);
            first.is_never = false;
            take(&mut first.notes, "default");
        }
    }
}

fn settle_object(object: &mut Object<'_>, settling: &mut Settling, level: usize) {
    let properties = std::mem::take(&mut object.properties);
    for (name, meaning) in properties {
        let settled = settling.settle(meaning, level + 1);
        match settled.is_never {
            true => drop(object.required.remove(&name)),
            false => object.properties.push((name, settled)),
        }
    }
    let known = object.places();
    let is_closed = object.is_closed();
    object.required.retain(|name| known.contains_key(name) || !is_closed);
    for name in object.required.iter().filter(|name| !known.contains_key(*name)) {
        object.properties.push((name.clone(), Meaning::default()));
    }
    for (name, property) in &mut object.properties {
        let is_null = property.note("default").is_some_and(Node::is_null);
        if is_null || object.required.contains(name) {
            take(&mut property.notes, "default");
        }
    }
    for (_, pattern) in &mut object.patterns {
        *pattern = settling.settle(std::mem::take(pattern), level + 1);
        take(&mut pattern.notes, "default");
    }
    if let Others::Such(others) = &mut object.others {
        let settled = settling.settle(std::mem::take(others), level + 1);
        object.others = match settled {
            settled if settled.is_never => Others::None,
            mut settled => {
                take(&mut settled.notes, "default");
                Others::Such(Box::new(settled))
            }
        };
    }
}

/// Whether it is of objects, or at least of nothing else.
fn is_about_objects(meaning: &Meaning<'_>) -> bool {
    matches!(meaning.kind, None | Some(Kind::Object))
        && meaning.values.is_none()
        && meaning.list.is_none()
        && meaning.facets.iter().all(|facet| Kind::Object.has(&facet.name()))
        && meaning.unions.iter().flatten().all(is_about_objects)
}

/// All that a schema says of an object, with what its alternatives say.
fn whole_object(meaning: Meaning<'_>) -> Object<'_> {
    let mut object = meaning.object.map(|it| *it).unwrap_or_default();
    for union in meaning.unions {
        let of_objects = union
            .into_iter()
            .filter(|it| !it.is_never && matches!(it.kind, None | Some(Kind::Object)));
        object = object.and(one_of(of_objects.map(whole_object).collect()));
    }
    object
}

/// The object that all of these are: with the properties of all, of which it requires those that all require.
fn one_of<'t>(alternatives: Vec<Object<'t>>) -> Object<'t> {
    let count = alternatives.len();
    let is_closed = count > 0 && alternatives.iter().all(Object::is_closed);
    let open = alternatives.iter().filter(|it| !it.is_closed()).count();
    let mut merged = Object::default();
    let mut required = None;
    let mut places = HashMap::new();
    // In how many of the open alternatives each property is.
    let mut meant: Vec<usize> = Vec::new();
    for alternative in alternatives {
        required = match required {
            None => Some(alternative.required.clone()),
            Some(known) => Some(&known & &alternative.required),
        };
        let is_open = !alternative.is_closed();
        for (name, meaning) in alternative.properties {
            let at = *places.entry(name.clone()).or_insert(meant.len());
            if at == meant.len() {
                merged.properties.push((name, meaning));
                meant.push(usize::from(is_open));
                continue;
            }
            meant[at] += usize::from(is_open);
            let known = std::mem::take(&mut merged.properties[at].1);
            let is_open = known.is_open || meaning.is_open;
            merged.properties[at].1 = known.or(meaning);
            merged.properties[at].1.is_open |= is_open;
        }
    }
    for ((_, meaning), meant) in merged.properties.iter_mut().zip(meant) {
        meaning.is_open |= meant < open;
    }
    merged.required = required.unwrap_or_default();
    merged.others = if is_closed { Others::None } else { Others::Unsaid };
    merged
}

/// The same with its type, as alternatives if it has several.
fn with_kinds(mut way: Meaning<'_>) -> Vec<Meaning<'_>> {
    let mut kinds: Vec<Kind> = Vec::new();
    if let Some(kind) = way.kind {
        kinds.push(kind);
    } else if let Some(values) = &way.values {
        for kind in values.iter().map(Kind::of) {
            match kinds.iter().position(|it| it.holds(kind) || kind.holds(*it)) {
                Some(at) if kind.holds(kinds[at]) => kinds[at] = kind,
                Some(_) => {}
                None => kinds.push(kind),
            }
        }
    } else {
        let text = |facet: &str| Kind::Text.has(facet);
        let speaks = |kind: Kind| way.facets.iter().any(|it| kind.has(&it.name()));
        let is_said = [
            (Kind::Object, way.object.is_some() || speaks(Kind::Object)),
            (Kind::List, way.list.is_some() || speaks(Kind::List)),
            (Kind::Text, speaks(Kind::Text)),
            (
                Kind::Number,
                way.facets.iter().any(|it| Kind::Number.has(&it.name()) && !text(&it.name())),
            ),
        ];
        kinds = is_said.into_iter().filter(|(_, is_said)| *is_said).map(|(kind, _)| kind).collect();
        way.is_open |= !kinds.is_empty();
    }
    match kinds.as_slice() {
        [] => vec![way],
        [kind] => vec![of_kind(way, *kind)],
        several => several.iter().map(|kind| of_kind(way.clone(), *kind)).collect(),
    }
}

/// The same of one type.
fn of_kind(mut way: Meaning<'_>, kind: Kind) -> Meaning<'_> {
    way.kind = Some(kind);
    way.facets.retain(|facet| kind.has(&facet.name()));
    way.object = way.object.filter(|_| kind == Kind::Object);
    way.list = way.list.filter(|_| kind == Kind::List);
    if let Some(values) = &mut way.values {
        values.retain(|it| {
            let of = Kind::of(it);
            // 1.0 is a whole number, too.
            kind.holds(of) || (of, kind) == (Kind::Number, Kind::Integer)
        });
    }
    way.values = way.values.filter(|values| !values.is_empty() && kind != Kind::Null);
    way
}

/// Whether it says nothing besides its values.
fn is_list_of_values(way: &Meaning<'_>) -> bool {
    way.values.is_some()
        && way.notes.is_empty()
        && way.facets.is_empty()
        && way.object.is_none()
        && way.list.is_none()
}

/// Alternatives as one schema, with the notes of all. What there is besides null is described once, outside.
fn together<'t>(mut ways: Vec<Meaning<'t>>, notes: Vec<Member<'t>>) -> Meaning<'t> {
    let is_null = |it: &Meaning<'_>| it.kind == Some(Kind::Null);
    if ways.iter().filter(|it| !is_null(it)).count() <= 1 {
        let mut outer = Meaning { notes, ..Meaning::default() };
        for way in &mut ways {
            take(&mut way.notes, "title");
            outer.add_notes(std::mem::take(&mut way.notes));
        }
        if ways.len() > 1 {
            outer.is_open = ways.iter().any(|it| it.is_open);
            outer.unions.push(ways);
            return outer;
        }
        let mut only = ways.pop().unwrap_or_default();
        only.notes = outer.notes;
        return only;
    }
    let is_open = ways.iter().any(|it| it.is_open);
    Meaning { notes, is_open, unions: vec![ways], ..Meaning::default() }
}
