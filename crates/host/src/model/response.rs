//! The answer to a request, and what is known of it.

use std::time::Duration;

use serde_json::Value;

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Response {
    /// The last text of the model's.
    pub text: String,
    /// The structured output, if the request wanted one. It fits its schema.
    pub structured_output: Option<Value>,
}

/// What is known of a request that was answered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Metadata {
    /// The session, to go on with it.
    pub session_id: String,
    /// How many tokens were used.
    pub usage: Usage,
    /// What it cost, in US dollars.
    pub cost_usd: Option<f64>,
    /// How many turns it had.
    pub turns: u64,
    /// How long it took.
    pub duration: Duration,
    /// How much of that was spent waiting for the Messages API.
    pub api_duration: Option<Duration>,
    /// Uses of tools that were refused.
    pub permission_denials: Vec<Value>,
    /// How many messages of the CLI were of a kind that is not known here.
    pub unknown_messages: u64,
    /// The whole result as the CLI gives it.
    pub result: Value,
}

/// How many tokens were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the input that were not in a cache.
    pub input_tokens: u64,
    /// Tokens of the output.
    pub output_tokens: u64,
    /// Tokens that were written to a cache.
    pub cache_creation_input_tokens: u64,
    /// Tokens that were read from a cache.
    pub cache_read_input_tokens: u64,
}
