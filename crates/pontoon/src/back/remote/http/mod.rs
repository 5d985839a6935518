//! MCP over HTTP with a server elsewhere: each message is a request of its own, and answers come as JSON or as events.
//!
//! An address comes in, a carrier of a conversation goes out. `pool` has the connections and makes one request, `session` knows the
//! session and the version, `response` what a response says, `headers` what a message says beside its body. The stream that a
//! server may open for what belongs to no request is not asked for.

pub(crate) mod headers;
pub(crate) mod pool;
mod response;
pub(crate) mod session;
#[cfg(test)]
mod tests;

pub(crate) use session::open;
