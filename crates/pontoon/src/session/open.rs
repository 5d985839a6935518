//! How a legacy client opens a session.

use std::sync::Arc;
use std::time::SystemTime;

use pontoon_wire::{Era, Message, method};

use super::answers;
use super::entry::Entry;
use super::known;
use super::legacy::{self, Session};
use super::sessions::Sessions;
use crate::call::CallError;
use crate::client::{Key, Person};
use crate::clock::{now, since};
use crate::observe::metrics::{CallEnding, RequestKind};

impl Sessions {
    /// Opens a session, and gives it with the answer to `initialize`. `key_of` tells whose child will serve
    /// the session with this id.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the server cannot be used or there are too many sessions.
    pub async fn open(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        initialize: &Message,
        person: &Arc<Person>,
        key_of: impl FnOnce(&Arc<str>) -> Key,
    ) -> Result<(Arc<Session>, String), CallError> {
        let began = now();
        let opened = self.try_open(entry, initialize, person, key_of).await;
        let ending = opened
            .as_ref()
            .map_or_else(|error| CallEnding::of_status(error.status()), |_| CallEnding::Answered);
        entry.back.metrics.call_ended(RequestKind::Handshake, ending, since(began));
        opened
    }

    async fn try_open(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        initialize: &Message,
        person: &Arc<Person>,
        key_of: impl FnOnce(&Arc<str>) -> Key,
    ) -> Result<(Arc<Session>, String), CallError> {
        let name = &entry.back.server.name;
        let hello = legacy::hello(initialize);
        let id = self.ids.session(name.as_str(), &person.principal, &hello, SystemTime::now());
        let key = key_of(&id);
        let catalog = self.catalog(entry, &key, person, Era::Legacy, method::INITIALIZE);
        let catalog = known::in_time(entry, &entry.back.clock(initialize), catalog).await?;
        let facts = catalog.facts(Era::Legacy).ok_or(CallError::Internal)?;
        let session = Session::new(id, name, hello, person, &self.ids, &self.memory);
        let session = self.add(Arc::new(session))?;
        let result = answers::initialize(facts, session.revision, &entry.back.server);
        Ok((session, result))
    }
}
