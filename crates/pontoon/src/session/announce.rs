//! A session hears when what an application offers is really another than it was told, and when a tool of any server is
//! shown without its promise from now on.

use std::sync::Arc;

use pontoon_wire::{Era, method};
use tokio::sync::watch;

use super::catalog::{Catalog, Facts};
use super::entry::{CatalogState, Entry};
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

impl Sessions {
    /// Tells the sessions of a server when a tool of it has lost its promise, for as long as it is polled: a client
    /// that keeps its list would go on to refuse the results.
    pub async fn announce_withdrawals(&self, entry: &Entry) {
        let mut withdrawals = entry.back.outputs.withdrawals();
        while withdrawals.changed().await.is_ok() {
            for session in self.of_server(entry) {
                let note = plain_notification(method::TOOLS_CHANGED);
                session.feed.outbox.push(Item::Note(note.into()));
            }
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_wire::{Message, Slot};

    use crate::app::test_bridge::{TestBridge, TestClient};
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{STATEFUL, result};

    use super::*;

    /// A server that promises what it does not give, and says that it would tell of changes.
    fn faithless() -> InMemoryServers {
        InMemoryServers::new(|mut end| async move {
            while let Some(line) = end.next_line().await {
                let message = Message::parse(line.as_bytes()).unwrap();
                let Some(id) = message.raw(Slot::Id) else { continue };
                let said = match message.method().as_ref() {
                    method::INITIALIZE => {
                        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}"#
                    }
                    method::LIST_TOOLS => {
                        r#"{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{}},"outputSchema":{"type":"object","required":["n"]}}]}"#
                    }
                    method::CALL_TOOL => r#"{"content":[],"structuredContent":{"m":1}}"#,
                    method::PING => "{}",
                    _ => {
                        let error = r#"{"code":-32601,"message":"not here"}"#;
                        let id = String::from_utf8_lossy(id);
                        end.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)).await;
                        continue;
                    }
                };
                end.say(&result(&String::from_utf8_lossy(id), said)).await;
            }
        })
    }

    /// Long, where the clock stands still.
    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn clients_hear_once_that_a_tool_has_lost_its_promise() {
        for is_stateful in [false, true] {
            let bridge = TestBridge::start(faithless(), |_, server| {
                if is_stateful {
                    server.mode = STATEFUL;
                }
            });
            let [modern, legacy] = TestClient::both(&bridge).await;
            let listed = legacy.ask(1, method::LIST_TOOLS, "").await.body().await;
            assert!(listed.contains("outputSchema"), "{listed}");
            let mut stream = legacy.bare("GET", None).await;
            let wanted = "\"notifications\":{\"toolsListChanged\":true}";
            let mut subscription = modern.ask(5, method::LISTEN, wanted).await;
            let taken = subscription.data().await.unwrap();
            assert!(taken.contains("toolsListChanged"), "{taken}");
            drop(legacy.call(2, "t", "{}").await.answer().await);
            for stream in [&mut stream, &mut subscription] {
                let told = stream.data().await.unwrap();
                assert!(told.contains(method::TOOLS_CHANGED), "{is_stateful}: {told}");
            }
            let listed = legacy.ask(3, method::LIST_TOOLS, "").await.body().await;
            assert!(!listed.contains("outputSchema"), "{listed}");
            drop(legacy.call(4, "t", "{}").await.answer().await);
            for stream in [&mut stream, &mut subscription] {
                let again = tokio::time::timeout(LONG, stream.data()).await;
                assert!(again.is_err(), "{is_stateful}: {again:?}");
            }
        }
    }
}
