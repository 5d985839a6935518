//! Questions of servers on their way to a legacy client, and the client's answers on their way back.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pontoon_wire::{Message, Rewrite, Slot, Text, quoted};

use crate::outbox::{Item, Outbox};

/// What a legacy session hears besides its calls.
#[derive(Debug, Clone)]
pub struct Feed {
    /// Toward the client's own stream.
    pub outbox: Arc<Outbox>,
    /// The questions that wait for the client.
    pub questions: Arc<Questions>,
}

impl Feed {
    /// Puts a question of the server to the client, and gives the id it got. `None` if too many wait.
    pub fn question(&self, question: &Message, answerer: Answerer) -> Option<String> {
        let (id, text) = self.questions.open(question, answerer)?;
        self.outbox.push(Item::Question(text));
        Some(id)
    }
}

/// Takes the client's answer to a question back to the server that asked.
pub type Answerer = Box<dyn FnOnce(&Message) + Send>;

/// The questions of servers that a legacy client has not answered yet.
///
/// Their ids are ours, so that two servers which ask under one id cannot be mixed up.
#[derive(Default)]
pub struct Questions {
    open: Mutex<OpenQuestions>,
}

#[derive(Default)]
struct OpenQuestions {
    next: u64,
    answerers: HashMap<String, Answerer>,
    /// Those whose call is over, oldest first.
    late: VecDeque<String>,
}

/// More questions than this may not wait for one client.
const MAX_QUESTIONS: usize = 256;

/// So many of them may have outlived their calls.
const MAX_LATE: usize = 64;

impl Questions {
    /// Opens a question, and gives its text under our id; `None` when too many are open.
    pub(super) fn open(&self, question: &Message, answerer: Answerer) -> Option<(String, Text)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.answerers.len() >= MAX_QUESTIONS {
            return None;
        }
        open.next += 1;
        let id = quoted(&format!("pontoon-{}", open.next));
        open.answerers.insert(id.clone(), answerer);
        let text = Rewrite::new(question.clone()).replace(Slot::Id, id.clone()).finish();
        Some((id, text))
    }

    /// Keeps the questions of a call that is over: a server may answer before it is answered.
    pub(super) fn outlive(&self, ids: Vec<String>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let OpenQuestions { answerers, late, .. } = &mut *open;
        late.extend(ids);
        late.retain(|id| answerers.contains_key(id));
        while late.len() > MAX_LATE {
            late.pop_front().and_then(|oldest| answerers.remove(&oldest));
        }
    }

    /// Hands the client's answer to whoever asked. False when nobody did.
    pub fn answer(&self, answer: &Message) -> bool {
        let id = String::from_utf8_lossy(answer.raw(Slot::Id).unwrap_or_default()).into_owned();
        let answerer = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.answerers.remove(&id)
        };
        answerer.map(|answerer| answerer(answer)).is_some()
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Questions")
    }
}
