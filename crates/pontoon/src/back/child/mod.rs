//! A server's entry becomes a child process that is ready for calls, and stops in order.
//!
//! Nothing here knows which call a child is for, or how long it is kept.

pub(crate) mod command;
pub mod isolation;
pub mod launcher;
pub(crate) mod probe;
pub mod ready;
pub mod told;
pub mod usage;
pub mod workspace;
