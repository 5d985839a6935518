//! What a server offers the one who asks, waited for: of its entry, or of the person where that differs.

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::{Era, method};

use super::catalog::Catalog;
use super::entry::{CatalogState, Entry};
use super::personal::{Look, PersonName, Try, outcome};
use super::sessions::Sessions;
use crate::call::{Call, CallError, list_member};
use crate::client::{Client, Key, Person};
use crate::clock::{Clock, now};
use crate::permits::Permit;

impl Sessions {
    /// What the server offers every client, if that is known.
    pub(super) fn known_now(entry: &Entry) -> Option<Arc<Catalog>> {
        if entry.back.app().is_some() && !*entry.is_fresh.borrow() {
            return None;
        }
        match entry.state() {
            CatalogState::Ready(catalog) if !entry.back.server.is_personal() => Some(catalog),
            _ => None,
        }
    }

    /// What the server offers the client of this call, as soon as that is known.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, to be told to the client.
    pub(super) async fn known(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        call: &Call,
    ) -> Result<Arc<Catalog>, CallError> {
        let Call { request, client, clock, .. } = call;
        let method = request.method();
        let catalog = self.catalog(entry, &client.key, &client.person, client.era(), &method);
        in_time(entry, clock, catalog).await
    }

    /// What the server offers this client, within this time: for one that reads what there is, and calls nothing.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub async fn offered(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        client: &Client,
        patience: Duration,
    ) -> Result<Arc<Catalog>, CallError> {
        if let Some(catalog) = Self::known_now(entry) {
            return Ok(catalog);
        }
        let (key, person, era) = (&client.key, &client.person, client.era());
        let learning = self.catalog(entry, key, person, era, method::LIST_TOOLS);
        let known = tokio::time::timeout(patience, learning).await;
        known.unwrap_or_else(|_| {
            let server = &entry.back.server.name;
            let what = format!("what the server `{server}` offers is still being learnt");
            Err(CallError::Busy { what, retry_after_seconds: 5 })
        })
    }

    /// What the server offers this person. A process for what they ask may start meanwhile.
    pub(super) async fn catalog(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        key: &Key,
        person: &Arc<Person>,
        client: Era,
        method: &str,
    ) -> Result<Arc<Catalog>, CallError> {
        if entry.back.app().is_some() {
            return entry.catalog_of_app(method).await;
        }
        let known = match PersonName::new(entry, person, client) {
            Some(name) => self.catalog_of_person(entry, key, person, &name, method).await?,
            None => match entry.state() {
                CatalogState::Ready(catalog) => Ok(catalog),
                state => {
                    // A client that shakes hands or calls will need a process, which can start meanwhile.
                    let will_wait =
                        matches!(state, CatalogState::Learning) && entry.known_to(client).is_none();
                    if will_wait && list_member(method).is_none() {
                        entry.back.start_ahead(key, person);
                    }
                    entry.catalog_for_client(client).await
                }
            },
        };
        known.map_err(|why| failed(entry, &why))
    }

    /// What a server with the person's own values offers them, learnt if it is not known.
    async fn catalog_of_person(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        key: &Key,
        person: &Arc<Person>,
        name: &PersonName,
        method: &str,
    ) -> Result<Result<Arc<Catalog>, String>, CallError> {
        let changed = || entry.back.changed().last();
        let mut look = self.personal.look(name, changed(), now());
        if let Look::Learn = look {
            // It starts processes for this person, and so counts as a call of theirs does.
            let permit = self.admission.wait_to_learn(&person.principal).await?;
            look = match self.personal.begin(name, changed(), now()) {
                Err(look) => look,
                Ok(tried) => {
                    let learning = tried.outcome();
                    self.learn_for_person(tried, permit, entry, person);
                    Look::Wait(learning)
                }
            };
            // Not before: what is started for a call that is refused would wait for nothing.
            if method == method::CALL_TOOL && matches!(look, Look::Wait(_)) {
                entry.back.start_ahead(key, person);
            }
        }
        match look {
            Look::Known(outcome) => Ok(outcome),
            Look::Again(catalog) => {
                // Another person's process may have said so: it is no reason to wait, nor to be refused.
                if let Some(permit) = self.admission.try_to_learn(&person.principal)
                    && let Ok(tried) = self.personal.begin(name, changed(), now())
                {
                    self.learn_for_person(tried, permit, entry, person);
                }
                Ok(Ok(catalog))
            }
            Look::Wait(learning) => Ok(outcome(learning).await),
            Look::Learn => Err(CallError::Internal),
        }
    }

    /// Learns in a task of its own: more than one may wait for it.
    pub(super) fn learn_for_person(
        &self,
        tried: Try,
        permit: Permit,
        entry: &Arc<Entry>,
        person: &Arc<Person>,
    ) {
        let (people, entry) = (Arc::clone(&self.personal), Arc::clone(entry));
        let person = Arc::clone(person);
        self.tasks.spawn(async move {
            people.learn(tried, &entry, &person).await;
            drop(permit);
        });
    }
}

/// What is waited for until the server is known, which takes no longer than the call may. Where that is an application the
/// model hears what it does of one that is away: the call was not made.
pub(super) async fn in_time<T>(
    entry: &Entry,
    clock: &Clock,
    waiting: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let in_time = clock.bound(waiting).await;
    in_time.unwrap_or_else(|| {
        let late = || clock.timed_out(entry.back.server.name.as_str());
        Err(entry.back.app().map_or_else(late, |app| app.not_there()))
    })
}

fn failed(entry: &Entry, why: &str) -> CallError {
    CallError::ServerFailed(format!(
        "the server `{}` does not start: {}",
        entry.back.server.name,
        entry.back.told_of_start(why)
    ))
}
