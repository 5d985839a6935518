//! The Model Context Protocol on the wire.
//!
//! Frames in, frames out: the envelope of a message, its framing, the two eras of the protocol,
//! what servers get wrong, and [`Peer`], one conversation with one server. This crate does no I/O,
//! reads no clock and knows no async: bytes and `now` are passed in, so every rule is tested and
//! fuzzed without a socket.
//!
//! Payloads are never parsed into values and written again. What the bridge does not read, it
//! does not touch: numbers of any size, the order of keys and unknown members survive.
//!
//! A whole conversation: two clients that use the same id, and one server.
//!
//! ```
//! use pontoon_wire::heal::HealMode;
//! use pontoon_wire::peer::PeerEvent;
//! use pontoon_wire::{Message, Peer, Rewrite, Slot};
//!
//! let mut peer = Peer::new(HealMode::Repair);
//! for client in ["ada", "bob"] {
//!     let call = br#"{"jsonrpc":"2.0","id":"1","method":"resources/read","params":{"uri":"a:b"}}"#;
//!     let call = Message::parse(call.as_slice())?;
//!     peer.request(Rewrite::new(call), None, client);
//! }
//! // Toward the server each call has an id of ours.
//! let written = peer.poll_write().expect("the first call").to_bytes();
//! assert!(written.starts_with(br#"{"jsonrpc":"2.0","id":1,"#));
//!
//! // The server answers the second call first, with a number no float could hold.
//! let line = br#"{"result":{"n":123456789012345678901234567890},"jsonrpc":"2.0","id":2}"#;
//! let Some(PeerEvent::Answer(client, answer)) = peer.handle(Message::parse(line.as_slice())?) else {
//!     panic!("an answer")
//! };
//! assert_eq!(client, "bob");
//!
//! // Its own id goes back on, and the rest keeps its text.
//! let home = Rewrite::new(answer).replace(Slot::Id, "\"1\"").finish().to_bytes();
//! assert_eq!(home, br#"{"result":{"n":123456789012345678901234567890},"jsonrpc":"2.0","id":"1"}"#.as_slice());
//! # Ok::<(), pontoon_wire::ScanError>(())
//! ```

#![forbid(unsafe_code)]

pub mod envelope;
pub mod era;
pub mod error;
pub mod framing;
pub mod headers;
pub mod heal;
pub mod json;
pub mod message;
pub mod method;
mod nameless;
pub mod peer;
pub mod revision;
pub mod rewrite;
mod scan;
mod slot;

pub use error::ErrorObject;
pub use message::{Keep, Kind, Message, is_id, quoted, string_value};
pub use peer::Peer;
pub use revision::{Era, Revision};
pub use rewrite::{Rewrite, Text};
pub use scan::{MAX_DEPTH, ScanError, Word};
pub use slot::Slot;
