//! What the operator sees: logs, numbers, health, and what was healed.
//!
//! Nothing here decides how a call goes, and no part of the call path is named from here: the rest of
//! the bridge hands down a [`metrics::Metrics`] to count with, and puts a [`status::BridgeStatus`]
//! together for each look.

pub mod app_status;
pub mod heals;
pub mod health;
pub mod log;
pub mod messages;
pub mod metrics;
mod payload;
pub mod processes;
pub mod program;
pub mod redact;
pub mod refusals;
pub mod running;
pub mod spans;
pub mod status;
pub mod trace;
