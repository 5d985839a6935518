//! The tool `play`: what a server says in the middle of a call, as a test wants it.
//!
//! Its `steps` are done in order, beside the reading loop, and then the call is answered with the
//! last answer that was heard, or with `played`.
//!
//! | step | what it does |
//! | --- | --- |
//! | a text | writes it as one line, as it is |
//! | `{"long": bytes}` | writes one line of so many letters |
//! | `{"until": file}` | waits until the file is there |
//! | `{"touch": file}` | makes the file |
//! | `{"hear": id}` | waits for the answer to its own question of this id |
//!
//! It heeds no cancellation: a test that cancels wants to see what is said after that.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::{Rude, answers, framing, process};

/// The answers to this server's own questions, each kept until its step comes.
#[derive(Default)]
pub(crate) struct Heard {
    answers: Mutex<HashMap<String, Value>>,
    arrived: Condvar,
}

impl Heard {
    /// Takes an answer that was read.
    pub(crate) fn put(&self, answer: &Value) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(answer["id"].to_string(), answer.clone());
        self.arrived.notify_all();
    }

    fn wait_for(&self, id: &Value) -> Value {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = answers.remove(&id.to_string()) {
                return answer;
            }
            answers = self.arrived.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does the steps of the call `id`, and answers it.
pub(crate) fn play(rude: &Arc<Rude>, id: &Value, steps: &Value) {
    let (rude, id) = (Arc::clone(rude), id.clone());
    let steps = steps.as_array().cloned().unwrap_or_default();
    let playing = move || {
        let mut said = String::from("played");
        for step in &steps {
            if let Some(heard) = perform(&rude, step) {
                said = heard.to_string();
            }
        }
        answers::send_call(&rude, &id, &said, &Value::Null);
    };
    // Hundreds may wait at once.
    if let Err(error) = std::thread::Builder::new().stack_size(256 << 10).spawn(playing) {
        process::complain(&format!("rude-server: no thread: {error}"));
    }
}

/// Does one step; gives the answer that it waited for.
fn perform(rude: &Rude, step: &Value) -> Option<Value> {
    if let Some(line) = step.as_str() {
        framing::write_bytes(format!("{line}\n").as_bytes());
    }
    if let Some(bytes) = step["long"].as_u64() {
        let line = "x".repeat(usize::try_from(bytes).unwrap_or(usize::MAX));
        framing::write_bytes(format!("{line}\n").as_bytes());
    }
    if let Some(file) = step["until"].as_str() {
        while !Path::new(file).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if let Some(file) = step["touch"].as_str()
        && let Err(error) = std::fs::write(file, "")
    {
        process::complain(&format!("rude-server: {file}: {error}"));
    }
    step.get("hear").map(|id| rude.heard.wait_for(id))
}
