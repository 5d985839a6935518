//! The modern era for `task-one`: every call becomes a task, and every task is called 1.
//!
//! The task is done at once. Its result is the text of the call, so a test sees whose it was.

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::{Rude, answers, error, list};

/// The result of this process's task, once there is one.
static RESULT: Mutex<Option<Value>> = Mutex::new(None);

/// Answers any request.
pub(crate) fn answer(rude: &Rude, id: &Value, method: &str, params: &Value) {
    let body = match method {
        "server/discover" => json!({ "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
        }}),
        "tools/list" => list(rude, params),
        "tools/call" => begin(&params["arguments"]["text"]),
        "tasks/get" if params["taskId"] == "1" => get(),
        "tasks/get" => error(-32602, "no such task"),
        "initialize" => error(-32022, "unsupported protocol version"),
        _ => error(-32601, "no such method"),
    };
    answers::send(rude, id, &body);
}

fn begin(text: &Value) -> Value {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    if let Ok(mut kept) = RESULT.lock() {
        *kept = Some(result);
    }
    json!({ "result": describe("task", "working") })
}

fn get() -> Value {
    let Some(result) = RESULT.lock().ok().and_then(|kept| kept.clone()) else {
        return error(-32602, "no such task");
    };
    let mut task = describe("complete", "completed");
    task["result"] = result;
    json!({ "result": task })
}

fn describe(result_type: &str, status: &str) -> Value {
    json!({
        "resultType": result_type,
        "taskId": "1",
        "status": status,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "lastUpdatedAt": "2026-01-01T00:00:00.000Z",
        "ttlMs": 600_000,
        "pollIntervalMs": 100,
    })
}
