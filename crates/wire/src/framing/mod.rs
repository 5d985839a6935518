//! Framing: bytes in, frames out, each with a limit.

pub mod events;
pub mod frames;
pub mod lengths;
pub mod lines;
