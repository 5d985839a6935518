//! JSON-RPC values: errors, and the names that both eras put in messages.

use serde_json::{Value, json};

/// Key of the protocol version in a modern request's `_meta`, escaped for a JSON pointer.
pub(crate) const META_VERSION: &str = "io.modelcontextprotocol~1protocolVersion";
/// Key of the client's capabilities in a modern request's `_meta`, escaped for a JSON pointer.
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol~1clientCapabilities";
/// Key of the wanted log level in a modern request's `_meta`, escaped for a JSON pointer.
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol~1logLevel";
/// Key of the server's identity in a modern result's `_meta`.
pub(crate) const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Key of the subscription that a modern notification belongs to.
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The error member of a response.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

/// Who this server says it is.
pub(crate) fn server_info() -> Value {
    json!({
        "name": "fixture-server",
        "title": "Pontoon's fixture server",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// A tool result with one text block.
pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

/// A tool result that tells the model what went wrong.
pub(crate) fn tool_error(message: impl Into<String>) -> Value {
    let mut result = text(message);
    result["isError"] = true.into();
    result
}

/// How grave a log level is, or `None` when there is no such level.
pub(crate) fn gravity(level: &str) -> Option<usize> {
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
        .iter()
        .position(|name| *name == level)
}
