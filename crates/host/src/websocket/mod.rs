//! Tools served over WebSocket, to clients on this machine that come and go: by an application that has a life of its
//! own, with a runtime or without.

mod announcement;
mod connection;
mod entrance;
mod frame_queue;
mod handshake;
mod options;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use frame_queue::FrameQueue;
pub use options::{Announce, AppToken, WebSocketError, WebSocketOptions};
pub use server::WebSocketServer;

/// The longest message, in one frame or in several.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
