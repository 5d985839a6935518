//! What a finding can be about.

use serde::Serialize;

/// What a finding is about; reports are grouped by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// How it starts, or is reached.
    Start,
    /// What it writes, and how messages are framed.
    Framing,
    /// The handshake, versions and eras.
    Handshake,
    /// Requests and notifications.
    Requests,
    /// What it lists.
    Lists,
    /// The schemas of its tools.
    Schemas,
    /// How it ends.
    Ending,
}

impl Aspect {
    /// Every aspect, in the order of a report.
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Framing,
        Self::Handshake,
        Self::Requests,
        Self::Lists,
        Self::Schemas,
        Self::Ending,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Start => "Start",
            Self::Framing => "Output",
            Self::Handshake => "Handshake",
            Self::Requests => "Requests",
            Self::Lists => "Lists",
            Self::Schemas => "Tools",
            Self::Ending => "End",
        }
    }
}
