//! The members the bridge reads: which they are, and in which object each stands.
//!
//! A member that is not here passes unseen and unchanged.

/// Which object a member stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    Top,
    Params,
    ParamsMeta,
    Result,
    ResultMeta,
    Error,
    /// Anywhere else: nothing is looked for there.
    Outside,
}

macro_rules! slots {
    ($($(#[$doc:meta])* $slot:ident = $context:ident $name:literal,)*) => {
        /// A member of a message that the bridge reads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Slot { $($(#[$doc])* $slot,)* }

        /// How many slots there are.
        pub(crate) const SLOTS: usize = [$(Slot::$slot,)*].len();

        impl Slot {
            const ALL: [(Slot, Context, &'static str); SLOTS] =
                [$((Slot::$slot, Context::$context, $name),)*];
        }
    };
}

slots! {
    /// `jsonrpc`
    Jsonrpc = Top "jsonrpc",
    /// `id`
    Id = Top "id",
    /// `method`
    Method = Top "method",
    /// `params`
    Params = Top "params",
    /// `result`
    Result = Top "result",
    /// `error`
    Error = Top "error",
    /// `params._meta`
    Meta = Params "_meta",
    /// `params.name`: of a tool or prompt
    Name = Params "name",
    /// `params.uri`: of a resource
    Uri = Params "uri",
    /// `params.taskId`
    TaskId = Params "taskId",
    /// `params.requestId`: of the request that is cancelled
    RequestId = Params "requestId",
    /// `params.progressToken`: of a progress note
    ProgressToken = Params "progressToken",
    /// `params.progress`
    Progress = Params "progress",
    /// `params.arguments`: of a tool call
    Arguments = Params "arguments",
    /// `params.protocolVersion`: of `initialize`
    ProtocolVersion = Params "protocolVersion",
    /// `params.capabilities`: of `initialize`
    Capabilities = Params "capabilities",
    /// `params.clientInfo`: of `initialize`
    ClientInfo = Params "clientInfo",
    /// `params.cursor`
    Cursor = Params "cursor",
    /// `params.level`: of a log message, or of `logging/setLevel`
    Level = Params "level",
    /// `params.requestState`
    RequestState = Params "requestState",
    /// `params.inputResponses`
    InputResponses = Params "inputResponses",
    /// `params.notifications`: the filter of `subscriptions/listen`
    Notifications = Params "notifications",
    /// `params._meta.progressToken`
    MetaProgressToken = ParamsMeta "progressToken",
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`
    MetaVersion = ParamsMeta "io.modelcontextprotocol/protocolVersion",
    /// `params._meta["io.modelcontextprotocol/clientCapabilities"]`
    MetaCapabilities = ParamsMeta "io.modelcontextprotocol/clientCapabilities",
    /// `params._meta["io.modelcontextprotocol/clientInfo"]`
    MetaClientInfo = ParamsMeta "io.modelcontextprotocol/clientInfo",
    /// `params._meta["io.modelcontextprotocol/logLevel"]`
    MetaLogLevel = ParamsMeta "io.modelcontextprotocol/logLevel",
    /// `params._meta["io.modelcontextprotocol/subscriptionId"]`
    MetaSubscriptionId = ParamsMeta "io.modelcontextprotocol/subscriptionId",
    /// `result._meta`
    ResultMeta = Result "_meta",
    /// `result.resultType`
    ResultType = Result "resultType",
    /// `result.requestState`
    ResultState = Result "requestState",
    /// `result.inputRequests`
    InputRequests = Result "inputRequests",
    /// `result.content`: of a tool call
    ResultContent = Result "content",
    /// `result.ttlMs`
    TtlMs = Result "ttlMs",
    /// `result.cacheScope`
    CacheScope = Result "cacheScope",
    /// `result.nextCursor`
    NextCursor = Result "nextCursor",
    /// `result.isError`
    IsError = Result "isError",
    /// `result.structuredContent`
    StructuredContent = Result "structuredContent",
    /// `result._meta["io.modelcontextprotocol/subscriptionId"]`
    ResultSubscriptionId = ResultMeta "io.modelcontextprotocol/subscriptionId",
    /// `result._meta["io.modelcontextprotocol/serverInfo"]`
    ResultServerInfo = ResultMeta "io.modelcontextprotocol/serverInfo",
    /// `error.code`
    ErrorCode = Error "code",
    /// `error.message`
    ErrorMessage = Error "message",
    /// `error.data`
    ErrorData = Error "data",
}

impl Slot {
    /// The slot of the member spelt `key` (without its quotes) in `context`.
    pub(crate) fn find(context: Context, key: &[u8]) -> Option<Self> {
        let is_escaped = memchr::memchr(b'\\', key).is_some();
        let is_spelt = |name: &str| match is_escaped {
            false => key == name.as_bytes(),
            true => unescaped_is(key, name),
        };
        let found = Self::ALL.iter().find(|(_, place, name)| *place == context && is_spelt(name));
        found.map(|(slot, _, _)| *slot)
    }

    /// The member's name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// The context that this member's own object opens.
    pub(crate) fn inside(self) -> Context {
        match self {
            Self::Params => Context::Params,
            Self::Meta => Context::ParamsMeta,
            Self::Result => Context::Result,
            Self::ResultMeta => Context::ResultMeta,
            Self::Error => Context::Error,
            _ => Context::Outside,
        }
    }
}

/// Whether the checked string `key`, with escapes, spells `name`: `"\u0069d"` is `id` to a parser.
fn unescaped_is(key: &[u8], name: &str) -> bool {
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|spelt| spelt == name)
}
