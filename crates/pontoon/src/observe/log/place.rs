//! Where a log file is, and what that says of its lines.

use std::path::Path;

use tracing::Level;

use super::line::Style;

/// Where the log file of an instance is.
#[derive(Debug, Clone, Copy)]
pub enum LogPlace<'a> {
    /// In this directory, under a name of its own, as JSON lines.
    Folder(&'a Path),
    /// It is this file, for people, and has at least what is of the level info.
    File(&'a Path),
}

impl LogPlace<'_> {
    pub(super) fn style(self) -> Style {
        match self {
            Self::Folder(_) => Style::Json,
            Self::File(_) => Style::Text { has_colour: false },
        }
    }

    pub(super) fn level(self, level: Level) -> Level {
        match self {
            Self::Folder(_) => level,
            // The more a level tells, the greater it is.
            Self::File(_) => level.max(Level::INFO),
        }
    }

    pub(super) fn path(self) -> String {
        let (Self::Folder(path) | Self::File(path)) = self;
        path.display().to_string()
    }
}
