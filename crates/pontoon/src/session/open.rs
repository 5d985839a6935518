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
        entry.back.metrics.call_ended(RequestKind::Handshake, None, ending, since(began));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use crate::app::test_bridge::request::{initialize, post};
    use crate::app::test_bridge::{LEGACY, TestBridge, TestClient, TestResponse, ToolServer};
    use pontoon_wire::Era;

    const SECOND: Duration = Duration::from_secs(1);

    async fn ask(bridge: &TestBridge, revision: &str) -> TestResponse {
        let request = post("/mcp/demo", &[], &initialize(revision, "{}"));
        bridge.connect().send(&request).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_opened_as_soon_as_its_server_is_known() {
        let server = ToolServer::new(Era::Legacy);
        server.slow_starts(3 * SECOND);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let began = Instant::now();
        let first = TestClient::open(&bridge).await;
        assert_eq!(began.elapsed().as_secs(), 3);
        let began = Instant::now();
        let second = TestClient::open(&bridge).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "now it is known");
        assert_ne!(first.session, second.session);
        assert_eq!(bridge.site.sessions.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_known_in_time_or_does_not_start_opens_no_session() {
        let server = ToolServer::new(Era::Legacy);
        server.slow_starts(600 * SECOND);
        let bridge = TestBridge::start(server.servers(), |_, server| server.timeout = 4 * SECOND);
        let began = Instant::now();
        let (status, text) = ask(&bridge, LEGACY).await.refusal().await;
        assert_eq!((status, began.elapsed().as_secs()), (504, 4), "{text}");
        assert!(text.ends_with(": it is being started for the first time"), "{text}");
        assert_eq!(bridge.site.sessions.count(), 0);

        let server = ToolServer::new(Era::Legacy);
        server.break_starts(usize::MAX);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let response = ask(&bridge, LEGACY).await;
        assert_eq!(response.header("mcp-session-id"), None);
        let (status, text) = response.refusal().await;
        assert_eq!(status, 502);
        assert!(text.starts_with("the server `demo` does not start: "), "{text}");
        assert_eq!(bridge.site.sessions.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_a_revision_that_is_not_spoken_hears_of_the_newest() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        for (asked, told) in [("2024-11-05", "2024-11-05"), ("1999-01-01", LEGACY)] {
            let answer = ask(&bridge, asked).await.body().await;
            assert!(answer.contains(&format!("\"protocolVersion\":\"{told}\"")), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_starts_while_a_session_is_opened_ends_if_no_call_comes() {
        let server = ToolServer::new(Era::Legacy);
        server.slow_starts(SECOND);
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let session = TestClient::open(&bridge).await;
        bridge.until_known().await;
        bridge.servers.until_living(1).await;
        bridge.servers.until_living(0).await;
        assert_eq!(bridge.site.sessions.count(), 1, "of the session it took nothing");
        assert!(session.call(1, "echo", "{}").await.answer().await.contains("\"by\""));
    }
}
