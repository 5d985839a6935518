//! A call as the tool sees it: who calls, whether it is still wanted, and how to say how far it is.

use std::sync::{Arc, Mutex, PoisonError};

use pontoon_wire::quoted;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Takes news of how far a call is, as the members of a JSON object.
pub(crate) type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// A call under way. Clones are the same call.
#[derive(Clone)]
pub struct ToolCall {
    pub(crate) name: Arc<str>,
    pub(crate) meta: Arc<Map<String, Value>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: Option<Arc<Gate>>,
    /// Kept as long as anything works on the call.
    pub(crate) slot: Option<Arc<OwnedSemaphorePermit>>,
}

/// Lets news of a call through until the call is over.
pub(crate) struct Gate(Mutex<Option<Progress>>);

impl Gate {
    pub(crate) fn new(progress: Progress) -> Self {
        Self(Mutex::new(Some(progress)))
    }

    /// Nothing comes through from now on.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn tell(&self, members: &str) {
        if let Some(progress) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            progress(members);
        }
    }
}

impl ToolCall {
    /// The name of the tool.
    pub fn tool_name(&self) -> &str {
        &self.name
    }

    /// The id that Claude Code gives to this use of the tool.
    pub fn id(&self) -> Option<&str> {
        self.meta.get("claudecode/toolUseId").and_then(Value::as_str)
    }

    /// What the client says about the call.
    pub fn meta(&self) -> &Map<String, Value> {
        &self.meta
    }

    /// Whether the client has given the call up.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the client gives the call up. An async tool is dropped then, so this is for the tasks and
    /// threads that it has started.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Tells the client how far the call is. It never waits; news may be lost if the client is slow.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let (Some(gate), true) = (&self.progress, done.is_finite()) else { return };
        let mut members = format!("\"progress\":{done}");
        if let Some(total) = total.filter(|total| total.is_finite()) {
            members += &format!(",\"total\":{total}");
        }
        if let Some(message) = message {
            members += &format!(",\"message\":{}", quoted(message));
        }
        gate.tell(&members);
    }
}

impl std::fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolCall").field("name", &self.name).finish_non_exhaustive()
    }
}
