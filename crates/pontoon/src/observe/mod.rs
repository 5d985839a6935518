//! What the operator sees: logs, numbers, health, and what was healed.
//!
//! Nothing here decides how a call goes, and nothing else is named from here: the rest of the
//! bridge hands down an [`metrics::Metrics`] to count with, and puts a [`scene::Scene`] together
//! when somebody looks.

pub mod heals;
pub mod health;
pub mod log;
pub mod metrics;
pub mod refusals;
pub mod scene;
pub mod trace;
