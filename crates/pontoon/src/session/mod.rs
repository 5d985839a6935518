//! The middle: whose call it is, whether it may run, and who answers.
//!
//! [`Sessions::submit`] takes a call from a front. What the catalogue knows is answered here; the
//! rest becomes a task of the server's back, and the middle is done with it.

pub mod admit;
mod announce;
mod answered_here;
pub mod answers;
pub mod bodies;
pub mod catalog;
mod completed;
mod ended;
pub mod entry;
mod fitted;
mod kept;
mod known;
mod learn;
mod learning;
pub mod legacy;
mod listen;
mod lists;
mod live;
pub mod memory;
mod open;
mod order;
mod pages;
pub mod personal;
mod relearn;
mod sessions;
pub mod stream;
mod submit;
pub mod turns;

pub use sessions::{Entries, NoSession, Sessions};
pub use submit::Arrival;
