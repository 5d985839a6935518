//! What a message says beside its body: its version, its session, and in the modern era what it asks for.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use pontoon_wire::{Message, Slot, json, method, string_value};

use crate::observe::trace::{TRACEPARENT, TRACESTATE};

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The headers of a message, in a session of this name and version.
pub(crate) fn of_message(
    message: &Message,
    session: Option<&str>,
    agreed: Option<&str>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let agent = concat!("pontoon/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    let mut put = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    // What the message says of its trace, the request that carries it says as well.
    if let Some(meta) = message.raw(Slot::Meta) {
        for name in [TRACEPARENT.clone(), TRACESTATE.clone()] {
            if let Some(value) = json::find(meta, name.as_str()).and_then(string_value) {
                put(name, &value);
            }
        }
    }
    // In the modern era each message says its version itself, and there is no session.
    if let Some(version) = message.string(Slot::MetaVersion) {
        put(VERSION, &version);
        put(METHOD, &message.method());
        if let Some(name) = name_of(message) {
            put(NAME, &encoded(&name));
        }
        return headers;
    }
    if let Some(session) = session {
        put(SESSION, session);
    }
    if let Some(agreed) = agreed.filter(|_| message.method() != method::INITIALIZE) {
        put(VERSION, agreed);
    }
    headers
}

/// What `Mcp-Name` repeats of the body.
fn name_of(message: &Message) -> Option<String> {
    let member = pontoon_wire::headers::name_member(&message.method())?;
    let params = message.raw(Slot::Params)?;
    json::find(params, member).and_then(string_value).map(|name| name.into_owned())
}

/// A value that a header can hold: what it cannot is written in Base64.
fn encoded(value: &str) -> String {
    use base64::Engine as _;
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim() == value
        && !value.starts_with("=?base64?");
    match is_plain {
        true => value.to_owned(),
        false => format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, expected: &[(&str, &str)]) {
        let message = Message::parse(message.as_bytes()).unwrap();
        let headers = of_message(&message, Some("s-1"), Some("2025-06-18"));
        let own =
            ["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "traceparent"];
        let found: Vec<_> = own
            .iter()
            .filter_map(|name| Some((*name, headers.get(*name)?.to_str().unwrap())))
            .collect();
        assert_eq!(found, expected, "{headers:?}");
    }

    #[test]
    fn each_era_has_its_headers() {
        let legacy = [("mcp-session-id", "s-1"), ("mcp-protocol-version", "2025-06-18")];
        check(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, &legacy);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, &legacy[..1]);
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let version = ("mcp-protocol-version", "2026-07-28");
        check(
            &format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"é",{meta}}}}}"#
            ),
            &[version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?w6k=?=")],
        );
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{meta}}}}}"#),
            &[version, ("mcp-method", "tools/list")],
        );
        let traced = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"traceparent":"00-1-2-01"}}}"#;
        check(traced, &[legacy[0], legacy[1], ("traceparent", "00-1-2-01")]);
    }
}
