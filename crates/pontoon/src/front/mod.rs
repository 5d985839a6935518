//! The left side: bytes from clients become calls, and outcomes become bytes.
//!
//! Every front keeps one promise: a call for each request, an answer for each call.

pub mod again;
pub mod body;
pub mod guard;
pub mod health;
pub mod http;
pub mod post;
pub mod respond;
pub mod streamable;
