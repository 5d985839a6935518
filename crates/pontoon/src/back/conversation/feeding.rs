//! What belongs to no call, and the sessions that hear it.
//!
//! A process is kept for one session at a time, and the newest hears it. An application may have several clients:
//! each hears of the resources that it subscribed to.

use std::sync::Arc;

use pontoon_wire::{Era, Message, Rewrite, Slot, era, method, quoted};

use super::abilities::can_answer;
use super::link::{Link, Listening, PendingRequest, Purpose};
use super::list_changes::ListChanges;
use super::mailbox::ServerEvent;
use super::requests::{modern_request, own_request_with};
use crate::call::Feed;
use crate::client::Client;
use crate::clock::now;
use crate::lock::Lock;
use crate::outbox::{Item, Outbox};

/// The sessions that hear what belongs to no call of a server.
#[derive(Debug, Default)]
pub(super) struct FedSessions {
    sessions: Lock<Vec<FedSession>>,
    /// Whether the server is an application: its clients hear of changed lists from the catalogue, and several may
    /// hear of the rest.
    pub(super) is_app: bool,
}

/// How the names of notifications begin that are for bridges alone: no application may say them to one.
const BRIDGE_NOTES: &str = "notifications/pontoon/";

/// By this notification a bridge that owns the connection to an application says to the others that it leaves, so that
/// they give no new calls to it. It is for bridges alone.
pub(crate) const LEAVING: &str = "notifications/pontoon/leaving";

/// A session that hears what belongs to no call, until this is dropped.
#[derive(Debug)]
struct FedSession {
    outbox: Arc<Outbox>,
    /// The resources that it is subscribed to.
    uris: Arc<[String]>,
    _feeding: Feeding,
}

/// What passes on what belongs to no call, until it is dropped.
#[derive(Debug)]
pub(crate) enum Feeding {
    Listener { _listening: Listening },
    Subscription { task: tokio::task::JoinHandle<()> },
}

impl Drop for Feeding {
    fn drop(&mut self) {
        if let Self::Subscription { task } = self {
            task.abort();
        }
    }
}

impl FedSessions {
    /// Whether the client's session hears all that it wants to, or has no way to.
    pub(super) fn is_fed(&self, client: &Client) -> bool {
        let Some(feed) = &client.feed else { return true };
        let is_same = |fed: &FedSession| {
            let same_uris = !self.is_app || *fed.uris == *client.subscriptions;
            Arc::ptr_eq(&fed.outbox, &feed.outbox) && same_uris
        };
        self.sessions.lock().iter().any(is_same)
    }

    /// Lets a legacy client's session hear what belongs to no call of its. Where several clients
    /// share the server, what it logs or asks could be about another's call: none of them hears that.
    pub(super) fn feed(&self, link: &Link, era: Era, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let uris: Arc<[String]> = client.subscriptions.clone().into();
        let feeding = match era {
            Era::Legacy => self.feed_from_legacy(link, feed, client, &uris),
            Era::Modern => self.feed_from_modern(link, feed, &uris),
        };
        let fed = FedSession { outbox: Arc::clone(&feed.outbox), uris, _feeding: feeding };
        let mut sessions = self.sessions.lock();
        let is_replaced =
            |other: &mut FedSession| !self.is_app || Arc::ptr_eq(&other.outbox, &fed.outbox);
        let replaced: Vec<_> = sessions.extract_if(.., is_replaced).collect();
        sessions.push(fed);
        drop((sessions, replaced));
    }

    /// A session hears no more, and an application does not tell what no other wants to hear.
    pub(super) fn unfeed(&self, link: &Link, era: Era, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let is_theirs = |fed: &mut FedSession| Arc::ptr_eq(&fed.outbox, &feed.outbox);
        let gone: Vec<_> = self.sessions.lock().extract_if(.., is_theirs).collect();
        for uri in gone.iter().flat_map(|fed| fed.uris.iter()) {
            if era == Era::Legacy && !self.is_wanted_by_others(client, uri) {
                link.ask_and_forget(method::UNSUBSCRIBE, &uri_params(uri));
            }
        }
    }

    /// Whether a session of another client is subscribed to this resource.
    pub(super) fn is_wanted_by_others(&self, client: &Client, uri: &str) -> bool {
        let own = client.feed.as_ref().map(|feed| &feed.outbox);
        let is_other = |fed: &&FedSession| own.is_none_or(|own| !Arc::ptr_eq(own, &fed.outbox));
        let sessions = self.sessions.lock();
        sessions.iter().filter(is_other).any(|fed| fed.uris.iter().any(|wanted| wanted == uri))
    }

