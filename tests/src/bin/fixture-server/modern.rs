//! The modern era: the envelope every request carries, discovery, and how results are stamped.

use serde_json::{Value, json};

use crate::call::{Call, Outcome, Stop};
use crate::message::{META_CAPABILITIES, META_SERVER_INFO, META_VERSION, RpcError, server_info};

const VERSIONS: [&str; 1] = ["2026-07-28"];

/// The answer to a method of this era alone, or `None` for one that [`crate::run`] knows.
pub(crate) fn admit(call: &Call, method: &str) -> Result<Option<Value>, Stop> {
    let version = call.params.pointer(&format!("/_meta/{META_VERSION}"));
    if method == "initialize" && version.is_none() {
        let requested = call.params.get("protocolVersion").and_then(Value::as_str);
        return Err(unsupported(requested.unwrap_or_default()).into());
    }
    let Some(version) = version.and_then(Value::as_str) else {
        return Err(invalid("`_meta` lacks io.modelcontextprotocol/protocolVersion").into());
    };
    if !VERSIONS.contains(&version) {
        return Err(unsupported(version).into());
    }
    let capabilities = call.params.pointer(&format!("/_meta/{META_CAPABILITIES}"));
    if !capabilities.is_some_and(Value::is_object) {
        return Err(invalid("`_meta` lacks io.modelcontextprotocol/clientCapabilities").into());
    }
    if method == "server/discover" { Ok(Some(discover(call))) } else { Ok(None) }
}

/// Decorates an outcome for this era; `Err(None)` means no answer at all.
pub(crate) fn finish(method: &str, outcome: Outcome) -> Result<Value, Option<RpcError>> {
    let (kind, mut result) = match outcome {
        Ok(result) => ("complete", result),
        Err(Stop::NeedsInput { requests, state }) => {
            let mut result = json!({ "inputRequests": requests });
            if let Some(state) = state {
                result["requestState"] = state.into();
            }
            ("input_required", result)
        }
        Err(Stop::Cancelled) => return Err(None),
        Err(Stop::Lacks { capability }) => {
            let message = format!("this needs the client's capability `{capability}`");
            let data = json!({ "requiredCapabilities": { capability: {} } });
            return Err(Some(RpcError::new(-32021, message).with_data(data)));
        }
        Err(Stop::Error(error)) => return Err(Some(error)),
    };
    // A call that became a task says so itself.
    if result.get("resultType").is_none() {
        result["resultType"] = kind.into();
    }
    result["_meta"][META_SERVER_INFO] = server_info();
    // Lists change at a tool's call, so they may not be kept; what a resource says never does.
    match method {
        "resources/read" | "resources/templates/list" | "server/discover" => {
            result["ttlMs"] = 60_000.into();
            result["cacheScope"] = "public".into();
        }
        "tools/list" | "prompts/list" | "resources/list" => {
            result["ttlMs"] = 0.into();
            result["cacheScope"] = "private".into();
        }
        _ => {}
    }
    Ok(result)
}

fn discover(call: &Call) -> Value {
    json!({
        "supportedVersions": VERSIONS,
        "capabilities": {
            "logging": {},
            "completions": {},
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "tools": { "listChanged": true },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
        "instructions": call.server.instructions,
    })
}

fn invalid(message: &str) -> RpcError {
    RpcError::new(-32602, message)
}

fn unsupported(requested: &str) -> RpcError {
    let data = json!({ "supported": VERSIONS, "requested": requested });
    RpcError::new(-32022, "unsupported protocol version").with_data(data)
}
