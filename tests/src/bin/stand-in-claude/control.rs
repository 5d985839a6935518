//! The control protocol: questions to the starter, each answered by its id.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::output::fresh_id;
use crate::{Cli, LOOK};

/// Where an answer goes.
type Answer = SyncSender<Result<Value, String>>;

/// The questions without an answer; `None` once the input has ended.
#[derive(Debug)]
pub(crate) struct Control(Mutex<Option<HashMap<String, Answer>>>);

impl Default for Control {
    fn default() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<String, Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No answer can come any more.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    /// The starter has answered.
    pub(crate) fn answered(&self, response: &Value) {
        let id = response["request_id"].as_str().unwrap_or_default();
        let Some(answer) = self.lock().as_mut().and_then(|open| open.remove(id)) else { return };
        let _ = answer.send(match response["subtype"].as_str() {
            Some("success") => Ok(response["response"].clone()),
            _ => Err(response["error"].as_str().unwrap_or("an error without a text").to_owned()),
        });
    }
}

impl Cli {
    /// Sends a question to the starter.
    pub(crate) fn send_question(&self, request: &Value) -> Receiver<Result<Value, String>> {
        let (answer, answers) = sync_channel(1);
        let id = fresh_id();
        if let Some(open) = self.control.lock().as_mut() {
            open.insert(id.clone(), answer);
            let message =
                json!({"type": "control_request", "request_id": id, "request": request.clone()});
            self.output.write(&message);
        }
        answers
    }

    /// Asks the starter and waits for its answer.
    pub(crate) fn ask(&self, request: &Value) -> Result<Value, String> {
        self.wait(&self.send_question(request))
            .unwrap_or_else(|| Err(String::from("Stream closed")))
    }

    /// Waits for an answer; `None` when none can come or the prompt was interrupted.
    pub(crate) fn wait<T>(&self, answers: &Receiver<T>) -> Option<T> {
        loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if !self.is_interrupted() => {}
                Err(_) => return None,
            }
        }
    }
}
