//! The left side: bytes from clients become calls, and outcomes become bytes.
//!
//! Every front keeps one promise: a call for each request, an answer for each call.

pub mod address;
pub mod admin;
pub mod again;
pub mod auth;
pub mod body;
pub mod caller;
pub mod downloads;
pub mod file_body;
pub mod framing;
pub mod guard;
pub mod http;
pub mod identity;
pub mod leave;
pub mod link;
pub mod origin;
pub mod post;
pub mod ranges;
pub mod respond;
pub mod sse;
pub mod sse_stream;
pub mod streamable;
pub mod token;
