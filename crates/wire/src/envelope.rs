//! Messages of the bridge's own making, around payloads that are JSON texts already.

use crate::message::quoted;

/// The answer to the request with this id (a JSON text), with this result (another).
pub fn result_answer(id: &str, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

/// A request with this id and these parameters (JSON texts).
pub fn request(id: &str, method: &str, params: &str) -> String {
    let method = quoted(method);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}")
}

/// A notification with these parameters (a JSON text).
pub fn notification(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}", quoted(method))
}

/// A notification without parameters.
pub fn plain_notification(method: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{}}}", quoted(method))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Message};

    /// Compares a text, and what it is as a message.
    #[track_caller]
    fn check(text: &str, kind: Kind, expected: &str) {
        assert_eq!(text, expected);
        let message = Message::parse(text.as_bytes()).unwrap();
        assert_eq!(message.check_envelope(), Ok(()));
        assert_eq!(message.kind(), kind);
    }

    #[test]
    fn envelopes_are_messages_on_one_line() {
        let answer = r#"{"jsonrpc":"2.0","id":"7","result":{"a":1}}"#;
        check(&result_answer("\"7\"", "{\"a\":1}"), Kind::Answer, answer);
        let request_text = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}"#;
        check(&request("7", "ping", "{}"), Kind::Request, request_text);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"a":1}}"#;
        check(&notification("notifications/progress", "{\"a\":1}"), Kind::Notification, note);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        check(&plain_notification("notifications/tools/list_changed"), Kind::Notification, note);
    }
}
