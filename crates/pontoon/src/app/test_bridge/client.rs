//! A client of a test, of either era.

use super::TestBridge;
use super::connection::{TestConnection, TestResponse};
use super::request::{bare, initialize, modern, post, request};

/// The newest revision of each era.
pub(crate) const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// A client. Each of its requests has a connection of its own.
pub(crate) struct TestClient<'b> {
    bridge: &'b TestBridge,
    revision: String,
    /// The session of a legacy client.
    pub(crate) session: Option<String>,
    /// Where it calls from.
    pub(crate) address: String,
}

impl<'b> TestClient<'b> {
    /// A client of each era, of a server that is known: nothing but their calls starts a process.
    pub(crate) async fn both(bridge: &'b TestBridge) -> [Self; 2] {
        bridge.until_known().await;
        [Self::modern(bridge), Self::open(bridge).await]
    }

    /// A modern client.
    pub(crate) fn modern(bridge: &'b TestBridge) -> Self {
        let address = "127.0.0.1:40000".to_owned();
        Self { bridge, revision: MODERN.to_owned(), session: None, address }
    }

    /// A legacy client that can be asked nothing, in a session.
    pub(crate) async fn open(bridge: &'b TestBridge) -> Self {
        Self::open_as(bridge, LEGACY, "{}").await
    }

    /// A client of this revision and with these capabilities, in a session.
    pub(crate) async fn open_as(
        bridge: &'b TestBridge,
        revision: &str,
        capabilities: &str,
    ) -> Self {
        let mut client = Self { revision: revision.to_owned(), ..Self::modern(bridge) };
        let body = initialize(revision, capabilities);
        let response = bridge.connect().send(&post("/mcp/demo", &[], &body)).await;
        let session = response.header("mcp-session-id").map(str::to_owned);
        match session {
            Some(session) => client.session = Some(session),
            None => panic!("no session: {}", response.body().await),
        }
        client
    }

    /// Makes a request under this id; `members` are those of its parameters.
    pub(crate) async fn ask(&self, id: u32, method: &str, members: &str) -> TestResponse {
        self.send(&self.request(id, method, members)).await.begin().await
    }

    /// Calls a tool under this id.
    pub(crate) async fn call(&self, id: u32, tool: &str, arguments: &str) -> TestResponse {
        self.send_call(id, tool, arguments).await.begin().await
    }

    /// The same, but waits for nothing.
    pub(crate) async fn send_call(&self, id: u32, tool: &str, arguments: &str) -> TestConnection {
        let members = format!("\"name\":\"{tool}\",\"arguments\":{arguments}");
        self.send(&self.request(id, "tools/call", &members)).await
    }

    /// Gives up a call as the client's era has it.
    pub(crate) async fn give_up(&self, id: u32, connection: TestConnection) {
        drop(connection);
        if self.session.is_some() {
            let params = format!("{{\"requestId\":{id}}}");
            self.say(&format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{params}}}"
            ))
            .await;
        }
    }

    /// Posts a message of a legacy client that wants no answer.
    pub(crate) async fn say(&self, message: &str) {
        let request = post("/mcp/demo", &self.headers(), message);
        let response = self.send(&request).await.begin().await;
        assert_eq!(response.status, 202);
    }

    /// Makes a request without a body; `last` is the event that was seen last.
    pub(crate) async fn bare(&self, method: &str, last: Option<&str>) -> TestResponse {
        let mut headers = self.headers();
        headers.push(("accept", "text/event-stream"));
        headers.extend(last.map(|last| ("last-event-id", last)));
        self.send(&bare(method, "/mcp/demo", &headers)).await.begin().await
    }

    async fn send(&self, request: &str) -> TestConnection {
        let mut connection = self.bridge.connect_from(&self.address);
        connection.write(request).await;
        connection
    }

    fn request(&self, id: u32, method: &str, members: &str) -> String {
        if self.session.is_none() {
            return modern(id, method, members);
        }
        let comma = if members.is_empty() { "" } else { "," };
        let params = format!("{{{members}{comma}\"_meta\":{{\"progressToken\":{id}}}}}");
        post("/mcp/demo", &self.headers(), &request(id, method, &params))
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let session = self.session.iter().map(|session| ("mcp-session-id", session.as_str()));
        session.chain([("mcp-protocol-version", self.revision.as_str())]).collect()
    }
}
