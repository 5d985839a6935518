//! A legacy client of a test, in its session.

use super::TestBridge;
use super::connection::{TestConnection, TestResponse};
use super::request::{bare, initialize, post, request};

/// A legacy client in its session.
pub(crate) struct TestSession<'b> {
    bridge: &'b TestBridge,
    pub(crate) id: String,
    revision: String,
}

impl<'b> TestSession<'b> {
    /// Opens one of this revision, for a client of these capabilities.
    pub(crate) async fn open(bridge: &'b TestBridge, revision: &str, capabilities: &str) -> Self {
        let body = initialize(revision, capabilities);
        let response = bridge.connect().send(&post("/mcp/demo", &[], &body)).await;
        assert_eq!(response.status, 200);
        let id = response.header("mcp-session-id");
        let id = id.expect("a session").to_owned();
        Self { bridge, id, revision: revision.to_owned() }
    }

    /// Posts a message in the session, on a connection of its own.
    pub(crate) async fn post(&self, body: &str) -> TestResponse {
        self.bridge.connect().send(&post("/mcp/demo", &self.headers(), body)).await
    }

    /// Makes a request under this id.
    pub(crate) async fn ask(&self, id: u32, method: &str, params: &str) -> TestResponse {
        self.post(&request(id, method, params)).await
    }

    /// Calls a tool under this id.
    pub(crate) async fn call(&self, id: u32, tool: &str, arguments: &str) -> TestResponse {
        self.post(&tool_call(id, tool, arguments)).await
    }

    /// Sends a tool call under this id, and waits for nothing.
    pub(crate) async fn send_call(&self, id: u32, tool: &str, arguments: &str) -> TestConnection {
        let mut connection = self.bridge.connect();
        connection
            .write(&post("/mcp/demo", &self.headers(), &tool_call(id, tool, arguments)))
            .await;
        connection
    }

    /// Makes a request without a body; `last` is the event that was seen last.
    pub(crate) async fn bare(&self, method: &str, last: Option<&str>) -> TestResponse {
        let mut headers = self.headers();
        headers.push(("accept", "text/event-stream"));
        headers.extend(last.map(|last| ("last-event-id", last)));
        self.bridge.connect().send(&bare(method, "/mcp/demo", &headers)).await
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        vec![("mcp-session-id", &self.id), ("mcp-protocol-version", &self.revision)]
    }
}

fn tool_call(id: u32, tool: &str, arguments: &str) -> String {
    let meta = format!("{{\"progressToken\":{id}}}");
    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{arguments},\"_meta\":{meta}}}");
    request(id, "tools/call", &params)
}
