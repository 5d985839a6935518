//! JSON-RPC error codes, and error answers of the bridge's own making.

use crate::message::quoted;

/// The error codes of JSON-RPC and of the protocol.
pub mod code {
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// JSON, but no proper message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody answers this method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something failed on this side.
    pub const INTERNAL: i64 = -32603;
    /// A header and the body disagree.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that this request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// A protocol version nobody here speaks.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The server could not be reached or failed; outside the reserved range, as the protocol asks.
    pub const SERVER_FAILED: i64 = -31502;
    /// There is no room left to work in.
    pub const DISK_FULL: i64 = -31507;
    /// Too busy; try again.
    pub const BUSY: i64 = -31429;
    /// It took too long.
    pub const TIMED_OUT: i64 = -31504;
    /// No key was shown, or what was shown is none; outside the reserved range.
    pub const UNAUTHORIZED: i64 = -31401;
    /// The one who asks may not, or is not known well enough.
    pub const FORBIDDEN: i64 = -31403;
    /// The session is not known here.
    pub const UNKNOWN_SESSION: i64 = -32001;
}

/// An error to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// The JSON-RPC code.
    pub code: i64,
    /// What happened and what to do, for the person or model that reads it.
    pub message: String,
    /// More, as a JSON text.
    pub data: Option<String>,
}

impl ErrorObject {
    /// An error without further data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same with further data, a JSON text.
    pub fn with_data(self, data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// The object as JSON.
    pub fn to_json(&self) -> String {
        let Self { code, message, data } = self;
        let data = data.as_ref().map(|data| format!(",\"data\":{data}")).unwrap_or_default();
        format!("{{\"code\":{code},\"message\":{}{data}}}", quoted(message))
    }

    /// The answer to the request with this id (a JSON text).
    pub fn answer(&self, id: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{}}}", self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_answer_is_one_json_line() {
        let error = ErrorObject::new(code::BUSY, "busy,\n\"try\" again").with_data("{\"a\":1}");
        let expected = r#"{"jsonrpc":"2.0","id":"x","error":{"code":-31429,"message":"busy,\n\"try\" again","data":{"a":1}}}"#;
        assert_eq!(error.answer("\"x\""), expected);
    }
}
