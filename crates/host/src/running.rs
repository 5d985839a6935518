//! The calls of one client that are under way: each a task, found by its id to be given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tools::{Gate, Progress, ToolCall, ToolError, ToolOutput, Tools};

/// How many calls of one client may be under way.
const MAX_CALLS: usize = 1024;

/// How long calls may still run when the client has said its last word. It waits about two seconds before it
/// sends a signal.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The calls of one client. They are given up when it is stopped.
#[derive(Debug)]
pub(crate) struct Running {
    tools: Tools,
    open: Mutex<OpenCalls>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Where the calls run.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct OpenCalls {
    /// Each with its number: an id may be used again before the task of a call that was given up has ended.
    calls: HashMap<Bytes, (u64, CancellationToken)>,
    last: u64,
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
        Self::on(Handle::current(), tools, stop)
    }

    /// The same for calls that run on this runtime, so that one that blocks stops nothing of ours.
    pub(crate) fn on(runtime: Handle, tools: Tools, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { tools, open: Mutex::default(), stop, tasks: TaskTracker::new(), runtime })
    }

    /// Makes a call in a task of its own. `done` hears its outcome, unless the call is given up.
    pub(crate) fn begin<W: Future<Output = ()> + Send>(
        self: &Arc<Self>,
        wanted: Wanted,
        done: impl FnOnce(Outcome) -> W + Send + 'static,
    ) {
        let cancel = self.stop.child_token();
        let mut open = self.lock();
        let refused = if open.calls.contains_key(&wanted.id) {
            Some("a call with this id is under way already".to_owned())
        } else if open.calls.len() >= MAX_CALLS {
            Some(format!("{MAX_CALLS} calls are under way: call again when some are answered"))
        } else {
            None
        };
        let running = Arc::clone(self);
        if let Some(why) = refused {
            drop(open);
            let refused = async move { done(Err(ToolError::of_kind("IPCError", why))).await };
            self.tasks.spawn_on(refused, &self.runtime);
            return;
        }
        open.last += 1;
        let number = open.last;
        open.calls.insert(wanted.id.clone(), (number, cancel.clone()));
        drop(open);
        let call = async move {
            let id = wanted.id.clone();
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                outcome = running.make(wanted, cancel.clone()) => Some(outcome),
            };
            // One that was given up is not answered.
            if running.close(&id, number)
                && let Some(outcome) = outcome
            {
                done(outcome).await;
            }
        };
        self.tasks.spawn_on(call, &self.runtime);
    }

    /// Forgets a call. False if it was given up.
    fn close(&self, id: &[u8], number: u64) -> bool {
        let mut open = self.lock();
        let is_open = open.calls.get(id).is_some_and(|(known, _)| *known == number);
        is_open && open.calls.remove(id).is_some()
    }

    /// Makes a call and waits for it.
    pub(crate) async fn make(&self, wanted: Wanted, cancel: CancellationToken) -> Outcome {
        // Tasks and threads of the tool hear that it is over also when this is dropped.
        let guard = cancel.clone().drop_guard();
        let meta: Option<Map<String, Value>> =
            wanted.meta.and_then(|meta| serde_json::from_slice(&meta).ok());
        let progress = wanted.progress.map(|progress| Arc::new(Gate::new(progress)));
        let _no_news_after = Closing(progress.clone());
        let call = ToolCall {
            name: wanted.name.into(),
            meta: Arc::new(meta.unwrap_or_default()),
            cancel,
            progress,
            slot: None,
        };
        let outcome = self.tools.call(&wanted.arguments, call).await;
        if outcome.is_ok() {
            guard.disarm();
        }
        outcome
    }

    /// Gives a call up. Its function is dropped.
    pub(crate) fn cancel(&self, id: &[u8]) {
        let open = self.lock().calls.remove(id);
        if let Some((_, cancel)) = open {
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

    fn lock(&self) -> MutexGuard<'_, OpenCalls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the gate of a call's news when the call is over, however it ends: the tool may still have threads.
struct Closing(Option<Arc<Gate>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| gate.close());
    }
}

/// The result of a tool as JSON text.
pub(crate) fn to_json(output: &ToolOutput) -> Vec<u8> {
    serde_json::to_vec(output).expect("content is always JSON")
}
