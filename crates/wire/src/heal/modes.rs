//! What is done about each violation of one server.

use super::Heal;

/// What to do with a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HealMode {
    /// Nothing: what is broken is dropped, or passes as it is.
    Off,
    /// Count and report it, and no more.
    Warn,
    /// Count, report and repair it.
    #[default]
    Repair,
}

/// What to do with each violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealModes {
    modes: [HealMode; Heal::ALL.len()],
}

impl HealModes {
    /// What to do with this one.
    pub fn of(&self, heal: Heal) -> HealMode {
        self.modes[heal as usize]
    }

    /// The same, but for this one.
    #[must_use]
    pub fn with(mut self, heal: Heal, mode: HealMode) -> Self {
        self.modes[heal as usize] = mode;
        self
    }
}

/// The same for all.
impl From<HealMode> for HealModes {
    fn from(mode: HealMode) -> Self {
        Self { modes: [mode; Heal::ALL.len()] }
    }
}
