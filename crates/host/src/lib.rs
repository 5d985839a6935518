//! Functions of a running program as MCP tools.
//!
//! A program registers functions that need its live objects: a database handle, a window, other agents. A
//! client such as Claude Code calls them. The functions run in the program; a small bridge process,
//! `pontoon ipc`, stands between the client's standard input and output and the program's Unix socket.
//!
//! ```
//! use pontoon_host::{Session, Tool, Toolset};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let add = Tool::new("add", |Add { a, b }, _| async move { a + b }).description("Adds two numbers.");
//! let session = Session::start(&[Toolset::new().with(add)?])?;
//! // What `claude --mcp-config` wants to know:
//! let config = serde_json::json!({"mcpServers": {"mine": session.mcp_server_config("pontoon".as_ref())}});
//! println!("{config}");
//! session.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! The same tools can be served without a bridge, by [`serve_stdio`]: then the program itself is an MCP server. With the
//! feature `websocket` an application serves them to clients that come and go, from any program, with or without
//! a runtime: `WebSocketServer`. Tools of a [`Pump`] run on the application's own thread.
//!
//! Without the feature `tools` there is only [`bridge`], which is all that `pontoon ipc` consists of.

#![forbid(unsafe_code)]

pub mod bridge;
mod conversation;
#[cfg(feature = "tools")]
mod ipc;
#[cfg(feature = "tools")]
mod mcp;
#[cfg(feature = "model")]
pub mod model;
pub mod protocol;
#[cfg(feature = "tools")]
mod running;
mod schema_file;
#[cfg(feature = "tools")]
mod tools;
#[cfg(feature = "websocket")]
mod websocket;

#[cfg(feature = "tools")]
pub use ipc::{Session, SessionError, clean_up_on_signals};
#[cfg(feature = "tools")]
pub use mcp::{ServeError, serve, serve_stdio};
pub use protocol::IpcError;
#[cfg(feature = "tools")]
pub use tools::{
    Content, IntoToolOutput, Json, Pump, Resource, Tool, ToolCall, ToolError, ToolOutput,
    ToolValidationError, Toolset,
};
#[cfg(feature = "websocket")]
pub use websocket::{Announce, AppToken, WebSocketError, WebSocketOptions, WebSocketServer};
