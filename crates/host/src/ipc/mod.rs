//! Tools offered over a Unix socket: the session, its place on disk, and the connections of bridges.

mod connection;
mod outbox;
mod place;
mod session;
mod signals;

pub(crate) use outbox::Outbox;
#[cfg(feature = "model")]
pub(crate) use place::Place;
#[cfg(feature = "model")]
pub(crate) use session::usual_directories;
pub use session::{Session, SessionError};
pub use signals::clean_up_on_signals;
