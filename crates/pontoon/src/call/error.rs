//! Why a call got no answer, as an HTTP status and as a JSON-RPC error.

use std::borrow::Cow;

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Message, method, quoted};

/// Why a call got no answer from its server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A limit on calls or processes is reached.
    #[error("{what}; try again in {retry_after_seconds} s")]
    Busy {
        /// Which limit.
        what: String,
        /// When it is worth another try.
        retry_after_seconds: u32,
    },
    /// The server did not answer in time.
    #[error(
        "the server `{server}` did not answer within {seconds} s, so this call was given up{note}"
    )]
    TimedOut {
        /// Which server.
        server: String,
        /// The limit.
        seconds: u64,
        /// What the server complained about meanwhile.
        note: String,
    },
    /// The server could not be started, or ended before it answered.
    #[error("{0}")]
    ServerFailed(String),
    /// A child that kept state for its client is gone.
    #[error("{0}")]
    StateLost(String),
    /// The application is not there, so the call was not made.
    #[error("{0}")]
    AppAway(String),
    /// The call is longer than the application takes, so it was not made.
    #[error("{0}")]
    TooLong(String),
    /// The tool does not take the arguments, so the call was not made.
    #[error("{0}")]
    BadArguments(String),
    /// The body of a request is not what the tool takes, as a list of what is wrong in it, so the call was not made.
    #[error("the body does not fit this tool")]
    Misfits(String),
    /// The connection to the application was lost with the call under way.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// There is no room for the files of a call.
    #[error("{0}")]
    DiskFull(String),
    /// The directory of the jobs cannot be used.
    #[error("{0}")]
    NoStorage(String),
    /// The bridge is about to stop.
    #[error("the bridge is stopping; try again in a moment")]
    Stopping,
    /// A fault of the bridge itself.
    #[error("an internal fault of the bridge: the call ended without an answer")]
    Internal,
    /// An error to be told as it is.
    #[error("{}", .0.message)]
    Told(ErrorObject, u16),
}

impl CallError {
    /// In a word, what went wrong: `error.type` of a span.
    pub fn word(&self) -> Cow<'static, str> {
        match self {
            Self::Busy { .. } => "busy".into(),
            Self::TimedOut { .. } => "timeout".into(),
            Self::ServerFailed(_) => "server_failed".into(),
            Self::StateLost(_) => "state_lost".into(),
            Self::AppAway(_) => "server_away".into(),
            Self::TooLong(_) => "too_long".into(),
            Self::BadArguments(_) | Self::Misfits(_) => "bad_arguments".into(),
            Self::OutcomeUnknown(_) => "outcome_unknown".into(),
            Self::DiskFull(_) => "disk_full".into(),
            Self::NoStorage(_) => "no_storage".into(),
            Self::Stopping => "stopping".into(),
            Self::Internal => "internal".into(),
            Self::Told(error, _) => error.code.to_string().into(),
        }
    }

    /// The HTTP status that says the same.
    pub fn status(&self) -> u16 {
        match self {
            Self::Busy { .. } => 429,
            Self::TimedOut { .. } => 504,
            Self::ServerFailed(_) | Self::StateLost(_) | Self::OutcomeUnknown(_) => 502,
            Self::TooLong(_) => 413,
            Self::BadArguments(_) => 400,
            Self::Misfits(_) => 422,
            Self::DiskFull(_) => 507,
            Self::NoStorage(_) | Self::AppAway(_) | Self::Stopping | Self::Internal => 503,
            Self::Told(_, status) => *status,
        }
    }

    /// Whether the bridge did not take the call, rather than a server did not answer it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::DiskFull(_)
            | Self::NoStorage(_)
            | Self::AppAway(_)
            | Self::TooLong(_)
            | Self::BadArguments(_)
            | Self::Misfits(_)
            | Self::Stopping => true,
            Self::TimedOut { .. }
            | Self::ServerFailed(_)
            | Self::StateLost(_)
            | Self::OutcomeUnknown(_)
            | Self::Internal => false,
            Self::Told(_, status) => (400..500).contains(status),
        }
    }

    /// When it is worth another try, if that is known.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Busy { retry_after_seconds, .. } => Some(*retry_after_seconds),
            Self::Stopping => Some(1),
            _ => None,
        }
    }

    /// The result of a tool that says the same, where it is for the model to know what happened: clients show it
    /// results, and errors they keep.
    pub fn for_model(&self, request: &Message, client: Era) -> Option<String> {
        let (text, meta) = match self {
            Self::StateLost(text) => (text, ""),
            Self::AppAway(text) | Self::TooLong(text) | Self::BadArguments(text) => {
                (text, ",\"_meta\":{\"pontoon/outcome\":\"not made\"}")
            }
            Self::OutcomeUnknown(text) => (text, ",\"_meta\":{\"pontoon/outcome\":\"unknown\"}"),
            _ => return None,
        };
        let kind = match client {
            Era::Modern => "\"resultType\":\"complete\",",
            Era::Legacy => "",
        };
        (request.method() == method::CALL_TOOL).then(|| {
            let text = quoted(text);
            format!(
                "{{{kind}\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"isError\":true{meta}}}"
            )
        })
    }

    /// The JSON-RPC error that says the same.
    pub fn to_error(&self) -> ErrorObject {
        let code = match self {
            Self::Busy { .. } => code::BUSY,
            Self::TimedOut { .. } => code::TIMED_OUT,
            Self::ServerFailed(_)
            | Self::StateLost(_)
            | Self::AppAway(_)
            | Self::TooLong(_)
            | Self::OutcomeUnknown(_) => code::SERVER_FAILED,
            Self::BadArguments(_) | Self::Misfits(_) => code::INVALID_PARAMS,
            Self::DiskFull(_) => code::DISK_FULL,
            Self::NoStorage(_) | Self::Stopping | Self::Internal => code::INTERNAL,
            Self::Told(error, _) => return error.clone(),
        };
        let retry = self.retry_after_seconds();
        let retry = retry.map(|seconds| format!(",\"retryAfter\":{seconds}")).unwrap_or_default();
        let data = format!("{{\"httpStatus\":{}{retry}}}", self.status());
        ErrorObject::new(code, self.to_string()).with_data(data)
    }
}
