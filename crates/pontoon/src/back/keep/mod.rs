//! Who gets which child next: those kept for conversations, spares, head starts and suspended calls.
//!
//! A demand comes in, a lease goes out. Nothing here speaks to a server.

pub(crate) mod head_start;
pub mod kept;
pub(crate) mod kept_key;
pub mod kept_limit;
pub mod spares;
pub mod suspended;
