//! The legacy era: the handshake, and the methods that only it has.

use serde_json::{Value, json};

use crate::call::{Call, Outcome, Stop};
use crate::message::{RpcError, gravity, server_info, tool_error};
use crate::server::lock;

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const NEWEST: &str = "2025-11-25";

/// The answer to a method of this era alone, or `None` for one that both eras have.
pub(crate) fn admit(call: &Call, method: &str) -> Result<Option<Value>, Stop> {
    match method {
        "initialize" => return initialize(call).map(Some),
        "ping" => return Ok(Some(json!({}))),
        _ if !lock(&call.server.session).has_handshake => {
            return Err(RpcError::new(-32600, "`initialize` must come first").into());
        }
        _ => {}
    }
    match method {
        "logging/setLevel" => set_level(call).map(Some),
        "resources/subscribe" => watch(call, true).map(Some),
        "resources/unsubscribe" => watch(call, false).map(Some),
        "subscriptions/listen" => Err(RpcError::new(-32601, "no such method").into()),
        _ => Ok(None),
    }
}

/// Decorates an outcome for this era; `Err(None)` means no answer at all.
pub(crate) fn finish(method: &str, outcome: Outcome) -> Result<Value, Option<RpcError>> {
    match outcome {
        Ok(result) => Ok(result),
        Err(Stop::Cancelled) => Err(None),
        // The model can act on a tool's error, so tools report it as their result.
        Err(Stop::Lacks { capability }) if method == "tools/call" => {
            Ok(tool_error(format!("the client does not support {capability}")))
        }
        Err(Stop::Lacks { capability }) => {
            let message = format!("the client does not support {capability}");
            Err(Some(RpcError::new(-32603, message)))
        }
        Err(Stop::NeedsInput { .. }) => {
            Err(Some(RpcError::new(-32603, "input is asked for by requests in this era")))
        }
        Err(Stop::Error(error)) => Err(Some(error)),
    }
}

fn initialize(call: &Call) -> Outcome {
    let mut session = lock(&call.server.session);
    if session.has_handshake {
        return Err(RpcError::new(-32600, "already initialized").into());
    }
    session.has_handshake = true;
    if let Some(Value::Object(capabilities)) = call.params.get("capabilities") {
        session.capabilities = capabilities.clone();
    }
    let asked = call.params.get("protocolVersion").and_then(Value::as_str);
    let version = asked.filter(|asked| VERSIONS.contains(asked)).unwrap_or(NEWEST);
    Ok(json!({
        "protocolVersion": version,
        "capabilities": {
            "logging": {},
            "completions": {},
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "tools": { "listChanged": true },
        },
        "serverInfo": server_info(),
        "instructions": call.server.instructions,
    }))
}

fn set_level(call: &Call) -> Outcome {
    let level = call.params.get("level").and_then(Value::as_str);
    let Some(floor) = level.and_then(gravity) else {
        return Err(RpcError::new(-32602, "`level` is no log level").into());
    };
    lock(&call.server.session).log_floor = floor;
    Ok(json!({}))
}

fn watch(call: &Call, on: bool) -> Outcome {
    let Some(uri) = call.params.get("uri").and_then(Value::as_str) else {
        return Err(RpcError::new(-32602, "`uri` must be a string").into());
    };
    let watched = &mut lock(&call.server.session).watched;
    if on {
        watched.insert(uri.to_owned());
    } else {
        watched.remove(uri);
    }
    Ok(json!({}))
}
