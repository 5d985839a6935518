//! The requests of a test's clients, as texts.

use pontoon_wire::{Slot, json, string_value};

/// A request with a body.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let length = body.len().to_string();
    let media = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("content-length", &length),
    ];
    bare("POST", path, &[&media[..], headers].concat()) + body
}

/// A request without a body.
pub(crate) fn bare(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:8080\r\n{headers}\r\n")
}

/// A JSON-RPC request.
pub(crate) fn request(id: u32, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")
}

/// What a legacy client says first.
pub(crate) fn initialize(revision: &str, capabilities: &str) -> String {
    let params = format!("{{\"protocolVersion\":\"{revision}\",\"capabilities\":{capabilities}}}");
    request(0, "initialize", &params)
}

/// A modern request, whose progress is to be told under its id; `members` are those of its parameters, but for `_meta`.
pub(crate) fn described(id: u32, method: &str, members: &str) -> String {
    let (version, capabilities) = (Slot::MetaVersion.name(), Slot::MetaCapabilities.name());
    let meta =
        format!("{{\"progressToken\":{id},\"{version}\":\"2026-07-28\",\"{capabilities}\":{{}}}}");
    let comma = if members.is_empty() { "" } else { "," };
    request(id, method, &format!("{{{members}{comma}\"_meta\":{meta}}}"))
}

/// A request of a modern client, whose progress is to be told under its id; `members` are those of its
/// parameters, but for `_meta`.
pub(crate) fn modern(id: u32, method: &str, members: &str) -> String {
    let body = described(id, method, members);
    let members = format!("{{{members}}}");
    let name = json::find(members.as_bytes(), "name").and_then(string_value);
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend(name.as_deref().map(|name| ("mcp-name", name)));
    post("/mcp/demo", &headers, &body)
}
