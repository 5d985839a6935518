//! What the operator sees: logs, and what was healed.

pub mod heals;
pub mod log;
