//! A request: what the model is asked, with which tools, in which session.

use serde_json::{Value, json};

use super::settings::Settings;

/// What a model is asked. Later versions may have more fields: end with `..Request::from(prompt)`.
///
/// ```
/// use pontoon_host::model::Request;
///
/// let request = Request { tools: Some(vec!["add".to_owned()]), ..Request::from("What is 2 + 40?") };
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked, of any size.
    pub prompt: Prompt,
    /// Only these of the registered tools. `None` is all of them.
    pub tools: Option<Vec<String>>,
    /// Which session it goes on with.
    pub session: SessionChoice,
    /// The JSON Schema of the structured output that is wanted. Up to 100 KiB it is an argument of the CLI, which
    /// every user of the machine can read.
    pub output_schema: Option<Value>,
    /// In place of the model's settings.
    pub settings: Option<Settings>,
}

/// What is asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Content blocks of the Messages API: texts, images and documents.
    Blocks(Vec<Value>),
}

/// Which session of the CLI a request goes on with.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum SessionChoice {
    /// A new one.
    #[default]
    New,
    /// The last one of the working directory.
    Last,
    /// The one with this id.
    Resume(String),
}

impl Request {
    /// The message that carries the prompt to the CLI.
    pub(super) fn message(&self) -> Value {
        let content = match &self.prompt {
            Prompt::Text(text) => json!(text),
            Prompt::Blocks(blocks) => json!(blocks),
        };
        json!({
            "type": "user",
            "session_id": "",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": null,
        })
    }
}

impl From<Prompt> for Request {
    fn from(prompt: Prompt) -> Self {
        Self {
            prompt,
            tools: None,
            session: SessionChoice::New,
            output_schema: None,
            settings: None,
        }
    }
}

impl From<String> for Request {
    fn from(prompt: String) -> Self {
        Prompt::Text(prompt).into()
    }
}

impl From<&str> for Request {
    fn from(prompt: &str) -> Self {
        prompt.to_owned().into()
    }
}
