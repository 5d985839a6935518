//! The pages of a list, put together as they are read, and where reading ends though a page names another (S029).
//!
//! Pages are asked for elsewhere. A tool that comes twice is for the repair of schemas to tell (S014).

use std::collections::HashSet;

use bytes::Bytes;
use pontoon_wire::{json, method, string_value};
use serde_json::value::RawValue;

/// How many pages of a list are read: a server that never ends one is wrong.
const MAX_PAGES: usize = 1000;

/// How many pages in a row may have nothing on them: a server may leave out what a client is not to see.
const MAX_EMPTY: usize = 10;

/// The pages of one list that were read so far.
#[derive(Debug)]
pub(super) struct Pages {
    /// What tells one item from another.
    key: &'static str,
    are_tools: bool,
    known: HashSet<String>,
    cursors: HashSet<Bytes>,
    items: Vec<Box<RawValue>>,
    count: usize,
    empty: usize,
    fault: Option<&'static str>,
}

impl Pages {
    /// No page yet of this list.
    pub(super) fn of(list: &str) -> Self {
        let key = match list {
            method::LIST_RESOURCES => "uri",
            method::LIST_TEMPLATES => "uriTemplate",
            _ => "name",
        };
        let (known, cursors) = (HashSet::new(), HashSet::new());
        Self {
            key,
            are_tools: list == method::LIST_TOOLS,
            known,
            cursors,
            items: Vec::new(),
            count: 0,
            empty: 0,
            fault: None,
        }
    }

    /// Takes the next page, which names this cursor. Gives the cursor, if another page is to be read.
    pub(super) fn take(
        &mut self,
        page: Vec<Box<RawValue>>,
        cursor: Option<Bytes>,
    ) -> Option<Bytes> {
        let has_items = !page.is_empty();
        self.count += 1;
        self.empty = if has_items { 0 } else { self.empty + 1 };
        let before = self.known.len();
        self.known.extend(page.iter().map(|item| name_of(item, self.key)));
        if has_items && self.known.len() == before {
            self.fault = Some("a page has nothing that was not on the others");
            return None;
        }
        self.items.extend(page);
        let cursor = cursor?;
        if !self.cursors.insert(cursor.clone()) {
            self.fault = Some("a cursor comes again");
        } else if self.count == MAX_PAGES || self.empty == MAX_EMPTY {
            self.fault = Some("the pages do not end");
        }
        self.fault.is_none().then_some(cursor)
    }

    /// What is wrong with the pages.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let has_twins = self.items.len() > self.known.len() && !self.are_tools;
        self.fault.or(has_twins.then_some("something is listed twice"))
    }

    /// All that was on them, without what comes again if that is to be `repaired`.
    pub(super) fn into_items(mut self, repaired: bool) -> Vec<Box<RawValue>> {
        if repaired && !self.are_tools {
            let mut known = HashSet::new();
            self.items.retain(|item| known.insert(name_of(item, self.key)));
        }
        self.items
    }
}

/// What tells an item from the others: its whole text, if it has no name.
fn name_of(item: &RawValue, key: &str) -> String {
    let name = json::find(item.get().as_bytes(), key).and_then(string_value);
    name.map_or_else(|| item.get().to_owned(), |name| name.into_owned())
}
