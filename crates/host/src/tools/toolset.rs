//! Toolsets: tools under their names, checked as they are added, and called by name.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use jsonschema::Validator;
use serde_json::Value;
use tokio::sync::watch;

use super::call::ToolCall;
use super::output::{ToolError, ToolOutput};
use super::tool::Tool;

/// Why a tool cannot be added.
#[derive(Debug, thiserror::Error)]
#[error("the tool `{tool}` cannot be used: {why}")]
pub struct ToolValidationError {
    /// Its name.
    pub tool: String,
    /// What is wrong with it.
    pub why: String,
}

/// Tools of a program. Clones are the same set: tools that are added to one or removed from it are so for
/// all, and clients that use it are told.
#[derive(Debug, Clone, Default)]
pub struct Toolset(Arc<SharedTools>);

#[derive(Debug, Default)]
struct SharedTools {
    tools: Mutex<Vec<Arc<Checked>>>,
    watchers: Mutex<Vec<watch::Sender<u64>>>,
}

/// A tool that a client can be told of and whose arguments can be checked.
#[derive(Debug)]
struct Checked {
    tool: Tool,
    validator: Validator,
}

impl Toolset {
    /// No tool yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set with one more tool.
    ///
    /// # Errors
    ///
    /// As [`Toolset::add`].
    pub fn with(self, tool: Tool) -> Result<Self, ToolValidationError> {
        self.add(tool)?;
        Ok(self)
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// [`ToolValidationError`] when its name is taken or its description would make clients refuse it, or all
    /// tools because of it.
    pub fn add(&self, tool: Tool) -> Result<(), ToolValidationError> {
        let refuse = |why: String| ToolValidationError { tool: tool.name.clone(), why };
        check_name(&tool.name).map_err(refuse)?;
        let validator = check_schema(&tool.input_schema).map_err(refuse)?;
        let is_object = |schema: &Value| schema["type"] == "object";
        if tool.output_schema.as_ref().is_some_and(|schema| !is_object(schema)) {
            return Err(refuse("its structured result is not an object: give a struct".to_owned()));
        }
        let mut tools = self.lock();
        if tools.iter().any(|known| known.tool.name == tool.name) {
            return Err(refuse("there is one of this name already".to_owned()));
        }
        tools.push(Arc::new(Checked { tool, validator }));
        drop(tools);
        self.tell_watchers();
        Ok(())
    }

    /// Removes a tool. Calls that are under way go on. False if there is none of this name.
    pub fn remove(&self, name: &str) -> bool {
        let mut tools = self.lock();
        let before = tools.len();
        tools.retain(|known| known.tool.name != name);
        let is_removed = tools.len() < before;
        drop(tools);
        if is_removed {
            self.tell_watchers();
        }
        is_removed
    }

    /// The names of the tools, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.lock().iter().map(|known| known.tool.name.clone()).collect()
    }

    fn find(&self, name: &str) -> Option<Arc<Checked>> {
        self.lock().iter().find(|known| known.tool.name == name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Checked>>> {
        self.0.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_watchers(&self) {
        let mut watchers = self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| !watcher.is_closed());
        watchers.iter().for_each(|watcher| watcher.send_modify(|changes| *changes += 1));
    }
}

/// Several toolsets as one.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    sets: Arc<[Toolset]>,
    /// Without others, if anything is said.
    only: Option<Arc<HashSet<String>>>,
}

impl Tools {
    /// The tools of all these sets.
    ///
    /// # Errors
    ///
    /// [`ToolValidationError`] when two of them have a tool of the same name.
    pub(crate) fn new(sets: &[Toolset]) -> Result<Self, ToolValidationError> {
        let mut names = HashSet::new();
        for tool in sets.iter().flat_map(Toolset::names) {
            if !names.insert(tool.clone()) {
                return Err(ToolValidationError {
                    tool,
                    why: "two of the toolsets have it".to_owned(),
                });
            }
        }
        Ok(Self { sets: sets.into(), only: None })
    }

    /// Only those of these names: others are neither shown nor called.
    #[cfg(feature = "model")]
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let only = names.iter().cloned().collect();
        Self { sets: Arc::clone(&self.sets), only: Some(Arc::new(only)) }
    }

