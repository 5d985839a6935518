//! A server that is no process of ours: an application that is reached by a socket, and that comes and goes.
//!
//! An address comes in, a conversation goes out; `dial` makes one connection, `live_app` sees that there is one
//! whenever that is possible, and `sharing` lets the bridges of one user have one together. Nothing here starts a process.

pub(crate) mod backoff;
pub mod connection;
pub(crate) mod connector;
pub(crate) mod dial;
pub(crate) mod entrance;
#[cfg(test)]
mod heartbeats;
pub(crate) mod http;
pub mod live_app;
pub(crate) mod pauses;
pub(crate) mod proxy;
pub mod sharing;
pub(crate) mod size_limit;
pub(crate) mod targets;
#[cfg(test)]
pub(crate) mod test_app;
pub mod tls;
pub(crate) mod token;