    fn feed_from_legacy(
        &self,
        link: &Link,
        feed: &Feed,
        client: &Client,
        uris: &Arc<[String]>,
    ) -> Feeding {
        // One that is fed already asks the application itself for what is new.
        let is_fed = |fed: &FedSession| Arc::ptr_eq(&fed.outbox, &feed.outbox);
        if !(self.is_app && self.sessions.lock().iter().any(is_fed)) {
            uris.iter().for_each(|uri| subscribe(link, uri));
        }
        if link.is_of_one_client() {
            ask_through(link, feed, client);
        }
        // The link must not keep itself alive through what it calls.
        let (outbox, weak, is_app) = (Arc::clone(&feed.outbox), link.weak(), self.is_app);
        let uris = Arc::clone(uris);
        let listener = move |message: &Message| {
            let method = message.method();
            let is_shared = weak.upgrade().is_none_or(|link| !link.is_of_one_client());
            match method.as_ref() {
                method if method.starts_with(BRIDGE_NOTES) => {}
                method if is_app && method.ends_with("/list_changed") => {}
                method::LOG if is_shared => {}
                method::LOG => outbox.push(Item::Log(message.clone().into())),
                // It could be about a call of another client.
                method
                    if is_app
                        && is_shared
                        && !(method == method::RESOURCE_UPDATED && names_one(message, &uris)) => {}
                _ => outbox.push(Item::Note(message.clone().into())),
            }
        };
        Feeding::Listener { _listening: link.listen(Arc::new(listener)) }
    }

    fn feed_from_modern(&self, link: &Link, feed: &Feed, uris: &[String]) -> Feeding {
        let uris: Vec<_> = uris.iter().map(|uri| quoted(uri)).collect();
        let filter = format!(
            "{{\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true,\"resourceSubscriptions\":[{}]}}}}",
            uris.join(",")
        );
        let request = modern_request(own_request_with(method::LISTEN, &filter));
        let asked = link.ask(request, None, Purpose::Listen);
        let (outbox, is_app) = (Arc::clone(&feed.outbox), self.is_app);
        let hear = move |note: &Message| {
            let method = note.method();
            // Of lists, sessions hear from their catalogue.
            let is_of_lists = is_app && method.ends_with("/list_changed");
            if !method.starts_with(BRIDGE_NOTES) && !is_of_lists {
                outbox.push(Item::Note(era::to_legacy_note(note).into()));
            }
        };
        Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
    }
}

/// Tells these when a modern server says that one of its lists changed: it does so only if it is asked to.
pub(super) fn hear_of_lists(link: &Link, changes: &Arc<ListChanges>) -> Feeding {
    let filter = "{\"notifications\":{\"toolsListChanged\":true,\"promptsListChanged\":true,\
         \"resourcesListChanged\":true}}";
    let request = modern_request(own_request_with(method::LISTEN, filter));
    let asked = link.ask(request, None, Purpose::Listen);
    let changes = Arc::clone(changes);
    let hear = move |note: &Message| {
        if note.method().ends_with("/list_changed") {
            changes.note(now());
        }
    };
    Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
}

/// Subscribes at a legacy server to a resource.
pub(super) fn subscribe(link: &Link, uri: &str) {
    link.ask_and_forget(method::SUBSCRIBE, &uri_params(uri));
}

fn uri_params(uri: &str) -> String {
    format!("{{\"uri\":{}}}", quoted(uri))
}

/// Puts questions that belong to no call to the session, if it can answer them.
fn ask_through(link: &Link, feed: &Feed, client: &Client) {
    // The link must not keep itself alive through what it calls.
    let (feed, weak) = (feed.clone(), link.weak());
    let (capabilities, era) = (client.capabilities.clone(), client.era());
    link.ask_through(Arc::new(move |question| {
        if !can_answer(&capabilities, era, &question.method()) {
            return false;
        }
        let (weak, id) = (weak.clone(), question.copy(Slot::Id).unwrap_or_default());
        let answerer = move |answer: &Message| {
            if let Some(link) = weak.upgrade() {
                link.say(Rewrite::new(answer.clone()).replace(Slot::Id, id).finish());
            }
        };
        feed.question(question, Box::new(answerer)).is_some()
    }));
}

/// Whether a note is about one of these resources.
fn names_one(note: &Message, uris: &[String]) -> bool {
    note.string(Slot::Uri).is_some_and(|uri| uris.iter().any(|wanted| *wanted == uri))
}

/// Passes what a modern subscription hears on.
async fn feed_from(mut asked: PendingRequest, hear: impl Fn(&Message)) {
    loop {
        match asked.next_event().await {
            ServerEvent::Note(note) => {
                let Ok(note) = Message::parse(note.to_bytes().as_ref()) else { continue };
                if note.method() != method::ACKNOWLEDGED {
                    hear(&note);
                }
            }
            event if event.is_end() => return,
            _ => {}
        }
    }
}