    /// The names of all tools.
    #[cfg(feature = "model")]
    pub(crate) fn names(&self) -> Vec<String> {
        self.sets.iter().flat_map(Toolset::names).filter(|name| self.has(name)).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// Counts the changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        let (watcher, changes) = watch::channel(0);
        for set in self.sets.iter() {
            let mut watchers = set.0.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            watchers.retain(|watcher| !watcher.is_closed());
            watchers.push(watcher.clone());
        }
        changes
    }

    /// The entries of the schema file.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let mut names = HashSet::new();
        let sets = self.sets.iter().flat_map(|set| set.lock().clone());
        // Of tools of one name in two sets, which may come later, the first counts.
        sets.filter(|known| self.has(&known.tool.name) && names.insert(known.tool.name.clone()))
            .map(|known| known.tool.entry())
            .collect()
    }

    /// Calls a tool. Dropping the future gives the call up.
    ///
    /// # Errors
    ///
    /// [`ToolError`] when there is no such tool, the arguments do not fit it, or it failed.
    pub(crate) async fn call(
        &self,
        arguments: &[u8],
        call: ToolCall,
    ) -> Result<ToolOutput, ToolError> {
        let name = call.tool_name();
        let found = self.sets.iter().find_map(|set| set.find(name)).filter(|_| self.has(name));
        let Some(known) = found else {
            let what = format!("there is no tool `{}`", call.tool_name());
            return Err(ToolError::of_kind("ToolNotFoundError", what));
        };
        let unfit = |what: String| ToolError::of_kind("ToolValidationError", what);
        let arguments = serde_json::from_slice(arguments)
            .map_err(|error| unfit(format!("the arguments cannot be read: {error}")))?;
        known.check(&arguments).map_err(unfit)?;
        let working = known.run(arguments, call);
        match known.tool.timeout {
            None => working.await,
            Some(timeout) => tokio::time::timeout(timeout, working).await.unwrap_or_else(|_| {
                let what = format!("the tool took longer than its {timeout:?} and was stopped");
                Err(ToolError::of_kind("TimeoutError", what))
            }),
        }
    }
}

impl Checked {
    fn check(&self, arguments: &Value) -> Result<(), String> {
        let faults: Vec<_> = self
            .validator
            .iter_errors(arguments)
            .take(5)
            .map(|fault| match fault.instance_path().as_str() {
                "" => fault.to_string(),
                place => format!("at {place}: {fault}"),
            })
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    /// The work itself. A panic is a failure of this call and of nothing else.
    async fn run(&self, arguments: Value, mut call: ToolCall) -> Result<ToolOutput, ToolError> {
        if let Some(slots) = &self.tool.slots {
            call.slot = Arc::clone(slots).acquire_owned().await.ok().map(Arc::new);
        }
        let begin = AssertUnwindSafe(|| (self.tool.handler)(arguments, call));
        let mut working = match std::panic::catch_unwind(begin) {
            Ok(working) => pin!(working),
            Err(panic) => return Err(panicked(panic.as_ref())),
        };
        std::future::poll_fn(|context| {
            let poll = AssertUnwindSafe(|| working.as_mut().poll(context));
            std::panic::catch_unwind(poll)
                .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic.as_ref()))))
        })
        .await
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ToolError::of_kind(
        "PanicError",
        format!("the tool panicked: {}", text.unwrap_or("without a word")),
    )
}

/// Clients make other names of names with other characters, and two of them may then be one.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match name.len() {
        1..=64 if name.bytes().all(is_plain) => Ok(()),
        _ => Err("a name has 1 to 64 letters, digits, `_` and `-`".to_owned()),
    }
}

/// One tool with a schema that a client does not understand makes it refuse all of them.
fn check_schema(schema: &Value) -> Result<Validator, String> {
    let Some(object) = schema.as_object() else {
        return Err("its schema is not an object".to_owned());
    };
    if object.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its arguments are not an object: take a struct".to_owned());
    }
    if object.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err("the `properties` of its schema are not an object".to_owned());
    }
    if let Some(word) =
        ["anyOf", "oneOf", "allOf"].into_iter().find(|word| object.contains_key(*word))
    {
        return Err(format!(
            "its schema has `{word}` at the top, which clients drop: put it into a member"
        ));
    }
    jsonschema::validator_for(schema).map_err(|error| format!("its schema is not valid: {error}"))
}
