//! Tasks: calls that are answered at once with a task, and go on behind it.
//!
//! This is the extension `io.modelcontextprotocol/tasks` of the modern era. A task lives in the
//! process that made it and its id names that process, so a bridge with several children must
//! send `tasks/get` to the right one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::call::{Call, Outcome, Signal, Stop};
use crate::message::{META_CAPABILITIES, RpcError};
use crate::server::{Era, lock};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Every task of this process, by id.
pub(crate) type Tasks = HashMap<String, Arc<Task>>;

/// A call that goes on after its answer.
pub(crate) struct Task {
    id: String,
    signal: Arc<Signal>,
    created: String,
    state: Mutex<State>,
}

struct State {
    status: Status,
    updated: String,
}

enum Status {
    Working,
    /// Waits for answers to these questions.
    InputRequired(Map<String, Value>),
    Completed(Value),
    Failed(RpcError),
    Cancelled,
}

/// What to do for a client that does not know tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Do the work within the call.
    Wait,
    /// Refuse.
    Refuse,
}

/// Does `work` in a task, if the client knows tasks.
pub(crate) fn run(
    call: &Call,
    otherwise: Otherwise,
    work: impl FnOnce(&Call) -> Outcome + Send + 'static,
) -> Outcome {
    if call.era == Era::Legacy || !has_extension(call) {
        return match otherwise {
            Otherwise::Refuse if call.era == Era::Modern => Err(lacks_extension()),
            _ => work(call),
        };
    }
    let task = {
        let mut tasks = lock(&call.server.tasks);
        let id = format!("task-{}-{}", std::process::id(), tasks.len() + 1);
        let state = State { status: Status::Working, updated: now() };
        let task = Task { id, signal: Arc::default(), created: now(), state: Mutex::new(state) };
        let task = Arc::new(task);
        tasks.insert(task.id.clone(), Arc::clone(&task));
        task
    };
    let mut created = task.describe(&lock(&task.state));
    created["resultType"] = "task".into();
    let behind = Call {
        server: Arc::clone(&call.server),
        era: call.era,
        id: call.id.clone(),
        params: call.params.clone(),
        signal: Arc::clone(&task.signal),
        task: Some(task),
    };
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || {
            let outcome = work(&behind);
            if let Some(task) = &behind.task {
                task.end(outcome);
            }
        })
        .map_err(|error| RpcError::new(-32603, format!("no thread: {error}")))?;
    Ok(created)
}

/// Answers `tasks/get`.
pub(crate) fn get(call: &Call) -> Outcome {
    let task = find(call)?;
    let state = lock(&task.state);
    let mut result = task.describe(&state);
    match &state.status {
        Status::InputRequired(pending) => result["inputRequests"] = pending.clone().into(),
        Status::Completed(outcome) => result["result"] = outcome.clone(),
        Status::Failed(error) => result["error"] = error.to_json(),
        Status::Working | Status::Cancelled => {}
    }
    Ok(result)
}

/// Answers `tasks/update`, which brings answers. Those to no open question are ignored.
pub(crate) fn update(call: &Call) -> Outcome {
    let task = find(call)?;
    let Some(Value::Object(responses)) = call.params.get("inputResponses") else {
        return Err(RpcError::new(-32602, "`inputResponses` must be an object").into());
    };
    let mut state = lock(&task.state);
    if let Status::InputRequired(pending) = &mut state.status {
        for (key, response) in responses {
            if pending.remove(key).is_some() {
                task.signal.deliver(json!(key).to_string(), json!({ "result": response }));
            }
        }
        if pending.is_empty() {
            state.status = Status::Working;
        }
        state.updated = now();
    }
    Ok(json!({}))
}

/// Answers `tasks/cancel`. A task that ended already stays as it is.
pub(crate) fn cancel(call: &Call) -> Outcome {
    let task = find(call)?;
    task.signal.cancel();
    task.end(Err(Stop::Cancelled));
    Ok(json!({}))
}

impl Task {
    /// Shows `questions` to whoever asks for the task, until each is answered.
    pub(crate) fn await_input(&self, questions: Map<String, Value>) {
        let mut state = lock(&self.state);
        if matches!(state.status, Status::Working) {
            *state = State { status: Status::InputRequired(questions), updated: now() };
        }
    }

    fn end(&self, outcome: Outcome) {
        let mut state = lock(&self.state);
        if matches!(state.status, Status::Working | Status::InputRequired(_)) {
            let status = match outcome {
                Ok(result) => Status::Completed(result),
                Err(Stop::Cancelled) => Status::Cancelled,
                Err(Stop::Error(error)) => Status::Failed(error),
                Err(stop) => Status::Failed(RpcError::new(-32603, format!("stopped: {stop:?}"))),
            };
            *state = State { status, updated: now() };
        }
    }

    fn describe(&self, state: &State) -> Value {
        let status = match state.status {
            Status::Working => "working",
            Status::InputRequired(_) => "input_required",
            Status::Completed(_) => "completed",
            Status::Failed(_) => "failed",
            Status::Cancelled => "cancelled",
        };
        json!({
            "taskId": self.id,
            "status": status,
            "createdAt": self.created,
            "lastUpdatedAt": state.updated,
            "ttlMs": 600_000,
            "pollIntervalMs": 100,
        })
    }
}

fn find(call: &Call) -> Result<Arc<Task>, Stop> {
    if !has_extension(call) {
        return Err(lacks_extension());
    }
    let id = call.params.get("taskId").and_then(Value::as_str).unwrap_or_default();
    let task = lock(&call.server.tasks).get(id).cloned();
    task.ok_or_else(|| RpcError::new(-32602, format!("no task `{id}`")).into())
}

fn has_extension(call: &Call) -> bool {
    let extensions = format!("/_meta/{META_CAPABILITIES}/extensions");
    call.params.pointer(&extensions).and_then(|extensions| extensions.get(EXTENSION)).is_some()
}

fn lacks_extension() -> Stop {
    let data = json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } });
    RpcError::new(-32021, "this needs a client that knows tasks").with_data(data).into()
}

/// The time as RFC 3339 writes it.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(since.as_secs(), since.subsec_millis())
}

/// `seconds` after the epoch, by the calendar of 400-year cycles that begin in March.
fn written(seconds: u64, millis: u32) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = cycle * 400 + year + next;
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn times_are_written_by_the_calendar() {
        assert_eq!(written(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400, 5), "2000-02-29T00:00:00.005Z");
        assert_eq!(written(1_798_761_599, 999), "2026-12-31T23:59:59.999Z");
    }
}
