//! Drives the Claude Code CLI, whose model can use tools of this program.
//!
//! ```no_run
//! use pontoon_host::model::Model;
//! use pontoon_host::{Tool, Toolset};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let add = Tool::new("add", |Add { a, b }, _| async move { a + b }).description("Adds two numbers.");
//! let model = Model::default();
//! model.set_agent_toolsets(&[Toolset::new().with(add)?])?;
//! let response = model.request("What is 2 + 40? Use the tool.").await?;
//! println!("{}", response.text);
//! # Ok(())
//! # }
//! ```
//!
//! Each request is a run of the CLI of its own. When it is answered or has failed, all that it has started and written
//! to the temporary directory is gone. When it is dropped, its files are gone at once and its processes after five
//! seconds at most; when the program is killed, its processes end, and the next session removes its files. It works
//! in any thread of any program, within a Tokio runtime.

mod command;
mod control;
mod control_out;
mod error;
mod message;
mod offer;
mod outcome;
mod permission;
mod registered;
mod request;
mod response;
mod run;
mod settings;
mod stream;

use std::sync::{Arc, PoisonError, RwLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use control_out::ControlOut;
pub use error::{Diagnosis, ModelError};
pub use message::{Event, Started};
pub use permission::{Permission, PermissionCallback, ToolUse};
pub use request::{Prompt, Request, SessionChoice};
pub use response::{Metadata, Response, Usage};
use run::Run;
pub use settings::{Environment, Settings, ToolsetOptions, Transport};
pub use stream::{EventStream, Following, MessageStream};

use crate::tools::{Tools, Toolset};
use registered::Registered;

/// The Claude Code CLI as a model that is asked, and that may use tools of this program. Clones are the same model.
#[derive(Debug, Clone, Default)]
pub struct Model(Arc<SharedModel>);

#[derive(Debug, Default)]
struct SharedModel {
    settings: Settings,
    registered: RwLock<Option<Registered>>,
}

impl Model {
    /// A model with these settings and no tools yet.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(SharedModel { settings, registered: RwLock::default() }))
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Gives the model these tools, in place of those it had. Requests that are under way keep theirs.
    ///
    /// # Errors
    ///
    /// [`ModelError::Tools`] when two toolsets have a tool of the same name.
    pub fn set_agent_toolsets(&self, toolsets: &[Toolset]) -> Result<(), ModelError> {
        self.set_agent_toolsets_with(toolsets, ToolsetOptions::default())
    }

    /// The same, offered in another way.
    ///
    /// # Errors
    ///
    /// As [`Model::set_agent_toolsets`], and [`ModelError::Settings`] for options that cannot be used.
    pub fn set_agent_toolsets_with(
        &self,
        toolsets: &[Toolset],
        options: ToolsetOptions,
    ) -> Result<(), ModelError> {
        options.check()?;
        let registered = Registered { tools: Tools::new(toolsets)?, options };
        registered.transport()?;
        *self.0.registered.write().unwrap_or_else(PoisonError::into_inner) = Some(registered);
        Ok(())
    }

    /// Takes its tools from the model. Requests that are under way keep theirs.
    pub fn clear_agent_toolsets(&self) {
        *self.0.registered.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The answer to a request. Dropping the future gives the request up.
    ///
    /// # Errors
    ///
    /// [`ModelError`] when there is none.
    pub async fn request(&self, request: impl Into<Request>) -> Result<Response, ModelError> {
        self.request_with_metadata(request).await.map(|(response, _)| response)
    }

    /// The answer to a request, and what is known of it: its session, tokens, cost, turns and duration.
    ///
    /// # Errors
    ///
    /// As [`Model::request`].
    pub async fn request_with_metadata(
        &self,
        request: impl Into<Request>,
    ) -> Result<(Response, Metadata), ModelError> {
        let mut run = self.start(request.into(), false).await?;
        let outcome = loop {
            match run.next().await {
                Ok((_, events)) => {
                    let last = events.into_iter().next_back();
                    if let Some(Event::Done(outcome)) = last {
                        break Ok(*outcome);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        run.finish().await;
        outcome
    }

    /// The answer to a request as a value of this type, by structured output.
    ///
    /// # Errors
    ///
    /// As [`Model::request`], and [`ModelError::StructuredOutput`] when the answer does not fit the type.
    pub async fn request_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        request: impl Into<Request>,
    ) -> Result<T, ModelError> {
        let schema = schemars::schema_for!(T).to_value();
        let request = Request { output_schema: Some(schema), ..request.into() };
        let (response, metadata) = self.request_with_metadata(request).await?;
        let output = response.structured_output.unwrap_or_default();
        serde_json::from_value(output).map_err(|error| ModelError::StructuredOutput {
            why: error.to_string(),
            diagnosis: Box::new(Diagnosis {
                session_id: Some(metadata.session_id),
                ..Diagnosis::default()
            }),
        })
    }

    /// What happens in a request, as it happens, texts piece by piece.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use pontoon_host::model::{Event, Model};
    ///
    /// let mut events = Model::default().request_stream("Tell me a story.");
    /// while let Some(event) = events.next().await {
    ///     if let Event::TextDelta(text) = event? {
    ///         print!("{text}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn request_stream(&self, request: impl Into<Request>) -> EventStream {
        Following::new(self.start(request.into(), true), |(_, events)| events)
    }

    /// The messages of the CLI, as it writes them; the result is the last. A result that is an error comes as an error,
    /// in its [`Diagnosis`].
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn stream_messages(&self, request: impl Into<Request>) -> MessageStream {
        Following::new(self.start(request.into(), false), |(message, _): (Value, _)| vec![message])
    }

    /// Starts a request with the tools that the model has now.
    fn start(
        &self,
        request: Request,
        is_streamed: bool,
    ) -> impl Future<Output = Result<Run, ModelError>> + Send + 'static {
        let model = self.clone();
        let registered = self.0.registered.read().unwrap_or_else(PoisonError::into_inner).clone();
        async move {
            let settings = request.settings.as_ref().unwrap_or(&model.0.settings);
            Run::start(settings, registered, &request, is_streamed).await
        }
    }
}
