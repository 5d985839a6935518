//! The calls of one client that are under way: each a task, found by its id to be given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tools::{Progress, ToolCall, ToolError, ToolOutput, Tools};

/// How many calls of one client may be under way.
const MAX_CALLS: usize = 1024;

/// How long calls may still run when the client has said its last word. It waits about two seconds before it
/// sends a signal.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of one client. They are given up when this is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Running {
    tools: Tools,
    open: Mutex<HashMap<Bytes, CancellationToken>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A call that is to be made.
pub(crate) struct Wanted {
    /// Under what it is given up.
    pub(crate) id: Bytes,
    pub(crate) name: String,
    /// A JSON object.
    pub(crate) arguments: Bytes,
    /// What the client says about it, a JSON object if anything.
    pub(crate) meta: Option<Bytes>,
    /// Takes news of how far it is.
    pub(crate) progress: Option<Progress>,
}

pub(crate) type Outcome = Result<ToolOutput, ToolError>;

impl Running {
    pub(crate) fn new(tools: Tools, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { tools, open: Mutex::default(), stop, tasks: TaskTracker::new() })
    }

    /// Makes a call in a task of its own. `done` hears its outcome, unless the call is given up.
    pub(crate) fn begin(
        self: &Arc<Self>,
        wanted: Wanted,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) {
        let cancel = self.stop.child_token();
        let refused = {
            let mut open = self.lock();
            if open.contains_key(&wanted.id) {
                Some("a call with this id is under way already".to_owned())
            } else if open.len() >= MAX_CALLS {
                Some(format!("{MAX_CALLS} calls are under way: call again when some are answered"))
            } else {
                open.insert(wanted.id.clone(), cancel.clone());
                None
            }
        };
        if let Some(why) = refused {
            return done(Err(ToolError::of_kind("IPCError", why)));
        }
        let running = Arc::clone(self);
        self.tasks.spawn(async move {
            let id = wanted.id.clone();
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                outcome = running.make(wanted, cancel.clone()) => Some(outcome),
            };
            // One that was given up is not answered.
            if running.lock().remove(&id).is_some()
                && let Some(outcome) = outcome
            {
                done(outcome);
            }
        });
    }

    /// Makes a call and waits for it.
    pub(crate) async fn make(&self, wanted: Wanted, cancel: CancellationToken) -> Outcome {
        // Tasks and threads of the tool hear that it is over also when this is dropped.
        let guard = cancel.clone().drop_guard();
        let meta: Option<Map<String, Value>> =
            wanted.meta.and_then(|meta| serde_json::from_slice(&meta).ok());
        let call = ToolCall {
            name: wanted.name.into(),
            meta: Arc::new(meta.unwrap_or_default()),
            cancel,
            progress: wanted.progress,
        };
        let outcome = self.tools.call(&wanted.arguments, call).await;
        if outcome.is_ok() {
            guard.disarm();
        }
        outcome
    }

    /// Gives a call up. Its function is dropped.
    pub(crate) fn cancel(&self, id: &[u8]) {
        if let Some(cancel) = self.lock().remove(id) {
            cancel.cancel();
        }
    }

    /// Lets the calls that are under way end, for a moment.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        let _ = tokio::time::timeout(GRACE, self.tasks.wait()).await;
    }

    /// Stops all calls.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, CancellationToken>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a tool as JSON text.
pub(crate) fn to_json(output: &ToolOutput) -> Vec<u8> {
    serde_json::to_vec(output).expect("content is always JSON")
}
