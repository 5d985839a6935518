//! MCP over HTTP, in both of its transports and both eras.
//!
//! What comes in: a request whose caller is known. What goes out: a `Call` for the session, and its outcome as JSON or
//! as a stream of events. Nothing here finds out who asks, and no payload is read.

pub mod event_body;
pub mod outcome;
pub mod post;
pub mod sse;
pub mod sse_stream;
pub mod streamable;
