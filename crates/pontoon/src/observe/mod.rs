//! What the operator sees: logs, numbers, health, and what was healed.
//!
//! Nothing here decides how a call goes, and no part of the call path is named from here: the rest of
//! the bridge hands down a [`metrics::Metrics`] to count with, and puts a [`status::BridgeStatus`]
//! together for each look.

pub mod heals;
pub mod health;
pub mod log;
pub mod metrics;
pub mod redact;
pub mod refusals;
pub mod status;
pub mod trace;
