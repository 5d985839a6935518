//! The methods the bridge itself knows. Every other name passes through.

/// `initialize`
pub const INITIALIZE: &str = "initialize";
/// `notifications/initialized`
pub const INITIALIZED: &str = "notifications/initialized";
/// `server/discover`
pub const DISCOVER: &str = "server/discover";
/// `ping`
pub const PING: &str = "ping";
/// `notifications/cancelled`
pub const CANCELLED: &str = "notifications/cancelled";
/// `notifications/progress`
pub const PROGRESS: &str = "notifications/progress";
/// `notifications/message`
pub const LOG: &str = "notifications/message";
/// `logging/setLevel`
pub const SET_LEVEL: &str = "logging/setLevel";
/// `tools/list`
pub const LIST_TOOLS: &str = "tools/list";
/// `tools/call`
pub const CALL_TOOL: &str = "tools/call";
/// `prompts/list`
pub const LIST_PROMPTS: &str = "prompts/list";
/// `prompts/get`
pub const GET_PROMPT: &str = "prompts/get";
/// `resources/list`
pub const LIST_RESOURCES: &str = "resources/list";
/// `resources/templates/list`
pub const LIST_TEMPLATES: &str = "resources/templates/list";
/// `resources/read`
pub const READ_RESOURCE: &str = "resources/read";
/// `resources/subscribe`
pub const SUBSCRIBE: &str = "resources/subscribe";
/// `resources/unsubscribe`
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
/// `completion/complete`
pub const COMPLETE: &str = "completion/complete";
/// `subscriptions/listen`
pub const LISTEN: &str = "subscriptions/listen";
/// `notifications/subscriptions/acknowledged`
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// `notifications/tools/list_changed`
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
/// `notifications/prompts/list_changed`
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
/// `notifications/resources/list_changed`
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
/// `notifications/resources/updated`
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// `elicitation/create`
pub const ELICIT: &str = "elicitation/create";
/// `sampling/createMessage`
pub const SAMPLE: &str = "sampling/createMessage";
/// `roots/list`
pub const LIST_ROOTS: &str = "roots/list";

/// The log levels, least severe first.
pub const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Whether a request changes nothing at its server, so that it does no harm to send it twice.
pub fn only_reads(method: &str) -> bool {
    const READS: [&str; 7] = [
        LIST_TOOLS,
        LIST_PROMPTS,
        LIST_RESOURCES,
        LIST_TEMPLATES,
        READ_RESOURCE,
        GET_PROMPT,
        COMPLETE,
    ];
    READS.contains(&method)
}

/// Those that messages with an id have, the most frequent first.
const REQUESTS: [&str; 18] = [
    CALL_TOOL,
    LIST_TOOLS,
    INITIALIZE,
    DISCOVER,
    PING,
    LISTEN,
    LIST_PROMPTS,
    GET_PROMPT,
    LIST_RESOURCES,
    LIST_TEMPLATES,
    READ_RESOURCE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    COMPLETE,
    SET_LEVEL,
    ELICIT,
    SAMPLE,
    LIST_ROOTS,
];

/// The method of a request that is spelt like this, if it is one of these.
pub(crate) fn known(spelt: &[u8]) -> Option<&'static str> {
    REQUESTS.into_iter().find(|method| method.as_bytes() == spelt)
}

/// The methods by which a legacy client says which resources it wants to hear of.
pub fn is_subscription(method: &str) -> bool {
    [SUBSCRIBE, UNSUBSCRIBE].contains(&method)
}

/// Methods that left the protocol in the modern era.
pub fn is_legacy_only(method: &str) -> bool {
    const GONE: [&str; 6] = [INITIALIZE, PING, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE, "tasks/list"];
    GONE.contains(&method)
}
