//! Lists of servers whose processes differ by who calls: a person's are asked for once, and kept.
//!
//! They are in memory only, for they may tell what a person may do. What a server offers to everybody is the
//! catalogue's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_wire::{Revision, Slot, method};

use super::catalog::{Catalog, Entry};
use crate::call::{Call, list_member};
use crate::client::Principal;
use crate::config::ServerName;

/// How old a list may grow before it is asked for anew.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// More bytes of lists than these are not kept, in all and of one list.
const MAX_BYTES: usize = 64 << 20;
const MAX_LIST: usize = 4 << 20;

/// The longest name of a page that is remembered, in bytes.
const MAX_CURSOR: usize = 256;

/// What is counted for a list besides its text.
const OVERHEAD: usize = 1024;

/// The lists of all people.
#[derive(Debug, Default)]
pub struct PersonalLists {
    lists: Mutex<HashMap<ListName, KeptList>>,
}

/// Which list, and whose.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ListName {
    server: ServerName,
    /// Of what is started, so that a changed server is asked again.
    fingerprint: u64,
    who: Principal,
    /// A hash of what was filled in for the person.
    person: [u8; 32],
    revision: Revision,
    method: String,
    cursor: Vec<u8>,
}

#[derive(Debug)]
struct KeptList {
    /// A JSON text.
    result: Bytes,
    at: Instant,
}

impl PersonalLists {
    /// Answers a request for a list that this person had before. Else gives the call back, and keeps
    /// what it will be answered with.
    pub fn answer(
        self: &Arc<Self>,
        catalog: &Catalog,
        entry: &Entry,
        mut call: Call,
    ) -> Option<Call> {
        let Some(name) = name_of(entry, &call) else { return Some(call) };
        let is_lively = call.request.method() == method::LIST_RESOURCES;
        let live = entry.back.kept(&call.client, catalog.child_era(call.client.era()));
        let is_asked = live.is_some_and(|live| is_lively || live.link.lists_changed());
        if !is_asked && let Some(result) = self.find(&name, Instant::now()) {
            call.reply.result(&String::from_utf8_lossy(&result));
            return None;
        }
        let lists = Arc::clone(self);
        call.reply.on_result(move |result| lists.keep(name, result, Instant::now()));
        Some(call)
    }

    fn find(&self, name: &ListName, now: Instant) -> Option<Bytes> {
        let lists = self.lock();
        let list = lists.get(name)?;
        (now.saturating_duration_since(list.at) < MAX_AGE).then(|| list.result.clone())
    }

    fn keep(&self, name: ListName, result: &[u8], now: Instant) {
        if result.len() > MAX_LIST {
            return;
        }
        let mut lists = self.lock();
        lists.insert(name, KeptList { result: Bytes::copy_from_slice(result), at: now });
        let size = |list: &KeptList| list.result.len() + OVERHEAD;
        let mut held: usize = lists.values().map(size).sum();
        while held > MAX_BYTES {
            let oldest = lists.iter().min_by_key(|(_, list)| list.at).map(|(name, _)| name.clone());
            let Some(list) = oldest.and_then(|name| lists.remove(&name)) else { return };
            held -= size(&list);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ListName, KeptList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which list a call asks for, if it is one of a person.
fn name_of(entry: &Entry, call: &Call) -> Option<ListName> {
    let Call { request, client, .. } = call;
    let method = request.method();
    list_member(&method)?;
    let cursor = request.raw(Slot::Cursor).unwrap_or_default();
    (cursor.len() <= MAX_CURSOR).then_some(())?;
    Some(ListName {
        server: entry.back.server.name.clone(),
        fingerprint: entry.back.server.fingerprint,
        who: client.person.principal.clone(),
        person: entry.back.person_hash(client)?,
        revision: client.revision,
        method: method.into_owned(),
        cursor: cursor.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(who: &str, person: u8, method: &str) -> ListName {
        ListName {
            server: "demo".parse().unwrap(),
            fingerprint: 1,
            who: Principal::of_user(None, who),
            person: [person; 32],
            revision: Revision::NEWEST_MODERN,
            method: method.to_owned(),
            cursor: Vec::new(),
        }
    }

    #[test]
    fn a_list_is_kept_for_its_person_and_an_hour() {
        let (lists, now) = (PersonalLists::default(), Instant::now());
        lists.keep(name("ada", 1, "tools/list"), b"{}", now);
        let find = |who, person, method, at| lists.find(&name(who, person, method), at);
        assert_eq!(find("ada", 1, "tools/list", now).as_deref(), Some(&b"{}"[..]));
        assert_eq!(find("ben", 1, "tools/list", now), None, "another person");
        assert_eq!(find("ada", 2, "tools/list", now), None, "another credential");
        assert_eq!(find("ada", 1, "prompts/list", now), None);
        assert_eq!(find("ada", 1, "tools/list", now + MAX_AGE), None);
        lists.keep(name("ada", 1, "tools/list"), b"[]", now + MAX_AGE);
        assert!(find("ada", 1, "tools/list", now + MAX_AGE).is_some(), "asked for anew");
    }

    #[test]
    fn only_so_many_bytes_are_kept_and_the_oldest_go() {
        let (lists, now) = (PersonalLists::default(), Instant::now());
        let large = vec![b' '; MAX_LIST];
        let at = |number: u64| now + Duration::from_secs(number);
        for number in 0..20 {
            lists.keep(name(&number.to_string(), 1, "tools/list"), &large, at(number));
        }
        let has =
            |number: u64| lists.find(&name(&number.to_string(), 1, "tools/list"), now).is_some();
        assert!(!has(0) && !has(4) && has(5) && has(19));
        lists.keep(name("ada", 1, "tools/list"), &vec![b' '; MAX_LIST + 1], now);
        assert_eq!(lists.lock().len(), 15);
    }
}
