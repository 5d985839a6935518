//! How the CLI is run: what a model has for all its requests, and how its tools reach the CLI.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::error::ModelError;
use super::permission::PermissionCallback;

/// How a [`Model`](super::Model) runs the CLI. What is not set, the CLI decides. Later versions may have more fields:
/// end with `..Settings::default()`.
///
/// ```
/// use pontoon_host::model::Settings;
///
/// let settings = Settings {
///     model: Some("sonnet".to_owned()),
///     max_turns: Some(20),
///     ..Settings::default()
/// };
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model, as `--model` takes it.
    pub model: Option<String>,
    /// In place of the CLI's own system prompt.
    pub system_prompt: Option<String>,
    /// After the system prompt. Claude Code has it since 2.1.
    pub append_system_prompt: Option<String>,
    /// Which of its own tools the CLI has at all: an empty list is none. Claude Code has it since 2.1.
    pub built_in_tools: Option<Vec<String>>,
    /// Tools that need no permission, as rules of the CLI: `Read`, `Bash(git log:*)`. The tools of
    /// [`set_agent_toolsets`](super::Model::set_agent_toolsets) need none anyway.
    pub allowed_tools: Vec<String>,
    /// Tools that may not be used, as rules of the CLI.
    pub disallowed_tools: Vec<String>,
    /// `default`, `acceptEdits`, `plan`, `bypassPermissions`, or what else the CLI knows.
    pub permission_mode: Option<String>,
    /// Is asked for tools that need a permission and have none. Without it the CLI refuses them.
    pub permission: Option<PermissionCallback>,
    /// The most turns of a request.
    pub max_turns: Option<u32>,
    /// The most a request may cost, in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Where the CLI works; without it in the directory of the program.
    pub working_directory: Option<PathBuf>,
    /// What else is passed to the CLI.
    pub extra_args: Vec<OsString>,
    /// What the CLI has in its environment.
    pub environment: Environment,
    /// How long a request may take, 120 seconds if nothing is said. `None` is without end.
    pub timeout: Option<Duration>,
    /// Whether the CLI also uses the MCP servers of the user's and the project's own configuration.
    pub use_other_mcp_servers: bool,
    /// The CLI. Without it, `claude` on `PATH` and where its installer puts it.
    pub cli: Option<PathBuf>,
    /// The bridge executable. Without it, `PONTOON_BIN`, the program itself if it calls
    /// [`dispatch`](crate::bridge::dispatch), or `pontoon` on `PATH`.
    pub bridge: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            system_prompt: None,
            append_system_prompt: None,
            built_in_tools: None,
            allowed_tools: Vec::new(),
            disallowed_tools: Vec::new(),
            permission_mode: None,
            permission: None,
            max_turns: None,
            max_budget_usd: None,
            working_directory: None,
            extra_args: Vec::new(),
            environment: Environment::default(),
            timeout: Some(Duration::from_secs(120)),
            use_other_mcp_servers: false,
            cli: None,
            bridge: None,
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let refuse = |why: &str| Err(ModelError::Settings(why.to_owned()));
        match self.max_budget_usd {
            Some(budget) if !(budget.is_finite() && budget > 0.0) => {
                return refuse("`max_budget_usd` has to be more than 0");
            }
            _ => {}
        }
        if self.max_turns == Some(0) {
            return refuse("`max_turns` has to be at least 1");
        }
        Ok(())
    }
}

/// What the CLI has in its environment. A CLI that was started by another one does not hear of that.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Environment {
    /// What the program has.
    #[default]
    Inherited,
    /// What the program has, and these.
    InheritedAnd(Vec<(OsString, OsString)>),
    /// These and nothing else. It needs `PATH` and `HOME`.
    Only(Vec<(OsString, OsString)>),
}

/// What the CLI sets for the processes it starts. A CLI that finds them takes itself for a part of another.
const OF_ANOTHER_CLI: [&str; 7] = [
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PROJECT_DIR",
];

impl Environment {
    /// The variables, each once.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let inherited = || {
            let is_foreign = |name: &OsString| OF_ANOTHER_CLI.iter().any(|theirs| name == theirs);
            std::env::vars_os().filter(move |(name, _)| !is_foreign(name))
        };
        match self {
            Self::Inherited => inherited().collect(),
            Self::InheritedAnd(more) => {
                let is_given = |name: &OsString| more.iter().any(|(given, _)| given == name);
                inherited().filter(|(name, _)| !is_given(name)).chain(more.clone()).collect()
            }
            Self::Only(all) => all.clone(),
        }
    }
}

