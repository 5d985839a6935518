//! Permissions: a program that is asked whether the model may use a tool.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value, json};

type Answering = Pin<Box<dyn Future<Output = Permission> + Send>>;

/// Is asked whether the model may use a tool that needs a permission.
///
/// ```
/// use pontoon_host::model::{Permission, PermissionCallback};
///
/// let callback = PermissionCallback::new(|use_of| async move {
///     match use_of.tool.as_str() {
///         "Read" => Permission::Allow,
///         tool => Permission::Deny(format!("{tool} is not for this task")),
///     }
/// });
/// ```
#[derive(Clone)]
pub struct PermissionCallback(Arc<dyn Fn(ToolUse) -> Answering + Send + Sync>);

/// A use of a tool that needs a permission.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolUse {
    /// The name of the tool.
    pub tool: String,
    /// Its arguments.
    pub input: Map<String, Value>,
    /// The id of this use.
    pub id: Option<String>,
    /// The whole question as the CLI asks it.
    pub request: Value,
}

/// Whether the model may use a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Permission {
    /// As it asks.
    Allow,
    /// With these arguments.
    AllowWith(Map<String, Value>),
    /// No, for this reason, which the model hears.
    Deny(String),
    /// No, and the request ends.
    DenyAndStop(String),
}

impl PermissionCallback {
    /// A callback from an async function.
    pub fn new<F, A>(ask: F) -> Self
    where
        F: Fn(ToolUse) -> A + Send + Sync + 'static,
        A: Future<Output = Permission> + Send + 'static,
    {
        Self(Arc::new(move |use_of| Box::pin(ask(use_of))))
    }

    /// The answer to a `can_use_tool` of the CLI.
    pub(super) async fn answer(&self, request: Value) -> Value {
        let input = request["input"].as_object().cloned().unwrap_or_default();
        let use_of = ToolUse {
            tool: request["tool_name"].as_str().unwrap_or_default().to_owned(),
            input: input.clone(),
            id: request["tool_use_id"].as_str().map(str::to_owned),
            request,
        };
        match (self.0)(use_of).await {
            Permission::Allow => json!({"behavior": "allow", "updatedInput": input}),
            Permission::AllowWith(input) => json!({"behavior": "allow", "updatedInput": input}),
            Permission::Deny(why) => json!({"behavior": "deny", "message": why}),
            Permission::DenyAndStop(why) => {
                json!({"behavior": "deny", "message": why, "interrupt": true})
            }
        }
    }
}

impl fmt::Debug for PermissionCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermissionCallback")
    }
}
