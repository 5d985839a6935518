//! A tool: a function of the program, with the name, schema and hints that a model reads.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::call::ToolCall;
use super::output::{IntoToolOutput, ToolError, ToolOutput};

pub(super) type Working = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;
type Handler = dyn Fn(Value, ToolCall) -> Working + Send + Sync;

/// A tool. Made from a function, and described by chained words:
///
/// ```
/// use pontoon_host::Tool;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     /// The second number.
///     b: i64,
/// }
///
/// let add = Tool::new("add", |Add { a, b }, _| async move { a + b })
///     .description("Adds two numbers.")
///     .read_only(true);
/// ```
#[derive(Clone)]
pub struct Tool {
    pub(crate) name: String,
    pub(crate) input_schema: Value,
    description: String,
    title: Option<String>,
    pub(crate) output_schema: Option<Value>,
    annotations: Map<String, Value>,
    meta: Map<String, Value>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) slots: Option<Arc<Semaphore>>,
    pub(crate) handler: Arc<Handler>,
}

impl Tool {
    /// A tool from an async function of its arguments. What live objects it needs, the function captures.
    pub fn new<A, F, W, R>(name: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolCall) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::described(name, schema_of::<A>(), function)
    }

    /// A tool from an async function that works on an object of the program, such as a database.
    pub fn with_context<C, A, F, W, R>(
        name: impl Into<String>,
        context: &Arc<C>,
        function: F,
    ) -> Self
    where
        C: Send + Sync + 'static,
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(Arc<C>, A, ToolCall) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        let context = Arc::clone(context);
        Self::new(name, move |arguments: A, call| function(Arc::clone(&context), arguments, call))
    }

    /// A tool from a function that blocks. It runs on a thread for such work, and is not interrupted: one
    /// that takes long should look at [`ToolCall::is_cancelled`].
    pub fn blocking<A, F, R>(name: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolCall) -> R + Send + Sync + 'static,
        R: IntoToolOutput + Send + 'static,
    {
        let function = Arc::new(function);
        let handler = move |arguments: Value, call: ToolCall| -> Working {
            let function = Arc::clone(&function);
            let work = move || match call.is_cancelled() {
                // It was given up before a thread was free for it.
                true => Err(ToolError::new("it was given up")),
                false => function(fit(arguments)?, call).into_output(),
            };
            Box::pin(async move {
                let working = tokio::task::spawn_blocking(work);
                working.await.unwrap_or_else(|error| match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::new("the program is ending")),
                })
            })
        };
        Self::with_handler(name, schema_of::<A>(), handler)
    }

    /// A tool from an async function of a JSON object, with the schema that describes it.
    pub fn raw<F, W, R>(name: impl Into<String>, input_schema: Value, function: F) -> Self
    where
        F: Fn(Map<String, Value>, ToolCall) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        Self::described(name, input_schema, function)
    }

    /// A tool from an async function, with the schema of its arguments.
    fn described<A, F, W, R>(name: impl Into<String>, input_schema: Value, function: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(A, ToolCall) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: IntoToolOutput + 'static,
    {
        let function = Arc::new(function);
        let handler = move |arguments: Value, call: ToolCall| -> Working {
            let function = Arc::clone(&function);
            Box::pin(async move { function(fit(arguments)?, call).await.into_output() })
        };
        Self::with_handler(name, input_schema, handler)
    }

    pub(super) fn with_handler(
        name: impl Into<String>,
        input_schema: Value,
        handler: impl Fn(Value, ToolCall) -> Working + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            input_schema,
            description: String::new(),
            title: None,
            output_schema: None,
            annotations: Map::new(),
            meta: Map::new(),
            timeout: None,
            slots: None,
            handler: Arc::new(handler),
        }
    }

    /// What it does, for the model. Claude Code cuts it off after 4,096 characters.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Its name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Whether it only looks. Claude Code calls such tools at the same time, and others one by one.
    pub fn read_only(self, is_so: bool) -> Self {
        self.annotation("readOnlyHint", is_so)
    }

    /// Whether it may destroy something.
    pub fn destructive(self, is_so: bool) -> Self {
        self.annotation("destructiveHint", is_so)
    }

    /// Whether calling it again with the same arguments changes nothing more.
    pub fn idempotent(self, is_so: bool) -> Self {
        self.annotation("idempotentHint", is_so)
    }

    /// Whether it deals with the world outside, such as the web.
    pub fn open_world(self, is_so: bool) -> Self {
        self.annotation("openWorldHint", is_so)
    }

    fn annotation(mut self, name: &str, is_so: bool) -> Self {
        self.annotations.insert(name.to_owned(), is_so.into());
        self
    }

    /// What its structured results look like. Such results have to be JSON objects, see [`super::Json`].
    pub fn output<T: JsonSchema>(mut self) -> Self {
        self.output_schema = Some(schema_of::<T>());
        self
    }

    /// More about the tool for the client, such as `anthropic/maxResultSizeChars`.
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(name.into(), value.into());
        self
    }

    /// How long a call may take, waiting for others included. It fails then, and the function is dropped.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many calls may run at once; more of them wait. A call of a blocking function that was given up counts
    /// until the function is done.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.slots = Some(Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))));
        self
    }

    /// The entry of the schema file.
    pub(crate) fn entry(&self) -> Value {
        let mut entry = json!({
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "answers_by_id": true,
        });
        for (name, value) in [
            ("title", self.title.clone().map(Value::from)),
            ("output_schema", self.output_schema.clone()),
            (
                "annotations",
                Some(self.annotations.clone()).filter(|it| !it.is_empty()).map(Value::from),
            ),
            ("_meta", Some(self.meta.clone()).filter(|it| !it.is_empty()).map(Value::from)),
        ] {
            if let Some(value) = value {
                entry[name] = value;
            }
        }
        entry
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The schema of an argument type. A function without arguments has `()`.
pub(super) fn schema_of<A: JsonSchema>() -> Value {
    let schema = schemars::schema_for!(A).to_value();
    match schema.get("type").and_then(Value::as_str) {
        Some("null") => json!({"type": "object", "properties": {}}),
        _ => schema,
    }
}

/// The arguments as the function wants them. They fit the schema already.
pub(super) fn fit<A: DeserializeOwned>(arguments: Value) -> Result<A, ToolError> {
    let is_empty = arguments.as_object().is_some_and(Map::is_empty);
    serde_json::from_value(arguments).or_else(|error| {
        let unfit = || {
            ToolError::of_kind("ToolValidationError", format!("the arguments do not fit: {error}"))
        };
        let nothing = is_empty.then(|| serde_json::from_value(Value::Null).ok()).flatten();
        nothing.ok_or_else(unfit)
    })
}
