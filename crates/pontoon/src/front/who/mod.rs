//! Who asks: a request gets its client here, and nowhere else.
//!
//! What comes in: the headers of a request and the address of its peer. What goes out: a `Caller`, which gives the
//! `Client` and the key under which a child is kept; or the refusal of a request that may not pass. Nothing here reads a
//! body, waits, or knows what is asked for.

pub mod address;
pub mod auth;
pub mod caller;
pub mod entrance;
pub mod guard;
pub mod identity;
pub mod origin;
pub mod token;
