//! Subscriptions where no process is kept: what can change is the catalogue, and they hear of that.

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::{Era, Message, method};

use super::answers;
use super::catalog::{Catalog, Facts};
use super::entry::Entry;
use super::personal::{PersonName, outcome};
use super::sessions::Sessions;
use crate::back::call::listen::{Filter, end};
use crate::call::{Call, plain_notification};
use crate::client::Person;
use crate::clock::now;

/// How long a subscription waits that may start no process to learn with.
const PAUSE: Duration = Duration::from_secs(1);

impl Sessions {
    /// Tells a subscription when what the server offers its person is another than it was.
    pub(super) async fn listen_to_catalog(
        self: Arc<Self>,
        entry: Arc<Entry>,
        catalog: Arc<Catalog>,
        call: Call,
    ) {
        let Call { request, client, cancel, reply, .. } = call;
        let name = PersonName::new(&entry, &client.person, client.era());
        let (mut changes, mut said) = (entry.changes(), entry.back.changed().subscribe());
        let mut known = Arc::clone(&catalog);
        let facts = catalog.facts(Era::Modern);
        let capabilities = facts.map(|facts| answers::capabilities(facts, &entry.back.server, &[]));
        let capabilities = capabilities.unwrap_or_default();
        let mut filter = Filter::of(&request).within(capabilities.as_bytes());
        filter.uris.clear();
        reply.note(filter.acknowledgement(reply.id()).into());
        let mut withdrawals = entry.back.outputs.withdrawals();
        let tell = |list| {
            let note = Message::own(plain_notification(list).to_vec());
            if filter.wants(&note) {
                reply.note(pontoon_wire::era::to_modern_note(&note, reply.id()).into());
            }
        };
        loop {
            let learnt = async {
                match &name {
                    Some(name) => {
                        said.changed().await.ok()?;
                        Some(self.learnt_since(&entry, &client.person, name).await)
                    }
                    None => {
                        changes.changed().await.ok()?;
                        Some(entry.known_to(Era::Modern))
                    }
                }
            };
            let learnt = tokio::select! {
                () = cancel.cancelled() => return reply.forget(),
                () = entry.back.stop.cancelled() => return end(reply),
                Ok(()) = withdrawals.changed() => {
                    tell(method::TOOLS_CHANGED);
                    continue;
                }
                learnt = learnt => learnt,
            };
            let Some(learnt) = learnt else { return end(reply) };
            // It is also learnt again when nothing has changed.
            let Some(new) = learnt else { continue };
            if Facts::offer_the_same(new.facts(Era::Modern), known.facts(Era::Modern)) {
                continue;
            }
            known = new;
            [method::TOOLS_CHANGED, method::PROMPTS_CHANGED, method::RESOURCES_CHANGED]
                .into_iter()
                .for_each(tell);
        }
    }

    /// What the server offers this person, learnt after it last said that its lists changed: a client that is
    /// told of a change asks at once, and is to hear of the new.
    async fn learnt_since(
        &self,
        entry: &Arc<Entry>,
        person: &Arc<Person>,
        name: &PersonName,
    ) -> Option<Arc<Catalog>> {
        loop {
            if let Some(learning) = self.personal.under_way(name) {
                // What came of it is looked at next.
                let _ = outcome(learning).await;
                continue;
            }
            let Some(due) = self.personal.due(name, entry.back.changed().last()) else {
                return self.personal.known(name);
            };
            tokio::time::sleep_until(due.into()).await;
            let Some(permit) = self.admission.try_to_learn(&person.principal) else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let tried = self.personal.begin(name, entry.back.changed().last(), now());
            if let Ok(tried) = tried {
                self.learn_for_person(tried, permit, entry, person);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};

    const WANTED: &str =
        "\"notifications\":{\"toolsListChanged\":true,\"promptsListChanged\":true}";

    #[tokio::test(start_paused = true)]
    async fn a_subscription_hears_of_what_changed_and_of_nothing_else_until_its_server_changes() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let client = TestClient::modern(&bridge);
        let mut stream = client.ask(5, method::LISTEN, WANTED).await;
        let taken = stream.data().await.unwrap();
        assert!(taken.contains("\"notifications\":{\"toolsListChanged\":true}"), "{taken}");
        assert!(taken.contains("subscriptionId\":5"), "{taken}");
        assert!(client.call(6, "change", "{}").await.answer().await.contains("\"by\""));
        let told = stream.data().await.unwrap();
        assert!(
            told.contains(method::TOOLS_CHANGED) && told.contains("subscriptionId\":5"),
            "{told}"
        );
        // Who is told asks at once, and hears of the new.
        assert!(client.ask(7, method::LIST_TOOLS, "").await.body().await.contains("tool1"));
        bridge.reload(|server| server.timeout += PAUSE).await;
        let last = stream.data().await.unwrap();
        assert!(last.contains("\"resultType\":\"complete\""), "nothing came before: {last}");
        assert_eq!(stream.event().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_ends_with_its_client_and_holds_nothing() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        bridge.until_known().await;
        bridge.servers.until_living(0).await;
        let started = bridge.servers.started();
        let mut stream = TestClient::modern(&bridge).ask(5, method::LISTEN, WANTED).await;
        assert!(stream.data().await.is_some());
        let sessions = &bridge.site.sessions;
        assert_eq!((sessions.tasks.len(), bridge.servers.started()), (1, started), "no process");
        drop(stream);
        while !sessions.tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
