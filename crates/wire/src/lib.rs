//! The Model Context Protocol on the wire.
//!
//! Frames in, frames out: the envelope of a message, its framing, the two eras of the protocol,
//! what servers get wrong, and [`Peer`], one conversation with one server. This crate does no I/O,
//! reads no clock and knows no async: bytes and `now` are passed in, so every rule is tested and
//! fuzzed without a socket.
//!
//! Payloads are never parsed into values and written again. What the bridge does not read, it
//! does not touch: numbers of any size, the order of keys and unknown members survive.

#![forbid(unsafe_code)]

pub mod era;
pub mod error;
pub mod framing;
pub mod headers;
pub mod heal;
pub mod json;
pub mod message;
pub mod method;
pub mod peer;
pub mod revision;
pub mod rewrite;
mod scan;
mod slot;

pub use error::ErrorObject;
pub use message::{Kind, Message, quoted, string_value};
pub use peer::Peer;
pub use revision::{Era, Revision};
pub use rewrite::{Rewrite, Text};
pub use scan::{MAX_DEPTH, ScanError};
pub use slot::Slot;
