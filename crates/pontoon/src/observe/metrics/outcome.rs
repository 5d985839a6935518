//! What requests were for and how they ended, in the words of `/metrics`.

use pontoon_wire::method;

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$one:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$one])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// How `/metrics` calls it.
            pub fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}
pub(super) use labels;

labels! {
    /// What a request was for.
    RequestKind {
        /// A call of a tool.
        Tool = "tool",
        /// A list of tools, prompts or resources.
        List = "list",
        /// The contents of a resource.
        Resource = "resource",
        /// A prompt.
        Prompt = "prompt",
        /// The beginning of a conversation.
        Handshake = "handshake",
        /// A stream of changes.
        Subscription = "subscription",
        /// Anything else.
        Other = "other",
    }
}

impl RequestKind {
    /// What a method is for.
    pub fn of(name: &str) -> Self {
        match name {
            method::CALL_TOOL => Self::Tool,
            method::LIST_TOOLS
            | method::LIST_PROMPTS
            | method::LIST_RESOURCES
            | method::LIST_TEMPLATES => Self::List,
            "resources/read" => Self::Resource,
            "prompts/get" => Self::Prompt,
            method::INITIALIZE | method::DISCOVER => Self::Handshake,
            method::LISTEN | method::SUBSCRIBE | method::UNSUBSCRIBE => Self::Subscription,
            _ => Self::Other,
        }
    }
}

labels! {
    /// How a request ended.
    CallEnding {
        /// With a result.
        Answered = "answered",
        /// With an error of the server's, or one that we tell in its place.
        Error = "error",
        /// Refused: a limit was reached.
        Busy = "failed_busy",
        /// The server took too long.
        Timeout = "failed_timeout",
        /// The server did not start, or ended before it answered.
        Server = "failed_server",
        /// There was no room on the disk.
        Disk = "failed_disk",
        /// By a fault of ours, or because the bridge stops.
        Internal = "failed_internal",
        /// The client no longer wanted the answer.
        Cancelled = "cancelled",
    }
}

impl CallEnding {
    /// What an HTTP status says of a request that got no answer.
    pub fn of_status(status: u16) -> Self {
        match status {
            429 => Self::Busy,
            502 => Self::Server,
            504 => Self::Timeout,
            507 => Self::Disk,
            500 | 503 => Self::Internal,
            _ => Self::Error,
        }
    }

    /// Whether somebody was disappointed.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Answered | Self::Cancelled)
    }
}
