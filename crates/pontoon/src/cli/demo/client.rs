//! The client of the demo server: lines to it, and its requests that are not answered yet.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::era::is_cacheable;
use pontoon_wire::error::code;
use pontoon_wire::{Era, ErrorObject, Message, Slot, envelope, method};
use serde_json::{Value, json};

use crate::lock::Lock;

const MAX_OPEN_CALLS: usize = 64;

/// The client.
pub(super) struct DemoClient {
    out: Lock<Box<dyn Write + Send>>,
    open: Lock<HashMap<Bytes, OpenRequest>>,
    /// Notified whenever an open request is done.
    closed: Condvar,
}

/// A request that is not answered yet.
pub(super) enum OpenRequest {
    /// A tool works on a thread of its own. The tool stops when this is dropped.
    Works { _until_dropped: SyncSender<()> },
    /// A legacy client was asked under this id; with its answer the call is made again.
    Asks(u64, Box<Message>),
    /// A subscription.
    Listens,
}

impl DemoClient {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Lock::new(out), open: Lock::default(), closed: Condvar::new() }
    }

    /// Answers a request of this era and method.
    pub(super) fn answer(&self, id: &[u8], era: Era, method: &str, mut result: Value) {
        if era == Era::Modern {
            if result.get("resultType").is_none() {
                result["resultType"] = "complete".into();
            }
            // Nothing here changes or is one person's own, so everyone may keep it.
            if is_cacheable(method) {
                result["ttlMs"] = 3_600_000.into();
                result["cacheScope"] = "public".into();
            }
            result["_meta"][Slot::ResultServerInfo.name()] = server_info();
        }
        let id = String::from_utf8_lossy(id);
        self.send(&envelope::result_answer(&id, &result.to_string()));
    }

    /// Answers a request with an error.
    pub(super) fn refuse(&self, id: &[u8], error: &ErrorObject) {
        self.send(&error.answer(&String::from_utf8_lossy(id)));
    }

    pub(super) fn notify(&self, method: &str, params: &Value) {
        self.send(&envelope::notification(method, &params.to_string()));
    }

    pub(super) fn send(&self, message: &str) {
        let mut out = self.out.lock();
        // A client that no longer reads will close our input too, and that ends us.
        let _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
    }

    /// Notes a request that is answered later.
    pub(super) fn open(&self, id: &Bytes, request: OpenRequest) -> Result<(), ErrorObject> {
        let mut open = self.open.lock();
        if open.contains_key(id) {
            let what = format!("the id {} is in use", String::from_utf8_lossy(id));
            return Err(ErrorObject::new(code::INVALID_REQUEST, what));
        }
        if open.len() >= MAX_OPEN_CALLS {
            let what = format!("{MAX_OPEN_CALLS} calls are running; wait for one to end");
            return Err(ErrorObject::new(code::INTERNAL, what));
        }
        open.insert(id.clone(), request);
        Ok(())
    }

    /// Takes the open requests out of which this holds.
    pub(super) fn take(
        &self,
        mut holds: impl FnMut(&Bytes, &OpenRequest) -> bool,
    ) -> Vec<(Bytes, OpenRequest)> {
        self.open.lock().extract_if(|id, request| holds(id, request)).collect()
    }

    /// Says the last word on a request, unless it was cancelled in the meantime.
    pub(super) fn close(&self, id: &[u8], last_word: impl FnOnce()) {
        let mut open = self.open.lock();
        if open.remove(id).is_some() {
            // Said under the lock: once no request is open, all answers are out.
            last_word();
        }
        self.closed.notify_all();
    }

    /// Waits until no request is open, but no longer than this.
    pub(super) fn wait(&self, grace: Duration) {
        let open = self.open.lock();
        drop(self.closed.wait_timeout_while(open, grace, |open| !open.is_empty()));
    }
}

pub(super) fn server_info() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"name": "pontoon-demo", "title": "Pontoon demo", "version": version})
}

/// A member of a message; null if it is absent.
pub(super) fn value(message: &Message, slot: Slot) -> Value {
    message.raw(slot).and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default()
}

/// One `tools/call`, as a tool sees it.
pub(super) struct DemoCall {
    pub(super) client: Arc<DemoClient>,
    pub(super) message: Message,
    pub(super) era: Era,
    /// Whether the client can ask its user.
    pub(super) can_ask: bool,
    pub(super) work_dir: Arc<Path>,
    /// Hangs up when the call is cancelled.
    pub(super) stop: Receiver<()>,
}

impl DemoCall {
    /// Tells how far it is, if the client wants to know.
    pub(super) fn progress(&self, progress: u64, total: u64, message: &str) {
        let token = value(&self.message, Slot::MetaProgressToken);
        if token.is_string() || token.is_number() {
            let params = json!({
                "progressToken": token, "progress": progress, "total": total, "message": message,
            });
            self.client.notify(method::PROGRESS, &params);
        }
    }

    /// Waits this long; `false` when the call was cancelled before.
    pub(super) fn pause(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}
