//! The left side: bytes from clients become calls, and outcomes become bytes.
//!
//! What comes in: connections. What goes out: a call for each request, and an answer for each call. A front looks
//! up nothing by itself and starts nothing: whose child it is and whether the call may run is decided in `session`.

pub mod admin;
pub mod answer_stream;
pub mod body;
pub mod bridges;
pub mod cors;
pub mod files;
pub mod framing;
pub mod headers;
pub mod http;
pub mod last_look;
pub mod leave;
pub mod mcp;
pub mod receipt;
pub mod refusal;
pub mod repoll;
pub mod request_body;
pub mod response;
pub mod rest;
pub mod site;
pub mod status;
pub mod stdio;
pub mod stream_client;
pub mod tls;
pub mod unwritten;
pub mod websocket;
pub mod who;
