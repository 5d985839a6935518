//! The steps of an examination, in their order, for who waits for its end.

/// What is being done. Every name is short enough to stand beside a bar on a narrow terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExamStep {
    /// It is started, or reached, and greeted.
    Start,
    /// It is sent notifications.
    Notifications,
    /// Its lists are read.
    Lists,
    /// Its tools are judged.
    Tools,
    /// It is asked what it does not know.
    Unknown,
    /// Its tools are called.
    Calls,
    /// It is asked several things at once.
    Parallel,
    /// It is sent a long message.
    LongMessage,
    /// It is seen what it opened and wrote.
    Traces,
    /// It is asked to end.
    End,
    /// Versions and eras are tried.
    Versions,
}

impl ExamStep {
    /// All of them, in their order.
    pub const ALL: [Self; 11] = [
        Self::Start,
        Self::Notifications,
        Self::Lists,
        Self::Tools,
        Self::Unknown,
        Self::Calls,
        Self::Parallel,
        Self::LongMessage,
        Self::Traces,
        Self::End,
        Self::Versions,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "starting",
            Self::Notifications => "notifications",
            Self::Lists => "its lists",
            Self::Tools => "its tools",
            Self::Unknown => "unknown requests",
            Self::Calls => "calling tools",
            Self::Parallel => "several at once",
            Self::LongMessage => "a long message",
            Self::Traces => "what it opened",
            Self::End => "its end",
            Self::Versions => "versions and eras",
        }
    }

    /// How many come before it.
    pub fn done_before(self) -> u64 {
        self as u64
    }
}
