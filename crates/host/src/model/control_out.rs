//! Lines to the CLI: answers to what it asks, and messages of an MCP server in it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Where messages of an MCP server go: each in a message to the CLI.
#[derive(Debug, Clone)]
pub(crate) struct ControlOut {
    pub(super) to_cli: mpsc::Sender<Bytes>,
    pub(super) server: Arc<str>,
    /// The request that is answered. Without one it is a notification.
    pub(super) request: Option<Arc<str>>,
}

impl ControlOut {
    pub(crate) fn send(&self, message: &[u8]) {
        send(&self.to_cli, self.wrapped(message));
    }

    pub(crate) fn send_if_idle(&self, message: &[u8]) {
        if self.to_cli.capacity() > self.to_cli.max_capacity() / 2 {
            let _ = self.to_cli.try_send(self.wrapped(message));
        }
    }

    fn wrapped(&self, message: &[u8]) -> Bytes {
        let message = String::from_utf8_lossy(message.trim_ascii_end());
        let line = match &self.request {
            Some(request) => success(request, &format!("{{\"mcp_response\":{message}}}")),
            None => format!(
                "{{\"type\":\"control_request\",\"request_id\":{},\"request\":{{\"subtype\":\"mcp_message\",\
                 \"server_name\":{},\"message\":{message}}}}}\n",
                json!(uuid::Uuid::new_v4().to_string()),
                json!(*self.server),
            ),
        };
        line.into()
    }
}

/// Sends a line without waiting: a CLI may not read before its own words are read, and it is the reader of these that
/// answers. There are as many lines as the CLI has asked for.
pub(super) fn send(to_cli: &mpsc::Sender<Bytes>, line: Bytes) {
    if let Err(TrySendError::Full(line)) = to_cli.try_send(line) {
        let to_cli = to_cli.clone();
        // Without a receiver there is no CLI any more.
        tokio::spawn(async move { drop(to_cli.send(line).await) });
    }
}

/// A line that answers a request of the CLI's with this JSON text.
pub(super) fn success(request: &str, response: &str) -> String {
    let request = json!(request);
    format!(
        "{{\"type\":\"control_response\",\"response\":{{\"subtype\":\"success\",\"request_id\":{request},\
         \"response\":{response}}}}}\n"
    )
}
