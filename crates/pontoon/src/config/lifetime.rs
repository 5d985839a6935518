//! How the processes of a server live, what they share, and what is shown of their files.

use std::time::Duration;

/// How long the processes of a server live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One process for each request.
    #[default]
    Stateless,
    /// One process for each session.
    Stateful {
        /// Stopped after this long without a request.
        idle: Duration,
        /// How many processes one address has whose sessions have no key of their own.
        per_address: usize,
        /// How many processes one user has, or one address where no user is known.
        per_client: usize,
    },
    /// One process for everybody, which keeps nothing for anybody.
    Shared {
        /// Stopped after this long without a request.
        idle: Duration,
    },
}

impl Mode {
    /// True if a process keeps the state of a session.
    pub fn is_stateful(self) -> bool {
        matches!(self, Self::Stateful { .. })
    }

    /// True if one process is everybody's.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// How long a process is kept without a request, where one is kept.
    pub fn idle(self) -> Option<Duration> {
        match self {
            Self::Stateless => None,
            Self::Stateful { idle, .. } | Self::Shared { idle } => Some(idle),
        }
    }
}

/// Which folder a process works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceScope {
    /// A new one for each call.
    #[default]
    Job,
    /// One for each session: a call finds the files of the last.
    Session,
}

/// How many processes are kept ready for calls to come, each used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warm {
    /// This many.
    Fixed(usize),
    /// As many as the calls of late suggest.
    Auto,
}

impl Default for Warm {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl Warm {
    /// True if no process is kept ready.
    pub fn is_none(self) -> bool {
        self == Self::Fixed(0)
    }
}

/// How a client learns of the files that a call made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileLinks {
    /// Links are added to the answer, and are in the headers.
    #[default]
    Append,
    /// Links are in the headers only.
    Header,
    /// Not at all.
    Off,
}

/// By what the sessions of a server are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionKey {
    /// By user and chat, else by what else is known of the client, its address at last. The API key
    /// without a name is nobody's own, and not enough.
    #[default]
    Auto,
    /// By the API key alone, or by the address where none was shown.
    Credential,
    /// By the address of the client alone.
    Ip,
    /// By user and chat where these are known; all others are one.
    Together,
}
/// How messages to a server are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageFraming {
    /// One a line, and `Content-Length` frames to a server that writes them.
    #[default]
    Auto,
    /// `Content-Length` frames from the start.
    ContentLength,
}

/// What of a server is offered over REST besides its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestExtras {
    /// Its prompts.
    pub prompts: bool,
    /// Its resources.
    pub resources: bool,
    /// A result that is a page of HTML as that page, for clients that show it.
    pub html: bool,
}