/// How calls get from the CLI to the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// What the environment variable `PONTOON_TRANSPORT` says, `stdio` or `sdk`; without it [`Transport::Stdio`].
    #[default]
    Auto,
    /// The CLI starts a bridge process, `pontoon ipc`, which calls the program over a Unix socket. Works with
    /// every version of the CLI.
    Stdio,
    /// The CLI calls through its own standard input and output, by its control protocol.
    Sdk,
}

impl Transport {
    /// What is really used: never `Auto`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Settings`] when `PONTOON_TRANSPORT` says something else.
    pub(super) fn resolve(self, variable: Option<&OsStr>) -> Result<Self, ModelError> {
        if self != Self::Auto {
            return Ok(self);
        }
        match variable.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "auto" | "stdio") => Ok(Self::Stdio),
            Some("sdk") => Ok(Self::Sdk),
            Some(other) => Err(ModelError::Settings(format!(
                "PONTOON_TRANSPORT is `{other}`, and has to be `stdio`, `sdk` or `auto`"
            ))),
        }
    }
}

/// How toolsets are offered to the CLI.
///
/// ```
/// use pontoon_host::model::{ToolsetOptions, Transport};
///
/// let options = ToolsetOptions::default().server_name("shop").transport(Transport::Sdk);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolsetOptions {
    /// How calls get from the CLI to the program.
    pub transport: Transport,
    /// The name of the MCP server: the model calls a tool `mcp__NAME__TOOL`.
    pub server_name: String,
    /// Whether the model has the tools before it from the start, and not only after a search.
    pub always_load: bool,
}

impl Default for ToolsetOptions {
    fn default() -> Self {
        Self { transport: Transport::Auto, server_name: "host_tools".to_owned(), always_load: true }
    }
}

impl ToolsetOptions {
    /// The same with another transport.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// The same with another name of the server.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = name.into();
        self
    }

    /// The same with tools that are, or are not, before the model from the start.
    #[must_use]
    pub fn always_load(mut self, always_load: bool) -> Self {
        self.always_load = always_load;
        self
    }

    /// The CLI makes other names of names with other characters, and drops servers with some names without a
    /// word.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        const RESERVED: [&str; 4] = ["claude-in-chrome", "computer-use", "ide", "workspace"];
        let name = &self.server_name;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_good = (1..=64).contains(&name.len())
            && name.bytes().all(is_plain)
            && !name.contains("__")
            && !RESERVED.contains(&name.as_str());
        if is_good {
            return Ok(());
        }
        Err(ModelError::Settings(format!(
            "`{name}` cannot be the name of a server: it has 1 to 64 letters, digits, `-` and single `_`, \
             and is none of {}",
            RESERVED.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_transport(transport: Transport, variable: Option<&str>, expected: Option<Transport>) {
        let resolved = transport.resolve(variable.map(OsStr::new));
        assert_eq!(resolved.ok(), expected, "{transport:?} with {variable:?}");
    }

    #[test]
    fn auto_is_stdio_unless_the_environment_says_otherwise() {
        check_transport(Transport::Auto, None, Some(Transport::Stdio));
        check_transport(Transport::Auto, Some(""), Some(Transport::Stdio));
        check_transport(Transport::Auto, Some("sdk"), Some(Transport::Sdk));
        check_transport(Transport::Auto, Some("carrier pigeon"), None);
        check_transport(Transport::Stdio, Some("sdk"), Some(Transport::Stdio));
        check_transport(Transport::Sdk, Some("stdio"), Some(Transport::Sdk));
    }

    #[test]
    fn names_that_the_cli_would_drop_are_refused() {
        let check = |name: &str| ToolsetOptions::default().server_name(name).check();
        check("shop_2-b").unwrap();
        for name in ["", "a b", "a__b", "ide", "workspace", "日本"] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn limits_that_allow_nothing_are_refused() {
        let turns = Settings { max_turns: Some(0), ..Settings::default() };
        let budget = Settings { max_budget_usd: Some(f64::NAN), ..Settings::default() };
        assert!(turns.check().is_err() && budget.check().is_err());
        Settings::default().check().unwrap();
    }

    #[test]
    fn a_variable_that_is_given_replaces_the_inherited_one() {
        let path = ("PATH".into(), "here".into());
        let variables = Environment::InheritedAnd(vec![path]).variables();
        let paths: Vec<_> = variables.iter().filter(|(name, _)| name == "PATH").collect();
        assert_eq!(paths, [&("PATH".into(), "here".into())]);
    }
}
