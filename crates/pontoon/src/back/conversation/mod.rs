//! One conversation with one server over a stream of frames: requests out, answers and notes back.
//!
//! Requests come in, and what the server says about them comes out. Nothing here knows of processes, jobs or whose
//! call it is.

pub mod handshake;
pub(crate) mod incoming;
pub mod link;
pub mod list_changes;
pub mod mailbox;
pub(crate) mod reader;
