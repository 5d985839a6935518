//! The client of the demo server: lines to it, its requests that are open, questions to it in the middle of a call.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::era::is_cacheable;
use pontoon_wire::error::code;
use pontoon_wire::{Era, ErrorObject, Message, Slot, method};
use serde_json::{Value, json};

use crate::lock::Lock;

const MAX_OPEN_CALLS: usize = 64;

/// How long a person may think about a question.
const PATIENCE: Duration = Duration::from_secs(300);

/// A call is stopped once, and has one question open at a time.
pub(super) const MAX_RINGS: usize = 2;

/// The client.
pub(super) struct DemoClient {
    out: Lock<Box<dyn Write + Send>>,
    open: Lock<OpenRequests>,
    /// Notified whenever an open request is done.
    closed: Condvar,
}

#[derive(Default)]
struct OpenRequests {
    by_id: HashMap<Bytes, OpenRequest>,
    last_question: u64,
    /// The input has ended: no question will be answered any more.
    is_over: bool,
}

/// A request that is not answered yet.
enum OpenRequest {
    /// A call on a thread of its own, and the question that it waits for.
    Call {
        ring: SyncSender<Ring>,
        question: Option<u64>,
    },
    Listen,
}

/// What wakes a call that waits.
pub(super) enum Ring {
    Stopped,
    Answered(Value),
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
        self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"));
    }

    /// Answers a request with an error.
    pub(super) fn refuse(&self, id: &[u8], error: &ErrorObject) {
        self.send(&error.answer(&String::from_utf8_lossy(id)));
    }

    fn notify(&self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn send(&self, message: &str) {
        let mut out = self.out.lock();
        // A client that no longer reads will close our input too, and that ends us.
        let _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
    }

    /// Notes a call that takes time.
    pub(super) fn open_call(&self, id: &Bytes, ring: SyncSender<Ring>) -> Result<(), ErrorObject> {
        let mut open = self.open.lock();
        if open.by_id.contains_key(id) {
            let what = format!("the id {} is in use", String::from_utf8_lossy(id));
            return Err(ErrorObject::new(code::INVALID_REQUEST, what));
        }
        if open.by_id.len() >= MAX_OPEN_CALLS {
            let what = format!("{MAX_OPEN_CALLS} calls are running; wait for one to end");
            return Err(ErrorObject::new(code::INTERNAL, what));
        }
        open.by_id.insert(id.clone(), OpenRequest::Call { ring, question: None });
        Ok(())
    }

    /// A subscription to nothing: our lists never change, but the client may wait all the same.
    pub(super) fn listen(&self, id: &Bytes) {
        self.open.lock().by_id.insert(id.clone(), OpenRequest::Listen);
        let meta = subscription(id);
        self.notify(method::ACKNOWLEDGED, &json!({"_meta": meta, "notifications": {}}));
    }

    /// Says the last word on a request, unless it was cancelled in the meantime.
    pub(super) fn close(&self, id: &[u8], last_word: impl FnOnce()) {
        let mut open = self.open.lock();
        if open.by_id.remove(id).is_some() {
            // Said under the lock: once no request is open, all answers are out.
            last_word();
        }
        self.closed.notify_all();
    }

    /// The client gives a request up.
    pub(super) fn cancel(&self, id: &[u8]) {
        if let Some(OpenRequest::Call { ring, .. }) = self.open.lock().by_id.remove(id) {
            let _ = ring.try_send(Ring::Stopped);
        }
    }

    /// The client's answer to a question of ours.
    pub(super) fn take_answer(&self, id: &[u8], result: Value) {
        let Ok(answered) = serde_json::from_slice::<u64>(id) else { return };
        for request in self.open.lock().by_id.values_mut() {
            if let OpenRequest::Call { ring, question } = request
                && question.take_if(|question| *question == answered).is_some()
            {
                let _ = ring.try_send(Ring::Answered(result));
                return;
            }
        }
    }

    /// Ends the conversation: our questions are given up, open calls get a little time.
    pub(super) fn finish(&self, grace: Duration) {
        let mut open = self.open.lock();
        open.is_over = true;
        open.by_id.retain(|id, request| match request {
            OpenRequest::Call { ring, question } => {
                if question.take().is_some() {
                    let _ = ring.try_send(Ring::Answered(no_answer()));
                }
                true
            }
            OpenRequest::Listen => {
                self.answer(id, Era::Modern, method::LISTEN, json!({"_meta": subscription(id)}));
                false
            }
        });
        let all_closed = self.closed.wait_timeout_while(open, grace, |it| !it.by_id.is_empty());
        drop(all_closed);
    }

    /// The id of the next question, which this call waits for; `None` if the call or the input is over.
    fn question_of(&self, call: &[u8]) -> Option<u64> {
        let mut open = self.open.lock();
        let OpenRequests { by_id, last_question, is_over: false } = &mut *open else { return None };
        let OpenRequest::Call { question, .. } = by_id.get_mut(call)? else { return None };
        *last_question += 1;
        *question = Some(*last_question);
        *question
    }
}

/// What a person who does not answer has said.
fn no_answer() -> Value {
    json!({"action": "cancel"})
}

fn subscription(id: &[u8]) -> Value {
    let id: Value = serde_json::from_slice(id).unwrap_or_default();
    json!({Slot::MetaSubscriptionId.name(): id})
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
    pub(super) id: Bytes,
    pub(super) message: Message,
    pub(super) era: Era,
    /// Whether the client can ask its user.
    pub(super) can_ask: bool,
    pub(super) work_dir: Arc<Path>,
    pub(super) rings: Receiver<Ring>,
}

impl DemoCall {
    /// Answers with this result, or not at all if the call was cancelled.
    pub(super) fn end(&self, result: Option<Value>) {
        if let Some(result) = result {
            self.client.answer(&self.id, self.era, method::CALL_TOOL, result);
        }
    }

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
        !matches!(self.rings.recv_timeout(time), Ok(Ring::Stopped))
    }

    /// Asks a legacy client in the middle of the call, and waits; `None` when it was cancelled.
    pub(super) fn ask(&self, params: &Value) -> Option<Value> {
        let Some(id) = self.client.question_of(&self.id) else { return Some(no_answer()) };
        let method = method::ELICIT;
        let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.client.send(&question.to_string());
        let ring = self.rings.recv_timeout(PATIENCE);
        if let Ok(Ring::Answered(answer)) = ring {
            return Some(answer);
        }
        let params = json!({"requestId": id, "reason": "no longer needed"});
        self.client.notify(method::CANCELLED, &params);
        ring.is_err().then(no_answer)
    }
}
