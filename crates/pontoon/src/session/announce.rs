//! A session hears when what an application offers is really another than it was told.

use std::sync::Arc;

use pontoon_wire::{Era, method};
use tokio::sync::watch;

use super::catalog::{Catalog, Facts};
use super::entry::CatalogState;
use super::legacy::Session;
use super::sessions::Sessions;
use crate::call::plain_notification;
use crate::outbox::Item;

/// The lists, each with the notification that says it changed.
const LISTS: [(&str, &str); 4] = [
    (method::LIST_TOOLS, method::TOOLS_CHANGED),
    (method::LIST_PROMPTS, method::PROMPTS_CHANGED),
    (method::LIST_RESOURCES, method::RESOURCES_CHANGED),
    (method::LIST_TEMPLATES, method::RESOURCES_CHANGED),
];

impl Sessions {
    /// Tells a session of changes until it ends, if its server is an application. It was told of this catalogue.
    pub(super) fn announce_to(&self, session: &Arc<Session>, known: Option<Arc<Catalog>>) {
        let entry = self.entries().get(session.server.as_str()).cloned();
        let Some(entry) = entry.filter(|entry| entry.back.app().is_some()) else { return };
        let session = Arc::clone(session);
        tokio::spawn(async move {
            tokio::select! {
                () = session.over.cancelled() => {}
                () = entry.back.stop.cancelled() => {}
                () = announce(&session, entry.changes(), known) => {}
            }
        });
    }
}

/// Tells a session of changes, for as long as it is polled.
async fn announce(
    session: &Session,
    mut changes: watch::Receiver<CatalogState>,
    mut known: Option<Arc<Catalog>>,
) {
    loop {
        let new = catalog(&changes.borrow_and_update());
        let mut notes: Vec<_> = LISTS
            .into_iter()
            .filter(|(list, _)| texts(known.as_deref(), list) != texts(new.as_deref(), list))
            .map(|(_, note)| note)
            .collect();
        notes.dedup();
        for note in notes {
            session.feed.outbox.push(Item::Note(plain_notification(note).into()));
        }
        known = new;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn catalog(state: &CatalogState) -> Option<Arc<Catalog>> {
    match state {
        CatalogState::Ready(catalog) => Some(Arc::clone(catalog)),
        _ => None,
    }
}

/// The items of a list, in an order of their own: an application may give them in another one each time.
fn texts<'c>(catalog: Option<&'c Catalog>, list: &str) -> Vec<&'c str> {
    let facts: Option<&Facts> = catalog.and_then(|catalog| catalog.facts(Era::Legacy));
    let items = facts.and_then(|facts| facts.lists.get(list)).into_iter().flatten();
    let mut texts: Vec<_> = items.map(|item| item.get()).collect();
    texts.sort_unstable();
    texts
}
