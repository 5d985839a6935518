//! Input from the client in the middle of a call, asked for in the way of the call's era.
//!
//! A handler calls [`ask`] and goes on with the answers. In the legacy era that sends requests
//! and waits. In the modern era the call ends with the questions, and runs again from its start
//! when the client repeats it with the answers; those of earlier rounds travel in the sealed
//! request state. A task shows the questions and waits for `tasks/update`.

use serde_json::{Map, Value, json};

use crate::call::{Call, Stop};
use crate::message::RpcError;
use crate::server::Era;
use crate::tasks::Task;

/// One question to the client.
pub(crate) struct Question {
    /// Its name within the call.
    pub(crate) key: &'static str,
    method: &'static str,
    params: Value,
}

impl Question {
    /// Asks the user to fill in a form.
    pub(crate) fn elicit(key: &'static str, message: &str, schema: &Value) -> Self {
        let params = json!({ "message": message, "requestedSchema": schema });
        Self { key, method: "elicitation/create", params }
    }

    /// Asks the client's model.
    pub(crate) fn sample(key: &'static str, prompt: &str, max_tokens: u32) -> Self {
        let content = json!({ "type": "text", "text": prompt });
        let messages = json!([{ "role": "user", "content": content }]);
        let params = json!({ "messages": messages, "maxTokens": max_tokens });
        Self { key, method: "sampling/createMessage", params }
    }

    /// Asks which directories the client works in.
    pub(crate) fn roots(key: &'static str) -> Self {
        Self { key, method: "roots/list", params: json!({}) }
    }

    /// Its entry in a map of input requests.
    fn to_entry(&self) -> (String, Value) {
        let request = json!({ "method": self.method, "params": self.params });
        (self.key.to_owned(), request)
    }

    fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }

    /// Whether `answer` has the shape that this question's results have.
    fn accepts(&self, answer: &Value) -> bool {
        match self.method {
            "elicitation/create" => match answer.get("action").and_then(Value::as_str) {
                Some("accept") => answer.get("content").is_some_and(Value::is_object),
                Some("decline" | "cancel") => true,
                _ => false,
            },
            "sampling/createMessage" => answer.get("content").is_some(),
            _ => answer.get("roots").is_some_and(Value::is_array),
        }
    }
}

/// Whether the question comes with a request state although no answer needs keeping yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    WhenNeeded,
    Always,
}

/// The answers to `questions`, in their order. In the legacy era they are all asked at once.
pub(crate) fn ask(call: &Call, questions: &[Question], state: State) -> Result<Vec<Value>, Stop> {
    match (call.era, &call.task) {
        (_, Some(task)) => ask_by_task(call, questions, task),
        (Era::Legacy, None) => ask_by_request(call, questions),
        (Era::Modern, None) => ask_by_result(call, questions, state),
    }
}

fn ask_by_request(call: &Call, questions: &[Question]) -> Result<Vec<Value>, Stop> {
    need_capabilities(call, questions.iter())?;
    let ids: Vec<Value> = questions
        .iter()
        .map(|question| call.server.ask(question.method, &question.params, &call.signal))
        .collect();
    let mut answers = Vec::new();
    for (question, id) in questions.iter().zip(&ids) {
        let response = call.response_to(id).inspect_err(|_| {
            ids.iter().for_each(|id| call.server.withdraw(id));
        })?;
        if let Some(error) = response.get("error") {
            let message = format!("the client answered {} with {error}", question.method);
            return Err(RpcError::new(-32603, message).into());
        }
        answers.push(checked(question, response.get("result"))?);
    }
    Ok(answers)
}

fn ask_by_task(call: &Call, questions: &[Question], task: &Task) -> Result<Vec<Value>, Stop> {
    need_capabilities(call, questions.iter())?;
    task.await_input(questions.iter().map(Question::to_entry).collect());
    questions
        .iter()
        .map(|question| {
            let response = call.response_to(&json!(question.key))?;
            checked(question, response.get("result"))
        })
        .collect()
}

fn ask_by_result(call: &Call, questions: &[Question], state: State) -> Result<Vec<Value>, Stop> {
    let mut known = earlier_answers(call)?;
    match call.params.get("inputResponses") {
        None => {}
        Some(Value::Object(responses)) => known.extend(responses.clone()),
        Some(_) => return Err(RpcError::new(-32602, "`inputResponses` is no object").into()),
    }
    let unanswered = || questions.iter().filter(|question| !known.contains_key(question.key));
    if unanswered().next().is_none() {
        return questions
            .iter()
            .map(|question| checked(question, known.get(question.key)))
            .collect();
    }
    need_capabilities(call, unanswered())?;
    let requests = unanswered().map(Question::to_entry).collect();
    let state = (state == State::Always || !known.is_empty())
        .then(|| call.server.seal.close(&json!({ "for": subject(call), "answers": known })));
    Err(Stop::NeedsInput { requests, state })
}

/// The answers that the request state brings back.
fn earlier_answers(call: &Call) -> Result<Map<String, Value>, Stop> {
    let Some(state) = call.params.get("requestState") else {
        return Ok(Map::new());
    };
    let opened = state.as_str().and_then(|state| call.server.seal.open(state));
    match opened {
        Some(Value::Object(mut opened)) if opened.get("for") == Some(&subject(call)) => {
            match opened.remove("answers") {
                Some(Value::Object(answers)) => Ok(answers),
                _ => Ok(Map::new()),
            }
        }
        _ => Err(RpcError::new(-32602, "`requestState` was not made by this server").into()),
    }
}

/// What a state is bound to, so that it cannot be moved to another call.
fn subject(call: &Call) -> Value {
    call.params.get("name").cloned().unwrap_or_default()
}

fn need_capabilities<'a>(
    call: &Call,
    mut questions: impl Iterator<Item = &'a Question>,
) -> Result<(), Stop> {
    match questions.find(|question| !call.client_has(question.capability())) {
        Some(question) => Err(Stop::Lacks { capability: question.capability() }),
        None => Ok(()),
    }
}

fn checked(question: &Question, answer: Option<&Value>) -> Result<Value, Stop> {
    match answer {
        Some(answer) if question.accepts(answer) => Ok(answer.clone()),
        _ => {
            let message = format!("the answer `{}` does not fit {}", question.key, question.method);
            Err(RpcError::new(-32602, message).into())
        }
    }
}
