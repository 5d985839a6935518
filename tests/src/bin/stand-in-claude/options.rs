//! The options of the command that the stand-in heeds; it takes all others, too.

use std::collections::VecDeque;

use serde_json::{Map, Value};

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) version: bool,
    pub(crate) session_id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) partial_messages: bool,
    /// The starter is asked for permissions.
    pub(crate) asks: bool,
    pub(crate) allows_all: bool,
    /// It was said which of the built-in tools there are.
    pub(crate) has_tools: bool,
    allowed: Vec<String>,
    disallowed: Vec<String>,
    configurations: Vec<String>,
}

impl Options {
    pub(crate) fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        let mut rest: VecDeque<String> = arguments.collect();
        while let Some(argument) = rest.pop_front() {
            let mut values = Vec::new();
            let name = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => {
                    values.push(value.to_owned());
                    name.to_owned()
                }
                _ => argument,
            };
            // All that is not an option belongs to the last one, as with the real command's lists.
            while rest.front().is_some_and(|it| !it.starts_with("--")) {
                values.extend(rest.pop_front());
            }
            options.set(&name, values);
        }
        options
    }

    fn set(&mut self, name: &str, values: Vec<String>) {
        let first = values.first().cloned();
        let names = values.iter().flat_map(|value| value.split([',', ' ']));
        let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
        match name {
            "--version" | "-v" => self.version = true,
            "--resume" | "-r" | "--session-id" => self.session_id = first,
            "--model" => self.model = first,
            "--include-partial-messages" => self.partial_messages = true,
            "--permission-prompt-tool" => self.asks = first.as_deref() == Some("stdio"),
            "--permission-mode" => self.allows_all = first.as_deref() == Some("bypassPermissions"),
            "--dangerously-skip-permissions" => self.allows_all = true,
            "--tools" => self.has_tools = true,
            "--allowedTools" | "--allowed-tools" => self.allowed.extend(names),
            "--disallowedTools" | "--disallowed-tools" => self.disallowed.extend(names),
            "--mcp-config" => self.configurations.extend(values),
            _ => {}
        }
    }

    /// The servers of all configurations, by their names.
    pub(crate) fn servers(&self) -> Result<Map<String, Value>, String> {
        let mut servers = Map::new();
        for configuration in &self.configurations {
            let text = if configuration.trim_start().starts_with('{') {
                configuration.clone()
            } else {
                std::fs::read_to_string(configuration)
                    .map_err(|error| format!("{configuration}: {error}"))?
            };
            let mut value: Value =
                serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let Value::Object(named) = value["mcpServers"].take() else {
                return Err(String::from("mcpServers: Does not adhere to the schema"));
            };
            servers.extend(named);
        }
        Ok(servers)
    }

    /// A tool runs without a question.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.allows_all || self.allowed.iter().any(|rule| names(rule, tool))
    }

    /// A tool is not even seen.
    pub(crate) fn disallows(&self, tool: &str) -> bool {
        self.disallowed.iter().any(|rule| names(rule, tool))
    }
}

/// A rule is the name of a tool, or of a server with or without `__*`.
fn names(rule: &str, tool: &str) -> bool {
    let server = rule.strip_suffix("__*").unwrap_or(rule);
    let is_of_server = |rest: &str| server.starts_with("mcp__") && rest.starts_with("__");
    rule == tool || tool.strip_prefix(server).is_some_and(is_of_server)
}
