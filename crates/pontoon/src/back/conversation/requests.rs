//! What the bridge asks servers for itself.

use bytes::Bytes;
use pontoon_wire::{Message, Rewrite, era, quoted};

/// A request of the bridge's own, without parameters.
pub fn own_request(method: &str) -> Message {
    own_request_with(method, "{}")
}

/// A request of the bridge's own; `params` is a JSON object.
pub fn own_request_with(method: &str, params: &str) -> Message {
    let method = quoted(method);
    Message::own(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":{method},\"params\":{params}}}"
    ))
}

/// The same request, described as the modern era wants it.
pub fn modern_request(request: Message) -> Rewrite {
    let client = era::ClientFacts {
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
        log_level: None,
    };
    era::to_modern_request(request, &client)
}

/// How the bridge names itself to servers.
pub fn own_info() -> Bytes {
    Bytes::from_static(
        concat!("{\"name\":\"pontoon\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}")
            .as_bytes(),
    )
}
