//! The state that all calls of one process share: output, era, running calls, open questions.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::call::Signal;
use crate::changes::Changes;
use crate::message::RpcError;
use crate::seal::Seal;
use crate::tasks::Tasks;

/// A protocol era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25: a handshake, and requests in both directions.
    Legacy,
    /// From 2026-07-28 on: every request describes itself.
    Modern,
}

/// The eras the command line lets this process speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Both,
    Only(Era),
}

/// What the handshake and the client's settings left behind; only the legacy era uses it.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) has_handshake: bool,
    pub(crate) capabilities: Map<String, Value>,
    /// Least gravity that is logged. A client that never set one gets everything.
    pub(crate) log_floor: usize,
    pub(crate) watched: HashSet<String>,
}

/// One process, serving one connection.
pub(crate) struct Server {
    offer: Offer,
    /// What names the one tool more; empty for none.
    pub(crate) label: String,
    /// How often `tally` was called.
    pub(crate) tally: AtomicU64,
    /// It was told to leave.
    pub(crate) is_leaving: AtomicBool,
    pub(crate) instructions: String,
    era: Mutex<Option<Era>>,
    pub(crate) session: Mutex<Session>,
    pub(crate) changes: Mutex<Changes>,
    pub(crate) tasks: Mutex<Tasks>,
    pub(crate) seal: Seal,
    running: Mutex<HashMap<String, Arc<Signal>>>,
    asked: Mutex<HashMap<String, Arc<Signal>>>,
    next_question: AtomicU64,
}

/// A panic elsewhere must not take the whole fixture down with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(crate) fn new(offer: Offer, label: String) -> Self {
        Self {
            offer,
            label,
            tally: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            instructions: "A server for tests. Nothing it says is true.".to_owned(),
            era: Mutex::default(),
            session: Mutex::default(),
            changes: Mutex::default(),
            tasks: Mutex::default(),
            seal: Seal::new(),
            running: Mutex::default(),
            asked: Mutex::default(),
            next_question: AtomicU64::new(0),
        }
    }

    /// The era `method` is served in, pinning the connection with its first real request.
    pub(crate) fn pin(&self, method: &str, says_modern: bool) -> Result<Era, RpcError> {
        let mut pinned = lock(&self.era);
        let serves = match self.offer {
            Offer::Only(era) => Some(era),
            Offer::Both => *pinned,
        };
        match (serves, says_modern) {
            (Some(Era::Legacy), true) if self.offer == Offer::Both => {
                Err(RpcError::new(-32600, "this connection serves the handshake era"))
            }
            (Some(Era::Legacy), true) => Err(RpcError::new(-32601, "no such method")),
            (Some(era), _) => Ok(era),
            (None, true) => {
                if method != "server/discover" {
                    *pinned = Some(Era::Modern);
                }
                Ok(Era::Modern)
            }
            (None, false) => {
                // `ping` is allowed before the handshake and says nothing of the era.
                if method == "initialize" {
                    *pinned = Some(Era::Legacy);
                }
                Ok(Era::Legacy)
            }
        }
    }

    /// Writes `message` as one line.
    pub(crate) fn send(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        let mut stdout = io::stdout().lock();
        if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            // Nobody reads any more, so nothing this process does can matter.
            std::process::exit(0);
        }
    }

    pub(crate) fn send_error(&self, id: &Value, error: &RpcError) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error.to_json() }));
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if !params.is_null() {
            message["params"] = params.clone();
        }
        self.send(&message);
    }

    /// Puts a legacy question to the client; its answer arrives at `signal` under the id given.
    pub(crate) fn ask(&self, method: &str, params: &Value, signal: &Arc<Signal>) -> Value {
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        let id = json!(format!("question-{number}"));
        lock(&self.asked).insert(id.to_string(), Arc::clone(signal));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Withdraws a question whose call was cancelled.
    pub(crate) fn withdraw(&self, id: &Value) {
        if lock(&self.asked).remove(&id.to_string()).is_some() {
            let params = json!({ "requestId": id, "reason": "the call was cancelled" });
            self.notify("notifications/cancelled", &params);
        }
    }

    /// Hands the client's response to the call that asked.
    pub(crate) fn take_answer(&self, id: &Value, response: &Value) {
        let key = id.to_string();
        let asker = lock(&self.asked).remove(&key);
        if let Some(signal) = asker {
            signal.deliver(key, response.clone());
        }
    }

    pub(crate) fn register(&self, id: &Value, signal: &Arc<Signal>) {
        lock(&self.running).insert(id.to_string(), Arc::clone(signal));
    }

    pub(crate) fn unregister(&self, id: &Value) {
        lock(&self.running).remove(&id.to_string());
    }

    pub(crate) fn cancel(&self, id: &Value) {
        let running = lock(&self.running).remove(&id.to_string());
        if let Some(signal) = running {
            signal.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The era, or the error's code, of each request in turn on one connection.
    fn check(offer: Offer, requests: &[(&str, bool, Result<Era, i64>)]) {
        let server = Server::new(offer, String::new());
        for (method, says_modern, expected) in requests {
            let era = server.pin(method, *says_modern).map_err(|error| error.code);
            assert_eq!(era, *expected, "{method}");
        }
    }

    #[test]
    fn the_handshake_pins_the_legacy_era() {
        let requests = [
            ("server/discover", true, Ok(Era::Modern)),
            ("initialize", false, Ok(Era::Legacy)),
            ("tools/list", false, Ok(Era::Legacy)),
            ("tools/list", true, Err(-32600)),
        ];
        check(Offer::Both, &requests);
    }

    #[test]
    fn a_modern_request_pins_the_modern_era() {
        let requests = [
            ("tools/list", true, Ok(Era::Modern)),
            ("initialize", false, Ok(Era::Modern)),
            ("tools/list", false, Ok(Era::Modern)),
        ];
        check(Offer::Both, &requests);
    }

    #[test]
    fn one_offered_era_refuses_the_other() {
        check(Offer::Only(Era::Legacy), &[("server/discover", true, Err(-32601))]);
        check(Offer::Only(Era::Modern), &[("initialize", false, Ok(Era::Modern))]);
    }
}
