//! One running request: what its handler may do, and how it ends.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::message::{META_CAPABILITIES, META_LOG_LEVEL, RpcError, gravity};
use crate::modern;
use crate::server::{Era, Server, lock};
use crate::tasks::Task;

/// What a handler gives: a result without its era's decoration, or why there is none.
pub(crate) type Outcome = Result<Value, Stop>;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client cancelled it and wants no answer.
    Cancelled,
    /// The modern era's way to ask: answer now, and wait for the same request again.
    NeedsInput {
        requests: Map<String, Value>,
        state: Option<String>,
    },
    /// The client cannot do what the call needs.
    Lacks {
        capability: &'static str,
    },
    Error(RpcError),
}

impl From<RpcError> for Stop {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// Wakes a call that sleeps or waits for an answer.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<Arrivals>,
    arrived: Condvar,
}

#[derive(Default)]
struct Arrivals {
    is_cancelled: bool,
    answers: HashMap<String, Value>,
}

impl Signal {
    pub(crate) fn cancel(&self) {
        lock(&self.state).is_cancelled = true;
        self.arrived.notify_all();
    }

    pub(crate) fn deliver(&self, question: String, response: Value) {
        lock(&self.state).answers.insert(question, response);
        self.arrived.notify_all();
    }

    fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled
    }

    /// Waits for what `ready` finds, at most until `deadline`.
    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut HashMap<String, Value>) -> Option<T>,
    ) -> Result<Option<T>, Stop> {
        let mut state = lock(&self.state);
        loop {
            if state.is_cancelled {
                return Err(Stop::Cancelled);
            }
            if let Some(found) = ready(&mut state.answers) {
                return Ok(Some(found));
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return Ok(None);
            }
            // Some systems cannot count a wait of centuries, and waking up now and then is cheap.
            let left = left.min(Duration::from_secs(3600));
            state = match self.arrived.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// A request on its way to an answer.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) era: Era,
    pub(crate) id: Value,
    pub(crate) params: Value,
    pub(crate) signal: Arc<Signal>,
    /// The task that this call goes on in after its answer, if it does.
    pub(crate) task: Option<Arc<Task>>,
}

impl Call {
    pub(crate) fn new(server: Arc<Server>, era: Era, id: Value, params: Value) -> Self {
        Self { server, era, id, params, signal: Arc::default(), task: None }
    }

    /// Lets `notifications/cancelled` find this call.
    pub(crate) fn register(&self) {
        self.server.register(&self.id, &self.signal);
    }

    /// The argument `name` of a tool or a prompt.
    pub(crate) fn argument(&self, name: &str) -> Option<&Value> {
        self.params.get("arguments")?.get(name)
    }

    /// Sleeps, unless the call is cancelled meanwhile.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), Stop> {
        match Instant::now().checked_add(time) {
            Some(deadline) => self.signal.wait(Some(deadline), |_| None::<()>).map(|_| ()),
            // So long a sleep ends only with the call.
            None => self.response_to(&Value::Null).map(|_| ()),
        }
    }

    /// The response to a question that was put to the client in the legacy way.
    pub(crate) fn response_to(&self, question: &Value) -> Result<Value, Stop> {
        let key = question.to_string();
        loop {
            if let Some(response) = self.signal.wait(None, |answers| answers.remove(&key))? {
                return Ok(response);
            }
        }
    }

    /// Tells how far the call is, if the client asked to know.
    pub(crate) fn progress(&self, progress: u64, total: u64) {
        if let Some(token) = self.params.pointer("/_meta/progressToken") {
            let params = json!({ "progressToken": token, "progress": progress, "total": total });
            self.server.notify("notifications/progress", &params);
        }
    }

    /// Tells the bridge that the client may hang up and come back for the answer.
    pub(crate) fn release_stream(&self) {
        self.server.notify("notifications/pontoon/release_stream", &json!({}));
    }

    /// Logs to the client, as far as it wants to hear.
    pub(crate) fn log(&self, level: &str, data: &str) {
        let floor = match self.era {
            Era::Legacy => Some(lock(&self.server.session).log_floor),
            Era::Modern => self
                .params
                .pointer(&format!("/_meta/{META_LOG_LEVEL}"))
                .and_then(Value::as_str)
                .and_then(gravity),
        };
        if floor.is_some_and(|floor| gravity(level).is_some_and(|gravity| gravity >= floor)) {
            let params = json!({ "level": level, "logger": "fixture-server", "data": data });
            self.server.notify("notifications/message", &params);
        }
    }

    /// Whether the client declared `capability`.
    pub(crate) fn client_has(&self, capability: &str) -> bool {
        match self.era {
            Era::Legacy => lock(&self.server.session).capabilities.contains_key(capability),
            Era::Modern => self
                .params
                .pointer(&format!("/_meta/{META_CAPABILITIES}/{capability}"))
                .is_some_and(|capability| !capability.is_null()),
        }
    }

    /// Answers, unless the call was cancelled.
    pub(crate) fn answer(self, method: &str, outcome: Outcome) {
        self.server.unregister(&self.id);
        if self.signal.is_cancelled() {
            return;
        }
        let outcome = match self.era {
            Era::Legacy => crate::legacy::finish(method, outcome),
            Era::Modern => modern::finish(method, outcome),
        };
        match outcome {
            Ok(result) => {
                self.server.send(&json!({ "jsonrpc": "2.0", "id": self.id, "result": result }));
            }
            Err(Some(error)) => self.server.send_error(&self.id, &error),
            Err(None) => {}
        }
    }
}
