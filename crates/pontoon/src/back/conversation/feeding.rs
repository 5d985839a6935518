//! What belongs to no call, and the sessions that hear it.
//!
//! A process is kept for one session at a time, and the newest hears it. An application may have several clients:
//! each hears of the resources that it subscribed to.

use std::sync::{Arc, MutexGuard, PoisonError};

use pontoon_wire::{Era, Message, Rewrite, Slot, era, method, quoted};

use super::Conversation;
use super::abilities::can_answer;
use super::link::{Listening, PendingRequest, Purpose};
use super::list_changes::ListChanges;
use super::mailbox::ServerEvent;
use super::requests::{modern_request, own_request_with};
use crate::call::Feed;
use crate::client::Client;
use crate::clock::now;
use crate::outbox::{Item, Outbox};

/// A session that hears what belongs to no call, until this is dropped.
#[derive(Debug)]
pub(super) struct FedSession {
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

impl Conversation {
    /// Tells these when a modern server says that one of its lists changed: it does so only if it is asked to.
    pub(crate) fn hear_of_lists(&self, changes: &Arc<ListChanges>) -> Feeding {
        let filter = "{\"notifications\":{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true}}";
        let request = modern_request(own_request_with(method::LISTEN, filter));
        let asked = self.link.ask(request, None, Purpose::Listen);
        let changes = Arc::clone(changes);
        let hear = move |note: &Message| {
            if note.method().ends_with("/list_changed") {
                changes.note(now());
            }
        };
        Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
    }

    /// Lets a session hear what belongs to no call, unless it does already.
    pub(crate) fn refeed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let is_same = |fed: &FedSession| {
            let same_uris = !self.is_app || *fed.uris == *client.subscriptions;
            Arc::ptr_eq(&fed.outbox, &feed.outbox) && same_uris
        };
        if !self.fed().iter().any(is_same) {
            self.feed(client);
        }
    }

    /// Lets a legacy client's session hear what belongs to no call of its. Where several clients
    /// share the server, what it logs or asks could be about another's call: none of them hears that.
    pub fn feed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let uris: Arc<[String]> = client.subscriptions.clone().into();
        let feeding = match self.era {
            Era::Legacy => self.feed_from_legacy(feed, client, &uris),
            Era::Modern => self.feed_from_modern(feed, &uris),
        };
        let fed = FedSession { outbox: Arc::clone(&feed.outbox), uris, _feeding: feeding };
        let mut sessions = self.fed();
        let is_replaced =
            |other: &mut FedSession| !self.is_app || Arc::ptr_eq(&other.outbox, &fed.outbox);
        let replaced: Vec<_> = sessions.extract_if(.., is_replaced).collect();
        sessions.push(fed);
        drop((sessions, replaced));
    }

    /// A session hears no more, and an application does not tell what no other wants to hear.
    pub(crate) fn unfeed(&self, client: &Client) {
        let Some(feed) = &client.feed else { return };
        let is_theirs = |fed: &mut FedSession| Arc::ptr_eq(&fed.outbox, &feed.outbox);
        let gone: Vec<_> = self.fed().extract_if(.., is_theirs).collect();
        for uri in gone.iter().flat_map(|fed| fed.uris.iter()) {
            if self.era == Era::Legacy && !self.is_wanted_by_others(client, uri) {
                self.unsubscribe(uri);
            }
        }
    }

    /// Whether a session of another client is subscribed to this resource.
    pub(crate) fn is_wanted_by_others(&self, client: &Client, uri: &str) -> bool {
        let own = client.feed.as_ref().map(|feed| &feed.outbox);
        let is_other = |fed: &&FedSession| own.is_none_or(|own| !Arc::ptr_eq(own, &fed.outbox));
        self.fed().iter().filter(is_other).any(|fed| fed.uris.iter().any(|wanted| wanted == uri))
    }

    fn feed_from_legacy(&self, feed: &Feed, client: &Client, uris: &Arc<[String]>) -> Feeding {
        // One that is fed already asks the application itself for what is new.
        let is_fed = |fed: &FedSession| Arc::ptr_eq(&fed.outbox, &feed.outbox);
        if !(self.is_app && self.fed().iter().any(is_fed)) {
            uris.iter().for_each(|uri| self.subscribe(uri));
        }
        if self.link.is_of_one_client() {
            self.ask_through(feed, client);
        }
        // The link must not keep itself alive through what it calls.
        let (outbox, link, is_app) = (Arc::clone(&feed.outbox), self.link.weak(), self.is_app);
        let uris = Arc::clone(uris);
        let listener = move |message: &Message| {
            let method = message.method();
            let is_shared = link.upgrade().is_none_or(|link| !link.is_of_one_client());
            match method.as_ref() {
                method if is_app && method.ends_with("/list_changed") => {}
                method::LOG if is_shared => {}
                method::LOG => outbox.push(Item::Log(message.clone().into())),
                method::RESOURCE_UPDATED if is_app && is_shared && !names_one(message, &uris) => {}
                _ => outbox.push(Item::Note(message.clone().into())),
            }
        };
        Feeding::Listener { _listening: self.link.listen(Arc::new(listener)) }
    }

    fn feed_from_modern(&self, feed: &Feed, uris: &[String]) -> Feeding {
        let uris: Vec<_> = uris.iter().map(|uri| quoted(uri)).collect();
        let filter = format!(
            "{{\"notifications\":{{\"toolsListChanged\":true,\"promptsListChanged\":true,\
             \"resourcesListChanged\":true,\"resourceSubscriptions\":[{}]}}}}",
            uris.join(",")
        );
        let request = modern_request(own_request_with(method::LISTEN, &filter));
        let asked = self.link.ask(request, None, Purpose::Listen);
        let (outbox, is_app) = (Arc::clone(&feed.outbox), self.is_app);
        let hear = move |note: &Message| {
            if !(is_app && note.method().ends_with("/list_changed")) {
                outbox.push(Item::Note(era::to_legacy_note(note).into()));
            }
        };
        Feeding::Subscription { task: tokio::spawn(feed_from(asked, hear)) }
    }

    /// Puts questions that belong to no call to the session, if it can answer them.
    fn ask_through(&self, feed: &Feed, client: &Client) {
        // The link must not keep itself alive through what it calls.
        let (feed, link) = (feed.clone(), self.link.weak());
        let (capabilities, era) = (client.capabilities.clone(), client.era());
        self.link.ask_through(Arc::new(move |question| {
            if !can_answer(&capabilities, era, &question.method()) {
                return false;
            }
            let (link, id) = (link.clone(), question.copy(Slot::Id).unwrap_or_default());
            let answerer = move |answer: &Message| {
                if let Some(link) = link.upgrade() {
                    link.say(Rewrite::new(answer.clone()).replace(Slot::Id, id).finish());
                }
            };
            feed.question(question, Box::new(answerer)).is_some()
        }));
    }

    fn fed(&self) -> MutexGuard<'_, Vec<FedSession>> {
        self.fed.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
