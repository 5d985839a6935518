//! What can go wrong with a request.

use std::path::PathBuf;
use std::time::Duration;

use pontoon_supervise::SpawnError;
use serde_json::Value;

use crate::SessionError;
use crate::protocol::IpcError;
use crate::tools::ToolValidationError;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no CLI.
    #[error(
        "the Claude Code CLI was not found; looked for {}: install it with `npm install -g \
         @anthropic-ai/claude-code`, or set `Settings::cli`",
        list(looked)
    )]
    CliNotFound {
        /// Where it could have been.
        looked: Vec<PathBuf>,
    },
    /// The settings or the request cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] ToolValidationError),
    /// The request names tools, and the model has none.
    #[error(
        "no toolset is registered, and the request wants {}: call `set_agent_toolsets` before",
        names(requested)
    )]
    ToolsetNotRegistered {
        /// The tools it names.
        requested: Vec<String>,
    },
    /// The request names tools that the model does not have.
    #[error("there is no tool {}; there are {}", names(missing), names(available))]
    ToolNotFound {
        /// Those it does not have.
        missing: Vec<String>,
        /// Those it has.
        available: Vec<String>,
    },
    /// The tools cannot be reached: [`IpcError::BridgeStartup`] when the CLI has no connection to them.
    #[error(transparent)]
    Ipc(#[from] IpcError),
    /// The CLI does not start.
    #[error("the Claude Code CLI does not start")]
    Start(#[from] SpawnError),
    /// The CLI ended, or stopped speaking its protocol, before it had a result.
    #[error("{what}{}", told(diagnosis))]
    Cli {
        /// What happened.
        what: String,
        /// What is known of the run.
        diagnosis: Box<Diagnosis>,
    },
    /// The request took longer than it may.
    #[error("the request took longer than its {after:?} and was stopped{}", told(diagnosis))]
    Timeout {
        /// How long it may take.
        after: Duration,
        /// What is known of the run.
        diagnosis: Box<Diagnosis>,
    },
    /// The CLI says that the request failed.
    #[error("{message}{}", told(diagnosis))]
    Failed {
        /// What the CLI says.
        message: String,
        /// What is known of the run.
        diagnosis: Box<Diagnosis>,
    },
    /// The request wants structured output, and the result has none that fits.
    #[error("the result has no structured output that fits: {why}{}", told(diagnosis))]
    StructuredOutput {
        /// What is wrong with it.
        why: String,
        /// What is known of the run.
        diagnosis: Box<Diagnosis>,
    },
}

/// What is known of a run that failed.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The kind of result: `error_max_turns`, `error_during_execution` and so on.
    pub subtype: Option<String>,
    /// The session, to resume it.
    pub session_id: Option<String>,
    /// How many turns it had.
    pub turns: Option<u64>,
    /// How long it took.
    pub duration: Option<Duration>,
    /// The whole result as the CLI gives it, if there was one: with it what the run has cost.
    pub result: Option<Value>,
    /// The last lines that the CLI wrote to its standard error.
    pub stderr: Vec<String>,
}

impl ModelError {
    /// What is known of the run, if there was one.
    pub fn diagnosis(&self) -> Option<&Diagnosis> {
        match self {
            Self::Cli { diagnosis, .. }
            | Self::Timeout { diagnosis, .. }
            | Self::Failed { diagnosis, .. }
            | Self::StructuredOutput { diagnosis, .. } => Some(diagnosis),
            _ => None,
        }
    }
}

impl From<SessionError> for ModelError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Tools(error) => Self::Tools(error),
            SessionError::Ipc(error) => Self::Ipc(error),
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn names(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The diagnosis as the end of a message.
fn told(diagnosis: &Diagnosis) -> String {
    let facts = [
        diagnosis.subtype.clone(),
        diagnosis.session_id.as_ref().map(|id| format!("session {id}")),
        diagnosis.turns.map(|turns| format!("{turns} turns")),
        diagnosis.duration.map(|duration| format!("{:.1} s", duration.as_secs_f64())),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    let mut text = match facts.is_empty() {
        true => String::new(),
        false => format!(" ({})", facts.join(", ")),
    };
    if !diagnosis.stderr.is_empty() {
        text += &format!("; the CLI wrote: {}", diagnosis.stderr.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_known() {
        let diagnosis = Diagnosis {
            subtype: Some("error_max_turns".to_owned()),
            session_id: Some("7".to_owned()),
            turns: Some(2),
            duration: Some(Duration::from_millis(1500)),
            result: None,
            stderr: vec!["oh".to_owned(), "no".to_owned()],
        };
        let error = ModelError::Failed {
            message: "too many turns".to_owned(),
            diagnosis: diagnosis.into(),
        };
        assert_eq!(
            error.to_string(),
            "too many turns (error_max_turns, session 7, 2 turns, 1.5 s); the CLI wrote: oh | no"
        );
        let error = ModelError::Failed { message: "no".to_owned(), diagnosis: Box::default() };
        assert_eq!(error.to_string(), "no");
    }
}
